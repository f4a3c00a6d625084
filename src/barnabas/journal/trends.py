"""Unusual figures of a broker: each is compared with its own past, tick by tick.

A tick is a second. The usual value is the median of the last minutes, without the times that were unusual, so that an
unusual state that lasts does not become the usual one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

#: The number of ticks whose median is the usual value, and the least number of them.
_USUAL_TICKS: Final = 120
_USUAL_TICKS_MIN: Final = 8


class Usual:
    """The usual value of one figure."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_USUAL_TICKS)

    def add(self, value: float) -> None:
        self._values.append(value)

    @property
    def value(self) -> float | None:
        """Returns the usual value; None while too little is known."""
        return median(self._values) if len(self._values) >= _USUAL_TICKS_MIN else None


class SlowPeers:
    """Peers whose round trips are longer than usual.

    A peer's system can delay an acknowledgement by 40 ms while its process has no answer yet, so that a connection that
    becomes idle seems to become slower.
    """

    _LEAST_US: Final = 80_000
    _TIMES: Final = 10

    def __init__(self) -> None:
        self._usual: dict[int, Usual] = {}

    def slow(self, round_trips_us: Mapping[int, int]) -> dict[int, int]:
        """Takes the round trips of a tick, and returns those of slow peers."""
        found = {}
        for peer, round_trip_us in round_trips_us.items():
            usual = self._usual.setdefault(peer, Usual())
            known = usual.value
            if known is not None and round_trip_us >= max(self._LEAST_US, self._TIMES * known):
                found[peer] = round_trip_us
            elif round_trip_us:
                usual.add(round_trip_us)
        return found


class LossyPeers:
    """Peers to which segments are sent again, in several of the last ticks."""

    _TICKS: Final = 10
    _LOST_TICKS_MIN: Final = 3

    def __init__(self) -> None:
        #: Peer -> the last count of its connection.
        self._counts: dict[int, int] = {}
        self._lost: dict[int, deque[int]] = {}

    def lossy(self, retransmits: Mapping[int, int]) -> dict[int, int]:
        """Takes the counts of the connections, and returns the retransmissions in the last ticks to lossy peers. A
        count that is lower than before is that of a new connection.
        """
        for peer, count in retransmits.items():
            before = self._counts.get(peer, count)
            lost = self._lost.setdefault(peer, deque(maxlen=self._TICKS))
            lost.append(count - before if count >= before else count)
            self._counts[peer] = count
        return {
            peer: sum(lost)
            for peer, lost in self._lost.items()
            if peer in retransmits and sum(each > 0 for each in lost) >= self._LOST_TICKS_MIN
        }


class SlowDisks:
    """Directories whose syncs take much longer than usual: the median of the last ones."""

    _LEAST_MS: Final = 40
    _TIMES: Final = 10
    _SYNCS: Final = 3

    def __init__(self) -> None:
        self._usual: dict[str, Usual] = {}
        self._last: dict[str, deque[int]] = {}

    def slow(self, syncs_ms: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Takes the durations of a tick's syncs, and returns the directories that are slow, as far as known."""
        for path, durations in syncs_ms.items():
            last = self._last.setdefault(path, deque(maxlen=self._SYNCS))
            usual = self._usual.setdefault(path, Usual())
            for duration_ms in durations:
                last.append(duration_ms)
                if duration_ms < self._LEAST_MS:
                    usual.add(duration_ms)
        found = {}
        for path, last in self._last.items():
            typical, known = median(last), self._usual[path].value
            if len(last) == self._SYNCS and known is not None and typical >= max(self._LEAST_MS, self._TIMES * known):
                found[path] = round(typical)
        return found


class Bursts:
    """Topics whose producers send much more than usual."""

    _TICKS: Final = 2
    _LEAST_BYTES: Final = 1_000_000
    _TIMES: Final = 10

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._usual: dict[str, Usual] = {}
        self._high: dict[str, int] = {}

    def bursts(self, bytes_in: Mapping[str, int], ticks: float) -> dict[str, tuple[int, int]]:
        """Takes the counters of a tick, and returns topic -> (bytes per second now, usually)."""
        found = {}
        for topic, count in bytes_in.items():
            rate = (count - self._counts.get(topic, count)) / ticks
            self._counts[topic] = count
            usual = self._usual.setdefault(topic, Usual())
            known = usual.value
            if known is not None and rate >= max(self._LEAST_BYTES, self._TIMES * known):
                self._high[topic] = self._high.get(topic, 0) + 1
                if self._high[topic] >= self._TICKS:
                    found[topic] = (round(rate), round(known))
            else:
                self._high.pop(topic, None)
                usual.add(rate)
        return found
