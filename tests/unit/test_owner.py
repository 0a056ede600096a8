"""An owner is called gone only on proof."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from indelible.stores import owner as owners
from indelible.stores.owner import Owner, describe, enter, is_gone, leave


def parsed(text: str) -> Owner:
    found = Owner.parse(text)
    assert found is not None
    return found


@pytest.fixture
def here() -> Iterator[Owner]:
    """A live claimant of this process."""
    enter("n")
    yield parsed(Owner.here("n"))
    leave("n")


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A live process that waits for its input to end."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "print(1, flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def started(pid: int) -> str:
    found = owners._start_time(pid)
    assert found
    return found


def test_the_text_form_comes_back(here: Owner) -> None:
    assert here.pid == os.getpid()
    assert here.nonce == "n"
    assert parsed(here.text()) == here
    odd = here._replace(host='we"b\u00e9 1\n', nonce="a,b]")
    assert parsed(odd.text()) == odd


@pytest.mark.parametrize(
    "text",
    ["", "worker-7", "[]", "null", "[" * 100_000, '["h","b","n",0,"s","x"]', '["h","b","n",true,"s","x"]',
     '["h","b","n","1","s","x"]', '["h","b","n",1,"s","x","more"]', '["h",1,"n",1,"s","x"]'],
)  # fmt: skip
def test_what_we_did_not_write_proves_nothing(text: str) -> None:
    """B103."""
    assert Owner.parse(text) is None
    assert not is_gone(text)


def test_a_claimant_of_this_process_lives_until_it_leaves(here: Owner) -> None:
    assert not is_gone(here.text())
    leave("n")
    assert is_gone(here.text())
    assert is_gone(Owner.here("never entered"))


def test_own_pid_of_an_earlier_process(here: Owner) -> None:
    """B103: our own pid in a lock from before a restart is not us."""
    assert is_gone(here._replace(started="1").text())
    assert is_gone(here._replace(started="1", nonce="other").text())


def test_pid_1(here: Owner) -> None:
    """B103: it always exists, so only its start time tells."""
    assert not is_gone(here._replace(pid=1, started=started(1)).text())
    assert is_gone(here._replace(pid=1, started="999999999999").text())


def test_a_pid_that_another_program_was_given(here: Owner, other: subprocess.Popen[bytes]) -> None:
    """B103."""
    mine = here._replace(pid=other.pid, started=started(other.pid))
    assert not is_gone(mine.text())
    assert is_gone(mine._replace(started=str(int(mine.started) - 1)).text())


def test_a_killed_process(here: Owner, other: subprocess.Popen[bytes]) -> None:
    """B102: gone at once, also while its parent has not yet waited for it."""
    mine = here._replace(pid=other.pid, started=started(other.pid))
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(mine.text())
    other.wait()
    assert is_gone(mine.text())


def test_another_machine(here: Owner) -> None:
    """The lease decides there, whatever our own processes are."""
    for pid in (1, os.getpid(), 2**22 + 1):
        assert not is_gone(here._replace(host="elsewhere", boot="other", pid=pid).text())
        assert not is_gone(here._replace(pid_ns="4026539999", pid=pid).text())


def test_this_machine_before_it_was_started_anew(here: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """B103: no process outlives that, whoever has its pid now. A name that many bear proves nothing."""
    machine = ("web1", here.boot, here.pid_ns)
    monkeypatch.setattr(owners, "_machine", lambda: machine)
    before = here._replace(host="web1", boot="the boot before")
    assert is_gone(before.text())
    assert is_gone(before._replace(pid=1).text())
    machine = ("localhost", here.boot, here.pid_ns)
    assert not is_gone(before._replace(host="localhost").text())


def test_without_proc_only_a_missing_pid_is_proof(
    here: Owner, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B103, on systems that do not tell when a process started."""
    monkeypatch.setattr(owners, "_machine", lambda: ("mac1", "", ""))
    monkeypatch.setattr(owners, "_start_time", lambda _pid: None)
    mac = here._replace(host="mac1", boot="", pid_ns="", started="")
    assert not is_gone(mac._replace(pid=other.pid).text())
    assert not is_gone(mac._replace(host="mac2", pid=other.pid).text())
    assert not is_gone(mac.text())
    other.kill()
    other.wait()
    assert is_gone(mac._replace(pid=other.pid).text())
    assert not is_gone(mac._replace(host="mac2", pid=other.pid).text())
    leave("n")
    assert is_gone(mac.text())


def test_a_process_of_another_user_is_alive(here: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not being allowed to signal it does not mean that it is gone."""

    def forbidden(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    monkeypatch.setattr(owners, "_start_time", lambda _pid: None)
    assert not is_gone(here._replace(pid=1).text())


def test_in_words(here: Owner) -> None:
    assert describe(here._replace(host="web1", pid=1234).text()) == "process 1234 on host web1"
    assert describe("worker-7") == "owner 'worker-7'"
    assert describe("") == "nobody"


def test_a_fork_is_another_claimant(here: Owner) -> None:
    """B105: a child neither is its parent nor takes it for gone."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, f"{is_gone(here.text())} {Owner.here('n') == here.text()} {is_gone(Owner.here('n'))}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(ours, 100) == b"False False True"
    os.close(ours)
    os.close(theirs)
    assert not is_gone(here.text())
