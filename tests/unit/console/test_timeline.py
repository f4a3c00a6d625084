"""The time line by kind and by cause: what is counted, and what is found."""

from __future__ import annotations

from dataclasses import replace

from tests.support.watched import partition

from barnabas.console.occurrences import Occurrences
from barnabas.console.views.timeline import TimelineQuestion, timeline
from barnabas.monitor.changes import Change, partition_change

WELL, SHRUNK = partition("orders-0"), partition("orders-0", isr=(1, 2))


def shrunk(code: str, at_ms: int) -> Change:
    return replace(partition_change(WELL, SHRUNK, at_ms), events=({"cause": code, "text": f"because of {code}"},))


def known() -> Occurrences:
    found = Occurrences()
    for place, code in enumerate(["follower-lagged", "broker-gone", "follower-lagged"]):
        found.add([shrunk(code, 1_000 * place)])
    found.add([partition_change(SHRUNK, WELL, 9_000)])
    return found


def test_events_are_found_by_their_cause() -> None:
    found = timeline(known(), TimelineQuestion(causes=frozenset({"broker-gone"})))
    assert [event["codes"] for event in found["events"]] == [["broker-gone"]]
    assert found["total"] == 1
    assert timeline(known(), TimelineQuestion(causes=frozenset({"none"})))["events"] == []


def test_what_is_chosen_does_not_hide_what_could_be_chosen_instead() -> None:
    every = timeline(known(), TimelineQuestion())
    assert every["causes"] == {"follower-lagged": 2, "broker-gone": 1}
    assert every["kinds"] == {"isr-shrink": 3, "isr-expand": 1}
    by_cause = timeline(known(), TimelineQuestion(causes=frozenset({"broker-gone"})))
    assert by_cause["causes"] == every["causes"]
    assert by_cause["kinds"] == {"isr-shrink": 1}
    by_kind = timeline(known(), TimelineQuestion(kinds=frozenset({"isr-expand"})))
    assert by_kind["kinds"] == every["kinds"]
    assert by_kind["causes"] == {}
