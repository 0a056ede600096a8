"""Log and Map: what a cycle sees, what it comes to, and what a roll-back leaves; changes that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from indelible.core.changes import apply
from indelible.core.collections import Log, Map, Queue
from indelible.errors import JournalDamaged, Misuse, NotStorable
from tests.unit.workbench import Bench, Note, Point


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestLog:
    def test_append_read_and_slice(self, bench: Bench) -> None:
        bench.open().words.extend(["a", "b"])
        bench.commit()
        state = bench.open()
        state.words.append("c")
        assert list(state.words) == ["a", "b", "c"]
        assert state.words[-1] == "c"
        assert state.words[:2] == ["a", "b"]
        assert state.words[::-1] == ["c", "b", "a"]
        assert state.words.recent(2) == ["b", "c"]
        assert state.words.recent(9) == ["a", "b", "c"]
        assert state.words.recent(0) == []
        assert "b" in state.words
        with pytest.raises(IndexError, match="'words' of 3 items"):
            state.words[3]
        assert bench.commit() == [["words", "append", ["c"]]]

    def test_an_appended_value_is_stored_as_it_is_at_the_commit(self, bench: Bench) -> None:
        note = Note("n")
        bench.open().notes.append(note)
        note.tags.append("later")
        bench.commit()
        assert bench.state.notes[0] == Note("n", ["later"])

    def test_a_lent_item_mutated_in_place_is_a_change(self, bench: Bench) -> None:
        bench.open().notes.extend([Note("a"), Note("b")])
        bench.commit()
        state = bench.open()
        for note in state.notes:
            if note.text == "b":
                note.meta["seen"] = True
        [change] = bench.commit()
        assert change[:3] == ["notes", "set", 1]
        assert bench.state.notes[1].meta == {"seen": True}

    def test_reading_alone_is_no_change(self, bench: Bench) -> None:
        bench.open().notes.append(Note("a", ["x"], {"k": [1.0]}))
        bench.commit()
        state = bench.open()
        assert state.notes.recent(5)
        assert bench.commit() == []

    def test_a_value_read_outside_a_cycle_is_a_copy(self, bench: Bench) -> None:
        """B85: a value that was read is independent of the stored one."""
        bench.open().notes.append(Note("a"))
        bench.commit()
        bench.state.notes[0].tags.append("outside")
        assert bench.state.notes[0].tags == []
        state = bench.open()
        lent = state.notes[0]
        bench.ws.discard()
        lent.tags.append("after the cycle")
        state = bench.open()
        assert state.notes[0].tags == []
        assert bench.commit() == []

    def test_replace(self, bench: Bench) -> None:
        bench.open().words.extend(["a", "b"])
        bench.commit()
        state = bench.open()
        state.words.append("c")
        state.words[0] = "A"
        state.words[-1] = "C"
        assert bench.commit() == [["words", "set", 0, "A"], ["words", "append", ["C"]]]

    @pytest.mark.parametrize("keep", [0, 1, 3, 4, 9])
    def test_compact_is_one_change(self, bench: Bench, keep: int) -> None:
        bench.open().words.extend(["a", "b", "c"])
        bench.commit()
        state = bench.open()
        state.words.append("d")
        state.words.compact(keep, {"about": "the rest"})
        state.words.append("e")
        expected = [*["a", "b", "c", "d"][max(0, 4 - keep) :], "e"]
        assert list(state.words) == expected
        assert len([change for change in bench.commit() if change[1] == "compact"]) == 1
        assert list(state.words) == expected
        assert state.words.summary == {"about": "the rest"}

    def test_compact_then_replace_and_roll_back(self, bench: Bench) -> None:
        bench.open().words.extend(["a", "b", "c"])
        bench.commit()
        state = bench.open()
        state.words[0] = "gone"
        state.words.compact(2, "s1")
        state.words[0] = "B"
        state.words.compact(1, "s2")
        assert list(state.words) == ["c"]
        bench.ws.discard()
        assert (list(state.words), state.words.summary) == (["a", "b", "c"], None)

    def test_an_item_touched_and_then_compacted_away_is_no_change_of_its_own(self, bench: Bench) -> None:
        bench.open().words.extend(["a", "b", "c"])
        bench.commit()
        state = bench.open()
        state.words[0] = "gone"
        state.words[2] = "C"
        state.words.compact(1, "s")
        assert bench.commit() == [["words", "compact", 2, "s"], ["words", "set", 0, "C"]]

    def test_a_lent_summary_mutated_is_a_change(self, bench: Bench) -> None:
        bench.open().words.compact(0, ["one"])
        bench.commit()
        bench.open().words.summary.append("two")
        assert len(bench.commit()) == 1
        assert bench.state.words.summary == ["one", "two"]
        assert bench.open().words.summary
        assert bench.commit() == []

    def test_compacting_again_with_the_same_summary_still_compacts(self, bench: Bench) -> None:
        for words in (["a", "b"], ["c", "d"]):
            state = bench.open()
            state.words.extend(words)
            bench.commit()
            bench.open().words.compact(1, "same")
            bench.commit()
        assert (list(state.words), state.words.summary) == (["d"], "same")

    def test_compact_refuses_a_negative_keep(self, bench: Bench) -> None:
        with pytest.raises(Misuse, match="keeps -1 items"):
            bench.open().words.compact(-1, "s")

    def test_the_path_of_what_cannot_be_stored(self, bench: Bench) -> None:
        state = bench.open()
        state.notes.append(Note("fine"))
        with pytest.raises(NotStorable, match=r"state\.notes\[1\]\.meta\.x"):
            state.notes.append(Note("bad", meta={"x": object()}))
        assert len(state.notes) == 1
        state.notes[0].meta["y"] = object()
        with pytest.raises(NotStorable, match=r"state\.notes\[0\]\.meta\.y"):
            bench.ws.check_storable()
        with pytest.raises(NotStorable, match=r"state\.notes\[0\]\.meta\.y"):
            bench.ws.changes()

    def test_order_of_appends_and_replacements_is_the_order_on_reload(self, bench: Bench) -> None:
        """B82: the order is in the change itself, so the rebuilt list equals the live one."""
        state = bench.open()
        for word in "abcde":
            state.words.append(word)
        state.words[2] = "overwritten"
        live = list(state.words)
        bench.commit()
        assert list(Bench(bench.ws.doc).state.words) == live == ["a", "b", "overwritten", "d", "e"]


class TestMap:
    def test_behaves_like_a_dict(self, bench: Bench) -> None:
        state = bench.open()
        state.prefs.update({"a": 1, "b": 2}, c=3)
        bench.commit()
        state = bench.open()
        del state.prefs["b"]
        state.prefs["d"] = 4
        assert state.prefs.pop("a") == 1
        assert state.prefs.get("a") is None
        assert state.prefs.setdefault("c", 9) == 3
        assert state.prefs.setdefault("e", 5) == 5
        assert dict(state.prefs) == {"c": 3, "d": 4, "e": 5}
        assert list(state.prefs.items()) == [("c", 3), ("d", 4), ("e", 5)]
        assert ("c" in state.prefs, "b" in state.prefs, len(state.prefs)) == (True, False, 3)
        with pytest.raises(KeyError):
            del state.prefs["b"]
        with pytest.raises(KeyError):
            state.prefs["b"]
        bench.commit()
        assert dict(state.prefs) == {"c": 3, "d": 4, "e": 5}

    def test_a_key_deleted_and_put_again_moves_to_the_end(self, bench: Bench) -> None:
        bench.open().prefs.update({"a": 1, "b": 2})
        bench.commit()
        state = bench.open()
        del state.prefs["a"]
        state.prefs["a"] = 3
        assert list(state.prefs) == ["b", "a"]
        bench.commit()
        assert list(state.prefs) == ["b", "a"]

    def test_equal_keys_are_one_key_as_in_a_dict(self, bench: Bench) -> None:
        state = bench.open()
        state.prefs[1] = "int"
        state.prefs[True] = "bool"
        bench.commit()
        state = bench.open()
        state.prefs[1.0] = "float"
        assert [(type(key), value) for key, value in state.prefs.items()] == [(int, "float")]
        bench.commit()
        assert [(type(key), value) for key, value in state.prefs.items()] == [(int, "float")]
        state = bench.open()
        del state.prefs[1]
        state.prefs[True] = "bool"
        bench.commit()
        assert [(type(key), value) for key, value in state.prefs.items()] == [(bool, "bool")]
        assert state.prefs[1] == "bool"

    def test_keys_of_any_storable_kind_come_back_exactly(self, bench: Bench) -> None:
        keys = ["a", b"a", 1, 2.5, None, (1, "x"), (1, (2,)), Point(1, 2), frozenset({3}), 2**80, -0.0, "\ud800"]
        state = bench.open()
        state.places[Point(0, 0)] = Note("origin")
        for n, key in enumerate(keys):
            state.prefs[key] = n
        bench.commit()
        again = Bench(bench.ws.doc).state
        assert [(type(key), key) for key in again.prefs] == [(type(key), key) for key in keys]
        assert [again.prefs[key] for key in keys] == list(range(len(keys)))

    @pytest.mark.parametrize("key", [float("nan"), (1, float("nan"))])
    def test_a_key_that_could_never_be_found_again_is_refused(self, bench: Bench, key: Any) -> None:
        """B41: a NaN as a key."""
        with pytest.raises(NotStorable, match="does not equal itself"):
            bench.open().prefs[key] = 1

    def test_a_lent_value_mutated_in_place_is_a_change(self, bench: Bench) -> None:
        bench.open().prefs.update({"a": [1], "b": [2]})
        bench.commit()
        state = bench.open()
        state.prefs["a"].append(2)
        assert state.prefs["b"] == [2]
        assert len(bench.commit()) == 1
        assert state.prefs["a"] == [1, 2]

    def test_putting_the_same_value_is_no_change(self, bench: Bench) -> None:
        bench.open().prefs.update({"a": [1], "b": 1})
        bench.commit()
        state = bench.open()
        state.prefs["a"] = [1]
        state.prefs["b"] = 1
        assert bench.commit() == []
        state = bench.open()
        state.prefs["b"] = True
        assert len(bench.commit()) == 1
        assert state.prefs["b"] is True

    def test_clear_is_one_change_and_rolls_back(self, bench: Bench) -> None:
        bench.open().prefs.update({str(n): n for n in range(50)})
        bench.commit()
        state = bench.open()
        state.prefs.clear()
        assert (len(state.prefs), list(state.prefs)) == (0, [])
        bench.ws.discard()
        assert len(state.prefs) == 50
        state = bench.open()
        state.prefs.clear()
        state.prefs["new"] = 1
        assert bench.commit() == [["prefs", "clear"], ["prefs", "put", "new", 1]]
        assert dict(state.prefs) == {"new": 1}

    def test_the_path_of_what_cannot_be_stored(self, bench: Bench) -> None:
        state = bench.open()
        with pytest.raises(NotStorable, match=r"state\.prefs\['k'\]"):
            state.prefs["k"] = object()
        assert "k" not in state.prefs


class TestCycleBounds:
    @pytest.mark.parametrize(
        "change",
        [
            lambda s: s.tasks.append("x"),
            lambda s: s.tasks.take(),
            lambda s: s.tasks.reprioritise(len),
            lambda s: s.tasks.retry_failed(),
            lambda s: s.tasks.remove("x"),
            lambda s: s.words.append("x"),
            lambda s: s.words.extend([]),
            lambda s: s.words.compact(1, "s"),
            lambda s: s.words.__setitem__(0, "x"),
            lambda s: s.prefs.update(a=1),
            lambda s: s.prefs.pop("x"),
            lambda s: s.prefs.clear(),
        ],
    )
    def test_changing_outside_a_cycle_is_refused(self, bench: Bench, change: Any) -> None:
        state = bench.open()
        state.words.append("x")
        state.tasks.append("x")
        state.prefs["x"] = 1
        bench.commit()
        with pytest.raises(Misuse, match="inside a cycle") as refused:
            change(bench.state)
        assert "with run.cycle()" in refused.value.hint
        assert list(bench.state.words) == list(bench.state.tasks) == list(bench.state.prefs) == ["x"]

    def test_they_are_not_made_by_hand(self) -> None:
        for kind in (Queue, Log, Map):
            with pytest.raises(Misuse, match="made by the run"):
                kind()

    def test_repr_is_short(self, bench: Bench) -> None:
        state = bench.open()
        state.tasks.append("secret")
        assert repr(state.tasks) == "<Queue tasks: 1 waiting, 0 failed>"
        assert repr(state.words) == "<Log words: 0 items>"
        assert repr(state.prefs) == "<Map prefs: 0 entries>"


class TestDamage:
    @pytest.mark.parametrize(
        "change",
        [
            None,
            [],
            ["words"],
            ["nothing", "set", 1],
            ["words", "set", 0, "no such item"],
            ["words", "set", -1, "x"],
            ["words", "append", "not a list"],
            ["words", "compact", 1, None],
            ["words", "take", [0]],
            ["tasks", "take", [7]],
            ["tasks", "take", 7],
            ["tasks", "add", [["x", "high", None]]],
            ["tasks", "add", [["x", 0, "soon"]]],
            ["tasks", "add", [["x"]]],
            ["tasks", "fail", 0],
            ["tasks", "fail", 0, "x"],
            ["tasks", "rank", [[0, 1]]],
            ["tasks", "revive", [0]],
            ["prefs", "del", "absent"],
            ["prefs", ["unhashable"], 1],
            [["unhashable"], "set", 1],
        ],
    )
    def test_a_change_that_does_not_fit_is_damage(self, bench: Bench, change: Any) -> None:
        with pytest.raises(JournalDamaged, match="does not fit the state"):
            apply(bench.ws.doc, [change])

    def test_it_names_field_and_op_and_no_payload(self, bench: Bench) -> None:
        with pytest.raises(JournalDamaged) as damaged:
            apply(bench.ws.doc, [["tasks", "fail", 3, "SECRET"]])
        assert damaged.value.ids == {"field": "tasks", "op": "fail"}
        assert "SECRET" not in str(damaged.value)
