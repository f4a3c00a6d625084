"""The offsets that a reset gives a group: every option, with logs that are a dictionary."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from barnabas.cli.groups_reset import (
    Goal,
    Offsets,
    ResetMethod,
    new_offsets,
    parse_duration_ms,
    parse_rows,
    parse_topic,
    to_rows,
)
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class LogsOf:
    """Partition -> where its log starts and ends; every record is as old as its offset says in milliseconds."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._logs = logs

    def starts(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {each: self._logs[each][0] for each in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {each: self._logs[each][1] for each in partitions}

    def since(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> Offsets:
        found = {each: max(timestamp_ms, self._logs[each][0]) for each in partitions}
        return {each: offset for each, offset in found.items() if offset < self._logs[each][1]}


LOGS = LogsOf({A: (10, 100), B: (0, 40)})


@pytest.mark.parametrize(
    "goal, expected",
    [
        (Goal(ResetMethod.EARLIEST), (10, 0)),
        (Goal(ResetMethod.LATEST), (100, 40)),
        (Goal(ResetMethod.TIME, 50), (50, 40)),
        (Goal(ResetMethod.TIME, 5), (10, 5)),
        (Goal(ResetMethod.OFFSET, 70), (70, 40)),
        (Goal(ResetMethod.OFFSET, 3), (10, 3)),
        (Goal(ResetMethod.SHIFT, 7), (37, 27)),
        (Goal(ResetMethod.SHIFT, -25), (10, 0)),
        (Goal(ResetMethod.SHIFT, 1_000), (100, 40)),
        (Goal(ResetMethod.FILE, rows={"g": {A: 99, B: 99}}), (99, 40)),
    ],
)
def test_every_way_ends_within_the_log(goal: Goal, expected: tuple[int, int]) -> None:
    found = new_offsets(goal, "g", [A, B], {A: 30, B: 20}, LOGS)
    assert (found[A], found[B]) == expected


def test_where_nothing_is_committed_current_is_the_end_and_nothing_can_be_shifted() -> None:
    assert new_offsets(Goal(ResetMethod.CURRENT), "g", [A, B], {A: 3}, LOGS) == {A: 3, B: 40}
    with pytest.raises(Failure, match="orders-1"):
        new_offsets(Goal(ResetMethod.SHIFT, 1), "g", [A, B], {A: 30}, LOGS)


@pytest.mark.parametrize(
    "text, duration_ms",
    [("PT30S", 30_000), ("P1DT2H3M4.5S", 93_784_500), ("P7D", 604_800_000), ("2h", 7_200_000), ("90s", 90_000)],
)
def test_durations_are_iso_or_short(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["P", "PT", "2017-01-01", "h", "10", "-5m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Failure):
        parse_duration_ms(text)


def test_topics_may_name_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0,12") == ("orders", [0, 12])
    for wrong in ("orders:", ":1", "orders:a", "orders:1,"):
        with pytest.raises(Failure):
            parse_topic(wrong)


def test_files_are_read_as_they_are_written_for_one_group_and_for_several() -> None:
    one = {"g": {A: 1, B: 2}}
    several = {"g": {A: 1}, "h": {A: 3, B: 4}}
    assert to_rows(one) == ["orders,0,1", "orders,1,2"]
    assert parse_rows(to_rows(one), ["g"]) == one
    assert to_rows(several) == ["g,orders,0,1", "h,orders,0,3", "h,orders,1,4"]
    assert parse_rows([*to_rows(several), ""], ["g", "h"]) == several


@pytest.mark.parametrize("line", ["orders,0", "orders,zero,1", "g,orders,0,-1", "orders,0,1"])
def test_a_wrong_line_of_a_file_is_named(line: str) -> None:
    with pytest.raises(Failure, match="line 2"):
        parse_rows(["g,orders,0,1", line], ["g", "h"])
