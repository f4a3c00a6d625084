"""Operations that wait for the HW: the order of their completion, and the cleanup of those that timed out."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.replication.commit_waiters import CommitWaiters


def test_waiters_are_called_in_the_order_of_their_offsets() -> None:
    waiters, told = CommitWaiters(), []
    for offset in (5, 7, 3, 7, 9):
        waiters.add(offset, lambda code, offset=offset: told.append(offset))  # type: ignore[misc]
    for done in waiters.take(7):
        done(ErrorCode.NONE)
    assert told == [3, 5, 7, 7]
    assert len(waiters) == 1
    for done in waiters.take():
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told[-1] == 9
    assert not waiters


def test_a_cancelled_waiter_is_not_called_and_is_removed() -> None:
    waiters, told = CommitWaiters(), []
    all_ = [waiters.add(offset, lambda code, offset=offset: told.append(offset)) for offset in range(1000)]  # type: ignore[misc]
    for waiter in all_[:990]:
        waiter.cancel()
        waiter.cancel()
    assert len(waiters) == 10
    assert len(waiters._heap) < 100
    assert len(waiters.take(1 << 60)) == 10
    all_[0].cancel()
    all_[999].cancel()
    assert len(waiters) == 0
    waiters.add(5, told.append)
    assert len(waiters.take(5)) == 1
