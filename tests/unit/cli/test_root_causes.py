"""The cause behind a decision, from the reports of brokers about themselves."""

from __future__ import annotations

import pytest
from tests.support.self_reports import AT_MS, Event, fenced, lagged, report

from barnabas.cli.root_causes import CERTAIN, LIKELY, UNKNOWN, RootCause, root_cause


def found(event: Event, *events: Event) -> RootCause:
    cause = root_cause(event, [event, *events])
    assert cause is not None
    return cause


def shown(event: Event, *events: Event) -> tuple[str, str, str]:
    cause = found(event, *events)
    return cause.code, cause.certainty, cause.component


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("paused", ("paused", CERTAIN, "broker 2")),
        ("busy", ("busy", CERTAIN, "broker 2")),
        ("starved", ("starved", CERTAIN, "broker 2")),
    ],
)
def test_a_stall_is_distinguished_into_pause_and_load(how: str, expected: tuple[str, str, str]) -> None:
    stalled = report("stalled", 2, AT_MS - 9_000, AT_MS + 3_000, how=how, reported_ms=AT_MS + 3_000)
    assert shown(fenced(2), stalled) == expected
    cause = found(fenced(2), stalled)
    assert cause.is_hindsight
    assert "known since its return" in str(cause)
    assert cause.to_json()["evidence"] == [stalled["id"]]


def test_reports_of_another_time_or_broker_prove_nothing() -> None:
    others = [
        report("stalled", 2, AT_MS - 60_000, AT_MS - 50_000, how="paused"),
        report("stalled", 3, AT_MS - 9_000, AT_MS + 1_000, how="paused"),
        report("clock-jumped", 2, AT_MS, AT_MS, jump_ms=900),
    ]
    assert shown(fenced(2), *others) == (UNKNOWN, UNKNOWN, "broker 2")
    back = {**fenced(2), "id": "9:broker:2", "kind": "broker-unfenced", "cause": "broker-back", "time_ms": AT_MS + 9}
    assert "without a new start" in found(fenced(2), back).text


def test_lost_links_name_the_peers() -> None:
    one = report("link-lost", 2, AT_MS - 9_000, AT_MS + 2_000, peer=1)
    assert shown(fenced(2), one) == ("link-lost", LIKELY, "broker 2")
    other = report("link-lost", 2, AT_MS - 9_000, None, peer=3)
    cause = found(fenced(2), one, other)
    assert (cause.certainty, cause.text) == (CERTAIN, "broker 2 ran and got no answer from brokers 1,3 for 5.0 s")


@pytest.mark.parametrize(
    ("cause", "start", "expected"),
    [
        ("broker-gone", "unclean-shutdown", ("crashed", CERTAIN)),
        ("session-expired", "unclean-shutdown", ("crashed", LIKELY)),
        ("broker-gone", "broker-started", ("stopped", CERTAIN)),
        ("broker-gone", None, ("crashed", LIKELY)),
        ("session-expired", None, (UNKNOWN, UNKNOWN)),
    ],
)
def test_a_start_shows_that_a_process_had_ended(cause: str, start: str | None, expected: tuple[str, str]) -> None:
    registered = {**fenced(2), "id": "9:broker:2", "kind": "broker-registered", "time_ms": AT_MS + 5_000}
    events = [] if start is None else [registered | {"cause": start}]
    assert shown(fenced(2, cause), *events)[:2] == expected


@pytest.mark.parametrize(
    ("kind", "broker", "facts", "expected"),
    [
        ("stalled", 3, {"how": "paused"}, ("paused", "broker 3")),
        ("stalled", 1, {"how": "paused"}, ("paused", "broker 1")),
        ("disk-slow", 3, {"directory": "/d"}, ("disk-slow", "broker 3")),
        ("disk-full", 3, {"directory": "/d"}, ("disk-full", "broker 3")),
        ("disk-slow", 1, {"directory": "/d"}, ("disk-slow", "broker 1")),
        ("throttled", 3, {"side": "follower"}, ("throttled", "broker 3")),
        ("throttled", 1, {"side": "leader"}, ("throttled", "broker 1")),
        ("link-lost", 3, {"peer": 1}, ("link-lost", "broker 3")),
        ("link-lost", 1, {"peer": 3}, ("link-lost", "broker 1")),
        ("overloaded", 3, {"share": 0.97}, ("overloaded", "broker 3")),
        ("stalled", 1, {"how": "busy"}, ("overloaded", "broker 1")),
        ("throttled", 1, {"side": "follower"}, (UNKNOWN, "broker 3")),
        ("link-lost", 3, {"peer": 2}, (UNKNOWN, "broker 3")),
        ("disk-slow", 2, {"directory": "/d"}, (UNKNOWN, "broker 3")),
    ],
)
def test_why_a_follower_lagged(kind: str, broker: int, facts: Event, expected: tuple[str, str]) -> None:
    code, certainty, component = shown(lagged(3), report(kind, broker, AT_MS - 25_000, None, **facts))
    assert (code, component) == expected
    assert certainty == (UNKNOWN if code == UNKNOWN else CERTAIN)


def test_of_two_different_reasons_the_stronger_is_only_likely() -> None:
    paused = report("stalled", 3, AT_MS - 25_000, AT_MS - 5_000, how="paused")
    full = report("disk-full", 1, AT_MS - 25_000, None, directory="/d")
    cause = found(lagged(3), full, paused)
    assert (cause.code, cause.certainty, len(cause.evidence)) == ("paused", LIKELY, 2)


def test_a_partitions_change_has_the_cause_of_its_brokers_loss() -> None:
    moved = {**lagged(2), "metadata_offset": 7, "cause": "session-expired"}
    stalled = report("stalled", 2, AT_MS - 9_000, AT_MS + 3_000, how="paused")
    assert shown(moved, fenced(2), stalled) == ("paused", CERTAIN, "broker 2")
    assert root_cause({**moved, "cause": "reassignment-asked"}, [stalled]) is None
