"""Planted mistakes: the explorer finds each classic mistake, which shows that it can find them.

The seed of each mistake is the first that found it. If a change of the product shifts the worlds, the next seeds are
tried.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.property import test_raft_state as models
from tests.simulation.raft import mistakes

from barnabas.common.errors import FatalFault
from barnabas.simulation.history import Violation
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World

_SEEDS_MAX = 120

FOUND = [
    (mistakes.vote_not_synced, 16, Plan.of),
    (mistakes.epoch_not_bumped, 0, Plan.of),
    (mistakes.truncation_skipped, 0, Plan.of),
    (mistakes.stale_leader_answers, 0, Plan.of),
    (mistakes.snapshot_with_missing_tail, 0, Plan.of),
    (mistakes.snapshot_taken_for_whole_too_early, 0, Plan.of),
    (mistakes.two_votes_in_one_epoch, 9, Plan.of),
    (mistakes.directory_ids_ignored, 553, Plan.of),
    (mistakes.follower_acknowledges_before_its_flush, 11, Plan.of),
    (mistakes.votes_without_comparing_logs, 0, Plan.of),
    (mistakes.half_is_taken_for_a_majority, 0, Plan.of),
    (mistakes.voters_stay_when_their_record_is_truncated, 75, Plan.of),
]


def test_counting_older_epochs_is_found_by_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raft's figure 8 needs many steps in one order: seeds find it rarely, the model of the state always."""
    for owner, attribute, value in mistakes.committed_by_counting_older_epochs():
        monkeypatch.setattr(owner, attribute, value)
    with pytest.raises(AssertionError):
        models.test_the_high_watermark_is_the_highest_offset_that_a_majority_has_had()


def test_every_mistake_is_tried() -> None:
    assert [mistake for mistake, _, _ in FOUND] == mistakes.MISTAKES


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("mistake", "first", "plan"), FOUND, ids=[mistake.__name__ for mistake, _, _ in FOUND])
def test_the_explorer_finds_it(
    mistake: Callable[[], mistakes.Mistake], first: int, plan: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    World(plan(first)).run()  # Without the mistake this seed is fine.
    for owner, attribute, value in mistake():
        monkeypatch.setattr(owner, attribute, value)
    for seed in range(first, first + _SEEDS_MAX):
        try:
            World(plan(seed)).run()
        except (AssertionError, FatalFault, Violation):
            return
    raise AssertionError(f"{mistake.__name__} was not found by the seeds {first} to {first + _SEEDS_MAX - 1}")
