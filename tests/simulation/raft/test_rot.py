"""Bit rot and lost files at a minority of the voters: no committed record is lost, and the quorum works again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.raft import mistakes
from tests.simulation.raft.rot import RottenWorld, rotten

from barnabas.common.errors import FatalFault


def explore(seeds: range) -> list[RottenWorld]:
    worlds = []
    for seed in seeds:
        world = RottenWorld(rotten(seed))
        try:
            world.run()
        except Exception as error:
            timeline = "\n".join(world.timeline[-60:])
            raise AssertionError(f"{world.plan}\n{timeline}\n{error}") from error
        worlds.append(world)
    return worlds


def test_no_seed_loses_what_was_committed() -> None:
    worlds = explore(range(40))
    text = "\n".join(line for world in worlds for line in world.timeline)
    assert sum(world.refusals for world in worlds) > 20
    for word in (
        "but everything before offset",
        "is missing or empty, but",
        "quorum-state is missing, but",
        "does not vote before it has caught up",
        "this voter votes again",
        "its metadata log is new",
        "is given the log of node",
        "renamed to",
    ):
        assert word in text, word


@pytest.mark.parametrize(
    "seed",
    [
        1988,  # log and checkpoint are lost, and the copy of another voter's log is old: the voter must not vote
        3744,  # the same with three voters and snapshots
        1277,  # the unreadable quorum-state of an observer, written again in an epoch that no leader has reached
        4763,  # a voter that lost its log remembers who leads, and has no address of it
    ],
)
def test_what_was_wrong_once(seed: int) -> None:
    explore(range(seed, seed + 1))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 5_000, 500))
def test_four_thousand_seeds_lose_nothing(first: int) -> None:
    explore(range(first, first + 500))


@pytest.mark.parametrize("mistake", [mistakes.damaged_logs_are_cut_in_silence, mistakes.forgetful_voters_vote])
def test_the_explorer_finds_it(mistake: Callable[[], mistakes.Mistake], monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, value in mistake():
        monkeypatch.setattr(owner, attribute, value)
    for seed in range(200):
        try:
            RottenWorld(rotten(seed)).run()
        except (AssertionError, FatalFault) as found:
            assert "leader completeness" in str(found) or "committed" in str(found) or "state machine" in str(found)  # noqa: PT017
            return
    raise AssertionError(f"{mistake.__name__} was not found")
