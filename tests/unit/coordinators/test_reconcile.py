"""One step of a member of a consumer group, row by row (KIP-848)."""

from __future__ import annotations

import pytest
from tests.support.finished import finished

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.member import Assignment, Member, MemberState
from barnabas.coordinators.groups.consumer.reconcile import Goal, reconcile

A, B = b"a" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
    MemberState.UNKNOWN,
)


def of(*partitions: int, topic: bytes = A) -> Assignment:
    return {topic: frozenset(partitions)} if partitions else {}


def member(state: MemberState = STABLE, assigned: Assignment | None = None, **fields: object) -> Member:
    return Member("m", epoch=4, state=state, assigned=assigned or {}, **fields)  # type: ignore[arg-type]


def goal(
    target: Assignment, *, epoch: int = 5, subscribed: tuple[bytes, ...] = (A, B), others: tuple[int, ...] = ()
) -> Goal:
    """Returns a goal. `others` are partitions of A that another member owns."""
    return Goal(epoch, target, subscribed, lambda topic, at: "other" if topic == A and at in others else None)


@pytest.mark.parametrize(
    ("before", "wanted", "owned", "epoch", "state", "assigned", "revoking"),
    [
        # Nothing to do.
        (member(assigned=of(0, 1)), goal(of(0, 1), epoch=4), None, 4, STABLE, of(0, 1), {}),
        # A free partition is assigned immediately.
        (member(assigned=of(0)), goal(of(0, 1)), None, 5, STABLE, of(0, 1), {}),
        # Another member still has the partition.
        (member(assigned=of(0)), goal(of(0, 1, 2), others=(2,)), None, 5, UNRELEASED, of(0, 1), {}),
        # The member has to revoke a partition first: until then it keeps its epoch and gets no new partition.
        (member(assigned=of(0, 1)), goal(of(1, 2)), None, 4, UNREVOKED, of(1), of(0)),
        (member(assigned=of(0, 1)), goal(of(1, 2)), of(0, 1), 4, UNREVOKED, of(1), of(0)),
        # The member reports that it has revoked it.
        (member(assigned=of(0, 1)), goal(of(1, 2)), of(1), 5, STABLE, of(1, 2), {}),
        # A member that revokes: a heartbeat without partitions, one with a revoked partition, and one without it.
        (member(UNREVOKED, of(1), revoking=of(0)), goal(of(1, 2)), None, 4, UNREVOKED, of(1), of(0)),
        (member(UNREVOKED, of(1), revoking=of(0)), goal(of(1, 2)), of(0, 1), 4, UNREVOKED, of(1), of(0)),
        (member(UNREVOKED, of(1), revoking=of(0)), goal(of(1, 2)), of(1), 5, STABLE, of(1, 2), {}),
        (member(UNREVOKED, of(1), revoking=of(0)), goal(of(2)), of(1), 4, UNREVOKED, {}, of(1)),
        # The partition that the member waits for is released, or not.
        (member(UNRELEASED, of(0)), goal(of(0, 1), epoch=4), None, 4, STABLE, of(0, 1), {}),
        (member(UNRELEASED, of(0)), goal(of(0, 1), epoch=4, others=(1,)), None, 4, UNRELEASED, of(0), {}),
        # A target that is older than the subscription, or than the end of the topic.
        (member(assigned=of(0)), goal({**of(0), **of(0, topic=B)}, subscribed=(A,)), None, 5, STABLE, of(0), {}),
        (member(assigned=of(0)), goal(of(0), subscribed=(B,)), None, 4, UNREVOKED, {}, of(0)),
        # The state was written by a coordinator that knows more states.
        (member(UNKNOWN, of(0)), goal(of(0)), {}, 5, STABLE, of(0), {}),
    ],
)
def test_one_step(
    before: Member,
    wanted: Goal,
    owned: Assignment | None,
    epoch: int,
    state: MemberState,
    assigned: Assignment,
    revoking: Assignment,
) -> None:
    after = finished(reconcile(before, wanted, owned, subscription_changed=False))
    assert (after.epoch, after.state, after.assigned, after.revoking) == (epoch, state, assigned, revoking)
    if before.state is not UNKNOWN and epoch != before.epoch:
        assert after.previous_epoch == before.epoch, "an answer that was lost is told by that"


@pytest.mark.parametrize("owned", [None, of(0)])
def test_of_an_unknown_state_it_must_come_back_from_nothing(owned: Assignment | None) -> None:
    with pytest.raises(RequestFailed) as failed:
        finished(reconcile(member(UNKNOWN, of(0)), goal(of(0)), owned, subscription_changed=False))
    assert failed.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_topics_that_it_no_longer_wants_are_asked_back_at_once() -> None:
    """The member's epoch does not matter, and neither does a pending revocation of others."""
    both = {**of(0), **of(0, topic=B)}
    at_target = goal(both, epoch=4, subscribed=(A,))
    after = finished(reconcile(member(assigned=both), at_target, None, subscription_changed=True))
    assert (after.epoch, after.state, after.assigned, after.revoking) == (4, UNREVOKED, of(0), of(0, topic=B))
    giving = member(UNREVOKED, both, revoking=of(1))
    owned = {**of(0, 1), **of(0, topic=B)}
    after = finished(reconcile(giving, at_target, owned, subscription_changed=True))
    assert (after.state, after.assigned, after.revoking) == (UNREVOKED, of(0), {**of(1), **of(0, topic=B)})
    gone = finished(reconcile(member(assigned=both), at_target, of(0), subscription_changed=True))
    assert (gone.epoch, gone.state, gone.assigned, gone.revoking) == (4, STABLE, of(0), {})
    unchanged = member(assigned=of(0))
    assert (
        finished(reconcile(unchanged, goal(of(0), epoch=4, subscribed=(A,)), None, subscription_changed=True))
        is unchanged
    )
