"""What a server has lost of a run: noticed at a claim or an append, and made good from memory or reported.

Owns: claims, and the judgment of whether acknowledged events may be missing.
Must never: write over what another claimant wrote, or let a run go on behind its lost end without saying so.
Invariant: a run is written again only on top of what this process knows to be its own, compared byte for byte.

While the process that holds a run lives, it knows what was acknowledged. If the store's head is behind that, and nobody
has claimed the run meanwhile, the missing batches are written again. When it is gone nobody knows, so the stamp that
each write leaves with its run decides: if the server is another one now, and what was acknowledged under the stamp need
not be in its data, the run is not claimed until somebody opens the store with `lost=accept`.
"""

from __future__ import annotations

import shlex
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from indelible.errors import IndelibleError, JournalDamaged, LeaseLost, RunBusy, StoreUnavailable
from indelible.stores import redis_scripts as lua
from indelible.stores import refusals
from indelible.stores.base import Label, Write
from indelible.stores.owner import is_gone
from indelible.stores.redis_keys import Keys, packed, plain
from indelible.stores.redis_link import Command, Link, evalsha
from indelible.stores.redis_memory import Held, Memory
from indelible.stores.redis_server import Stamp

LOOK = "?"
"""A token that no claim has: the script then answers, and changes nothing."""
TRIES = 8


class RedisStoreWarning(UserWarning):
    """What a server guarantees less than one may think, or what was lost on it and written again."""


class _Answer(NamedTuple):
    """What the script that claims says of a run; `head` is "" for a run that is not there."""

    word: str
    head: str
    epoch: str
    token: str
    owner: str
    lease_until: str
    before: str
    stamp: str
    now: str


class Recovery:
    """Claims on one store, and what is done when its server has lost something."""

    def __init__(self, link: Link, keys: Keys, memory: Memory, now: Callable[[], str]) -> None:
        self.notices: list[str] = []
        self._link = link
        self._keys = keys
        self._memory = memory
        self._now = now
        self.after_fork()

    def after_fork(self) -> None:
        """A thread of the parent may hold the lock, and is not here."""
        self._mutex = threading.Lock()

    def claim(self, run_id: str, owner: str, ttl_s: float) -> int:
        """See `Store.claim`."""
        if ttl_s == 0:
            return self._release(run_id, owner)
        self._link.look_again()
        held = self._memory.of(run_id)
        if held is not None and held.owner == owner:
            if self._renew(held, ttl_s):
                return held.epoch
            self._memory.release(run_id)  # another has claimed it meanwhile
        return self._take(run_id, owner, ttl_s)

    def makes_good(self, write: Write, head: int, answer: Any) -> bool:
        """True if the write was refused because the server has lost what we wrote, and has it again.

        Raises `JournalDamaged` if it has lost more than is in memory. `head` is ours before the write was sent.
        """
        found = [plain(part) for part in answer]
        held = self._memory.of(write.run_id)
        if held is None or held.epoch != write.epoch:
            return False
        there, token = ("", "") if found[0] == "unknown" else (found[1], found[4])
        if found[0] == "refused" and found[3] == "1":
            return False
        if token == held.token and int(there or 0) >= head:
            return False
        if token != held.token and not self._is_before(held, token, there):
            return False
        return self._memory.adopt(write) and self._restore(held, there, token)

    def refused(self, write: Write, answer: Any) -> IndelibleError:
        """Why a write was refused."""
        found = [plain(part) for part in answer]
        inbox = refusals.is_inbox(write.run_id)
        if found[0] == "unknown":
            try:
                refusals.check_journal_id(write.run_id)
            except IndelibleError as error:
                if inbox and write.epoch == 0 and write.batch.after_seq == 0:
                    return error
            return refusals.stale(write, head=0 if inbox else None)
        head, epoch, deleted = int(found[1]), int(found[2]), found[3] == "1"
        if not deleted and head == write.batch.after_seq and epoch == write.epoch:
            self._memory.release(write.run_id)
            return LeaseLost(
                f"run {write.run_id!r} was taken over: after a failover another writer was given epoch {epoch} as well",
                hint="stop here; the new owner carries on from the journal",
                run_id=write.run_id, epoch=epoch, head=head,
            )  # fmt: skip
        return refusals.stale(write, head=head, epoch=epoch, deleted=deleted)

    def confirm(self, run_id: str) -> None:
        """Have a write of unknown fate as durable as was asked for, before anybody reads that it is there.

        What waits for a later write waits for the earlier ones as well, also for those of another connection.
        """
        held = self._memory.of(run_id)
        if held is not None and held.unsure and self._link.waits:
            for answer in self._link.write(lambda _: [self._index("XX", run_id)]):
                self._link.good(answer)

    def unknown(self, run_id: str, *, deleted: bool = False) -> IndelibleError:
        """No such run, and why that need not mean that there never was one."""
        error: IndelibleError = refusals.unknown(run_id, deleted=deleted)
        server = self._link.server
        if not deleted and not server.aof:
            why = f"{error.what}; its server keeps nothing on disk, and was started {server.uptime_s} s ago"
            error = type(error)(why, hint=error.hint, **error.ids)
        return error

    def _renew(self, held: Held, ttl_s: float) -> bool:
        """Renew our claim, and make good what the server has lost under it. False if the run is another's now."""
        for _ in range(TRIES):
            head = held.head
            answer = self._claim(held.run_id, held.owner, ttl_s, mine=held.token)
            if answer.word == "deleted":
                raise self._gone(held.run_id)
            if answer.word == "ours" and int(answer.head) >= head:
                held.ttl_s = ttl_s
                return True
            if answer.word != "ours" and not self._is_before(held, answer.token, answer.head):
                return False
            if self._restore(held, answer.head, answer.token):
                return True  # else an append may have done it at the same moment: look again
        return False

    def _take(self, run_id: str, owner: str, ttl_s: float) -> int:
        """Claim a run of which this process holds nothing."""
        witnessed = self._memory.witnessed(run_id)
        accepted = self._link.place.accept_loss
        if witnessed and not accepted:
            seen = self._claim(run_id, owner, ttl_s, mine=LOOK)
            if seen.word != "deleted" and int(seen.head or 0) < witnessed:
                why = f"events up to {witnessed} were acknowledged to this process"
                raise self._lost(run_id, int(seen.head or 0), why)
        gone = trusted = ""
        for _ in range(TRIES):
            answer = self._claim(run_id, owner, ttl_s, gone=gone, trusted=trusted)
            if answer.word == "ours":
                head = int(answer.head or 0)
                self._memory.hold(
                    Held(run_id, owner, ttl_s, int(answer.epoch), answer.token, answer.before, head, head)
                )
                return int(answer.epoch)
            if answer.word == "deleted":
                raise self._gone(run_id)
            if answer.word == "held":
                gone = self._must_be_gone(run_id, owner, answer)
            else:
                trusted = self._must_be_whole(run_id, answer, accepted)
        raise RunBusy(f"run {run_id!r} is claimed by too many at once", hint="try again", run_id=run_id)

    def _must_be_gone(self, run_id: str, owner: str, answer: _Answer) -> str:
        if not is_gone(answer.owner):
            refusals.epoch_for(
                run_id, owner, epoch=int(answer.epoch), holder=answer.owner,
                lease_until=float(answer.lease_until), now=float(answer.now),
            )  # fmt: skip
        return answer.owner

    def _must_be_whole(self, run_id: str, answer: _Answer, accepted: bool) -> str:
        stamp, server = Stamp.parse(answer.stamp), self._link.server
        whole = stamp is not None and server.has_all_of(stamp)
        if not whole and not accepted:
            became = "it is not known under which server" if stamp is None else server.became(stamp)
            raise self._lost(run_id, int(answer.head), f"{became} since it was last written")
        if not whole:
            self._notice(f"run {run_id!r} goes on behind event {answer.head}; what was acknowledged after it is lost")
        return answer.stamp

    def _lost(self, run_id: str, head: int, why: str) -> JournalDamaged:
        url = self._link.place.shown
        again = shlex.quote(f"{url}{'&' if '?' in url else '?'}lost=accept")
        name, here = shlex.quote(run_id), shlex.quote(url)
        return JournalDamaged(
            f"run {run_id!r} ends at event {head}, and what was acknowledged after it may be missing: {why}",
            hint=f"look what was done last (indelible effects {name} --store {here}), then go on from event {head}: "
            f"indelible resume {name} --store {again}",
            run_id=run_id,
            head=head,
            store=url,
        )

    def _is_before(self, held: Held, token: str, head: str) -> bool:
        """True if the store is as it was before our claim: nobody has claimed the run since."""
        return token == held.before if head else True

    def _restore(self, held: Held, there: str, token: str) -> bool:
        """Write again what is missing after the head that is `there`. False if the run is not as we left it."""
        head = int(there or 0)
        with self._mutex:
            missing = held.missing(head)
            if missing is None:
                raise JournalDamaged(
                    f"run {held.run_id!r}: the server has lost events {head + 1} to {held.head}, which it had "
                    f"acknowledged, and only those after {held.kept_from} are still in the memory of this process",
                    hint=f"indelible effects {shlex.quote(held.run_id)} --store {shlex.quote(self._link.place.shown)}",
                    run_id=held.run_id, head=head, acknowledged=held.head,
                )  # fmt: skip
            if head > held.kept_from and not self._is_ours(held, head):
                return False
            if not self._rewrite(held, there, token, [part for batch in missing for part in batch]):
                return False
        if missing:
            self._notice(
                f"run {held.run_id!r}: the server had lost events {head + 1} to {held.head}, which it had acknowledged;"
                " they were written again from memory"
            )
        return True

    def _rewrite(self, held: Held, there: str, token: str, batches: Sequence[Any]) -> bool:
        def make(stamp: str) -> list[Command]:
            label = held.label or Label("", "", None, b"")
            wake_at = "" if label.wake_at is None else repr(label.wake_at)
            restoring = evalsha(
                lua.RESTORE, self._keys.of(held.run_id), self._now(), there, token, held.epoch, held.token,
                packed(held.owner), repr(held.ttl_s), stamp, int(held.label is not None), packed(label.agent),
                packed(label.status), wake_at, label.about, *batches,
            )  # fmt: skip
            return [self._index("NX", held.run_id), restoring]

        return all(self._link.good(answer) == b"OK" for answer in self._link.write(make))

    def _is_ours(self, held: Held, head: int) -> bool:
        ours = held.ending(head)
        _, log = self._keys.of(held.run_id)
        found = self._link.one("XRANGE", log, f"{head}-0", f"{head}-18446744073709551615", "COUNT", 1)
        if ours is None or not found:
            return False
        return bool(found[0][0] == b"%d-%d" % (head, ours.after_seq) and found[0][1][1] == ours.data)

    def _release(self, run_id: str, owner: str) -> int:
        held = self._memory.of(run_id)
        answer = self._claim(run_id, owner, 0)
        if held is not None and held.owner == owner:
            self._memory.release(run_id)
        if answer.word in ("deleted", "unknown"):
            raise self.unknown(run_id, deleted=answer.word == "deleted")
        return int(answer.epoch)

    def _claim(
        self, run_id: str, owner: str, ttl_s: float, *, mine: str = "", gone: str = "", trusted: str = ""
    ) -> _Answer:
        new = ttl_s > 0 and not mine

        def make(stamp: str) -> list[Command]:
            claiming = evalsha(
                lua.CLAIM, self._keys.of(run_id)[:1], self._now(), packed(owner), repr(ttl_s) if ttl_s else "0", mine,
                packed(gone), trusted, stamp,
            )  # fmt: skip
            # The index first, so that no run is ever missing from it.
            return [self._index("NX", run_id), claiming] if new else [claiming]

        # A renewal or a release that is lost does no harm.
        answers = self._link.write(make, wait=new)
        for answer in answers:
            self._link.good(answer)
        return _Answer(*(plain(part) for part in answers[-1]))

    def _gone(self, run_id: str) -> IndelibleError:
        self._memory.release(run_id, deleted=True)
        try:
            self._link.ask(("ZREM", self._keys.order, packed(run_id)))
        except StoreUnavailable:
            pass  # an index that names a run which is not there does no harm
        return self.unknown(run_id, deleted=True)

    def _index(self, how: str, run_id: str) -> Command:
        return evalsha(lua.TOUCH, (self._keys.order, self._keys.count), how, packed(run_id))

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        warnings.warn(text, RedisStoreWarning, stacklevel=4)
