"""A real S3 server that is killed and started anew while runs are written."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import indelible as ind
from indelible.errors import StoreUnavailable
from indelible.stores.base import Batch, Write
from indelible.stores.objects import ObjectStore
from indelible.stores.owner import Owner, enter, leave
from indelible.stores.patience import Patient
from indelible.stores.writer import Writer
from tests.servers import seaweed


def test_a_server_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL of the server: whoever writes is told at once or waits for it, and nothing acknowledged is lost."""
    server = seaweed.SeaweedServer()
    enter("test")
    try:
        server.start()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        store = ObjectStore(server.url("killed"))
        assert store.claim("a", Owner.here("test"), 3000.0) == 1
        for at in range(20):
            assert store.append([Write("a", 1, Batch(at, at + 1, b"%d" % at))]) == [None]
        server.kill()
        with pytest.raises(StoreUnavailable) as caught:
            store.append([Write("a", 1, Batch(20, 21, b"20"))])
        assert "killed" in caught.value.what
        started = threading.Thread(target=server.start)
        started.start()

        def wait(seconds: float) -> None:
            threading.Event().wait(seconds)

        writer = Writer(Patient(store, wait), wait)
        writer.write(lambda: Write("a", 1, Batch(20, 21, b"20")))
        started.join()
        assert [batch.data for batch in store.read("a")] == [b"%d" % at for at in range(21)]
        assert store.claim("a", Owner.here("test"), 3000.0) == 1
        store.close()
    finally:
        leave("test")
        server.stop()


def test_a_run_from_one_process_to_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Over HTTP: started, parked, answered, resumed and finished, with a store opened anew each time."""
    url, environment = seaweed.server().fresh()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    calls: list[int] = []

    @ind.action
    def ask(number: int) -> int:
        calls.append(number)
        return number

    class Work(ind.State):
        answers: ind.Log[int]

    @ind.agent(state=Work, version=1)
    def work(run: ind.Run[Work]) -> None:
        run.state.answers.append(ask(len(run.state.answers)))
        if len(run.state.answers) == 3:
            run.finish(run.ask("Which one?"))

    for place in (url, f"file://{tmp_path}/store"):
        calls.clear()
        outcome = work.run("three answers", store=place, run_id="r")
        assert outcome.status == "parked"
        with ind.open(place) as store:
            assert [(entry.run_id, entry.owner, entry.live) for entry in store.entries()] == [("r", "", False)]
            store.answer("r", "the second")
        assert work.run(store=place, run_id="r").result == "the second"
        assert calls == [0, 1, 2], "nothing is called twice"
        with ind.open(place) as store:
            assert [entry.label.status for entry in store.entries() if entry.label] == ["finished"]
            store.delete("r")
            assert list(store.entries()) == []
