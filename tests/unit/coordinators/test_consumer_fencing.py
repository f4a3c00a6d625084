"""Fencing of commits and fetches of offsets in consumer groups: `ConsumerGroup.validateOffsetCommit` and
`validateOffsetFetch` of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from immutables import Map

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.fencing import check_commit, check_fetch, check_transactional_commit
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ClassicInfo, Member

_MODERN, _OLD = 9, 8


def group_of(*members: Member) -> ConsumerGroup:
    return ConsumerGroup("g", members=Map({member.member_id: member for member in members}))


@pytest.fixture
def group() -> ConsumerGroup:
    """Returns a group whose member "a" has advanced from epoch 1 to 2."""
    return group_of(Member("a", epoch=2, previous_epoch=1), Member("b", epoch=2))


def result(check: Callable[[], None]) -> ErrorCode:
    try:
        check()
    except RequestFailed as failure:
        return ErrorCode(failure.code)
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "code"),
    [
        ("a", 2, _MODERN, ErrorCode.NONE),
        ("a", 2, _OLD, ErrorCode.UNSUPPORTED_VERSION),
        ("a", 1, _MODERN, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, _MODERN, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, _MODERN, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 2, _MODERN, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, _MODERN, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits(group: ConsumerGroup, member_id: str, epoch: int, version: int, code: ErrorCode) -> None:
    assert result(lambda: check_commit(group, member_id, epoch, version)) is code


@pytest.mark.parametrize(
    ("member_id", "instance_id", "epoch", "code"),
    [
        ("a", None, 2, ErrorCode.NONE),
        ("a", None, 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, -1, ErrorCode.NONE),  # a producer that does not name its consumer
        ("", "instance", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", None, -1, ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_commits_in_transactions(
    group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, code: ErrorCode
) -> None:
    """A producer whose consumer has lost its partitions is fenced like the consumer (KIP-447)."""
    assert result(lambda: check_transactional_commit(group, member_id, instance_id, epoch)) is code


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE),  # an admin client
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetches(group: ConsumerGroup, member_id: str | None, epoch: int, code: ErrorCode) -> None:
    assert result(lambda: check_fetch(group, member_id, epoch)) is code


def test_an_empty_group_takes_commits_of_those_that_are_no_members() -> None:
    empty = group_of()
    assert result(lambda: check_commit(empty, "", -1, _OLD)) is ErrorCode.NONE
    assert result(lambda: check_transactional_commit(empty, "x", "y", -1)) is ErrorCode.NONE
    assert result(lambda: check_commit(empty, "a", 1, _MODERN)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert result(lambda: check_transactional_commit(empty, "a", None, 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_the_classic_protocol_is_fenced_by_its_generation() -> None:
    """The client of such a member knows neither version 9 nor STALE_MEMBER_EPOCH."""
    mixed = group_of(Member("a", epoch=2, classic=ClassicInfo(45_000, ())), Member("b", epoch=2))
    assert result(lambda: check_commit(mixed, "a", 2, _OLD)) is ErrorCode.NONE
    assert result(lambda: check_commit(mixed, "a", 1, _OLD)) is ErrorCode.ILLEGAL_GENERATION
    assert result(lambda: check_transactional_commit(mixed, "a", None, 1)) is ErrorCode.ILLEGAL_GENERATION
    assert result(lambda: check_fetch(mixed, "a", 3)) is ErrorCode.ILLEGAL_GENERATION
