"""State as ordinary dicts and lists, for migrations and for people to read.

Owns: the way from a document to natural values and back.
Must never: drop anything. What the new class does not know is handed back; what a natural
value cannot show (counters, ids) is taken over from the old document.
Invariant: from_natural(natural(doc), shape of the same class, doc) gives back an equal document.

A log's summary, which a list has no place for, appears beside it as "<field>.summary". A
queue is a list of {"id", "value", "priority", "attempts", "not_before", "error"}: `error` is
None for an item that waits, and the last error's text for one that failed. A migration may
drop items and add new ones with a "value" alone.
"""

from __future__ import annotations

from typing import Any

from indelible.core.changes import (
    ATTEMPTS,
    DONE,
    ERROR,
    FAILED,
    ITEM_VALUE,
    ITEMS,
    LOG_ITEMS,
    LOG_SUMMARY,
    MAP_ENTRIES,
    NEXT_ID,
    NOT_BEFORE,
    PRIORITY,
    REMOVED,
    VALUE,
    Doc,
    FieldDoc,
    log_field,
    map_field,
    plain_field,
    queue_field,
)
from indelible.core.codec import Plain, Types, check_fits, from_plain, pack, to_plain
from indelible.core.fields import brief
from indelible.core.state import Field, Shape
from indelible.errors import StateInvalid

_ITEM = {"id", "value", "priority", "attempts", "not_before", "error"}


def natural(doc: Doc, types: Types) -> dict[str, Any]:
    """The whole document as natural values, fresh ones. `types` as for `from_plain`."""
    data: dict[str, Any] = {}
    for name, field in doc.items():
        path = f"state.{name}"
        if field[0] == "plain":
            data[name] = from_plain(field[VALUE], types, path)
        elif field[0] == "log":
            data[name] = [from_plain(item, types, f"{path}[{n}]") for n, item in enumerate(field[LOG_ITEMS])]
            if field[LOG_SUMMARY] is not None:
                data[f"{name}.summary"] = from_plain(field[LOG_SUMMARY], types, f"{path}.summary")
        elif field[0] == "map":
            data[name] = {
                from_plain(key, types, f"{path} key"): from_plain(value, types, f"{path}[{n}]")
                for n, (key, value) in enumerate(field[MAP_ENTRIES].values())
            }
        else:
            data[name] = _queue_shown(field, types, path)
    return data


def from_natural(data: dict[str, Any], shape: Shape, old_doc: Doc) -> tuple[Doc, dict[str, Plain]]:
    """A document of `shape` from natural `data`, and the entries no field of it is named after.

    Fields that are missing get the class's default. Raises `StateInvalid` with the path of
    what does not fit.
    """
    if not isinstance(data, dict) or not all(isinstance(name, str) for name in data):
        raise StateInvalid(
            f"a migration must return a dict of fields, not {type(data).__name__}", hint="return data  # at its end"
        )
    rest = dict(data)
    fitter = _Fitter(shape.types)
    doc: Doc = {}
    for name, field in shape.fields.items():
        if name not in rest:
            doc[name] = shape.initial_field(name)
            continue
        value = rest.pop(name)
        old = old_doc.get(name)
        if old is not None and old[0] != field.kind:
            old = None
        if field.kind == "plain":
            doc[name] = plain_field(fitter.fit(value, field.hints[0], f"state.{name}"))
        elif field.kind == "log":
            doc[name] = _log_of(value, field, fitter, old)
            if f"{name}.summary" in rest:
                doc[name][LOG_SUMMARY] = _summary_of(rest.pop(f"{name}.summary"), field, fitter)
        elif field.kind == "map":
            doc[name] = _map_of(value, field, fitter)
        else:
            doc[name] = _queue_of(value, field, fitter, old)
    return doc, {name: fitter.keep(value, f"state.{name}") for name, value in rest.items()}


class _Fitter:
    """Makes plain data of natural values that fit, the stand-ins in them resolved or refused."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self._either = _Either(types.named, types.bases)

    def fit(self, value: Any, hint: Any, path: str) -> Plain:
        plain = self.keep(check_fits(value, hint, path), path)
        from_plain(plain, self.types, path)  # a stand-in may be left where the hint is Any: its class must be known
        return plain

    def keep(self, value: Any, path: str) -> Plain:
        return to_plain(value, self._either, path)


class _Either(Types):
    """Admits the known classes as well as stand-ins, for a migration may leave both behind."""

    generic = True


def _queue_shown(field: FieldDoc, types: Types, path: str) -> list[dict[str, Any]]:
    waiting = [(i, item, item[NOT_BEFORE], None) for i, item in field[ITEMS].items()]
    failed = [(i, item, None, item[ERROR]) for i, item in field[FAILED].items()]
    return [
        {
            "id": item_id,
            "value": from_plain(item[ITEM_VALUE], types, f"{path}[{n}]"),
            "priority": item[PRIORITY],
            "attempts": item[ATTEMPTS],
            "not_before": not_before,
            "error": error,
        }
        for n, (item_id, item, not_before, error) in enumerate(waiting + failed)
    ]


def _listed(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise StateInvalid(
            f"state.{name} must be a list, found {type(value).__name__}",
            hint=f'data["{name}"] = []  # in the migration',
        )
    return value


def _log_of(value: Any, field: Field, fitter: _Fitter, old: FieldDoc | None) -> FieldDoc:
    made = log_field()
    items = enumerate(_listed(value, field.name))
    made[LOG_ITEMS] = [fitter.fit(item, field.hints[0], f"state.{field.name}[{n}]") for n, item in items]
    made[LOG_SUMMARY] = None if old is None else old[LOG_SUMMARY]
    return made


def _summary_of(value: Any, field: Field, fitter: _Fitter) -> Plain:
    path = f"state.{field.name}.summary"
    try:
        return fitter.fit(value, field.hints[0], path)
    except StateInvalid:  # A summary may be of another type than the items.
        return fitter.fit(value, Any, path)


def _map_of(value: Any, field: Field, fitter: _Fitter) -> FieldDoc:
    path = f"state.{field.name}"
    if not isinstance(value, dict):
        raise StateInvalid(
            f"{path} must be a dict, found {type(value).__name__}",
            hint=f'data["{field.name}"] = {{}}  # in the migration',
        )
    made = map_field()
    for key, item in value.items():
        plain = fitter.fit(key, field.hints[0], f"{path} key")
        made[MAP_ENTRIES][pack(plain)] = [plain, fitter.fit(item, field.hints[1], f"{path}[{brief(key)}]")]
    return made


def _queue_of(value: Any, field: Field, fitter: _Fitter, old: FieldDoc | None) -> FieldDoc:
    """Items keep the ids they bring; new ones get new ids; those that were dropped count as removed."""
    made = queue_field()
    shown = [_item(item, f"state.{field.name}[{n}]") for n, item in enumerate(_listed(value, field.name))]
    known = {**old[ITEMS], **old[FAILED]} if old is not None else {}
    above = max((item["id"] + 1 for item in shown if item["id"] is not None), default=0)
    next_id = above if old is None else old[NEXT_ID]
    kept: set[int] = set()
    for n, item in enumerate(shown):
        path = f"state.{field.name}[{n}]"
        item_id = item["id"]
        if item_id is None or item_id in kept or (old is not None and item_id not in known):
            item_id, next_id = next_id, next_id + 1
        kept.add(item_id)
        plain = fitter.fit(item["value"], field.hints[0], f"{path}.value")
        if item["error"] is None:
            made[ITEMS][item_id] = [plain, item["priority"], item["attempts"], item["not_before"]]
        else:
            made[FAILED][item_id] = [plain, item["priority"], item["attempts"], item["error"]]
    made[NEXT_ID] = next_id
    if old is None:  # Under a new name nothing tells what became of the ids that are missing; call them done.
        made[DONE] = next_id - len(kept)
    else:
        made[DONE] = old[DONE]
        made[REMOVED] = old[REMOVED] + len(known.keys() - kept)
    return made


def _item(item: Any, path: str) -> dict[str, Any]:
    if not isinstance(item, dict) or "value" not in item or not item.keys() <= _ITEM:
        raise StateInvalid(f"{path} must be a dict with a 'value'", hint="data[...].append({'value': item})")
    full = {"id": None, "priority": 0, "attempts": 0, "not_before": None, "error": None, **item}
    wanted = {
        "id": (int, type(None)),
        "priority": (int,),
        "attempts": (int,),
        "not_before": (float, type(None)),
        "error": (str, type(None)),
    }
    for key, accepted in wanted.items():
        if type(full[key]) not in accepted or (key in ("id", "attempts") and full[key] is not None and full[key] < 0):
            raise StateInvalid(
                f"{path}.{key} must be {accepted[0].__name__}, found {type(full[key]).__name__}",
                hint=f"leave {key!r} as it was, or out",
            )
    return full
