"""The table of role changes, and the assertion that holds it."""

from __future__ import annotations

from typing import get_args

import pytest

from barnabas.common.types import ZERO_UUID
from barnabas.raft.progress import Progress
from barnabas.raft.quorum import (
    OF_HIGHER_EPOCH,
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    Votes,
    can_follow,
)
from barnabas.raft.voters import VoterKey, VoterSet

OWN = VoterKey(1, ZERO_UUID)


def every_role(epoch: int) -> list[Role]:
    progress = Progress(OWN, VoterSet(()), 0)
    return [
        Unattached(epoch),
        Prospective(epoch, Votes({1})),
        Candidate(epoch, Votes({1})),
        Follower(epoch, 2, ()),
        Leader(epoch, (OWN,), progress),
        Resigned(epoch),
    ]


def test_the_table_has_a_row_for_every_role() -> None:
    assert set(TRANSITIONS) == set(get_args(Role)) == {type(role) for role in every_role(1)}


@pytest.mark.parametrize("is_alone", [False, True])
def test_no_role_of_an_earlier_epoch_follows(is_alone: bool) -> None:
    assert not any(can_follow(before, after, is_alone=is_alone) for before in every_role(2) for after in every_role(1))


def test_a_higher_epoch_makes_every_role_unattached_or_follower() -> None:
    for before in every_role(1):
        reached = {type(after) for after in every_role(2) if can_follow(before, after, is_alone=False)}
        assert reached == OF_HIGHER_EPOCH | ({Candidate} if isinstance(before, Prospective) else frozenset())


def test_only_pre_votes_make_a_candidate_unless_it_is_the_only_voter() -> None:
    candidate = Candidate(2, Votes({1}))
    assert [type(role) for role in every_role(1) if can_follow(role, candidate, is_alone=False)] == [Prospective]
    alone = {type(role) for role in every_role(1) if can_follow(role, candidate, is_alone=True)}
    assert alone == set(TRANSITIONS) - {Leader}


def test_a_leader_of_the_same_epoch_only_resigns() -> None:
    leader = every_role(1)[4]
    assert [type(role) for role in every_role(1) if can_follow(leader, role, is_alone=False)] == [Resigned]
    assert not any(can_follow(Resigned(1), role, is_alone=False) for role in every_role(1))
