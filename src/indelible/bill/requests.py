"""What a run asks of object storage, counted by running one: requests and dollars for 1,000 cycles.

Owns: the run that is counted, the bucket that counts, and what each request was for.
Must never: tell a number that was not counted; use the network, or the time of this machine.
Invariant: the store at work is the one that runs use; only the bucket below it is a dictionary.

The run that is counted makes in each cycle `CALLS` paid calls of `CALL_S` seconds and `CALL_USD` dollars each, on a
clock that is set on by hand, and renews its lease every third of it, as a run does. A listing is billed as a write by
all three providers, and a deletion not at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import indelible as ind
from indelible.bill.economics import FLUSH_S
from indelible.bill.prices import PER, Prices
from indelible.core.costs import SECONDS_PER_HOUR, Economy
from indelible.runtime.leases import TTL_S
from indelible.runtime.runstore import RunStore
from indelible.stores.base import Query, Store
from indelible.stores.objects import ObjectStore
from indelible.stores.objects_bucket import Found, Item

CYCLES = 1_000
CALLS = 3
CALL_S = 10.0
CALL_USD = 0.01
MTBF_HOURS = 24.0
USD_PER_HOUR = 1.0
RUNS = 1_000
"""So many runs are listed."""
PROVIDERS = ("s3-standard", "gcs-standard", "azure-blob-hot")
_PER_LISTING = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """What one thing asks of the bucket, by kind of request."""

    what: str
    puts: int
    lists: int
    gets: int
    deletes: int

    def dollars(self, prices: Prices, provider: str) -> float:
        """What that provider charges for it, without the space."""
        figures = prices[provider].figures
        write, read = figures["write_request"], figures["read_request"]
        return math.fsum(
            (
                (self.puts + self.lists) * write.value / PER[write.unit],
                self.gets * read.value / PER[read.unit],
            )
        )


def counted(prices: Prices) -> list[Row]:
    """All that is counted; takes a few seconds."""
    dear = prices["s3-standard"].figures["write_request"]
    per_write = dear.value / PER[dear.unit] + FLUSH_S["s3-standard"] * USD_PER_HOUR / SECONDS_PER_HOUR
    economy = Economy(MTBF_HOURS * SECONDS_PER_HOUR, 0.0, per_write)
    rows: list[Row] = []
    around: list[Row] = []
    for setting, rule in (("full", None), ("os", None), ("economic", economy)):
        bucket = _cycles(rule)
        rows.append(bucket.row(f"{CYCLES:,} cycles, {setting}", "batches", "messages", "merging", "lease"))
        rows += [
            bucket.row(f"  of which {name}, {setting}", purpose)
            for name, purpose in (("batches", "batches"), ("the inbox", "messages"),
                                  ("merging old entries", "merging"), ("the lease", "lease"))
        ]  # fmt: skip
        if setting == "full":
            around = [bucket.row("starting a run", "starting"), bucket.row("ending and releasing it", "ending"),
                      bucket.row(f"reading it again, {CYCLES:,} cycles", "reading")]  # fmt: skip
    return [*rows, *around, *_idle(), *_listings()]


class Clock:
    """A clock that is set on by hand. Epoch seconds."""

    def __init__(self) -> None:
        self.at = 1_700_000_000.0
        self._drawn = 0

    def now(self) -> float:
        """The time."""
        return self.at

    def sleep(self, seconds: float) -> None:
        """Set it on."""
        self.at += seconds

    async def asleep(self, seconds: float) -> None:
        """Set it on."""
        self.at += seconds

    def entropy(self, size: int) -> bytes:
        """Bytes that are the same every time."""
        self._drawn += 1
        return (blake2b(self._drawn.to_bytes(8, "big")).digest() * (size // 64 + 1))[:size]


class Counting:
    """A bucket in a dictionary that counts what is asked of it, by purpose."""

    grain_s = 1.0
    where = "a bucket that counts"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, Found] = {}
        self._sorted: list[str] = []
        self._made: Counter[tuple[str, str]] = Counter()
        self._purpose = ""

    @contextmanager
    def purpose(self, name: str) -> Iterator[None]:
        """What all requests are for meanwhile."""
        before, self._purpose = self._purpose, name
        try:
            yield
        finally:
            self._purpose = before

    def row(self, what: str, *purposes: str) -> Row:
        """What was asked for these purposes."""

        def sum_of(*kinds: str) -> int:
            return sum(self._made[purpose, kind] for purpose in purposes for kind in kinds)

        return Row(what, sum_of("put"), sum_of("list"), sum_of("get"), sum_of("delete"))

    def create(self, path: str, data: bytes) -> bool:
        """See `Bucket.create`."""
        self._count("put", path)
        return path not in self._objects and self._keep(path, data)

    def put(self, path: str, data: bytes) -> None:
        """See `Bucket.put`."""
        self._count("put", path)
        self._keep(path, data)

    def get(self, path: str) -> Found | None:
        """See `Bucket.get`."""
        self._count("get", path)
        return self._objects.get(path)

    def modified(self, path: str) -> float | None:
        """See `Bucket.modified`."""
        found = self.get(path)
        return None if found is None else found.modified

    def list(self, prefix: str, after: str = "") -> Iterator[Sequence[Item]]:
        """See `Bucket.list`."""
        found = sorted(path for path in list(self._objects) if path.startswith(prefix) and path > after)
        for at in range(0, max(1, len(found)), _PER_LISTING):
            self._count("list", prefix)
            chunk = [(path, self._objects[path]) for path in found[at : at + _PER_LISTING]]
            if chunk:
                yield [Item(path, one.modified, len(one.data), blake2b(one.data, digest_size=8).hexdigest())
                       for path, one in chunk]  # fmt: skip

    def remove(self, paths: Sequence[str]) -> None:
        """See `Bucket.remove`."""
        for path in paths:
            self._count("delete", path)
            self._objects.pop(path, None)

    def keep(self, path: str) -> None:
        """See `Bucket.keep`."""

    def time(self) -> float | None:
        """See `Bucket.time`."""
        return None

    def _keep(self, path: str, data: bytes) -> bool:
        self._objects[path] = Found(data, self._clock.now())
        return True

    def _count(self, kind: str, path: str) -> None:
        purpose = self._purpose
        if purpose == "cycles":
            if path.startswith("inboxes/"):
                purpose = "messages"
            else:
                purpose = "batches" if kind == "put" and "/log/" in path else "merging"
        self._made[purpose, kind] += 1


def _cycles(economy: Economy | None) -> Counting:
    """A run of that many cycles, counted between its second cycle and the one after the last that counts."""
    clock = Clock()
    bucket = Counting(clock)
    store: Store = ObjectStore.over(bucket, "s3://bucket", clock=clock.now, background=False)
    runs = RunStore(store, clock, economy)
    owner: list[str] = []

    @ind.action
    def call(number: int) -> int:
        clock.sleep(CALL_S)
        ind.usage(usd=CALL_USD)
        with bucket.purpose("lease" if bucket._purpose == "cycles" else bucket._purpose):
            store.claim("run", owner[0], TTL_S)
        return number

    class Work(ind.State):
        done: int = 0

    @ind.agent(state=Work, version=1)
    def work(run: ind.Run[Work]) -> None:
        if run.state.done == 1:
            bucket._purpose = "cycles"
        elif run.state.done == CYCLES + 1:
            bucket._purpose = "ending"
        if not owner:
            owner.append(store.list_runs(Query(run_ids=("run",))).runs[0].owner)
        for number in range(CALLS):
            call(number)
        run.state.done += 1
        if run.state.done == CYCLES + 2:
            run.finish("done")

    with runs:
        bucket._purpose = "starting"
        outcome: Any = work.run("count requests", store=runs, run_id="run")
        assert outcome.is_finished
        bucket._purpose = "reading"
        other = ObjectStore.over(bucket, "s3://bucket", clock=clock.now, background=False)
        bucket._made[("reading", "put")] = bucket._made[("reading", "get")] = 0  # opening has a row of its own
        assert sum(1 for _ in other.read("run")) > CYCLES
        other.close()
    return bucket


def _idle() -> Iterator[Row]:
    """Opening, and an hour in which a run is held and nothing is written."""
    clock = Clock()
    bucket = Counting(clock)
    with bucket.purpose("making"):
        ObjectStore.over(bucket, "s3://bucket", clock=clock.now).close()
    with bucket.purpose("opening"):
        store = ObjectStore.over(bucket, "s3://bucket", clock=clock.now, background=False)
    yield bucket.row("opening a store", "opening")
    store.claim("run", "owner", TTL_S)
    with bucket.purpose("idle"):
        for _ in range(int(SECONDS_PER_HOUR / (TTL_S / 3))):
            clock.sleep(TTL_S / 3)
            store.claim("run", "owner", TTL_S)
    yield bucket.row("holding an idle run for an hour", "idle")
    store.close()


def _listings() -> Iterator[Row]:
    """The first listing of many runs by a process, and the next."""
    clock = Clock()
    bucket = Counting(clock)
    store = ObjectStore.over(bucket, "s3://bucket", clock=clock.now, background=False)
    for number in range(RUNS):
        store.claim(f"run-{number}", "owner", TTL_S)
        if number % 10:
            store.claim(f"run-{number}", "owner", 0.0)
    store.close()
    reader = ObjectStore.over(bucket, "s3://bucket", clock=clock.now, background=False)
    for turn in ("first", "again"):
        with bucket.purpose(turn):
            assert len(reader.list_runs(Query(limit=RUNS)).runs) == RUNS
        yield bucket.row(f"listing {RUNS:,} runs, a tenth of them held, {turn}", turn)
    reader.close()
