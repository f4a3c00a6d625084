"""The journal's events of a broker's own replicas: the exact range that an unclean election lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.follower_world import SELF, FollowerWorld
from tests.support.log_world import encode_records

from barnabas.journal import replica_events as module
from barnabas.journal.replica_events import ReplicaEvents
from barnabas.journal.self_reports import SelfReport, SelfReportKind
from barnabas.metadata.topics import RECOVERING, PartitionImage
from barnabas.records.batch import Record


class StoppedClock:
    def now_ms(self) -> int:
        return 1

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def wall_ms(self) -> int:
        return 1_700_000_000_000


def event_of(record: Record) -> Any:
    assert record.value is not None
    return json.loads(record.value)


def told(what: str, **facts: int) -> Any:
    replica_events = ReplicaEvents(3, StoppedClock())
    replica_events.add("t", bytes(16), 0, what, facts)
    (record,) = replica_events.draw(10)
    return event_of(record)


def test_the_range_that_was_committed_and_is_cut_off() -> None:
    event = told("truncation", truncated_to=100, log_end_offset=130, high_watermark=120)
    assert (event["kind"], event["committed_lost"]) == ("replica-truncated", 20)
    assert "offsets 100 to 119 had been committed and are lost" in event["text"]
    assert (event["topic"], event["partition"], event["node"]) == ("t", 0, 3)


def test_unacknowledged_records_do_not_count_as_lost() -> None:
    event = told("truncation", truncated_to=120, log_end_offset=130, high_watermark=120)
    assert event["committed_lost"] == 0
    assert "lost" not in event["text"]


def test_where_an_unclean_leader_begins() -> None:
    event = told("unclean-leader", log_end_offset=100, high_watermark=90)
    assert (event["kind"], event["log_end_offset"], event["high_watermark"]) == ("unclean-leader", 100, 90)


def test_they_are_kept_until_written_and_have_names_of_their_own() -> None:
    replica_events = ReplicaEvents(3, StoppedClock())
    for partition in range(4):
        replica_events.add("t", bytes(16), partition, "new-start", {"starts_at": 5, "log_end_offset": 2})
    assert len(replica_events.draw(3)) == 3
    replica_events.rewind()
    drawn = replica_events.draw(3)
    replica_events.written()
    drawn += replica_events.draw(3)
    assert [event_of(record)["partition"] for record in drawn] == [0, 1, 2, 3]
    assert len({record.key for record in drawn}) == 4
    replica_events.written()
    assert not replica_events


def test_there_is_no_end_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_MAX", 2)
    replica_events = ReplicaEvents(3, StoppedClock())
    for _ in range(5):
        replica_events.add_gap(1, 2)
    replica_events.draw(10)
    replica_events.written()
    replica_events.add_gap(3, 4)
    (record,) = replica_events.draw(10)
    assert event_of(record)["dropped"] == 3


def test_readers_see_what_waits_and_take_nothing() -> None:
    replica_events = ReplicaEvents(3, StoppedClock())
    replica_events.add_gap(1, 2)
    replica_events.report(SelfReport(SelfReportKind.CLOCK_JUMPED, 1, 1, 0, facts={"jump_ms": 900}))
    expected = ["clock-jumped", "journal-gap"]
    assert [event_of(record)["kind"] for record in replica_events.waiting(9)] == expected
    drawn = replica_events.draw(9)
    assert [event_of(record)["id"] for record in replica_events.waiting(9)] == [event_of(each)["id"] for each in drawn]
    assert [event_of(record)["kind"] for record in replica_events.waiting(1)] == expected[:1]
    replica_events.written()
    assert replica_events.waiting(9) == []


def test_a_replica_says_what_it_cuts_off() -> None:
    world = FollowerWorld()
    partition = world.follower()
    partition.append_as_follower(encode_records(1, 2, 3, leader_epoch=1), 2, 0)
    world.environment.reported_events.clear()
    partition.truncate_to(3)
    assert world.environment.reported_events == []
    partition.truncate_to(1)
    assert world.environment.reported_events == [("truncation", {"truncated_to": 1, "log_end_offset": 3})]
    assert partition.log.log_end_offset == 0  # whole batches only
    partition.start_anew_at(7)
    assert world.environment.reported_events[1:] == [("new-start", {"starts_at": 7, "log_end_offset": 0})]


def test_an_unclean_leader_says_where_its_log_ends() -> None:
    world = FollowerWorld()
    partition = world.follower()
    partition.append_as_follower(encode_records(1, 2, leader_epoch=1), 1, 0)
    partition.become_leader(PartitionImage((SELF,), (SELF,), SELF, 6, 6))
    assert world.environment.reported_events == []
    partition.become_leader(PartitionImage((SELF,), (SELF,), SELF, 7, 7, leader_recovery_state=RECOVERING))
    assert world.environment.reported_events == [("unclean-leader", {"log_end_offset": 2})]
