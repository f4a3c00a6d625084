"""Self-reports: the observations of a broker about itself and its links, as events that only it can write.

A controller knows that a broker sent no heartbeat, or that a follower lagged, but not why. The broker that was paused,
cut off or slow does. A state that lasts is reported when it has lasted for a while, and again with its end. The report
of a broker that was cut off is written late, at `reported_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

#: A process that used less than this share of a CPU while it stood still was paused; one that used more was busy.
PAUSED_SHARE_MAX: Final = 0.1
BUSY_SHARE_MIN: Final = 0.5


class SelfReportKind(StrEnum):
    STALLED = "stalled"
    OVERLOADED = "overloaded"
    STARVED = "starved"
    CLOCK_JUMPED = "clock-jumped"
    THROTTLED = "throttled"
    DISK_SLOW = "disk-slow"
    DISK_FULL = "disk-full"
    DISK_FAILED = "disk-failed"
    LINK_LOST = "link-lost"
    LINK_SLOW = "link-slow"
    LINK_LOSSY = "link-lossy"
    BURST = "burst"
    RECOVERING = "recovering"


class SelfReport(NamedTuple):
    """A self-report. `begin_ms` and `end_ms` are wall times; without an end, the state lasts. `subject` distinguishes
    two states of one kind: the peer, the directory or the side.
    """

    kind: SelfReportKind
    begin_ms: int
    end_ms: int | None
    #: The time that the state lasted, or has lasted so far, by the monotonic clock.
    duration_ms: int
    subject: str = ""
    facts: Mapping[str, Any] = {}

    def fields(self, node_id: int) -> dict[str, Any]:
        """Returns the fields of the event that are not those of every event."""
        shown: dict[str, Any] = {"broker": node_id, "begin_ms": self.begin_ms}
        if self.end_ms is not None:
            shown["end_ms"] = self.end_ms
        return {**shown, "duration_ms": self.duration_ms, **self.facts}

    def text(self, node_id: int) -> str:
        return _TEXTS[self.kind](f"broker {node_id}", self)


def _seconds(report: SelfReport) -> str:
    lasted = f"{report.duration_ms / 1000:.1f} s"
    return f"{lasted} so far" if report.end_ms is None else lasted


def _stalled(who: str, report: SelfReport) -> str:
    how = {
        "paused": "its process was paused",
        "busy": "its process was busy",
        "starved": "its process got little of a CPU",
    }[report.facts["how"]]
    cpu_ms = report.facts["cpu_ms"]
    return f"{who} stood still for {_seconds(report)}: {how} ({cpu_ms} ms of CPU in this time)"


def _overloaded(who: str, report: SelfReport) -> str:
    return f"{who} used {report.facts['share']:.0%} of a CPU for {_seconds(report)}"


def _starved(who: str, report: SelfReport) -> str:
    return f"{who} waited {report.facts['share']:.0%} of the time for a CPU that others used, for {_seconds(report)}"


def _clock_jumped(who: str, report: SelfReport) -> str:
    return f"the wall clock of {who} jumped by {report.facts['jump_ms'] / 1000:+.1f} s"


def _throttled(who: str, report: SelfReport) -> str:
    side = report.facts["side"]
    what = "sent replicas out of sync" if side == "leader" else "fetched for its replicas out of sync"
    key = f"{side}.replication.throttled.rate"
    return f"{who} {what} as fast as {key} allows, for {_seconds(report)}"


def _disk_slow(who: str, report: SelfReport) -> str:
    sync_ms = report.facts.get("sync_ms")
    how = "was slow or did not respond" if sync_ms is None else f"took {sync_ms} ms for a sync"
    return f"log directory {report.facts['directory']} of {who} {how}, for {_seconds(report)}"


def _disk(state: str) -> Callable[[str, SelfReport], str]:
    def text(who: str, report: SelfReport) -> str:
        return f"log directory {report.facts['directory']} of {who} {state}, for {_seconds(report)}"

    return text


def _link_lost(who: str, report: SelfReport) -> str:
    dialled = {
        "connects": "; its system accepts connections",
        "refused": "; its system refuses connections",
        "unreachable": "; its system cannot be reached",
        "silent": "; its system does not answer either",
    }
    how = dialled.get(report.facts.get("dialled", ""), "")
    return f"{who} got no answer from broker {report.facts['peer']} for {_seconds(report)}{how}"


def _link_slow(who: str, report: SelfReport) -> str:
    facts = report.facts
    return (
        f"round trips between {who} and broker {facts['peer']} took {facts['round_trip_ms']} ms, for {_seconds(report)}"
    )


def _link_lossy(who: str, report: SelfReport) -> str:
    facts = report.facts
    what = f"{who} sent {facts['retransmits']} segments to broker {facts['peer']} again in ten seconds"
    return f"{what}, for {_seconds(report)}"


def _burst(who: str, report: SelfReport) -> str:
    facts = report.facts
    return (
        f"producers sent {facts['bytes_per_s']} bytes per second to topic {facts['topic']} at {who}, "
        f"usually {facts['usual_bytes_per_s']}, for {_seconds(report)}"
    )


def _recovering(who: str, report: SelfReport) -> str:
    facts = report.facts
    how = "a clean" if facts["clean"] else "an unclean"
    return f"{who} opened {facts['logs']} logs of {facts['bytes']} bytes in {_seconds(report)} after {how} shutdown"


_TEXTS: Final[Mapping[SelfReportKind, Callable[[str, SelfReport], str]]] = {
    SelfReportKind.STALLED: _stalled,
    SelfReportKind.OVERLOADED: _overloaded,
    SelfReportKind.STARVED: _starved,
    SelfReportKind.CLOCK_JUMPED: _clock_jumped,
    SelfReportKind.THROTTLED: _throttled,
    SelfReportKind.DISK_SLOW: _disk_slow,
    SelfReportKind.DISK_FULL: _disk("had no free space"),
    SelfReportKind.DISK_FAILED: _disk("failed"),
    SelfReportKind.LINK_LOST: _link_lost,
    SelfReportKind.LINK_SLOW: _link_slow,
    SelfReportKind.LINK_LOSSY: _link_lossy,
    SelfReportKind.BURST: _burst,
    SelfReportKind.RECOVERING: _recovering,
}
