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
    CLOCK_JUMPED = "clock-jumped"
    THROTTLED = "throttled"
    DISK_SLOW = "disk-slow"
    DISK_FULL = "disk-full"
    DISK_FAILED = "disk-failed"
    LINK_LOST = "link-lost"
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


def _clock_jumped(who: str, report: SelfReport) -> str:
    return f"the wall clock of {who} jumped by {report.facts['jump_ms'] / 1000:+.1f} s"


def _throttled(who: str, report: SelfReport) -> str:
    side = report.facts["side"]
    what = "sent replicas out of sync" if side == "leader" else "fetched for its replicas out of sync"
    key = f"{side}.replication.throttled.rate"
    return f"{who} {what} as fast as {key} allows, for {_seconds(report)}"


def _disk(state: str) -> Callable[[str, SelfReport], str]:
    def text(who: str, report: SelfReport) -> str:
        return f"log directory {report.facts['directory']} of {who} {state}, for {_seconds(report)}"

    return text


def _link_lost(who: str, report: SelfReport) -> str:
    return f"{who} got no answer from broker {report.facts['peer']} for {_seconds(report)}"


def _recovering(who: str, report: SelfReport) -> str:
    facts = report.facts
    how = "a clean" if facts["clean"] else "an unclean"
    return f"{who} opened {facts['logs']} logs of {facts['bytes']} bytes in {_seconds(report)} after {how} shutdown"


_TEXTS: Final[Mapping[SelfReportKind, Callable[[str, SelfReport], str]]] = {
    SelfReportKind.STALLED: _stalled,
    SelfReportKind.OVERLOADED: _overloaded,
    SelfReportKind.CLOCK_JUMPED: _clock_jumped,
    SelfReportKind.THROTTLED: _throttled,
    SelfReportKind.DISK_SLOW: _disk("was slow or did not respond"),
    SelfReportKind.DISK_FULL: _disk("had no free space"),
    SelfReportKind.DISK_FAILED: _disk("failed"),
    SelfReportKind.LINK_LOST: _link_lost,
    SelfReportKind.RECOVERING: _recovering,
}
