"""What a history answers: states, changes with their causes, the changes of one partition, gaps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.histories import MINUTE, contents, incident
from tests.support.watched import T0, details, explained, look, partition, table_of, told_of_broker

from barnabas.history.errors import HistoryError
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.monitor.changes import Change
from barnabas.monitor.course import Course
from barnabas.monitor.delta import Delta, NameRange, Source, TopicName, VolumesSeen
from barnabas.monitor.partition_state import Key
from barnabas.monitor.severity import Severity


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    incident(tmp_path / "h.db").close(T0 + 3 * MINUTE)
    with History.open(tmp_path / "h.db") as opened:
        yield opened


def told(changes: list[Change]) -> list[tuple[int, str, str]]:
    return [((change.time_ms - T0) // 1000, change.subject, change.kind) for change in changes]


def test_the_state_at_any_time_is_that_of_the_last_change(history: History) -> None:
    assert history.span() == (T0, T0 + 3 * MINUTE)
    assert history.cluster_id == "watched"
    for time_ms, severity, brokers in (
        (T0, Severity.OK, [1, 2, 3]),
        (T0 + MINUTE - 1, Severity.OK, [1, 2, 3]),
        (T0 + MINUTE, Severity.CRITICAL, [1, 3]),
        (T0 + 2 * MINUTE - 1, Severity.CRITICAL, [1, 3]),
        (T0 + 2 * MINUTE, Severity.WARNING, [1, 2, 3]),
        (T0 + 3 * MINUTE, Severity.OK, [1, 2, 3]),
    ):
        table = history.at(time_ms)
        assert (table.severity, sorted(table.brokers)) == (severity, brokers), time_ms - T0
        assert (table.asked_ms, table.gap, table.cluster_id) == (time_ms, None, "watched")


def test_times_can_be_texts_and_datetimes(history: History) -> None:
    moment = datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(minutes=1, seconds=5)
    for when in (moment, moment.replace(tzinfo=None), moment.isoformat(), moment.strftime("%H:%M:%S"), "115s"):
        assert history.at(when).asked_ms == T0 + MINUTE + 5_000, when
    with pytest.raises(HistoryError, match="invalid time: tea"):
        history.at("tea")


@pytest.mark.parametrize("away_ms", [-1, 3 * MINUTE + 1])
def test_a_time_outside_of_the_history_is_refused(history: History, away_ms: int) -> None:
    with pytest.raises(HistoryError, match=r"is not recorded: the history (begins|ends) at 2023-"):
        history.at(T0 + away_ms)


def test_changes_have_the_states_before_and_after(history: History) -> None:
    changes = history.events()
    assert told(changes) == [
        (60, "broker 2", "broker-gone"),
        (60, "a-0", "isr-shrink"),
        (60, "b-0", "offline"),
        (120, "broker 2", "broker-there"),
        (120, "b-0", "online"),
        (120, "a-0", "isr-expand"),
    ]
    assert [change.text for change in changes[1:3]] == [
        "ISR 1,2,3 -> 1,3, now at min ISR",
        "leader 2 -> none (epoch 0 -> 1), now offline",
    ]


def test_changes_are_chosen_by_time_topic_broker_and_number(history: History) -> None:
    assert told(history.events(T0 + MINUTE + 1, T0 + 2 * MINUTE)) == [
        (120, "broker 2", "broker-there"),
        (120, "b-0", "online"),
    ]
    assert {change.subject for change in history.events(topic="b")} == {"b-0"}
    assert [change.subject for change in history.events(broker=1)] == ["a-0", "a-0"]
    assert told(history.events(limit=2)) == told(history.events())[:2]
    assert told(history.events(limit=2, newest=True)) == told(history.events())[-2:]
    assert history.events(limit=0) == history.events(T0 + 4 * MINUTE) == []


def test_the_changes_of_a_partition_begin_with_its_first_state(history: History) -> None:
    changes = history.partition("b", 0)
    assert told(changes) == [(0, "b-0", "begin"), (60, "b-0", "offline"), (120, "b-0", "online")]
    assert changes[0].text == "leader 2 (epoch 0), ISR 2, in sync"
    assert (history.topics(), history.partitions("b")) == (["a", "b"], [0])
    with pytest.raises(HistoryError, match="there was no partition b-1 in this history"):
        history.partition("b", 1)


def test_a_topic_that_was_made_again_under_its_name_is_another_one(tmp_path: Path) -> None:
    first, second = partition("a-0", topic_id=b"1" * 16), partition("a-0", leader=2, topic_id=b"2" * 16)
    table = table_of(first)
    recorder = Recorder(tmp_path / "h.db", table)
    table.apply(Delta(T0 + 10, Source.METADATA_LOG, deleted=[TopicName("a", b"1" * 16)]))
    table.apply(look(second, at_ms=T0 + 5_000))
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        ids = [table.topics.by_name["a"].identity.topic_id for table in (history.at(T0), history.at(T0 + 5_000))]
        assert ids == [b"1" * 16, b"2" * 16]
        assert len(history.at(T0 + 10)) == len(history.at(T0 + 4_999)) == 0
        changes = history.partition("a", 0)
        assert [change.kind for change in changes] == ["begin", "topic-deleted", "topic-created"]
        assert [change.kind for change in history.events()] == ["topic-deleted", "topic-created"]
        assert [change.topic_id for change in changes] == [b"1" * 16, b"1" * 16, b"2" * 16]


def test_partitions_are_added_and_go_alone(tmp_path: Path) -> None:
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table)
    table.apply(look(partition("a-0"), partition("a-1"), partition("a-3"), at_ms=T0 + 1_000))
    table.apply(look(partition("a-0"), partition("a-3"), at_ms=T0 + 2_000))
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        assert [change.text for change in history.events()] == ["has 2 partitions more", "is gone"]
        assert [str(state.key) for state in history.at(T0 + 1_000).values()] == ["a-0", "a-1", "a-3"]
        last = history.at(T0 + 2_000)
        assert [str(state.key) for state in last.values()] == ["a-0", "a-3"]
        assert last.row_of("a", 1) is None


def test_causes_arrive_later_and_stay_with_their_changes(tmp_path: Path) -> None:
    table = table_of(partition("a-0"))
    course = Course(table)
    course.has_journal = True
    recorder = Recorder(tmp_path / "h.db", table)
    after = partition("a-0", leader=2, epoch=1, isr=(2, 3))
    change_set = table.apply(look(after, at_ms=T0 + 1_000, brokers=(2, 3)))
    assert change_set is not None
    course.seen(change_set)
    recorder.tick(T0 + 2_000)
    events = [
        told_of_broker(7, "broker-fenced", 1, "broker 1 was fenced"),
        explained(7, partition("a-0"), after, "broker 1 was fenced: no heartbeat", at_ms=T0 + 900),
    ]
    recorder.explain(course.explained(events, T0 + 3_000))
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        broker, moved = history.events()
        assert (broker.cause, moved.cause) == ("broker 1 was fenced", "broker 1 was fenced: no heartbeat")
        assert moved.to_json()["causes"] == ["tested"]
        assert history.partition("a", 0)[-1].cause == moved.cause


def test_a_gap_is_shown_and_the_state_in_it_is_that_before(tmp_path: Path) -> None:
    incident(tmp_path / "h.db").close(T0 + 3 * MINUTE)
    table = table_of(partition("a-0", leader=3, epoch=4), partition("c-0"), at_ms=T0 + 10 * MINUTE)
    recorder = Recorder(tmp_path / "h.db", table)
    live = contents(table)
    recorder.close()
    with History.open(tmp_path / "h.db") as history:
        (gap,) = history.gaps()
        assert (gap.begin_ms, gap.end_ms) == (T0 + 3 * MINUTE, T0 + 10 * MINUTE)
        assert gap.reason == "nothing was recorded"
        inside = history.at(T0 + 5 * MINUTE)
        assert inside.gap == gap
        assert "in a gap" in repr(inside)
        assert inside.row_of("b", 0) is not None
        assert history.at(T0 + 3 * MINUTE).gap is history.at(T0 + 10 * MINUTE).gap is None
        assert contents(history.at(T0 + 10 * MINUTE)) == live
        after = history.events(T0 + 4 * MINUTE)
        assert [change.kind for change in after] == ["topic-deleted", "topic-created", "leader-change"]
        assert {change.cause for change in after} == {"found when the recording was resumed"}


def test_the_time_in_which_no_broker_answers_is_a_gap(tmp_path: Path) -> None:
    table = table_of(partition("a-0"))
    course, recorder = Course(table), Recorder(tmp_path / "h.db", table)
    recorder.explain(course.unreachable("connection refused", T0 + 1_000))
    recorder.tick(T0 + 2_000)
    with History.open(tmp_path / "h.db") as history:
        assert [(gap.begin_ms, gap.end_ms) for gap in history.gaps()] == [(T0 + 1_000, None)]
        recorder.explain(course.reachable(T0 + 5_000))
        recorder.tick(T0 + 6_000)
        assert [(gap.begin_ms, gap.end_ms) for gap in history.gaps()] == [(T0 + 1_000, T0 + 5_000)]
    recorder.close()


def test_sizes_and_offsets_are_those_of_the_last_sample(tmp_path: Path) -> None:
    state = partition("a-0", details=details(b1=10, b2=8, b3=None))
    table = table_of(state)
    recorder = Recorder(tmp_path / "h.db", table, sample_interval_ms=1_000)
    for second in range(1, 60):
        table.apply_volumes(VolumesSeen(T0 + second * 1_000, 1, end_offsets={("a", 0): 10 + second}))
        recorder.tick(T0 + second * 1_000)
    table.apply(look(partition("a-0", replicas=(2, 1), isr=(1, 2)), at_ms=T0 + 60_500))
    recorder.close(T0 + MINUTE + 500)
    with History.open(tmp_path / "h.db") as history:
        for second in (0, 1, 23, 24, 25, 59):
            table_then = history.at(T0 + second * 1_000)
            (row,) = table_then.values()
            assert row.details[1].log_end_offset == 10 + second
            assert (row.details[2].log_end_offset, row.details[2].size_bytes) == (8, 800)
            assert 3 not in row.details
            assert table_then.volumes_ms == T0 + second * 1_000
        (row,) = history.at(T0 + 60_500).values()
        assert {broker: each.log_end_offset for broker, each in row.details.items()} == {1: 69, 2: 8}


def test_a_file_is_read_while_it_is_recorded(tmp_path: Path) -> None:
    table = table_of(partition("a-0"))
    recorder = Recorder(tmp_path / "h.db", table)
    with History.open(tmp_path / "h.db") as history:
        assert history.span() == (T0, T0)
        table.apply(look(partition("a-0"), partition("new-0"), at_ms=T0 + 10))
        recorder.tick(T0 + 1_000)
        assert history.span() == (T0, T0 + 1_000)
        assert [state.key for state in history.at(T0 + 1_000).values()] == [Key("a", 0), Key("new", 0)]
        table.apply(look(partition("a-0"), at_ms=T0 + 1_010, covers=NameRange()))
        recorder.tick(T0 + 2_000)
        assert [state.key for state in history.at(T0 + 2_000).values()] == [Key("a", 0)]
        assert [change.kind for change in history.events()] == ["topic-created", "topic-deleted"]
    recorder.close()
