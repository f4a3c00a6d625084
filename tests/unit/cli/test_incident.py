"""The causes of an incident: what follows from another cause is left out, and the rest is ranked."""

from __future__ import annotations

from typing import Any

from barnabas.cli.incident import answer_lines, causes_of

Event = dict[str, Any]


def event(kind: str, time_ms: int, **fields: object) -> Event:
    return {"id": f"{kind}{time_ms}{fields}", "kind": kind, "time_ms": time_ms, "cause": kind, "text": kind, **fields}


def lost(broker: int, peer: int, *, begin_ms: int = 1_000, **fields: object) -> Event:
    facts = {"broker": broker, "peer": peer, "begin_ms": begin_ms, "duration_ms": 2_500, **fields}
    return event("link-lost", begin_ms + 2_500, **facts)


def told(*events: Event) -> list[tuple[str, str, str]]:
    return [(cause.code, cause.component, cause.certainty) for cause in causes_of(events)]


FENCED = event("broker-fenced", 9_000, broker=2, node=3001) | {"cause": "session-expired"}
BACK = event("broker-unfenced", 30_000, broker=2)


def test_nothing() -> None:
    assert told() == []
    assert answer_lines([]) == ["Nothing happened that needs an explanation."]


def test_both_ends_that_wait_are_cut_off_from_each_other() -> None:
    events = [lost(one, 3 - one, unacknowledged=False, dialled="silent") for one in (1, 2)]
    assert told(*events) == [("link-lost", "link 1-2", "certain")]


def test_the_end_whose_request_is_not_acknowledged_cannot_send() -> None:
    waiting = lost(1, 2, unacknowledged=False)
    # A later request of the end that waited is not acknowledged either: only the first one counts.
    later = waiting | {"id": "later", "unacknowledged": True, "duration_ms": 9_000}
    assert told(lost(2, 1, unacknowledged=True), waiting, later) == [("link-one-way", "link 2>1", "certain")]


def test_a_system_that_accepts_connections_is_there() -> None:
    reports = [lost(one, 2, dialled="connects") for one in (1, 3)]
    assert told(*reports) == [("paused", "broker 2", "likely")]
    stalled = event("stalled", 30_000, broker=2, begin_ms=1_000, end_ms=30_000, duration_ms=29_000, how="paused")
    assert told(*reports, FENCED, stalled, BACK) == [("paused", "broker 2", "certain")]


def test_a_broker_that_answers_again_and_reports_nothing_was_not_paused() -> None:
    reports = [lost(one, 2, dialled="connects", end_ms=15_000) for one in (1, 3)]
    assert told(*reports) == [("unknown", "broker 2", "unknown")]
    assert told(*reports, FENCED) == [("paused", "broker 2", "likely")], "it is still away"


def test_a_refused_address_whose_process_is_back_without_a_start_was_no_crash() -> None:
    gone = event("broker-fenced", 9_000, broker=2, node=1) | {"cause": "broker-gone"}
    assert told(gone) == [("crashed", "broker 2", "likely")]
    assert told(gone, BACK) == [("unknown", "broker 2", "unknown")]


def test_silence_of_all_peers_is_a_cut_or_a_power_failure() -> None:
    reports = [lost(one, 2, dialled="silent") for one in (1, 3)]
    assert told(*reports) == [("link-lost", "broker 2", "likely"), ("power-lost", "broker 2", "likely")]
    assert told(reports[0], FENCED)[0] == ("link-lost", "broker 2", "likely"), "the controller does not hear it either"


def test_a_machine_that_the_network_does_not_find_is_without_power() -> None:
    reports = [lost(one, 2, dialled="unreachable") for one in (1, 3)]
    assert told(*reports) == [("power-lost", "broker 2", "likely"), ("link-lost", "broker 2", "likely")]
    mixed = [reports[0], lost(3, 2, dialled="silent")]
    assert told(*mixed)[0] == ("link-lost", "broker 2", "likely"), "another network finds it"
    own = lost(2, 1, reported_ms=30_000)
    assert told(*reports, own)[0] == ("link-lost", "broker 2", "likely"), "it ran"
    ended = [report | {"id": f"{report['id']}e", "end_ms": 15_000} for report in reports]
    assert told(*reports, *ended)[0] == ("link-lost", "broker 2", "likely"), "it is back without a start"
    start = event("broker-registered", 30_000, broker=2) | {"cause": "unclean-shutdown"}
    assert told(*reports, *ended, FENCED, start, BACK)[0] == ("power-lost", "broker 2", "likely"), "its report follows"


def test_the_start_of_the_machine_tells_a_power_failure_from_a_crash() -> None:
    start = event("broker-registered", 30_000, broker=2) | {"cause": "unclean-shutdown"}
    for up_ms, code in ((20_000, "power-lost"), (86_400_000, "crashed")):
        recovering = event("recovering", 30_100, broker=2, begin_ms=30_000, end_ms=30_100, machine_up_ms=up_ms)
        assert told(FENCED, start, BACK, recovering) == [(code, "broker 2", "certain")]


def test_new_directories_are_a_lost_disk() -> None:
    start = event("broker-registered", 30_000, broker=2, new_directories=True) | {"cause": "unclean-shutdown"}
    assert told(start) == [("disk-lost", "broker 2", "certain")]


def test_late_answers_over_a_lossy_link() -> None:
    lossy = event("link-lossy", 5_000, broker=1, peer=2, begin_ms=4_000, duration_ms=0)
    assert told(lossy, lost(1, 2, dialled="connects")) == [("link-lossy", "link 1-2", "certain")]
    assert told(lossy, lost(1, 2, dialled="silent"))[0] == ("link-lost", "link 1-2", "likely")


def test_brokers_that_restart_one_after_the_other() -> None:
    def restart(broker: int, time_ms: int) -> list[Event]:
        stop = event("controlled-shutdown", time_ms, broker=broker)
        return [stop, event("broker-registered", time_ms + 1_500, broker=broker) | {"cause": "broker-started"}]

    assert told(*restart(1, 1_000)) == [("stopped", "broker 1", "certain")]
    assert told(*restart(1, 1_000), *restart(2, 9_000)) == [("restarted", "cluster", "certain")]


def test_a_stop_after_the_restart_of_another_broker_continues_a_restart_of_all() -> None:
    first = event("controlled-shutdown", 1_000, broker=1)
    start = event("broker-registered", 2_500, broker=1) | {"cause": "broker-started"}
    second = event("controlled-shutdown", 10_000, broker=2)
    assert told(first, start, second) == [("restarted", "cluster", "likely")]
    assert told(first, second)[0] == ("stopped", "broker 1", "certain"), "both are down"
    later = second | {"time_ms": 2_000_000}
    assert [each[0] for each in told(first, start, later)] == ["stopped", "stopped"], "another occasion"
    gone = event("broker-fenced", 10_000, broker=2) | {"cause": "broker-gone"}
    assert told(first, start, gone) == [("restarted", "cluster", "likely")], "the active controller does not say more"
    assert told(first, start, gone | {"time_ms": 90_000})[0] == ("crashed", "broker 2", "likely"), "much later"
    before = second | {"time_ms": 1_500}
    assert [each[0] for each in told(first, before, start)] == ["stopped", "stopped"], "it did not wait for the first"


def test_what_happens_long_after_a_restart_has_its_own_cause() -> None:
    starts = [event("broker-registered", 1_000 * each, broker=each) | {"cause": "broker-started"} for each in (1, 2, 3)]
    soon = [lost(one, 2, begin_ms=4_000, dialled="connects") for one in (1, 3)]
    assert told(*starts, *soon) == [("restarted", "cluster", "certain")]
    later = [lost(one, 2, begin_ms=60_000, dialled="connects") for one in (1, 3)]
    assert told(*starts, *later) == [("restarted", "cluster", "certain"), ("paused", "broker 2", "likely")]


def test_the_first_starts_of_new_brokers_are_no_restart() -> None:
    starts = [event("broker-registered", 1_000 * each, broker=each, before=None) for each in (1, 2, 3)]
    assert told(*(start | {"cause": "broker-started"} for start in starts)) == []


def test_a_removed_broker_was_not_just_stopped() -> None:
    stop = event("broker-fenced", 8_000, broker=3) | {"cause": "controlled-shutdown"}
    removed = event("broker-unregistered", 12_000, broker=3) | {"cause": "unregister-asked"}
    moved = event("reassignment-started", 1_000, topic="orders") | {"cause": "reassignment-asked"}
    assert told(moved, stop, removed) == [("decommissioned", "broker 3", "certain")]


def test_requests_come_last_and_states_are_told() -> None:
    changed = event("config-changed", 1_000, resource="topic", name="orders") | {"cause": "config-asked"}
    throttled = event("throttled", 2_000, broker=2, side="follower", begin_ms=1_000)
    burst = event("burst", 3_000, broker=1, topic="orders", begin_ms=1_000)
    assert told(changed, burst, throttled) == [
        ("throttled", "broker 2", "certain"),
        ("burst", "topic orders", "certain"),
        ("config-asked", "topic orders", "certain"),
    ]
    assert answer_lines(causes_of([throttled]))[0] == "1. broker 2: throttled (certain): throttled."
