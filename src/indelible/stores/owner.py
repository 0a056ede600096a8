"""Who holds a run: one claimant in one process on one machine, and whether it is gone.

Owns: the text form of an owner, and the proof that its process no longer exists.
Must never: call a process gone on a guess. A pid is reused, so a pid alone proves nothing.
Invariant: `is_gone` is True only if the claimant cannot write any more; when in doubt it
is False, and the lease decides.

Proof needs the same machine: the same boot id and pid namespace, where /proc tells them;
elsewhere the same host name. Without /proc a start time is unknown, so that a reused pid
looks alive, and without POSIX signals no other process can be looked up at all.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import NamedTuple

_live_nonces: set[str] = set()
_lock = threading.Lock()
_machines: dict[int, tuple[str, str, str]] = {}
_started: dict[int, str] = {}

ANONYMOUS_HOSTS = frozenset({"", "localhost", "localhost.localdomain", "(none)"})
"""Names that many machines share: no proof that two of them are one."""


class Owner(NamedTuple):
    """A claimant. `boot`, `pid_ns` and `started` are "" where the system does not tell."""

    host: str
    boot: str
    pid_ns: str
    pid: int
    started: str
    nonce: str

    @classmethod
    def here(cls, nonce: str) -> str:
        """The text form of a claimant in this process; `nonce` tells it from others in it.

        Call `enter(nonce)` before claiming with it and `leave(nonce)` when it has ended, or
        the claimant counts as gone.
        """
        pid = os.getpid()
        if pid not in _started:
            _started[pid] = _start_time(pid) or ""
        return cls(*_machine(), pid, _started[pid], nonce).text()

    def text(self) -> str:
        """This owner as a store keeps it."""
        return json.dumps(list(self), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that `text` describes, or None if `here` did not write it."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, list) or len(fields) != len(cls._fields):
            return None
        host, boot, pid_ns, pid, started, nonce = fields
        texts = (host, boot, pid_ns, started, nonce)
        if not all(isinstance(part, str) for part in texts) or type(pid) is not int or pid <= 0:
            return None
        return cls(host, boot, pid_ns, pid, started, nonce)


def enter(nonce: str) -> None:
    """Note that the claimant `nonce` of this process is alive."""
    with _lock:
        _live_nonces.add(nonce)


def leave(nonce: str) -> None:
    """Note that the claimant `nonce` of this process has ended; harmless if it never was."""
    with _lock:
        _live_nonces.discard(nonce)


def is_gone(owner_text: str) -> bool:
    """True only if it is certain that this claimant can write no more."""
    owner = Owner.parse(owner_text)
    if owner is None:
        return False
    host, boot, pid_ns = _machine()
    if owner.boot != boot:
        # The machine of that name has been started anew since, and no process outlives that.
        return bool(owner.boot and boot) and owner.host == host and host not in ANONYMOUS_HOSTS
    if owner.pid_ns != pid_ns or (not boot and (owner.host != host or host in ANONYMOUS_HOSTS)):
        return False
    if owner.pid == os.getpid() and owner.started in ("", _start_time(owner.pid) or ""):
        return owner.nonce not in _live_nonces
    return _process_is_gone(owner.pid, owner.started)


def describe(owner_text: str) -> str:
    """An owner in words: "process 1234 on host web1"."""
    owner = Owner.parse(owner_text)
    if owner is None:
        return f"owner {owner_text[:60]!r}" if owner_text else "nobody"
    return f"process {owner.pid} on host {owner.host or 'unknown'}"


def _process_is_gone(pid: int, started: str) -> bool:
    if sys.platform == "win32":
        return False  # os.kill would end the process there, whatever the signal
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it exists, and belongs to another user
    found = _start_time(pid)
    if found is None or not started:
        return False
    return found != started


def _start_time(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None if unknown, "dead" for a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            line = file.read()
    except OSError:
        return None
    # The command name stands in brackets and may itself hold spaces and brackets.
    fields = line[line.rfind(")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, threads, started = fields[0], fields[17], fields[19]
    if state in ("Z", "X") and threads in ("0", "1"):
        return "dead"  # killed, and not yet waited for by its parent
    return started


def _machine() -> tuple[str, str, str]:
    """Host name, boot id and pid namespace, asked once per process: a fork may change the last."""
    pid = os.getpid()
    known = _machines.get(pid)
    if known is None:
        known = _machines[pid] = (socket.gethostname(), _boot_id(), _pid_namespace())
    return known


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _pid_namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _live_nonces.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)
