"""Bit rot and lost files at a minority of the voters: no committed record is lost, and the quorum works again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.raft import mistakes
from tests.simulation.raft.rot import NewCluster, RottenWorld, rotten

from barnabas.common.errors import FatalFault
from barnabas.simulation.history import Violation


def explore(seeds: range, kind: type[RottenWorld] = RottenWorld) -> list[RottenWorld]:
    worlds = []
    for seed in seeds:
        world = kind(rotten(seed))
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
        1821,  # a flipped bit of the directory id in quorum-state, where the letter is no base64 any more
    ],
)
def test_what_was_wrong_once(seed: int) -> None:
    explore(range(seed, seed + 1))


def test_a_voter_whose_checkpoint_is_lost_does_not_vote_before_it_has_caught_up() -> None:
    """Both lines were zeroed, and with them the record that this voter had lost its log."""
    explore(range(3228, 3229), NewCluster)


def test_an_observer_whose_log_names_an_epoch_that_no_leader_has_reached() -> None:
    """A flipped bit made it 515; the observer waited for that epoch's leader."""
    explore(range(1412, 1413), NewCluster)


def test_an_observer_that_was_given_the_log_of_a_voter_follows_the_current_leader() -> None:
    """The repair wrote a quorum-state with the epoch after the leader's."""
    explore(range(4624, 4625), NewCluster)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 5_000, 500))
def test_four_thousand_seeds_lose_nothing(first: int) -> None:
    explore(range(first, first + 500))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 5_000, 500))
def test_four_thousand_new_clusters_lose_nothing(first: int) -> None:
    explore(range(first, first + 500), NewCluster)


def test_no_seed_of_a_new_cluster_loses_what_was_committed() -> None:
    """Voters vote before they have fetched anything, start late, and lose whole disks."""
    worlds = explore(range(40), NewCluster)
    text = "\n".join(line for world in worlds for line in world.timeline)
    for word in (
        "its disk is replaced by an empty one",
        "its metadata log is new",
        "was formatted for a new cluster, and that of node",
        "this voter votes again",
    ):
        assert word in text, word


FORGOTTEN = ("leader completeness", "committed", "state machine", "decided otherwise")


@pytest.mark.parametrize(
    ("mistake", "kind", "signs"),
    [
        (mistakes.damaged_logs_are_cut_in_silence, RottenWorld, FORGOTTEN),
        (mistakes.forgetful_voters_vote, RottenWorld, FORGOTTEN),
        (mistakes.every_directory_is_of_a_new_cluster, NewCluster, (*FORGOTTEN, "election safety")),
        (mistakes.new_clusters_are_not_distinguished, NewCluster, (*FORGOTTEN, "election safety")),
        (mistakes.a_cluster_stays_new, NewCluster, (*FORGOTTEN, "goes back from epoch")),
    ],
)
def test_the_explorer_finds_it(
    mistake: Callable[[], mistakes.Mistake],
    kind: type[RottenWorld],
    signs: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for owner, attribute, value in mistake():
        monkeypatch.setattr(owner, attribute, value)
    for seed in range(200):
        try:
            kind(rotten(seed)).run()
        except (AssertionError, FatalFault, Violation) as found:
            assert any(sign in str(found) for sign in signs)  # noqa: PT017
            return
    raise AssertionError(f"{mistake.__name__} was not found")
