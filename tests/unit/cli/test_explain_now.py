"""The list of all that is not well, from the metadata and the journal: grouped, with cause and remedy."""

from __future__ import annotations

from tests.support.self_reports import AT_MS, Event, fenced, lagged, report

from barnabas.cli.explain_now import Now, is_well
from barnabas.cli.explain_story import Present


def moved(topic: str, partition: int, leader: int, isr: list[int]) -> Event:
    after = {"leader": leader, "leader_epoch": 1, "isr": isr, "replicas": [2, 1, 3]}
    before = {"leader": 2, "leader_epoch": 0, "isr": [2, *isr], "replicas": [2, 1, 3]}
    return {
        "id": f"7:{topic}-{partition}",
        "kind": "leader-change",
        "topic": topic,
        "partition": partition,
        "time_ms": AT_MS,
        "metadata_offset": 7,
        "cause": "session-expired",
        "text": "broker 2 was fenced: it sent no heartbeat",
        "before": before,
        "after": after,
    }


def text(now: Now) -> list[str]:
    return [line for trouble in now.troubles() for line in trouble.lines()]


def test_a_lost_broker_and_what_it_left() -> None:
    presents = [
        Present("a", 0, 1, (2, 1, 3), (1, 3)),
        Present("b", 4, 1, (2, 1, 3), (1, 3)),
        Present("b", 5, 1, (1, 3, 2), (1, 3, 2)),
    ]
    unwell = [present for present in presents if not is_well(present)]
    assert [present.partition for present in unwell] == [0, 4]
    now = Now(unwell, [fenced(2), moved("a", 0, 1, [1, 3]), moved("b", 4, 1, [1, 3])])
    assert now.is_complete
    assert text(now) == [
        "2 partitions of 2 topics: Replica 2 is out of sync since 1970-01-01T00:01:40.000Z, because broker 2 was "
        "fenced: it sent no heartbeat.",
        "  Root cause: unknown: broker 2 sent no heartbeat, and has not returned: it can be paused, cut off or "
        "without power.",
        "  To end it, see whether broker 2 runs and can be reached.",
        "Broker 2 is not in the cluster since 1970-01-01T00:01:40.000Z, because fenced.",
        "  Root cause: unknown: broker 2 sent no heartbeat, and has not returned: it can be paused, cut off or "
        "without power.",
        "  To end it, see whether broker 2 runs and can be reached.",
    ]
    shown = now.troubles()[0].to_json()
    assert shown["partitions"] == ["a-0", "b-4"]
    assert (shown["since_ms"], shown["root_cause"]["code"]) == (AT_MS, "unknown")


def test_a_partition_without_a_leader_comes_first() -> None:
    back = {**fenced(2), "kind": "broker-unfenced", "cause": "broker-back", "time_ms": AT_MS + 1}
    gone = moved("b", 0, -1, [2])
    gone["before"]["isr"] = [2]
    lag = lagged(3)
    unwell = [Present("t", 0, 1, (1, 2, 3), (1, 2)), Present("b", 0, -1, (2, 1, 3), (2,))]
    slow = report("disk-slow", 3, AT_MS - 9_000, None, directory="/d")
    now = Now(unwell, [gone, lag, fenced(2), back, slow])
    first, second, third = now.troubles()
    assert (first.what, first.partitions) == ("No broker leads", [("b", 0)])
    assert first.remedy == "start broker 2, in sync: nothing is lost"
    assert (second.what, second.remedy) == ("Replica 3 is out of sync", "check the disk of broker 3")
    assert second.cause is not None
    assert (third.what, third.since_ms) == ("Broker 3 reports disk-slow", [AT_MS - 9_000])


def test_a_replica_that_was_never_in_sync_is_out_of_sync_because_its_broker_was_lost() -> None:
    created = {"id": "9:topic:new", "kind": "topic-created", "topic": "new", "topic_id": "A", "time_ms": AT_MS + 9}
    created |= {"text": "User:ann created new", "cause": "create-asked", "first_partition": 0, "partitions": 1}
    created |= {"replicas": [[1, 2]], "leaders": [1], "isrs": [[1]]}
    unwell = [Present("new", 0, 1, (1, 2), (1,))]
    (trouble, _) = Now(unwell, [fenced(2, "broker-gone"), created]).troubles()
    assert (trouble.texts, trouble.cause and trouble.cause.code) == (["fenced"], "crashed")
    (trouble,) = Now(unwell, [created]).troubles()
    assert trouble.texts == ["User:ann created new"]


def test_a_state_that_ended_is_no_trouble() -> None:
    begun = report("disk-full", 3, AT_MS, None, directory="/d")
    ended = report("disk-full", 3, AT_MS, AT_MS + 5_000, directory="/d")
    assert [trouble.what for trouble in Now([], [begun]).troubles()] == ["Broker 3 reports disk-full"]
    assert Now([], [begun, ended]).troubles() == []
    started = {**fenced(3), "kind": "broker-registered", "cause": "broker-started"}
    assert Now([], [begun, started]).troubles() == []


def test_without_an_event_the_journal_does_not_say_why() -> None:
    now = Now([Present("a", 0, 1, (2, 1, 3), (1, 3))], [])
    assert not now.is_complete
    assert text(now) == [
        "a-0: Replica 2 is out of sync; no recorded event says why.",
        "  To end it, see whether broker 2 runs and can be reached.",
    ]
