"""Faults of one line that the sweep cannot see, and the test that is there for each. A table, and nothing else."""

from __future__ import annotations

from tests.mutants.planting import Mutant

ACTIONS = "tests/unit/test_actions.py::"
ASYNC = "tests/unit/test_async.py::"
CANCELLED = "tests/unit/test_cancellation.py::"
ASSERTION = "ssert"
"""pytest says `assert ...` of a file it has rewritten, as it does where the library is installed, else AssertionError."""

CONFORMANCE = "tests/conformance/test_stores.py::TestSqliteStore::"
CYCLES = "tests/unit/test_cycles.py::"
DRIVE = "tests/unit/test_drivers.py::"
FEED = "tests/unit/test_feed.py::"
FORKS = "tests/crash/test_forks.py::"
HOLDING = "tests/unit/test_holding.py::"
INBOX = "tests/unit/test_inbox.py::"
IN_MEMORY = "tests/conformance/test_stores.py::TestMemoryStore::"
JOURNAL = "tests/unit/test_journal.py::"
OPENING = "tests/unit/test_sqlite_open.py::"
OWNER = "tests/unit/test_owner.py::"
POWER = "tests/crash/test_power_loss.py::"
PROCESSES = "tests/conformance/test_sqlite_processes.py::"
RECOVERY = "tests/unit/test_recovery.py::"
ROWS = "tests/unit/test_sqlite_rows.py::"
TWO = "tests/crash/test_two_processes.py::"
WRITER = "tests/unit/test_writer.py::"

CORE = (
    Mutant("a digest that is not chained", "core/journal.py", "blake2b(chain, digest_size=16)",
           'blake2b(b"", digest_size=16)', "DID NOT RAISE",
           JOURNAL + "test_batches_in_another_order_or_of_another_run_do_not_verify"),
    Mutant("a digest that is not compared", "core/journal.py", "if chain != data[2:_HEAD]:", "if False:",
           "assert 0 == (4 - 1)", JOURNAL + "test_every_byte_of_every_batch_is_covered"),
    Mutant("a cut tail is not declared void", "core/journal.py", "codec |= _CUT", "codec |= 0", "its digest differs",
           JOURNAL + "test_a_cut_tail_is_declared_void_and_kept"),
    Mutant("damage in the middle is passed over", "core/journal.py", "            if torn is not None:\n",
           "            if False:\n", "unknown-run", RECOVERY + "test_damage_in_the_middle_stops_with_its_position"),
    Mutant("a batch that did not land is forgotten", "core/journal.py", "return self.in_flight\n",
           "self.in_flight = None\n", "is Sealed(",
           JOURNAL + "test_a_batch_that_did_not_land_is_offered_again_byte_for_byte"),
    Mutant("the prefix is not restarted", "core/protocol.py", "journal.restart_prefix()", "pass", "assert 0 > 0",
           RECOVERY + "test_a_snapshot_shortens_recovery_and_changes_nothing"),
    Mutant("a snapshot is taken for the truth", "core/snapshots.py", "if _digest(body) != data[3:_HEAD]:", "if False:",
           "assert False", RECOVERY + "test_a_bad_snapshot_is_passed_over_for_an_older_one_and_said"),
    Mutant("snapshots without end", "core/snapshots.py", "max(FIRST_AFTER_BYTES, GROWTH * last_size)",
           "FIRST_AFTER_BYTES", "<= ((1 + (1 / 0.5)) *", RECOVERY + "test_snapshot_bytes_stay_linear_in_the_journal"),
    Mutant("an inbox message is taken twice", "core/inbox.py", "if seq <= record.inbox_seq:", "if False:",
           "assert '' == 'doubt'",
           INBOX + "test_a_settlement_settles_one_doubt_and_not_the_next_one_of_the_same_deed"),
    Mutant("an answer counts twice", "core/inbox.py", "if wait is None or wait.answered:", "if wait is None:",
           "assert [] == [1]", INBOX + "test_a_message_is_taken_once_and_the_first_answer_holds"),
    Mutant("a value is not checked before the deed", "core/perform.py", "live.workspace.check_storable()", "pass",
           "Regex pattern did not match",
           CYCLES + "test_a_value_that_cannot_be_stored_is_refused_before_any_deed_and_loses_nothing"),
    Mutant("a no is taken for a yes", "core/perform.py", 'if unpack(wait.answer) == "yes":', "if True:",
           "assert 'sent' == 'refused'", CYCLES + "test_approval_is_asked_for_before_the_intent"),
    Mutant("the gate is released early", "core/perform.py", "leave = yield Enter(attempt.call)",
           "(yield Enter(attempt.call))(); leave = bool", "assert None == [1, 1, 1]",
           ASYNC + "test_one_business_key_at_a_time"),
    Mutant("a lost lease is not looked at after the intent", "core/cycle.py", "        if live.lost:",
           "        if False:", "assert 2 == 1",
           RECOVERY + "test_a_renewal_that_finds_the_run_taken_stops_the_next_action"),
    Mutant("undo in the order of the deeds", "core/undoing.py", "-pair[0].order", "pair[0].order",
           "assert ['book flight",
           "tests/unit/test_doubt.py::test_deeds_are_undone_in_reverse_when_the_cycle_is_given_up"),
    Mutant("fields that the code does not know are dropped", "core/recovery.py", "pack(cast(Any, unknown))",
           "pack({})", "assert (3, {}) ==", CYCLES + "test_older_state_meets_newer_code_step_by_step"),
)  # fmt: skip

STORES = (
    Mutant("SQLite does not sync each commit", "stores/sqlite_file.py", 'full if self.durability == "full" else',
           '"normal" if self.durability == "full" else', "lost: events",
           POWER + "TestFullDurability::test_a_cut_at_every_sync"),
    Mutant("the folder of a new file is not synced", "stores/sqlite_file.py", "_sync_folder(os.path.dirname(path))",
           "pass", "assert [] == [", POWER + "test_the_name_of_a_new_file_is_synced"),
    Mutant("a file that others can read", "stores/sqlite_file.py", "os.chmod(name, 0o600)", "os.chmod(name, 0o644)",
           "assert [420, 420, 420] == [384, 384, 384]", OPENING + "test_files_that_were_open_to_others_are_closed"),
    Mutant("a SQLite that damages files is used", "stores/sqlite_file.py", "numbers >= SAFE_SQLITE or allow_old",
           "True or allow_old", "nothing was raised", OPENING + "test_an_old_sqlite_is_refused"),
    Mutant("SQLite begins without the write lock", "stores/sqlite_pool.py", '"BEGIN IMMEDIATE"', '"BEGIN"',
           "== [0, 0, 0, 0]", PROCESSES + "test_four_processes_write_at_once"),
    Mutant("a failed transaction is committed", "stores/sqlite_pool.py",
           'con.execute("ROLLBACK")\n                    raise', 'con.execute("COMMIT")\n                    raise',
           "assert [Batch(", ROWS + "test_of_a_group_that_fails_nothing_is_kept"),
    Mutant("a file that was replaced is written to", "stores/sqlite_pool.py", "!= self._inode:", "== 0:",
           "expected StoreUnavailable, and nothing was raised", OPENING + "test_a_file_that_was_replaced"),
    Mutant("connections are carried through a fork", "stores/sqlite_pool.py",
           "[(pool, pool.before_fork()) for pool in list(_pools)]", "[]", "assert 1 == 0",
           PROCESSES + "test_a_store_is_used_on_both_sides_of_a_fork"),
    Mutant("a busy file is not told from a broken one", "stores/sqlite_faults.py",
           "(apsw.BusyError, apsw.LockedError)", "()", "'fuser' in",
           PROCESSES + "test_a_foreign_writer_that_stays_too_long"),
    Mutant("SQLite: no epoch in the WHERE", "stores/sqlite.py",
           "max(at), 0) FROM batches) + 1)\nWHERE no = ?4 AND head = ?5 AND epoch = ?6",
           "max(at), 0) FROM batches) + 1)\nWHERE no = ?4 AND head = ?5 AND ?6 = ?6", ASSERTION,
           CONFORMANCE + "test_a_fenced_writer_is_refused"),
    Mutant("SQLite: no epoch in the WHERE with a label", "stores/sqlite.py",
           "about = ?10\nWHERE no = ?4 AND head = ?5 AND epoch = ?6",
           "about = ?10\nWHERE no = ?4 AND head = ?5 AND ?6 = ?6", ASSERTION,
           CONFORMANCE + "test_a_fenced_writer_is_refused"),
    Mutant("SQLite: no head in the WHERE with a label", "stores/sqlite.py", "about = ?10\nWHERE no = ?4 AND head = ?5",
           "about = ?10\nWHERE no = ?4 AND ?5 = ?5", "contradict each other",
           CONFORMANCE + "test_a_wrong_position_is_refused"),
    Mutant("SQLite keeps one snapshot", "stores/sqlite.py", "ORDER BY seq DESC LIMIT 2)", "ORDER BY seq DESC LIMIT 1)",
           ASSERTION, CONFORMANCE + "test_the_newest_two_are_kept"),
    Mutant("SQLite does not release a claim", "stores/sqlite.py", "con.execute(_RELEASE, (no,))", "pass",
           ASSERTION, CONFORMANCE + "test_release"),
    Mutant("writing does not renew the lease", "stores/sqlite.py", "about = ?10\nWHERE",
           "about = ?10, lease_until = lease_until\nWHERE", "expected RunBusy, and nothing was raised",
           CONFORMANCE + "test_writing_renews_the_lease"),
    Mutant("a journal that ends before its head", "stores/sqlite.py", "if last != head:", "if False:", "DID NOT RAISE",
           "tests/crash/test_bit_rot.py::test_a_head_that_points_before_the_end"),
    Mutant("batches that are missing are not missed", "stores/sqlite.py",
           "if not some:\n                raise self._cut_short(run_id, at, head)",
           "if not some:\n                return", "StopIteration", OPENING + "test_batches_that_are_missing"),
    Mutant("the number of a row that was rolled back", "stores/sqlite.py", "self._numbers.clear()  # it may",
           "pass  # it may", "cannot unpack",
           ROWS + "test_a_message_never_lands_in_the_inbox_that_took_the_place_of_one_rolled_back"),
    Mutant("memory: no head compared", "stores/memory.py", "journal.head != batch.after_seq or", "", ASSERTION,
           IN_MEMORY + "test_a_wrong_position_is_refused"),
    Mutant("memory: a late write revives a deleted run", "stores/memory.py", "tombstone.deleted = True", "pass",
           ASSERTION, IN_MEMORY + "test_everything_goes_and_nothing_returns"),
    Mutant("a live holder is taken over", "stores/refusals.py", "if not is_live(holder, lease_until, now):",
           "if True:", "expected RunBusy, and nothing was raised",
           CONFORMANCE + "test_a_live_owner_is_refused_by_name"),
    Mutant("a lease never runs out", "stores/refusals.py", "bool(owner) and lease_until > now and", "bool(owner) and",
           "whose lease runs for another 0.0 s", CONFORMANCE + "test_a_lapsed_lease_is_taken_over"),
    Mutant("a takeover keeps the epoch", "stores/refusals.py", "return epoch + 1", "return epoch", ASSERTION,
           CONFORMANCE + "test_a_fenced_writer_is_refused"),
    Mutant("an owner's start time is ignored", "stores/owner.py", "return found != started", "return False",
           "assert False", OWNER + "test_a_pid_that_another_program_was_given"),
    Mutant("a process of another machine is called gone", "stores/owner.py",
           "if owner.pid_ns != pid_ns or (not boot and", "if (not boot and", "assert not True",
           OWNER + "test_another_machine"),
    Mutant("a zombie counts as alive", "stores/owner.py", 'return "dead"', "return started", "assert False",
           OWNER + "test_a_killed_process"),
    Mutant("a fork has its parent's claims", "stores/owner.py", "    _live_nonces.clear()", "    pass",
           "== b'False False True'", OWNER + "test_a_fork_is_another_claimant"),
    Mutant("a write is tried again unread", "stores/writer.py", "if self._is_there(write):", "if False:",
           "StaleWriter", WRITER + "test_a_write_whose_reply_was_lost_is_read_back_before_it_is_tried_again"),
    Mutant("a refused write is reported as durable", "stores/writer.py",
           "if unsure and answer is not None else answer", "if failed else None", "assert False",
           WRITER + "test_a_stale_writer_is_told_and_others_in_the_group_are_not_held_back"),
    Mutant("each write has a transaction of its own", "stores/writer.py", "min(len(self._queue), MAX_GROUP)",
           "min(len(self._queue), 1)", "assert 12 <= 3",
           WRITER + "test_everything_that_waits_goes_into_one_transaction"),
    Mutant("closing does not write what waits", "stores/writer.py", "while self._queue:\n", "while self._thread:\n",
           "assert [] == [None", WRITER + "test_closing_writes_what_waits"),
    Mutant("a flush wakes those whose events wait", "stores/feed.py", "if upto <= self._journal.durable_seq]", "]",
           "assert not True", FEED + "test_who_waits_for_a_later_event_is_not_told_of_an_earlier_batch"),
    Mutant("a flush ends with the batch before", "stores/feed.py", "            self._flush()  # an earlier",
           "            pass  # an earlier", "assert [(0, 1)] == [(0, 1), (1, 2)]",
           FEED + "test_a_batch_that_had_failed_goes_first_and_what_came_after_it_goes_too"),
    Mutant("a refused writer goes on", "stores/feed.py", "self._live.lost = self._live.lost or error.what", "pass",
           "Regex pattern did not match", FEED + "test_a_writer_that_was_refused_writes_no_more"),
    Mutant("an interrupted run goes on", "stores/feed.py", 'live.lost = live.lost or f"run', 'f"run',
           "DID NOT RAISE LeaseLost", FEED + "test_a_run_that_was_interrupted_in_a_write_is_given_up"),
)  # fmt: skip

DRIVERS = (
    Mutant("blocking: Drain is skipped", "drive/blocking.py", "return _drain(port)", "return None",
           "'action.completed' is not in list", DRIVE + "test_a_cycle_ends_after_the_actions_of_its_threads"),
    Mutant("aio: Drain is skipped", "drive/aio.py", "future = port.idle()", "future = None",
           "'action.completed' is not in list", DRIVE + "test_a_cycle_ends_after_the_actions_of_its_tasks"),
    Mutant("a cancellation is swallowed", "drive/aio.py", "        raise cancelled", "        pass", "DID NOT RAISE",
           CANCELLED + "test_cancelled_while_a_cycle_waits_for_its_branches_the_next_can_be_entered"),
    Mutant("a cancellation does not wait for the disk", "drive/aio.py", "            cancelled = error",
           "            raise", "== ('', False)",
           CANCELLED + "test_cut_off_at_each_wait_nothing_is_lost_or_done_twice"),
    Mutant("blocking: an action's scope outlives it", "drive/blocking.py", "        current.reset(token)",
           "        pass", "== ['a', 'a2']",
           ACTIONS + "test_a_result_is_paid_for_once_however_often_the_cycle_is_entered"),
    Mutant("a gate that holds nobody", "drive/port.py", "if held is not None:", "if False:",
           "assert None == [1, 1, 1]", ASYNC + "test_one_business_key_at_a_time"),
    Mutant("idle while others are busy", "drive/port.py", "if self._busy else (self._idle, [])",
           "if False else (self._idle, [])", "assert not True", DRIVE + "test_idle_is_when_the_last_one_has_ended"),
    Mutant("keys that are all the same", "drive/clock.py", "return os.urandom(size)", "return bytes(size)",
           "assert 1 == 1000", DRIVE + "test_no_two_keys_are_alike"),
    Mutant("a clock that starts with the machine", "drive/clock.py", "return time.time()", "return time.monotonic()",
           " - 1) <= ", DRIVE + "test_the_clock_tells_the_time_of_day"),
    Mutant("a signal does not end a wait", "drive/stopping.py", 'self._mouth.send(b"\\0")', "pass", "assert not True",
           DRIVE + "test_a_wait_ends_when_it_is_told_to"),
)  # fmt: skip

RUNTIME = (
    Mutant("a lease is not renewed", "runtime/leases.py",
           "epoch = self._store.claim(live.record.run_id, hold.owner, self._ttl_s)", "epoch = live.epoch",
           "was taken over", TWO + "test_a_deed_that_takes_longer_than_a_lease_keeps_it"),
    Mutant("renewed later than it runs out", "runtime/leases.py", "self._ttl_s / 3", "self._ttl_s * 3", "assert False",
           HOLDING + "test_leases_are_renewed_well_before_they_run_out"),
    Mutant("a run is taken back by renewing", "runtime/leases.py", "if epoch != live.epoch:", "if False:",
           "== ('', False)", TWO + "test_one_who_was_taken_over_does_not_take_the_run_back_by_renewing"),
    Mutant("a lost lease is not noticed", "runtime/leases.py", "hold.live.lost = f", "_ = f",
           "Regex pattern did not match", RECOVERY + "test_a_renewal_that_finds_the_run_taken_stops_the_next_action"),
    Mutant("a run that is opened is not renewed", "runtime/holding.py", "self._renewer.add(self._hold)", "pass",
           "was taken over", TWO + "test_a_deed_that_takes_longer_than_a_lease_keeps_it"),
    Mutant("a claim is not released", "runtime/holding.py", "self.port.store.claim(self.run_id, owner, 0)", "pass",
           "== (False, '')", RECOVERY + "test_a_released_run_can_be_opened_at_once_and_a_failed_opening_releases"),
    Mutant("closing does not write what waits in the feed", "runtime/holding.py", "self.port.feed.flush()", "pass",
           "== 'action.completed'",
           HOLDING + "test_what_was_paid_in_a_cycle_that_nobody_left_is_written_at_the_close"),
    Mutant("the child of a fork releases the claim", "runtime/holding.py", "if os.getpid() != self._pid:", "if False:",
           "let go of meanwhile", FORKS + "test_the_child_of_a_fork_changes_nothing_and_the_parent_goes_on"),
    Mutant("the child of a fork goes on", "runtime/runstore.py", 'self._renewer.abandon("this', 'str("this',
           "parent: LeaseLost", FORKS + "test_the_child_of_a_fork_changes_nothing_and_the_parent_goes_on"),
    Mutant("another objective is pursued", "runtime/holding.py",
           "if self.objective is not None and objective != self.objective:", "if False:", "DID NOT RAISE",
           CYCLES + "test_a_run_of_another_agent_or_objective_is_refused_with_the_difference"),
    Mutant("a look at a run makes it", "runtime/holding.py", "            self._must_exist()", "            pass",
           "journal-damaged", CYCLES + "test_an_unknown_run_is_an_error_and_leaves_no_trace"),
    Mutant("a message that lost the race is dropped", "runtime/runstore.py", "if refused is None:", "if True:",
           "assert [] == [2]", INBOX + "test_a_message_that_lost_the_race_for_its_place_is_sent_again"),
)  # fmt: skip

TESTED = (*CORE, *STORES, *DRIVERS, *RUNTIME)
