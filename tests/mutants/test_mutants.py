"""The sweep notices faults: one-line faults are planted in a copy of the source and swept.

`make mutants` plants those for which other tests are there as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from subprocess import CompletedProcess

import pytest

from tests.mutants.planting import Mutant, Verdict, judge, misplaced, sound
from tests.mutants.swept import SWEPT
from tests.mutants.tested import TESTED

Ended = Future[CompletedProcess[str]]


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


@pytest.fixture(scope="module")
def wholesome(pool: ThreadPoolExecutor) -> Ended:
    return pool.submit(sound, ())


@pytest.fixture(scope="module")
def verdicts(pool: ThreadPoolExecutor, wholesome: Ended) -> dict[str, Future[Verdict]]:
    return {mutant.name: pool.submit(judge, mutant) for mutant in SWEPT}


@pytest.mark.parametrize("mutant", SWEPT, ids=lambda mutant: str(mutant.name))
def test_a_planted_fault_is_caught(mutant: Mutant, verdicts: dict[str, Future[Verdict]]) -> None:
    """Caught by the checker that is there for it, and not by chance."""
    verdict = verdicts[mutant.name].result()
    assert verdict.caught, verdict.said


def test_a_copy_without_a_fault_is_sound(wholesome: Ended) -> None:
    ended = wholesome.result()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "no problem" in ended.stdout


def test_every_fault_can_still_be_planted() -> None:
    """Where the source has changed, the table has to follow, or `make mutants` proves nothing."""
    assert not [f"{mutant.name}: {why}" for mutant in (*SWEPT, *TESTED) if (why := misplaced(mutant))]
    assert len({mutant.name for mutant in (*SWEPT, *TESTED)}) == len(SWEPT) + len(TESTED)
    assert all((mutant.by == "") == (mutant in SWEPT) for mutant in (*SWEPT, *TESTED))
