"""Damaged answers of peers: the node that gets them has no internal error, and works normally with intact ones."""

from __future__ import annotations

import pytest
from tests.support.damaged_answers import DamagedAnswers

FETCH, VOTE, HEARTBEAT = 1, 52, 63
_PERCENT = (5, 20, 60)
_BLOCK = 25


def check(seed: int, role: str, patch: pytest.MonkeyPatch, *, lies: bool) -> DamagedAnswers:
    """Runs one node of three of this role with damaged answers; the same seed gives the same run."""
    world = DamagedAnswers(seed, f"{role}{1 + seed % 3}", patch, percent=_PERCENT[seed // 3 % 3], lies=lies)
    world.damage_for(4_000)
    if lies:
        world.world.run_for(10_000)
        assert world.node.is_running
    else:
        world.check_recovered()
    return world


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize(("role", "expected"), [("broker", {FETCH, HEARTBEAT}), ("controller", {FETCH, VOTE})])
def test_a_node_survives_damaged_answers(role: str, expected: set[int], lies: bool) -> None:
    damaged = set[int]()
    for seed in range(1, 10, 2):
        with pytest.MonkeyPatch.context() as patch:
            damaged |= set(check(seed, role, patch, lies=lies).counts)
    assert expected <= damaged


@pytest.mark.full
@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("first", range(1_000, 1_500, _BLOCK))
def test_in_many_seeds(first: int, role: str, lies: bool) -> None:
    for seed in range(first, first + _BLOCK):
        with pytest.MonkeyPatch.context() as patch:
            try:
                check(seed, role, patch, lies=lies)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
