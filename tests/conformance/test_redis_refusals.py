"""The Redis store where it must say no, and how it says it: opening, users, full disks, strange key spaces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from indelible.errors import FormatTooNew, IndelibleError, Misuse, StoreUnavailable
from indelible.stores import open_store
from indelible.stores.base import Label, Query
from indelible.stores.owner import Owner, enter
from indelible.stores.redis import RedisStore, RedisStoreWarning
from indelible.testing.conformance_kit import LABEL, SteppedClock, entries, refused, write
from tests.conformance.children import Child
from tests.servers.valkey import ValkeyServer, server

SECRET = "s3cret-of-the-house"


@pytest.fixture(scope="module")
def guarded() -> Iterator[ValkeyServer]:
    """A server with a password, and a user who may only read."""
    with ValkeyServer("always") as it:
        it.start().run("ACL", "SETUSER", "reader", "on", f">{SECRET}", "~*", "+@read", "+@connection", "+info", "+time")
        it.run("CONFIG", "SET", "requirepass", SECRET)
        it.password = SECRET
        yield it


def guarded_url(server: ValkeyServer, user: str = "", password: str = SECRET, query: str = "") -> str:
    return f"redis://{user}:{password}@127.0.0.1:{server.port}/0{query}"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "names no server"),
        ("redis://h:99999/0", "not a number below 65536"),
        ("redis://h:x/0", "not a number below 65536"),
        ("redis://h/runs", "the database is a number"),
        ("redis://h/0?prefix={x}", "prefix="),
        ("redis://h/0?prefix=", "prefix="),
        ("redis://h/0?db=1", "'db' of a redis:// URL is not known; known are prefix, wait, waitaof"),
        ("redis://h/0?wait=1&wait=2", "twice"),
        ("redis://h/0?wait=-1", "wait='-1'"),
        ("redis://h/0?wait=1&waitaof=1,0", "together"),
        ("redis://h/0?waitaof=2,0", "waitaof='2,0'"),
        ("redis://h/0?waitaof=0,0", "waitaof='0,0'"),
        ("redis://h/0?timeout_ms=0", "timeout_ms='0'"),
        ("redis://h/0?lost=yes", "one value, accept"),
        ("redis://h/0#x", "names no server"),
    ],
)
def test_urls_that_are_wrong(url: str, says: str) -> None:
    error = refused(Misuse, lambda: RedisStore(url))
    assert says in str(error)
    assert error.hint


def test_a_url_is_shown_without_its_password(guarded: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens the same store again, with the password from the environment."""
    with closing(RedisStore(guarded_url(guarded, query="?prefix=a.b&timeout_ms=5000"))) as store:
        assert store.url == f"redis://127.0.0.1:{guarded.port}/0?prefix=a.b&timeout_ms=5000"
        store.claim("a", "o", 30.0)
    monkeypatch.setenv("INDELIBLE_REDIS_PASSWORD", SECRET)
    with closing(open_store(store.url.replace("redis:", "valkey:"), clock=lambda: 0.0)) as again:
        assert [entry.run_id for entry in entries(again)] == ["a"]
        assert again.url.startswith("valkey://")


@pytest.mark.parametrize(("user", "password"), [("", "wr0ng-one"), ("nobody", "wr0ng-one"), ("", "")])
def test_a_wrong_password(guarded: ValkeyServer, user: str, password: str) -> None:
    error = refused(Misuse, lambda: RedisStore(guarded_url(guarded, user, password)))
    assert "password" in str(error)
    assert f"127.0.0.1:{guarded.port}, database 0" in str(error)
    assert "INDELIBLE_REDIS_PASSWORD" in error.hint
    assert "wr0ng-one" not in str(error) + repr(error.ids)


def test_a_server_that_is_not_there() -> None:
    """Gone before, and gone meanwhile; it is not waited for here."""
    with ValkeyServer("always") as gone:
        error = refused(StoreUnavailable, lambda: RedisStore(gone.url))
        assert "refuses connections" in str(error)
        assert f"redis-cli -h 127.0.0.1 -p {gone.port} ping" in str(error)
        with closing(RedisStore(gone.start().url)) as store:
            store.claim("a", "o", 30.0)
            gone.kill()
            for ask in (
                lambda: store.append([write("a", 0)]),
                lambda: list(store.read("a")),
                lambda: store.list_runs(Query()),
                lambda: store.claim("a", "o", 30.0),
                lambda: store.put_snapshot("a", 1, b""),
                lambda: store.get_snapshot("a", 1),
                lambda: store.delete("a"),
            ):
                refused(StoreUnavailable, ask)
    assert "cannot be found" in str(refused(StoreUnavailable, lambda: RedisStore("redis://no-such-host.invalid/0")))


def test_a_server_that_does_not_answer() -> None:
    with ValkeyServer("always") as frozen:
        with closing(RedisStore(f"{frozen.start().url}?timeout_ms=1")) as store:
            store.claim("a", "o", 30.0)
        frozen.freeze()
        error = refused(StoreUnavailable, lambda: RedisStore(f"{frozen.url}?timeout_ms=1"))
        assert "did not answer within 1 ms" in str(error)


def test_tls_where_there_is_none() -> None:
    error = refused(StoreUnavailable, lambda: RedisStore(server().url.replace("redis:", "rediss:") + "?timeout_ms=50"))
    assert "redis:// instead of rediss:// if it does not speak TLS" in error.hint


def test_a_newer_format() -> None:
    url = server().fresh()
    server().run("SET", url.partition("prefix=")[2] + ":{index}:format", "2")
    assert "pip install --upgrade" in refused(FormatTooNew, lambda: RedisStore(url)).hint


@pytest.mark.parametrize("what", ["cache:user:7", "{index}:format", "{index}:order", "{a}:run"])
def test_a_key_space_that_holds_something_else(what: str) -> None:
    """Nothing of it is touched."""
    url = server().fresh()
    key = f"{url.partition('prefix=')[2]}:{what}"
    server().run("SET", key, "mine")

    def use() -> None:
        with closing(RedisStore(url)) as store:
            store.claim("a", "o", 30.0)
            store.list_runs(Query())

    error = refused(Misuse, use)
    assert "something else" in str(error)
    assert "prefix" in error.hint
    assert server().run("GET", key) == "mine"


def test_a_user_who_may_only_read(guarded: ValkeyServer) -> None:
    with closing(RedisStore(guarded_url(guarded, query="?prefix=read"))) as store:
        store.claim("a", "o", 30.0)
        store.append([write("a", 0, label=LABEL)])
        store.put_snapshot("a", 1, b"snap")
    error = refused(Misuse, lambda: RedisStore(guarded_url(guarded, "reader", query="?prefix=read")))
    assert "does not let this user" in str(error)
    assert "ACL SETUSER" in error.hint
    assert "~read:*" in error.hint
    with closing(RedisStore(guarded_url(guarded, "reader", query="?prefix=read"), readonly=True)) as store:
        assert [entry.head for entry in entries(store)] == [1]
        assert [batch.last_seq for batch in store.read("a")] == [1]
        assert store.get_snapshot("a", 9) == (1, b"snap")
        for change in (
            lambda: store.append([write("a", 1)]),
            lambda: store.claim("a", "o", 30.0),
            lambda: store.put_snapshot("a", 1, b""),
            lambda: store.delete("a"),
        ):
            assert "read-only" in str(refused(Misuse, change))


def test_the_least_that_a_user_needs(guarded: ValkeyServer) -> None:
    """The rights that the page on this store and the hint name are enough for all of it."""
    error = refused(Misuse, lambda: RedisStore(guarded_url(guarded, "reader", query="?prefix=least")))
    _, _, _, name, *rights = error.hint.replace("'", "").split()
    guarded.run("ACL", "SETUSER", name, *(SECRET.join(right.split("PASSWORD")) for right in rights))
    with pytest.warns(RedisStoreWarning, match="does not tell when it syncs its file"):
        store = RedisStore(guarded_url(guarded, name, query="?prefix=least"))
    with closing(store):
        assert store.durable, "CONFIG is not for this user, so each write waits for the disk"
        store.claim("a", "o", 30.0)
        assert store.append([write("a", at) for at in range(20)]) == [None] * 20
        store.put_snapshot("a", 10, b"", begins=True)
        assert [entry.head for entry in entries(store)] == [20]
        assert store.now() > 0
        assert list(store.facts())
        store.delete("a")
        assert store.reclaim() >= 0


def test_a_replica() -> None:
    with ValkeyServer("always") as primary, ValkeyServer("always") as replica:
        with closing(RedisStore(primary.start().url)) as store:
            store.claim("a", "o", 30.0)
        replica.start().follow(primary)
        error = refused(StoreUnavailable, lambda: RedisStore(replica.url))
        assert f"is a replica of 127.0.0.1:{primary.port}" in str(error)
        with closing(RedisStore(replica.url, readonly=True)) as store:
            assert [entry.run_id for entry in entries(store)] == ["a"]
            assert any(fact.name == "role" for fact in store.facts())
        with closing(RedisStore(primary.url)) as store:
            primary.run("REPLICAOF", "127.0.0.1", 1)
            refused(StoreUnavailable, lambda: store.append([write("a", 0)]))


def test_a_server_without_a_file_is_no_durable_store() -> None:
    with ValkeyServer(None) as forgetful:
        error = refused(StoreUnavailable, lambda: RedisStore(forgetful.start().url))
        assert "keeps nothing on disk" in str(error)
        assert "CONFIG SET appendonly yes" in error.hint
        assert "?durability=os" in error.hint
        with pytest.warns(RedisStoreWarning):
            by_url = RedisStore(f"{forgetful.url}?durability=os")
        with closing(by_url):
            assert not by_url.durable
            assert "durability=os" in by_url.url
        assert "full or os" in str(refused(Misuse, lambda: RedisStore(f"{forgetful.url}?durability=maybe")))
        with pytest.warns(RedisStoreWarning, match="when it ends, every run on it is lost"):
            store = RedisStore(forgetful.url, durability="os")
        with closing(store):
            assert not store.durable
            bad = {fact.name for fact in store.facts() if fact.verdict == "bad"}
            assert bad == {"append-only file", "durability"}


def test_a_server_that_syncs_every_second() -> None:
    """Each commit waits for the disk, and the warning says what would be faster."""
    everysec = server("everysec")
    with pytest.warns(RedisStoreWarning, match="CONFIG SET appendfsync always"):
        store = RedisStore(everysec.fresh())
    with closing(store):
        assert store.durable
        store.claim("a", "o", 30.0)
        assert store.append([write("a", 0), write("a", 1)]) == [None, None]
        assert int(everysec.run("INFO", "persistence")["aof_pending_bio_fsync"]) == 0
    with closing(RedisStore(store.url, readonly=True)) as store:
        facts = {fact.name: fact for fact in store.facts()}
        assert facts["appendfsync"].value == "everysec: each commit waits for the disk"
        assert {fact.verdict for fact in facts.values()} == {"ok", "note"}
    with pytest.warns(RedisStoreWarning, match="the last second or two"):
        RedisStore(everysec.fresh(), durability="os").close()
    with pytest.warns(RedisStoreWarning, match="not yet written to disk"):
        RedisStore(server("no").fresh(), durability="os").close()


def test_a_server_that_stops_keeping_things() -> None:
    """It is looked at again at each claim, and a store that was durable does not become one that is not."""
    with ValkeyServer("always") as always, closing(RedisStore(always.start().url)) as store:
        store.claim("a", "o", 30.0)
        always.run("CONFIG", "SET", "appendonly", "no")
        assert "keeps nothing on disk" in str(refused(StoreUnavailable, lambda: store.claim("a", "o", 30.0)))


def test_a_file_that_is_not_always_synced() -> None:
    with ValkeyServer("always", "--no-appendfsync-on-rewrite", "yes") as lazy:
        with pytest.warns(RedisStoreWarning, match="always, but not while it is rewritten, so each commit waits"):
            store = RedisStore(lazy.start().url)
        with closing(store):
            store.claim("a", "o", 30.0)
            assert store.append([write("a", 0)]) == [None]


def test_a_node_of_a_cluster() -> None:
    with ValkeyServer("always", "--cluster-enabled", "yes") as node:
        error = refused(Misuse, lambda: RedisStore(node.start().url))
        assert "runs as cluster" in str(error)


def test_a_server_that_drops_keys() -> None:
    with ValkeyServer("always", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru") as evicting:
        error = refused(StoreUnavailable, lambda: RedisStore(evicting.start().url))
        assert "maxmemory-policy noeviction" in error.hint
        evicting.run("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        with closing(RedisStore(evicting.url)) as store:
            assert all(fact.verdict == "ok" for fact in store.facts()), "none of our keys expires"


def test_no_memory_left() -> None:
    """What was refused has left nothing, and what is there can be read and deleted."""
    with ValkeyServer("always", "--maxmemory", "12mb") as small, closing(RedisStore(small.start().url)) as store:
        store.claim("a", "o", 30.0)
        at = 0
        with pytest.raises(StoreUnavailable, match="no memory left") as full:
            while True:
                store.append([write("a", at, b"x" * 100_000)])
                at += 1
        assert "maxmemory" in full.value.hint
        assert [batch.last_seq for batch in store.read("a")] == list(range(1, at + 1))
        assert entries(store)[0].head == at
        refused(StoreUnavailable, lambda: store.put_snapshot("a", 1, b"x" * 100_000))
        store.delete("a")
        for _ in range(5_000):  # the server frees what is large in the background
            with suppress(StoreUnavailable):
                store.claim("b", "o", 30.0)
                break
        assert [entry.run_id for entry in entries(store)] == ["b"]
        assert store.append([write("b", 0)]) == [None]
        assert store.reclaim() >= 0


def test_the_disk_of_the_server_is_full() -> None:
    """It says so, and takes no more. What was acknowledged is there when it has room again; no half of anything."""
    with ValkeyServer("everysec") as full:
        full.start(file_limit=1 << 20)
        with pytest.warns(RedisStoreWarning):
            store = RedisStore(f"{full.url}?timeout_ms=3000")
        with closing(store):
            store.claim("a", "o", 30.0)
            store.append([write("a", 0)])
            with pytest.raises(StoreUnavailable) as refusal:
                for _ in range(40):
                    store.append([write("a", 1, b"x" * 1_100_000)])
            assert refusal.value.hint
        full.kill()
        full.start()
        with pytest.warns(RedisStoreWarning):
            store = RedisStore(full.url)
        with closing(store):
            seqs = [batch.last_seq for batch in store.read("a")]
            assert seqs[0] == 1
            assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize("run_id", ["../x", "a/b", "{index}", "a}b", "}{", "a:run", "*", "[x]"])
def test_a_run_id_that_is_a_path_or_a_tag(run_id: str) -> None:
    with closing(RedisStore(server().fresh())) as store:
        if "/" in run_id:
            refused(Misuse, lambda: store.claim(run_id, "o", 30.0))
            return
        store.claim(run_id, "o", 30.0)
        store.append([write(run_id, 0, run_id.encode())])
        prefix = store.url.partition("prefix=")[2]
        keys = [key for key in server().run("KEYS", f"{prefix}:*") if "{index}:" not in key]
        assert len({key[key.index("{") : key.index("}") + 1] for key in keys}) == 1, "one slot in a cluster"
        assert [batch.data for batch in store.read(run_id)] == [run_id.encode()]
        store.delete(run_id)
        assert [server().run("TYPE", key) for key in server().run("KEYS", f"{prefix}:*{{*}}:log")] == []


def test_values_that_no_server_takes() -> None:
    with closing(RedisStore(server().fresh())) as store:
        store.claim("a", "o", 30.0)
        (large, good) = store.append([write("a", 0, b"x" * (512 << 20)), write("a", 0)])
        assert isinstance(large, Misuse)
        assert good is None
        refused(Misuse, lambda: store.put_snapshot("a", 1, b"x" * (512 << 20)))


def test_ten_processes_open_a_new_store_at_once() -> None:
    """B79: one makes it, all find it, and what the first has written already is not taken for somebody else's."""
    url = server().fresh()

    def work(number: int) -> Callable[[Child], None]:
        def opening(test: Child) -> None:
            test.hear()
            with closing(RedisStore(url)) as store:
                store.claim(f"run-{number}", "o", 30.0)
                assert store.append([write(f"run-{number}", 0), write(f"run-{number}", 1)]) == [None, None]

        return opening

    children = [Child(work(number)) for number in range(10)]
    for child in children:
        child.say("go")
    assert [child.ended() for child in children] == [0] * 10
    with closing(RedisStore(url, readonly=True)) as store:
        assert sorted((entry.run_id, entry.head) for entry in entries(store)) == [(f"run-{n}", 2) for n in range(10)]


def test_both_sides_of_a_fork() -> None:
    """B105: no connection is shared, and the child holds nothing of its parent's."""
    with closing(RedisStore(server().fresh())) as store:
        enter("parent")
        store.claim("parent", Owner.here("parent"), 30.0)
        store.append([write("parent", 0)])

        def work(_test: Child) -> None:
            store.claim("child", "o", 30.0)
            for at in range(50):
                assert store.append([write("child", at)]) == [None]
            store.close()

        with Child(work) as child:
            for at in range(1, 50):
                assert store.append([write("parent", at)]) == [None]
            assert child.ended() == 0
        assert sorted(entry.head for entry in entries(store)) == [50, 50]


def test_time_is_the_server_s() -> None:
    """B62: this machine's clock decides nothing."""
    with closing(RedisStore(server().fresh())) as store:
        seconds, _ = server().run("TIME")
        assert abs(store.now() - int(seconds)) < 5
        store.claim("a", "o", 30.0)
        assert abs(entries(store)[0].created_at - store.now()) < 5
    with closing(RedisStore(server().fresh(), clock=SteppedClock(5.0))) as store:
        assert store.now() == 5.0


def test_forty_thousand_runs_are_listed_in_pages() -> None:
    """B111: also where few of them match."""
    with closing(RedisStore(server("always").fresh())) as store:
        prefix = store.url.partition("prefix=")[2]
        for start in range(0, 40_000, 20_000):
            server().run("EVAL", """
                for n = tonumber(ARGV[2]), tonumber(ARGV[2]) + 19999 do
                    local number = redis.call('INCR', ARGV[1] .. ':{index}:count')
                    redis.call('ZADD', ARGV[1] .. ':{index}:order', number, 'r' .. n)
                    redis.call('HSET', ARGV[1] .. ':{r' .. n .. '}:run', 'head', '1', 'epoch', '1', 'wake_at', '',
                        'agent', 'research', 'status', n % 1000 == 0 and 'parked' or 'finished',
                        'created_at', '1', 'about', '')
                end""", 0, prefix, start)  # fmt: skip
        parked = entries(store, Query(statuses=frozenset({"parked"})))
        assert [entry.run_id for entry in parked] == [f"r{n}" for n in range(39_000, -1, -1000)]
        assert len(store.list_runs(Query(limit=100)).runs) == 100
        assert parked[0].label == Label("research", "parked", None, b"")


def test_an_error_shows_no_payload() -> None:
    """What a server complains of may repeat what it was sent."""
    url = server().fresh()
    prefix = url.partition("prefix=")[2]
    with closing(RedisStore(url)) as store:
        store.claim("a", "o", 30.0)
        server().run("DEL", f"{prefix}:{{a}}:log")
        server().run("SET", f"{prefix}:{{a}}:log", "x")
        with pytest.raises(IndelibleError) as error:
            store.append([write("a", 0, SECRET.encode())])
        assert SECRET not in str(error.value)
        assert entries(store)[0].head == 0
        assert os.path.basename(__file__) not in error.value.hint
