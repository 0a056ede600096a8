"""How long a proof waits: for one process of the agent, and for a run that is taken up again and again.

Owns: the limits, and the alarm that ends a process of the simulation.
Must never: take what is slow for what does not end: how long a process may take follows from the untouched run.
Invariant: a case comes to an end, unless a simulated process hangs in another thread than the main one.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indelible.testing.prove_evidence import Case, Life

UNTOUCHED_S = 600.0
"""So long may a process take before it is known how long one takes."""
MAX_IDLE = 40
"""So many processes in a row may bring the run nowhere."""
MAX_PROCESSES = 400


def limit_for(took_s: float) -> float:
    """How long a process may take, in seconds, if the untouched run took so long."""
    return min(UNTOUCHED_S, max(30.0, 20.0 * took_s))


def still_running(limit_s: float) -> str:
    """What is said of a process that took longer."""
    return f"a process was still running after {limit_s:g} s"


def gets_nowhere(case: Case) -> str:
    """What is said of a run that was taken up too often; "" if it may be taken up again."""
    if len(case.lives) >= MAX_PROCESSES:
        return f"{MAX_PROCESSES} processes have taken it up"
    last = case.lives[-MAX_IDLE:]
    if len(last) == MAX_IDLE and _committed(last[0]) == _committed(last[-1]):
        return f"{MAX_IDLE} processes in a row have committed no cycle"
    return ""


def _committed(life: Life) -> int:
    return life.journal.record.committed if life.journal is not None else 0


@contextmanager
def alarm(seconds: float, ring: Callable[[], object]) -> Iterator[None]:
    """Call `ring` in the main thread if the block takes longer. Without effect in any other thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: ring())
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)  # somebody else's, who waits for longer than this took
        signal.signal(signal.SIGALRM, before)
