"""Exceptions as values: how a recorded failure is kept, and how it is raised again.

Owns: the stored form of an exception.
Must never: import anything, or run an exception class's own `__init__` on stored data.
Invariant: a rebuilt exception has the class, the args and the storable fields of the
recorded one, if that class is loaded in this process; otherwise it is an `ActionFailed`
that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from indelible.core.codec import GENERIC, Plain, from_plain, pack, to_plain, unpack
from indelible.errors import ActionFailed, IndelibleError, NotStorable

MAX_TEXT = 2_000
MAX_WHERE = 200
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))


def text_of(error: BaseException) -> str:
    """One line for listings: the class and the message, cut at 2,000 characters."""
    try:
        parts = "; ".join(text_of(part) for part in leaves(error)) if isinstance(error, BaseExceptionGroup) else ""
        message = parts or str(error)
    except Exception as broken:
        message = f"(its text cannot be read: {type(broken).__name__})"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def where_of(error: BaseException) -> str:
    """The line of the agent's own code that it came from, such as `agent.py:12 in worker`; "" if there is none.

    The innermost frame that is neither of this package nor of Python's library; one in an installed package
    only if no other is left. The name of the file without its folders, and nothing of what the frame holds.
    """
    parts = [*leaves(error), error]
    found = (_innermost(part.__traceback__, installed) for installed in (False, True) for part in parts)
    return next(filter(None, found), "")[:MAX_WHERE].encode("utf-8", "replace").decode()


def placed(text: str, where: str) -> str:
    """An error's text with the line it came from, if that is known."""
    return f"{text} (at {where})" if where else text


def _innermost(tb: TracebackType | None, installed: bool) -> str:
    found = ""
    while tb is not None:
        code = tb.tb_frame.f_code
        file = code.co_filename
        is_installed = any(part in file for part in _INSTALLED)
        library = file.startswith((_PACKAGE, "<frozen ")) or (file.startswith(_LIBRARY) and not is_installed)
        if not library and is_installed == installed:
            found = f"{os.path.basename(file)}:{tb.tb_lineno} in {code.co_name}"
        tb = tb.tb_next
    return found


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that a group holds, at any depth; of any other exception, itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


def stops_the_run(error: BaseException) -> bool:
    """True for what is no failure of the task: Indelible's own errors, and what is no `Exception` at all.

    The run stops and stays as it is, no attempt is counted, and it goes on once the cause is gone.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(stops_the_run(part) for part in leaves(error))
    if not isinstance(error, Exception):
        return True
    return isinstance(error, IndelibleError) and not isinstance(error, ActionFailed)


def describe(error: BaseException) -> bytes:
    """The packed form of an exception. Fields that cannot be stored are left out."""
    kind = type(error)
    fields = {name: plain for name, value in vars(error).items() if (plain := _storable(value)) is not None}
    args = [plain if (plain := _storable(value)) is not None else text_of(error) for value in error.args]
    described: dict[str, Any] = {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "text": text_of(error),
        "args": args,
        "fields": fields,
    }
    return pack(described)


def rebuild(packed: bytes, name: str) -> BaseException:
    """The exception to raise for a recorded failure of action `name`."""
    stored: Any = unpack(packed)
    if not isinstance(stored, dict):
        return ActionFailed(f"{name} failed; what it raised cannot be read")
    kind = _loaded(str(stored.get("module")), str(stored.get("name")))
    if kind is None:
        return ActionFailed(
            f"{name} failed with {stored.get('text')}",
            hint=f"import {stored.get('module')} before the run is resumed, to get its own exception class back",
        )
    try:
        return _made(kind, stored.get("args"), stored.get("fields"))
    except Exception as error:
        return ActionFailed(
            f"{name} failed with {stored.get('text')}",
            hint=f"{kind.__qualname__} cannot be made again from its args ({type(error).__name__}); "
            "catch indelible.errors.ActionFailed as well",
        )


def _made(kind: type[BaseException], args: Any, fields: Any) -> BaseException:
    values = [from_plain(arg, GENERIC) for arg in args] if isinstance(args, list) else []
    # Python's own exceptions keep their parts where only their own `__init__` puts them.
    builtin = kind.__module__ == "builtins"
    error: BaseException = kind(*values) if builtin else kind.__new__(kind, *values)
    error.args = tuple(values)
    if isinstance(fields, dict):
        for field, value in fields.items():
            error.__dict__[field] = from_plain(value, GENERIC)
    return error


def summary(packed: bytes) -> str:
    """The line that stands for a stored failure in listings."""
    stored: Any = unpack(packed)
    return str(stored.get("text", "")) if isinstance(stored, dict) else ""


def _storable(value: Any) -> Plain | None:
    try:
        return to_plain(value, GENERIC)
    except NotStorable:
        return None


def _loaded(module: str, name: str) -> type[BaseException] | None:
    # The newest of that name: an older one may be left of a module that was loaded again.
    found = [kind for kind in _descend(Exception) if kind.__module__ == module and kind.__qualname__ == name]
    return found[-1] if found else None


def _descend(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descend(child)
