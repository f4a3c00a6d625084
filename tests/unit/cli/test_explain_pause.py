"""Why clients of a topic paused: the outages of its partitions in that time."""

from __future__ import annotations

from tests.support.self_reports import AT_MS, Event, fenced, report

from barnabas.cli.explain_pause import Outage, outages


def moved(offset: int, time_ms: int, before: tuple[int, list[int]], after: tuple[int, list[int]], cause: str) -> Event:
    def state(leader: int, isr: list[int]) -> Event:
        return {"leader": leader, "leader_epoch": offset, "isr": isr, "replicas": [2, 1, 3]}

    return {
        "id": f"{offset}:t-0",
        "kind": "leader-change",
        "topic": "t",
        "partition": 0,
        "time_ms": time_ms,
        "metadata_offset": offset,
        "cause": cause,
        "text": "broker 2 was fenced",
        "min_isr": 2,
        "before": state(*before),
        "after": state(*after),
    }


def times(found: list[Outage]) -> list[tuple[str, int | None, int | None]]:
    return [(each.kind, each.begin_ms, each.end_ms) for each in found]


FAILED = moved(7, AT_MS, (2, [2, 1, 3]), (1, [1, 3]), "session-expired")
STALLED = report("stalled", 2, AT_MS - 9_000, AT_MS + 3_000, how="paused", reported_ms=AT_MS + 3_000)


def test_a_paused_leader_from_its_stall_to_the_next_leader() -> None:
    (outage,) = outages("t", [fenced(2), FAILED, STALLED], AT_MS - 4_000, AT_MS)
    assert times([outage]) == [("leader-silent", AT_MS - 9_000, AT_MS)]
    assert outage.lines("t") == [
        "t-0: its leader, broker 2, did not serve from 1970-01-01T00:01:31.000Z to 1970-01-01T00:01:40.000Z (9.0 s), "
        "because broker 2 was fenced.",
        "  Root cause: paused (certain, known since its return): stalled of broker 2.",
        "  Broker 1 leads since then; a client uses it after its next metadata request.",
    ]
    assert outage.to_json()["root_cause"]["code"] == "paused"


def test_a_leader_of_which_nothing_is_known_was_silent_since_an_unknown_time() -> None:
    (outage,) = outages("t", [fenced(2), FAILED], AT_MS - 4_000, AT_MS)
    assert times([outage]) == [("leader-silent", None, AT_MS)]
    assert "from an unknown time to" in outage.lines("t")[0]


def test_no_leader_and_too_few_replicas() -> None:
    alone = moved(8, AT_MS + 1_000, (1, [1, 3]), (1, [1]), "follower-lagged")
    none = moved(9, AT_MS + 2_000, (1, [1]), (-1, [1]), "controlled-shutdown")
    led = moved(10, AT_MS + 6_000, (-1, [1]), (1, [1]), "broker-back")
    whole = moved(11, AT_MS + 7_000, (1, [1]), (1, [1, 3]), "follower-caught-up")
    events = [FAILED, alone, none, led, whole]
    found = outages("t", events, AT_MS + 1_500, AT_MS + 3_000)
    assert times(found) == [
        ("under-min-isr", AT_MS + 1_000, AT_MS + 7_000),
        ("no-leader", AT_MS + 2_000, AT_MS + 6_000),
    ]
    assert "it had 1 in-sync replicas, and needs 2" in found[0].lines("t")[0]
    assert times(outages("t", [alone, none], AT_MS + 9_000, AT_MS + 9_500))[1] == ("no-leader", AT_MS + 2_000, None)


def test_what_was_before_or_after_or_of_another_topic_explains_nothing() -> None:
    events = [fenced(2), FAILED, STALLED]
    assert outages("t", events, AT_MS - 20_000, AT_MS - 10_000) == []
    assert outages("t", events, AT_MS + 1, AT_MS + 5_000) == []
    assert outages("u", events, AT_MS - 4_000, AT_MS) == []
    planned = moved(12, AT_MS, (2, [2, 1, 3]), (1, [2, 1, 3]), "election-asked")
    assert outages("t", [planned], AT_MS - 1_000, AT_MS + 1_000) == []
