"""Faults of one line that the simulated sweep must notice. A table, and nothing else."""

from __future__ import annotations

from tests.mutants.planting import Mutant

INTENT = "yield Append(intent, durable=True)"
CALL = "called: Called = yield Call(spec.fn, a.args, kwargs, child)"
EARLY = (
    "yield Append(ev.ActionCompleted(0.0, live.record.cycle, a.call, spec.name, spec.effect, NONE, "
    "business=bool(a.business)), durable=True); "
)
FOLD = "fold(start.record, opened.after_seq + 1 + offset, event)"
COMPLETION = "yield Append(event, durable=worth)"
FLUSH = "    yield FLUSH\n    yield from keep_snapshot(live)"
EPOCH = "journal.head != batch.after_seq or journal.epoch != epoch:"
CHANGES = "changes = live.workspace.changes()"
SNAPSHOT = "(live.record.run_id, live.record.seq, data)"

SWEPT = (
    Mutant("skip the intent", "core/perform.py", INTENT, "pass", "has no intent of it"),
    Mutant("the intent is not durable", "core/perform.py", INTENT, "yield Append(intent)", "repeated: order"),
    Mutant("complete before the call", "core/perform.py", CALL, EARLY + CALL, "happened (call); it did not"),
    Mutant("the completion is not durable", "core/perform.py", COMPLETION, "yield Append(event)", "was returned to"),
    Mutant("do not wait for durability", "drive/aio.py", "if request.durable:", "if False:", "has no intent of it"),
    Mutant("blocking: do not wait", "drive/blocking.py", "if request.durable:", "if False:", "with 2 different keys"),
    Mutant("an action's scope outlives it", "drive/aio.py", "restore(token)", "pass", "called outside a cycle of run"),
    Mutant("drop the epoch check", "stores/memory.py", EPOCH, "journal.head != batch.after_seq:", "fenced off wrote"),
    Mutant("commit without flushing", "core/protocol.py", FLUSH, "    pass", "a commit was returned"),
    Mutant(
        "commit the queue without the result", "core/protocol.py", CHANGES,
        'changes = [c for c in live.workspace.changes() if c[1] != "append"]', "invariant every_task_has_a_finding",
    ),
    Mutant(
        "make the key again", "core/perform.py", "return (yield from _call(a, record.key))",
        'return (yield from _call(a, ""))', "key of",
    ),
    Mutant(
        "forget the business key in the next cycle", "core/perform.py", "keyed_id(spec.name, self.business)",
        'keyed_id(spec.name, f"{self.business}{self.entry.live.record.cycle}")', "repeated: order",
    ),
    Mutant(
        "ignore a recorded completion", "core/actions.py", "if found is Found.COMPLETION:",
        "if found is Found.COMPLETION and effect is not Effect.REPEATABLE:", "paid again",
    ),
    Mutant("forget attempts", "core/changes.py", "item[ATTEMPTS] += 1", "item[ATTEMPTS] += 0", "does not end"),
    Mutant(
        "recovery skips an event", "core/recovery.py", FOLD, f"isinstance(event, ev.ValueRecorded) or {FOLD}",
        "not the fold of the journal",
    ),
    Mutant(
        "drop a person's answer", "core/record.py", "True, e.answer, e.by", 'True, b"\\xc0", e.by',
        "answer of the person",
    ),
    Mutant(
        "take a timeout for a clean failure", "core/perform.py", "(DidNotHappen, *spec.fails_cleanly)",
        "(DidNotHappen, TimeoutError, *spec.fails_cleanly)", "repeated: order",
    ),
    Mutant("ask no probe", "core/perform.py", "if spec.probe is None:", "if True:", "whose probe can tell"),
    Mutant(
        "a snapshot of another seq", "core/protocol.py", SNAPSHOT, SNAPSHOT.replace("seq,", "seq - 1,"),
        "the snapshot at event",
    ),
    Mutant(
        "forget calls at a rollback", "core/record.py", "        r.attempt += 1",
        "        r.attempt, r.calls = r.attempt + 1, {}", "key of mail was made again",
    ),
    Mutant(
        "a retry forgets what was done", "core/record.py", "r.calls = _not_undone(last.calls | loose)", "pass",
        "paid again: model",
    ),
    Mutant("forget old doubts", "core/record.py", "r.loose[call.call] = call", "pass", "is listed nowhere"),
    Mutant("do not read back", "stores/writer.py", "return batch == write.batch", "return False", "LeaseLost"),
    Mutant(
        "undo nothing", "core/undoing.py", "undone = yield from _undo(live, entry.scope, call, spec)",
        "undone = (yield NOW) > 0", "missing: cancel",
    ),
)  # fmt: skip
