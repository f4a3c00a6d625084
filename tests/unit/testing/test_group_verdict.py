"""The verdict on groups finds the faults that it is for: each test is a history with one fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.group_verdict import Diary, judge_commits, judge_owners, judge_reading


class Made(Diary):
    """A diary that a test wrote."""

    def __init__(self, directory: Path, name: str, *events: dict[str, Any]) -> None:
        super().__init__(name, directory / name)
        self.journal.write_text("".join(json.dumps(event) + "\n" for event in events))


def assigned(at: float, *partitions: int, generation: int | None = None) -> dict[str, Any]:
    return {"at": at, "event": "assigned", "partitions": list(partitions), "generation": generation}


def revoked(at: float, *partitions: int) -> dict[str, Any]:
    return {"at": at, "event": "revoked", "partitions": list(partitions)}


def lost(at: float, *partitions: int) -> dict[str, Any]:
    return {"at": at, "event": "lost", "partitions": list(partitions)}


def committed(at: float, partition: int, offset: int) -> dict[str, Any]:
    return {"at": at, "event": "committed", "partition": partition, "offset": offset}


def read(at: float, first: int, last: int, partition: int = 0) -> dict[str, Any]:
    return {"at": at, "event": "read", "partition": partition, "first": first, "last": last}


def test_handing_over_is_right(tmp_path: Path) -> None:
    a = Made(tmp_path, "a", assigned(1, 0, 1, generation=1), revoked(2, 0, 1), assigned(2.1, 0, generation=2))
    b = Made(tmp_path, "b", assigned(2.1, 1, generation=2))
    judge_owners([a, b], [0, 1])


def test_two_owners_at_once_are_found(tmp_path: Path) -> None:
    a = Made(tmp_path, "a", assigned(1, 0), revoked(2, 0))
    b = Made(tmp_path, "b", assigned(1.9, 0))
    with pytest.raises(AssertionError, match="owned twice at once"):
        judge_owners([a, b], [0])


def test_who_was_killed_owns_nothing_any_more(tmp_path: Path) -> None:
    a, b = Made(tmp_path, "a", assigned(1, 0)), Made(tmp_path, "b", assigned(3, 0))
    with pytest.raises(AssertionError, match="owned twice at once"):
        judge_owners([a, b], [0])
    a.ended_at = 2.5
    judge_owners([a, b], [0])


def test_what_was_taken_from_a_member_may_be_another_ones_before_it_knows(tmp_path: Path) -> None:
    a = Made(tmp_path, "a", assigned(1, 0), committed(2, 0, 5), lost(9, 0))
    judge_owners([a, Made(tmp_path, "b", assigned(3, 0))], [0])
    with pytest.raises(AssertionError, match="owned twice at once"):
        judge_owners([a, Made(tmp_path, "early", assigned(1.9, 0))], [0])


def test_two_owners_in_a_generation_are_found_though_one_was_gone(tmp_path: Path) -> None:
    a = Made(tmp_path, "a", assigned(1, 0, generation=4), revoked(2, 0))
    b = Made(tmp_path, "b", assigned(3, 0, generation=4))
    with pytest.raises(AssertionError, match="two owners in a generation"):
        judge_owners([a, b], [0])
    a.identity = b.identity = "the same static member"
    judge_owners([a, b], [0])


def test_a_partition_without_owner_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="in the end"):
        judge_owners([Made(tmp_path, "a", assigned(1, 0, 1), revoked(2, 1))], [0, 1])


def test_reading_from_where_it_was_committed_is_right_and_before_that_is_not(tmp_path: Path) -> None:
    a = Made(tmp_path, "a", assigned(1, 0), read(2, 0, 4), revoked(4, 0))
    committed = [(3.0, 0, 5)]
    judge_reading([a, Made(tmp_path, "b", assigned(5, 0), read(6, 5, 7))], {0: 8}, committed)
    with pytest.raises(AssertionError, match="begins before"):
        judge_reading([a, Made(tmp_path, "b", assigned(5, 0), read(6, 3, 7))], {0: 8}, committed)


def test_gaps_are_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="skips or repeats"):
        judge_reading([Made(tmp_path, "a", assigned(1, 0), read(2, 0, 4), read(3, 6, 7))], {0: 8}, [])
    with pytest.raises(AssertionError, match="nobody read"):
        judge_reading([Made(tmp_path, "a", assigned(1, 0), read(2, 0, 4))], {0: 8}, [])


def test_commits_that_go_back_or_get_lost_are_found() -> None:
    judge_commits({0: 9}, [(1.0, {}), (2.0, {0: 4}), (3.0, {0: 4}), (4.0, {0: 9})], [(1.5, 0, 4), (3.5, 0, 9)])
    with pytest.raises(AssertionError, match="4 is committed after 5"):
        judge_commits({0: 9}, [(1.0, {0: 5}), (2.0, {0: 4})], [])
    with pytest.raises(AssertionError, match="0 is committed after 4"):
        judge_commits({0: 9}, [(2.0, {})], [(1.5, 0, 4)])
