"""Every error Indelible raises, named after the situation it reports.

Owns: the exception classes, their stable codes, and how they read.
Must never: print payloads, arguments, results or secrets; shadow a builtin.
Invariant: an error pickles and unpickles to an equal error, and carries a hint
that is a command or a line of code the reader can use as it stands.
"""

from __future__ import annotations

from typing import Any, ClassVar

Ident = str | int | float | None


def _rebuild(cls: type[IndelibleError], what: str, hint: str, ids: dict[str, Ident]) -> Any:
    return cls(what, hint=hint, **ids)


class IndelibleError(Exception):
    """Something about a run, its journal or its store went wrong.

    `code` is stable across releases, `ids` names the run, action or file, and
    `hint` is what to do about it.
    """

    code: ClassVar[str] = "indelible"

    def __init__(self, what: str, *, hint: str = "", **ids: Ident) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.ids = ids

    def __str__(self) -> str:
        hint = f"\n  try: {self.hint}" if self.hint else ""
        return f"{self.what} [{self.code}]{hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.hint, self.ids)


class StaleWriter(IndelibleError):
    """Another writer has moved this run's journal on; this one may write no more."""

    code = "stale-writer"


class LeaseLost(StaleWriter):
    """The run was taken over by another process; nothing more may be done from here."""

    code = "lease-lost"


class RunBusy(IndelibleError):
    """A live process holds this run."""

    code = "run-busy"


class UnknownRun(IndelibleError):
    """No run of that id is in the store, or it was deleted."""

    code = "unknown-run"


class RunMismatch(IndelibleError):
    """The run id exists, but for another agent or another objective."""

    code = "run-mismatch"


class RunMoved(IndelibleError):
    """The run lives in another store, or is still on its way into this one."""

    code = "run-moved"


class InDoubt(IndelibleError):
    """It is not known whether an irreversible action happened."""

    code = "in-doubt"


class Diverged(IndelibleError):
    """The code wants another irreversible action than the one the journal holds."""

    code = "diverged"


class JournalDamaged(IndelibleError):
    """A journal or snapshot does not verify; nothing was changed."""

    code = "journal-damaged"


class StateInvalid(IndelibleError):
    """Stored state does not fit the State class, its version or its invariants."""

    code = "state-invalid"


class FormatTooNew(IndelibleError):
    """The store or journal was written by a newer release."""

    code = "format-too-new"


class StoreUnavailable(IndelibleError):
    """The store cannot be read or written just now; what was acknowledged is safe."""

    code = "store-unavailable"


class NotStorable(IndelibleError):
    """A value cannot be kept without changing it; the path says which."""

    code = "not-storable"


class BudgetExceeded(IndelibleError):
    """The next call would pass the run's budget."""

    code = "budget-exceeded"


class ActionFailed(IndelibleError):
    """A recorded failure whose own exception class is not loaded in this process."""

    code = "action-failed"


class Misuse(IndelibleError):
    """Indelible was called in a way that cannot be right; nothing was done."""

    code = "misuse"


class DidNotHappen(Exception):
    """Raise this inside an irreversible action to say that nothing happened.

    It makes the failure a clean one: the action may be tried again without a
    probe and without asking anyone.
    """
