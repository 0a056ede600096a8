"""Examining a store: what is well is said, what is not is found, and nothing is changed by looking."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import indelible as ind
from indelible.drive.clock import SystemClock
from indelible.runtime.doctoring import SAMPLE, Finding, examine
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Upkeep
from indelible.stores.memory import MemoryStore
from indelible.stores.sqlite import SqliteStore
from indelible.testing.conformance_kit import entries, write
from tests.unit import cli_stage
from tests.unit.cli_stage import Stage
from tests.unit.simple_agents import Memory, agent_of

stage = cli_stage.stage


def findings(stage: Stage, verdict: str, *words: str) -> dict[str, str]:
    """The findings of that verdict: what they say, and what helps."""
    found = stage("doctor", "--json", *words).json["findings"]
    return {one["what"]: one["hint"] for one in found if one["verdict"] == verdict}


def test_a_store_that_is_well(stage: Stage) -> None:
    """Each fact is told; the verdict is a line; a deploy goes on."""
    stage("run", "agent.py:worker", "a b c", "--run-id", "r")
    before = {path.name: path.read_bytes() for path in stage.folder.glob("agent.db*")}
    done = stage("doctor")
    assert (done.code, done.err) == (0, "")
    for fact in ("SQLite: 3.", "journal mode: wal", "synchronous: full", "file system: ", "permissions: 0600",
                 "integrity: ok", "size: ", "free space in the file: ", "log (-wal): ", "clock: "):  # fmt: skip
        assert f"  ok   store: {fact}" in done.out or f"  ok   {fact}" in done.out, fact
    assert done.out.splitlines()[-1] == "all is well: 0 faults, 0 notes; 1 run, all verified"
    assert stage("doctor", "--json").json["verdict"] == "ok"
    assert {path.name: path.read_bytes() for path in stage.folder.glob("agent.db*")} == before


def test_who_waits_and_who_is_gone(stage: Stage) -> None:
    """B50: unfinished runs that nobody holds, deeds in doubt, failed runs: each with its command; no reason to fail."""
    stage("run", "agent.py:worker", "fail fail", "--run-id", "failed")
    stage.apart("run", "agent.py:worker", "a b", "--run-id", "gone", DIE_AT="commit")
    stage.apart("run", "agent.py:worker", "send", "--run-id", "doubt", DIE_AT="after")
    done = stage("doctor")
    assert done.code == 0
    found = findings(stage, "note")
    assert any("run 'gone'" in what and "is gone" in what and "resume gone" in hint for what, hint in found.items())
    assert any("run 'doubt': 1 deed" in what and "effects doubt" in hint for what, hint in found.items())
    assert all(hint for hint in found.values())
    assert done.out.splitlines()[-1].startswith("nothing is bad: 0 faults, ")


def damage_a_page(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"\xff" * 3000)


def with_sql(statement: str) -> Callable[[str], None]:
    def apply(path: str) -> None:
        with closing(apsw.Connection(path)) as con:
            con.execute(statement)

    return apply


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: os.chmod(path, 0o644), "others may read it"),
        (damage_a_page, "integrity"),
        (with_sql("INSERT INTO batches (no, after_seq, last_seq, data) VALUES (99, 0, 1, x'61')"), "batches without"),
        (with_sql("INSERT INTO snapshots (no, seq, data) VALUES (99, 1, x'61')"), "snapshots without"),
        (with_sql("DELETE FROM batches WHERE at = (SELECT max(at) FROM batches)"), "do not reach their head"),
        (with_sql("DELETE FROM batches WHERE at = 2"), "run 'r'"),
        (with_sql("UPDATE runs SET begins = 3"), "without the snapshot they begin at"),
        (with_sql("UPDATE runs SET head = head + 5"), "do not reach their head"),
        (with_sql("UPDATE batches SET data = x'00' WHERE at = 2"), "run 'r'"),
    ],
)
def test_what_is_bad_is_found(stage: Stage, harm: Callable[[str], None], told: str) -> None:
    """B70 B71 B90 B91 B93 B109: rows of nothing, journals cut short, damage, and files that others may read."""
    stage("run", "agent.py:worker", " ".join(f"task-{n}-{'x' * 200}" for n in range(40)), "--run-id", "r")
    with closing(SqliteStore("agent.db")):
        pass  # the log is taken into the file
    harm("agent.db")
    for words in ((), ("--quick",)):
        done = stage("doctor", *words)
        assert done.code == 1, done.out
        if "BAD" in done.out:
            assert told in done.out
            assert "SOMETHING IS BAD" in done.out.splitlines()[-1]
        else:  # too much of it is gone for anything to be read
            assert "damaged" in done.err
    if "BAD" in done.out:
        assert all(findings(stage, "bad").values()), "each with what helps"


def test_a_log_that_grows_and_a_field_that_is_written_again(tmp_path: Path) -> None:
    """B63 B65: named, with the field; a run of the same length that only appends is not."""

    with ind.open(str(tmp_path / "agent.db"), durability="os") as runs:
        with runs.run("hoards", Hoarder, "grow") as hoarding:
            for _ in range(40):
                with hoarding.cycle():
                    state = hoarding.state
                    state.everything = [*state.everything, os.urandom(9000).hex()]
        with runs.run("appends", Memory, "grow") as appending:
            for _ in range(40):
                with appending.cycle():
                    appending.state.notes.append(os.urandom(9000).hex())
        found = [finding for finding in examine(runs).findings if finding.part == "growth"]
    assert [finding.verdict for finding in found] == ["note", "note"]
    assert all("run 'hoards'" in finding.what and "bill hoards" in finding.hint for finding in found)
    assert "state.everything was written as a whole 40 times" in found[0].what
    assert "a write has grown from" in found[1].what


class Hoarder(ind.State):
    """What people do with a list."""

    everything: list[str] = []  # noqa: RUF012 - copied for each run


def test_large_values_are_named(tmp_path: Path) -> None:
    """B65."""
    with ind.open(str(tmp_path / "agent.db"), durability="os") as runs:
        with runs.run("r", Memory, "grow") as run, run.cycle():
            run.state.notes.append("x" * 2_000_000)
        (found,) = [finding for finding in examine(runs).findings if finding.part == "growth"]
    assert "state.notes holds 2,000," in found.what
    assert "compact" in found.hint


def test_clocks_that_differ() -> None:
    """B62: leases go by the store's."""
    clock = SystemClock()
    for skew, told in ((0.0, None), (30.0, "ahead of"), (-30.0, "behind")):
        store = MemoryStore(lambda skew=skew: clock.now() + skew)  # type: ignore[misc]
        with RunStore(store, clock) as runs:
            (found,) = [finding for finding in examine(runs).findings if finding.part == "clock"]
        assert (found.verdict == "note") == (told is not None)
        assert told is None or told in found.what


def test_waiting_and_never_accepted() -> None:
    """A time that has come long ago without anybody going on; a claim that led to nothing."""
    now = [1_000_000.0]
    store = MemoryStore(lambda: now[0])

    def body(run: ind.Run[Memory]) -> None:
        run.sleep(60)

    with RunStore(store, SystemClock()) as runs:
        with runs.run("sleeps", agent_of(body), "see") as run, run.cycle():
            body(run)
        store.claim("never", "somebody", 30.0)
        now[0] = SystemClock().now() + 10_000
        told = {finding.what: finding for finding in examine(runs).findings if finding.verdict == "note"}
    assert any("'sleeps' was to go on" in what for what in told)
    assert any("'never' was claimed and never accepted" in what for what in told)


def test_quickly_only_a_sample_is_read(tmp_path: Path) -> None:
    """The largest and the newest."""
    with ind.open(str(tmp_path / "agent.db"), durability="os") as runs:
        for number in range(SAMPLE + 5):
            with runs.run(f"r{number}", Memory, "see") as run, run.cycle():
                run.state.notes.append(os.urandom(2000 if number == 0 else 10).hex())
        quick, whole = examine(runs, quick=True), examine(runs)
        assert (quick.runs, quick.verified) == (SAMPLE + 5, SAMPLE)
        assert (whole.runs, whole.verified) == (SAMPLE + 5, SAMPLE + 5)
        assert len(entries(runs.store)) == SAMPLE + 5


def test_free_space_and_the_command_that_returns_it(stage: Stage) -> None:
    """B63: 262 MB of free pages that nobody returned."""
    with closing(SqliteStore("agent.db")) as store:
        assert isinstance(store, Upkeep)
        store.claim("r", "somebody", 30.0)
        store.append([write("r", at, os.urandom(50_000)) for at in range(100)])
        store.delete("r")
    (hint,) = [hint for what, hint in findings(stage, "note").items() if "free space" in what]
    words = hint.split()[1:]
    assert words[0] == "prune"
    assert "were given back" in stage(*words).out
    assert stage("doctor").out.splitlines()[-1].startswith("all is well")


def test_a_pruned_run_is_well(stage: Stage) -> None:
    """B73."""
    stage("run", "agent.py:worker", " ".join(f"task-{n}" for n in range(40)), "--run-id", "r")
    assert stage("prune", "--run", "r", "--history", "--yes").code == 0
    assert stage("doctor").out.splitlines()[-1].startswith("all is well")


def test_no_store(stage: Stage) -> None:
    done = stage("doctor", "--store", "nowhere.db")
    assert done.code == 1
    assert "no such file" in done.err
    assert not os.path.exists("nowhere.db")


def test_a_finding_without_help_is_only_one_that_is_well() -> None:
    """The rule of `Finding`, for all that this release can make in a store in memory."""
    with ind.open("memory:") as runs, runs.run("r", Memory, "see"):
        found = examine(runs).findings
    assert found
    assert all(isinstance(one, Finding) and (one.verdict == "ok" or one.hint) for one in found)
