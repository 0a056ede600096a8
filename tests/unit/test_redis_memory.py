"""What a Redis store remembers of what was acknowledged to it: bounded, and without a gap."""

from __future__ import annotations

import pytest

from indelible.stores.base import Batch
from indelible.stores.redis_memory import Held, Memory
from indelible.stores.redis_server import Server, Stamp
from indelible.testing.conformance_kit import LABEL, write


def held(memory: Memory, run_id: str, head: int = 0, token: str = "t") -> Held:
    memory.hold(Held(run_id, "worker", 30.0, 1, token, "", head, head))
    found = memory.of(run_id)
    assert found is not None
    return found


def seqs(run: Held, head: int = 0) -> list[int] | None:
    missing = run.missing(head)
    return None if missing is None else [batch.last_seq for batch in missing]


def test_the_oldest_batches_of_a_run_go_first() -> None:
    memory = Memory(store_bytes=1000, run_bytes=25)
    run = held(memory, "a")
    for at in range(5):
        memory.landed(write("a", at, b"x" * 10, label=LABEL if at == 1 else None))
    assert (run.head, run.kept_from, run.label) == (5, 3, LABEL)
    assert seqs(run, 3) == [4, 5]
    assert seqs(run, 2) is None
    assert run.ending(4) == Batch(3, 4, b"x" * 10)


def test_of_all_runs_the_one_written_longest_ago_gives_way() -> None:
    memory = Memory(store_bytes=45, run_bytes=1000)
    old, new = held(memory, "old"), held(memory, "new")
    for at in range(3):
        memory.landed(write("old", at, b"x" * 10))
    for at in range(3):
        memory.landed(write("new", at, b"x" * 10))
    assert seqs(old, 2) == [3]
    assert seqs(old, 1) is None
    assert seqs(new) == [1, 2, 3]
    memory.release("new")
    for at in range(3, 6):
        memory.landed(write("old", at, b"x" * 10))
    assert seqs(old, 2) == [3, 4, 5, 6], "what was let go takes no room"


def test_a_write_of_unknown_fate_is_known_by_what_stands_on_it() -> None:
    memory = Memory()
    run = held(memory, "a")
    memory.landed(write("a", 0))
    memory.sent(write("a", 1, b"landed"))
    assert memory.adopt(write("a", 1)), "a write in its own place does not stand on it"
    assert run.head == 1
    assert memory.adopt(write("a", 2))
    assert run.head == 2
    memory.landed(write("a", 2))
    assert seqs(run) == [1, 2, 3]
    assert run.unsure == []
    assert not memory.adopt(write("a", 9)), "nobody knows what that one stands on"


def test_what_another_handle_wrote_in_between_is_a_new_beginning() -> None:
    memory = Memory()
    run = held(memory, "a")
    memory.landed(write("a", 0))
    memory.landed(write("a", 5))
    assert (run.kept_from, run.head) == (5, 6)
    assert seqs(run, 0) is None


def test_a_new_claim_forgets_and_a_renewal_keeps() -> None:
    memory = Memory()
    held(memory, "a")
    memory.landed(write("a", 0))
    assert seqs(held(memory, "a")) == [1]
    assert held(memory, "a", head=1, token="other").kept_from == 1
    memory.release("a")
    assert (memory.of("a"), memory.witnessed("a")) == (None, 1)
    memory.release("a", deleted=True)
    assert memory.witnessed("a") == 0


@pytest.mark.parametrize(
    ("old", "whole"),
    [
        (Stamp("run-2", "repl-2", "h:1", False, 0, 0), True),  # the very server
        (Stamp("run-1", "repl-1", "h:1", True, 0, 0), True),  # started anew, and all was on its disk
        (Stamp("run-1", "repl-1", "h:1", False, 0, 0), False),  # started anew, and it was not
        (Stamp("run-1", "repl-1", "h:1", True, 0, 1), True),  # it had a replica, but this is its own address
        (Stamp("run-1", "repl-1", "h:9", True, 0, 1), False),  # this may be the replica
        (Stamp("run-1", "repl-1", "h:9", True, 1, 1), True),  # which has it all
        (Stamp("run-1", "repl-0", "h:9", True, 0, 1), False),  # this is the replica
        (Stamp("run-1", "repl-0", "h:9", True, 1, 2), False),  # perhaps the one that did not have it
        (Stamp("run-1", "repl-0", "h:9", False, 2, 2), True),  # both had it
    ],
)
def test_what_an_old_stamp_means(old: Stamp, whole: bool) -> None:
    server = Server.read({"run_id": "run-2", "master_replid": "repl-2", "master_replid2": "repl-0"}, "always", "h:1")
    assert server.has_all_of(old) is whole
    assert Stamp.parse(old.text()) == old


@pytest.mark.parametrize("text", ["", "x", "[]", "[1]", "null", '["a","b","c",true,"x",0]'])
def test_a_stamp_that_is_none(text: str) -> None:
    assert Stamp.parse(text) is None
