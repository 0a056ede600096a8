"""What can go wrong at one operation of a process.

Owns: the kinds of fault, and the plan that puts one of them at one operation.
Must never: carry a fault out; `processes` does.
Invariant: a plan names one operation by its number, so that a run with it can be repeated.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Fault(StrEnum):
    """One way in which one operation goes wrong."""

    DIE_BEFORE = "die before"
    """The process is gone before the operation has any effect."""
    DIE_AFTER = "die after"
    """It has its effect, and the process is gone before it learns of that."""
    FAIL_CLEANLY = "fail cleanly"
    """It raises and has had no effect: a store is unavailable for a moment, a deed did not happen."""
    APPLIED_BUT_FAILED = "applied, then reported as failed"
    """It has its effect and raises all the same: the answer of a store was lost, a deed timed out."""
    STORE_GONE = "the store fails from here on"
    """The store fails cleanly, and cannot be reached again by this process."""
    STORE_GONE_AFTER = "applied, and the store fails from here on"
    """The store applies the write, and cannot be reached again by this process, to read it back either."""
    TAKEN_OVER = "taken over"
    """The process hangs until its lease has run out and another one has finished the run; then it goes on."""
    FENCED_OFF = "fenced off"
    """The process hangs until its lease has run out and another one has claimed the run; then it goes on."""
    INTERRUPTED = "interrupted"
    """Ctrl-C, or the cancellation of the task: the operation raises, having had its effect."""


DEATHS = (Fault.DIE_BEFORE, Fault.DIE_AFTER)


class Plan(NamedTuple):
    """A fault at the operation of that number of one process, counted from 0."""

    at: int
    fault: Fault


class Operation(NamedTuple):
    """An operation as it was seen: what it was, and which faults make a difference to it."""

    label: str
    faults: tuple[Fault, ...]


HANGS = (Fault.TAKEN_OVER, Fault.FENCED_OFF)
REQUEST = (*DEATHS, *HANGS)
DEED = (*REQUEST, Fault.FAIL_CLEANLY, Fault.APPLIED_BUT_FAILED, Fault.INTERRUPTED)
LOOK = (*REQUEST, Fault.FAIL_CLEANLY)
STORE_READ = (*REQUEST, Fault.FAIL_CLEANLY, Fault.STORE_GONE)
STORE_WRITE = (*STORE_READ, Fault.APPLIED_BUT_FAILED, Fault.STORE_GONE_AFTER)
