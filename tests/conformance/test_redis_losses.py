"""What a server loses that it had acknowledged, seen from a store: written again, or reported.

Real servers are killed, started without what they held, and replaced by a replica that lags behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, cast
from unittest.mock import Mock

import pytest

from indelible.errors import JournalDamaged, LeaseLost, Misuse, RunBusy, StaleWriter, StoreUnavailable, UnknownRun
from indelible.runtime.leases import Hold, Renewer
from indelible.stores.base import Batch, Label, Write, inbox_of
from indelible.stores.owner import Owner
from indelible.stores.redis import RedisStore, RedisStoreWarning
from indelible.stores.redis_link import Command, _Wire
from indelible.testing.conformance_kit import LABEL, entries, refused, write
from tests.servers.failover import Pair
from tests.servers.valkey import ValkeyServer

ENDED = Label("research", "finished", None, b"all of it")


@contextmanager
def opened(url: str, durability: str = "os", run_bytes: int = 1 << 20) -> Iterator[RedisStore]:
    """A store on a server that guarantees less than a disk, and says so."""
    with pytest.warns(RedisStoreWarning, match="durability='os'"):
        store = RedisStore(url, durability=durability, run_bytes=run_bytes)
    with closing(store):
        yield store


@pytest.fixture
def forgetful() -> Iterator[ValkeyServer]:
    """A server that keeps nothing on disk."""
    with ValkeyServer(None) as server:
        yield server.start()


def seqs(store: RedisStore, run_id: str = "a") -> list[int]:
    return [batch.last_seq for batch in store.read(run_id)]


def settle(pair: Pair, store: RedisStore, until: int, owner: str = "worker-1") -> None:
    """Events up to `until` are on the replica as well."""
    store.claim("a", owner, 30.0)
    for at in range(until):
        assert store.append([write("a", at, b"%d" % at, label=LABEL)]) == [None]
    pair.part()


def append(store: RedisStore, one: Write) -> object:
    """As the writer does it: what went wrong on the way is read back, and tried again."""
    try:
        return store.append([one])[0]
    except StoreUnavailable:
        assert one.batch not in list(store.read(one.run_id, one.batch.after_seq))
        return store.append([one])[0]


def test_a_failover_that_lost_the_last_writes_is_made_good() -> None:
    """B50: the worker lives, so it knows what was acknowledged, and writes it again before it goes on."""
    with Pair() as pair, closing(RedisStore(pair.url)) as store:
        settle(pair, store, 3)
        for at in range(3, 6):
            store.append([write("a", at, b"%d" % at, label=ENDED if at == 5 else None)])
        pair.fail_over()
        with pytest.warns(RedisStoreWarning, match=r"run 'a': the server had lost events 4 to 6"):
            assert append(store, write("a", 6, b"6")) is None
        assert [batch.data for batch in store.read("a")] == [b"%d" % at for at in range(7)]
        (entry,) = entries(store)
        assert (entry.head, entry.epoch, entry.label, entry.stored_bytes) == (7, 1, ENDED, 7)
        assert len(store.notices) == 1
        assert any(fact.name == "written again" for fact in store.facts())


def test_a_renewal_makes_it_good_as_well() -> None:
    """A worker that waits for an answer for an hour writes nothing, but it renews."""
    with Pair() as pair, closing(RedisStore(pair.url)) as store:
        settle(pair, store, 2)
        store.append([write("a", 2)])
        pair.fail_over()
        with pytest.warns(RedisStoreWarning, match="lost events 3 to 3"):
            assert store.claim("a", "worker-1", 30.0) == 1
        assert seqs(store) == [1, 2, 3]


def test_a_claim_that_a_failover_lost() -> None:
    """The run is as it was before the claim: it is claimed again with all that was written under it."""
    with Pair() as pair, closing(RedisStore(pair.url)) as old, closing(RedisStore(pair.url)) as store:
        old.claim("a", "worker-0", 30.0)
        old.append([write("a", 0)])
        old.claim("a", "worker-0", 0)
        pair.part()
        assert store.claim("a", "worker-1", 30.0) == 2
        store.append([write("a", 1, epoch=2)])
        pair.fail_over()
        with pytest.warns(RedisStoreWarning, match="lost events 2 to 2"):
            assert append(store, write("a", 2, epoch=2)) is None
        assert seqs(store) == [1, 2, 3]
        assert entries(store)[0].owner == "worker-1"


def test_a_run_that_a_failover_lost_as_a_whole() -> None:
    with Pair() as pair, closing(RedisStore(pair.url)) as store:
        pair.part()
        store.claim("a", "worker-1", 30.0)
        store.append([write("a", 0, label=LABEL), write("a", 1)])
        pair.fail_over()
        with pytest.warns(RedisStoreWarning, match="lost events 1 to 2"):
            assert store.claim("a", "worker-1", 30.0) == 1
        assert [(entry.run_id, entry.head, entry.label) for entry in entries(store)] == [("a", 2, LABEL)]


def test_another_worker_has_gone_on_meanwhile() -> None:
    """B50: then what it wrote stands, although both were given the same epoch."""
    with Pair() as pair, closing(RedisStore(pair.url)) as old, closing(RedisStore(pair.url)) as store:
        old.claim("a", "worker-0", 30.0)
        old.append([write("a", 0)])
        old.claim("a", "worker-0", 0)
        pair.part()
        assert store.claim("a", "worker-1", 30.0) == 2
        store.append([write("a", 1, b"lost", epoch=2)])
        pair.fail_over()
        with closing(RedisStore(f"{pair.url}?lost=accept")) as other:
            with pytest.warns(RedisStoreWarning, match="goes on behind event 1"):
                assert other.claim("a", "worker-2", 30.0) == 2
            assert other.append([write("a", 1, b"theirs", epoch=2)]) == [None]
        assert isinstance(append(store, write("a", 2, epoch=2)), LeaseLost | StaleWriter)
        refused(RunBusy, lambda: store.claim("a", "worker-1", 30.0))
        assert [batch.data for batch in old.read("a")] == [b"x", b"theirs"]
        assert store.notices == []


def test_another_worker_has_claimed_and_written_nothing_yet() -> None:
    """The same epoch and the same head: the token of the claim tells them apart."""
    with Pair() as pair, closing(RedisStore(pair.url)) as store:
        store.claim("a", "worker-0", 30.0)
        store.append([write("a", 0)])
        store.claim("a", "worker-0", 0)
        pair.part()
        assert store.claim("a", "worker-1", 30.0) == 2
        pair.fail_over()
        with closing(RedisStore(f"{pair.url}?lost=accept")) as other, pytest.warns(RedisStoreWarning):
            assert other.claim("a", "worker-2", 30.0) == 2
        assert isinstance(append(store, write("a", 1, epoch=2)), LeaseLost)


def test_a_restarted_worker_is_told_after_a_failover() -> None:
    """Nobody alive knows what was acknowledged, so the run does not go on as if nothing had happened."""
    with Pair() as pair:
        with closing(RedisStore(pair.url)) as store:
            settle(pair, store, 2, Owner.here("ended"))
            store.append([write("a", 2)])
        pair.fail_over()
        with closing(RedisStore(pair.url)) as store:
            for _ in range(2):
                error = refused(JournalDamaged, lambda: store.claim("a", "worker-2", 30.0))
                assert "ends at event 2" in str(error)
                assert "a replica has taken the place of the server" in str(error)
                assert f"indelible resume a --store '{store.url}?lost=accept'" in error.hint
            assert seqs(store) == [1, 2], "it can be looked at"
        with closing(RedisStore(f"{pair.url}?lost=accept")) as store:
            with pytest.warns(RedisStoreWarning, match="goes on behind event 2"):
                epoch = store.claim("a", "worker-2", 30.0)
            assert store.append([write("a", 2, b"other", epoch=epoch)]) == [None]
            store.claim("a", "worker-2", 0)
        with closing(RedisStore(pair.url)) as store:
            assert store.claim("a", "worker-3", 30.0) == epoch + 1, "once accepted, it is not asked again"


def test_all_replicas_had_it_in_memory() -> None:
    """With wait=N for N replicas, the one that takes over has everything that was acknowledged."""
    with Pair() as pair:
        url = f"{pair.url}?wait=1"
        with closing(RedisStore(url)) as store:
            store.claim("a", "worker-1", 30.0)
            store.append([write("a", 0), write("a", 1)])
            store.claim("a", "worker-1", 0)
        pair.fail_over()
        with closing(RedisStore(pair.url)) as store:
            assert store.claim("a", "worker-2", 30.0) == 2
            assert seqs(store) == [1, 2]


def test_where_the_server_refuses_a_part_nothing_counts() -> None:
    """Then nothing was waited for, so nothing may be taken for as durable as was asked for."""
    with Pair() as pair, closing(RedisStore(f"{pair.url}?wait=1&timeout_ms=50")) as store:
        store.claim("a", "worker-1", 30.0)
        store.append([write("a", 0)])
        pair.part()
        pair.primary.run("SET", "indelible:{index}:order", "mine")
        assert "something else" in str(refused(Misuse, lambda: store.append([write("a", 1)])))
        assert "something else" in str(refused(Misuse, lambda: store.delete("a")))


def test_what_ctrl_c_cut_off_is_waited_for_when_it_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """B95: it is on the primary, and nobody has heard whether it is on the replica."""
    with Pair() as pair, closing(RedisStore(f"{pair.url}?wait=1&timeout_ms=50")) as store:
        store.claim("a", "worker-1", 30.0)
        pair.part()
        exchange = _Wire.exchange

        def interrupted(self: _Wire, commands: Sequence[Command]) -> list[Any]:
            exchange(self, commands)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(_Wire, "exchange", interrupted)
            store.append([write("a", 0)])
        refused(StoreUnavailable, lambda: list(store.read("a")))
        pair.replica.follow(pair.primary)
        assert seqs(store) == [1]


def test_fewer_replicas_than_asked_for() -> None:
    """The write is on the primary, but it does not count: neither at once nor when it is read back."""
    with Pair() as pair, closing(RedisStore(f"{pair.url}?wait=1&timeout_ms=50")) as store:
        store.claim("a", "worker-1", 30.0)
        pair.part()
        error = refused(StoreUnavailable, lambda: store.append([write("a", 0)]))
        assert "0 of 1 replicas" in str(error)
        refused(StoreUnavailable, lambda: list(store.read("a")))
        pair.replica.follow(pair.primary)
        assert seqs(store) == [1]
        assert store.append([write("a", 1)]) == [None]


def test_a_server_that_keeps_nothing_loses_all(forgetful: ValkeyServer) -> None:
    """The worker lives: everything is written again."""
    with opened(forgetful.url) as store:
        assert not store.durable
        store.claim("a", "worker-1", 30.0)
        store.append([write("a", at, b"%d" % at) for at in range(5)])
        forgetful.kill()
        refused(StoreUnavailable, lambda: store.append([write("a", 5)]))
        forgetful.start()
        with pytest.warns(RedisStoreWarning, match="lost events 1 to 5"):
            assert store.append([write("a", 5, b"5")]) == [None]
        assert [batch.data for batch in store.read("a")] == [b"%d" % at for at in range(6)]


def test_more_is_lost_than_is_in_memory(forgetful: ValkeyServer) -> None:
    with opened(forgetful.url, run_bytes=10_000) as store:
        store.claim("a", "worker-1", 30.0)
        store.claim("b", "worker-1", 30.0)
        for at in range(20):
            store.append([write("a", at, b"x" * 1000)])
        forgetful.kill()
        forgetful.start()
        (damaged, other) = store.append([write("a", 20), write("b", 0)])
        assert isinstance(damaged, JournalDamaged)
        assert "events 1 to 20" in str(damaged)
        assert "only those after 10" in str(damaged)
        assert other is None, "the other run is not to blame"
        refused(JournalDamaged, lambda: store.claim("a", "worker-1", 30.0))
        assert seqs(store) == []
        holds = [Hold(cast(Any, Mock(record=Mock(run_id=name), epoch=1, lost="")), "worker-1") for name in "ab"]
        with closing(Renewer(store)) as renewer:
            for hold in holds:
                renewer.add(hold)
            renewer.renew()
        assert "events 1 to 20" in holds[0].live.lost
        assert not holds[1].live.lost, "the renewal of the others goes on"


def test_a_restarted_worker_finds_nothing(forgetful: ValkeyServer) -> None:
    with opened(forgetful.url) as store:
        store.claim("a", "worker-1", 30.0)
        store.append([write("a", 0)])
    forgetful.kill()
    forgetful.start()
    with opened(forgetful.url) as store:
        error = refused(UnknownRun, lambda: store.claim("a", "worker-2", 0))
        assert "keeps nothing on disk, and was started" in str(error)


def test_the_same_process_remembers_how_far_it_was(forgetful: ValkeyServer) -> None:
    """A run that was let go is not in memory any more, but its head is."""
    with opened(forgetful.url) as store:
        store.claim("a", "worker-1", 30.0)
        store.append([write("a", 0), write("a", 1)])
        store.claim("a", "worker-1", 0)
        forgetful.kill()
        forgetful.start()
        error = refused(JournalDamaged, lambda: store.claim("a", "worker-2", 30.0))
        assert "events up to 2 were acknowledged to this process" in str(error)
        assert entries(store) == []


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_of_a_server_that_keeps_everything(how: str) -> None:
    """It is another server by its name, but it has all that was acknowledged."""
    with ValkeyServer("always") as server:
        server.start()
        with closing(RedisStore(server.url)) as store:
            assert store.durable
            store.claim("a", "worker-1", 30.0)
            store.append([write("a", 0), write(inbox_of("a"), 0, epoch=0)])
            getattr(server, how)()
            server.start()
            assert store.append([write("a", 1)]) == [None]
            store.claim("a", "worker-1", 0)
            assert store.notices == []
        getattr(server, how)()
        server.start()
        with closing(RedisStore(server.url)) as store:
            assert store.claim("a", "worker-2", 30.0) == 2
            assert seqs(store) == [1, 2]


def test_a_restart_of_a_server_that_may_have_lost_a_second() -> None:
    with ValkeyServer("everysec") as server:
        server.start()
        with opened(server.url) as store:
            store.claim("a", "worker-1", 30.0)
            store.append([write("a", 0)])
            store.claim("a", "worker-1", 0)
        server.run("WAITAOF", 1, 0, 60_000)  # or the run as a whole may be gone
        server.kill()
        server.start()
        with opened(server.url) as store:
            error = refused(JournalDamaged, lambda: store.claim("a", "worker-2", 30.0))
            assert "the server was started anew" in str(error)


def test_what_stands_above_the_head_was_never_acknowledged() -> None:
    """A script that broke off in the middle: it is not read, and makes room."""
    with ValkeyServer("always") as server, closing(RedisStore(server.start().url)) as store:
        store.claim("a", "worker-1", 30.0)
        store.append([write("a", 0, b"one")])
        for last in (2, 3, 7):
            server.run("XADD", "indelible:{a}:log", f"{last}-1", "d", "stray")
        assert list(store.read("a")) == [Batch(0, 1, b"one")]
        assert store.append([Write("a", 1, Batch(1, 3, b"two"))]) == [None]
        assert list(store.read("a")) == [Batch(0, 1, b"one"), Batch(1, 3, b"two")]
        assert store.append([write("a", 3)]) == [None]


def test_a_server_that_forgot_its_scripts() -> None:
    with ValkeyServer("always") as server, closing(RedisStore(server.start().url)) as store:
        store.claim("a", "worker-1", 30.0)
        server.run("SCRIPT", "FLUSH")
        assert store.append([write("a", at) for at in range(30)]) == [None] * 30
        server.run("SCRIPT", "FLUSH")
        assert store.claim("a", "worker-1", 30.0) == 1
        assert len(seqs(store)) == 30
