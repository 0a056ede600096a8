"""The decision table, row by row."""

from __future__ import annotations

import itertools

import pytest

from indelible.core.actions import Effect, Found, OnDoubt, Probed, Verdict, decide

ASK, HAPPENED, NOT = OnDoubt.ASK, OnDoubt.ASSUME_HAPPENED, OnDoubt.ASSUME_NOT
EVERY = list(itertools.product(Effect, Found, Probed, OnDoubt))

ROWS = [
    # effect, found, probed, policy, verdict
    *[(effect, Found.COMPLETION, Probed.NOT_ASKED, ASK, Verdict.TAKE) for effect in Effect],
    *[(effect, Found.FAILURE, Probed.NOT_ASKED, ASK, Verdict.RAISE) for effect in Effect],
    *[(effect, Found.NOTHING, Probed.NOT_ASKED, ASK, Verdict.CALL) for effect in Effect],
    (Effect.REPEATABLE, Found.INTENT, Probed.NOT_ASKED, ASK, Verdict.CALL),
    (Effect.REPEATABLE, Found.OLD_FAILURE, Probed.NOT_ASKED, ASK, Verdict.CALL),
    (Effect.IDEMPOTENT, Found.INTENT, Probed.NOT_ASKED, ASK, Verdict.CALL_SAME_KEY),
    (Effect.IDEMPOTENT, Found.OLD_FAILURE, Probed.NOT_ASKED, ASK, Verdict.CALL_SAME_KEY),
    (Effect.IRREVERSIBLE, Found.OLD_FAILURE, Probed.NOT_ASKED, ASK, Verdict.CALL_SAME_KEY),
    (Effect.IRREVERSIBLE, Found.SETTLED_NOT, Probed.NOT_ASKED, ASK, Verdict.CALL_SAME_KEY),
    (Effect.IRREVERSIBLE, Found.INTENT, Probed.NOT_ASKED, ASK, Verdict.PROBE),
    (Effect.IRREVERSIBLE, Found.INTENT, Probed.HAPPENED, ASK, Verdict.TAKE_PROBED),
    (Effect.IRREVERSIBLE, Found.INTENT, Probed.DID_NOT_HAPPEN, ASK, Verdict.CALL_SAME_KEY),
    *[
        (Effect.IRREVERSIBLE, Found.INTENT, probed, policy, verdict)
        for probed in (Probed.UNKNOWN, Probed.MISSING)
        for policy, verdict in (
            (ASK, Verdict.PARK),
            (HAPPENED, Verdict.ASSUME_HAPPENED),
            (NOT, Verdict.CALL_SAME_KEY),
        )
    ],
]


@pytest.mark.parametrize(("effect", "found", "probed", "policy", "verdict"), ROWS)
def test_each_row(effect: Effect, found: Found, probed: Probed, policy: OnDoubt, verdict: Verdict) -> None:
    assert decide(effect, found, probed, policy) is verdict


@pytest.mark.parametrize(("effect", "found", "probed", "policy"), EVERY)
def test_the_table_is_total(effect: Effect, found: Found, probed: Probed, policy: OnDoubt) -> None:
    assert isinstance(decide(effect, found, probed, policy), Verdict)


def test_an_irreversible_action_in_doubt_is_called_again_for_three_reasons_only() -> None:
    """B03: never a silent repeat. A probe said no, or the user's policy said so; nothing else."""
    calls = (Verdict.CALL, Verdict.CALL_SAME_KEY)
    reasons = {
        (probed, policy)
        for effect, found, probed, policy in EVERY
        if effect is Effect.IRREVERSIBLE and found is Found.INTENT and decide(effect, found, probed, policy) in calls
    }
    assert reasons == {(Probed.DID_NOT_HAPPEN, policy) for policy in OnDoubt} | {
        (Probed.UNKNOWN, NOT),
        (Probed.MISSING, NOT),
    }


def test_policy_never_overrules_a_probe() -> None:
    for policy in OnDoubt:
        assert decide(Effect.IRREVERSIBLE, Found.INTENT, Probed.HAPPENED, policy) is Verdict.TAKE_PROBED
        assert decide(Effect.IRREVERSIBLE, Found.INTENT, Probed.DID_NOT_HAPPEN, policy) is Verdict.CALL_SAME_KEY
