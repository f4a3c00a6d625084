"""Figures of the server and of each connection, as the four-letter words show them (`ServerStats`, `ServerCnxn`)."""

from __future__ import annotations


class Latency:
    """The minimum, average and maximum of durations in milliseconds."""

    __slots__ = ("_max_ms", "_min_ms", "count", "total_ms")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count = 0
        self.total_ms = 0
        self._min_ms: int | None = None
        self._max_ms = 0

    def add(self, duration_ms: int) -> None:
        self.count += 1
        self.total_ms += duration_ms
        if self._min_ms is None or duration_ms < self._min_ms:
            self._min_ms = duration_ms
        if duration_ms > self._max_ms:
            self._max_ms = duration_ms

    @property
    def min_ms(self) -> int:
        return self._min_ms or 0

    @property
    def max_ms(self) -> int:
        return self._max_ms

    @property
    def average_ms(self) -> float:
        """Returns the average, rounded to four decimals as by Apache's counter."""
        return round(self.total_ms / self.count, 4) if self.count else 0.0


class ServerStats:
    """The counts of the server since startup, or since `srst`."""

    __slots__ = ("latency", "packets_received", "packets_sent", "response_last", "response_max", "response_min")

    def __init__(self) -> None:
        self.latency = Latency()
        self.reset()

    def reset(self) -> None:
        self.latency.reset()
        self.packets_received = 0
        self.packets_sent = 0
        #: Sizes of responses in bytes; -1 before the first.
        self.response_last = self.response_min = self.response_max = -1

    def sent(self, size: int) -> None:
        """Counts a response of this size, which excludes the length field."""
        self.packets_sent += 1
        self.response_last = size
        if size > self.response_max:
            self.response_max = size
        if self.response_min == -1 or size < self.response_min:
            self.response_min = size


class ConnectionStats:
    """The counts of a connection since it was accepted, or since `crst`."""

    __slots__ = (
        "last_cxid",
        "last_latency_ms",
        "last_operation",
        "last_response_ms",
        "last_zxid",
        "latency",
        "packets_received",
        "packets_sent",
    )

    def __init__(self) -> None:
        self.latency = Latency()
        self.reset()

    def reset(self) -> None:
        self.latency.reset()
        self.packets_received = 0
        self.packets_sent = 0
        self.last_operation = "NA"
        self.last_cxid = -1
        self.last_zxid = -1
        #: The time of the last answer; 0 before the first.
        self.last_response_ms = 0
        self.last_latency_ms = 0

    def answered(self, operation: str, cxid: int, zxid: int, begin_ms: int, now_ms: int) -> None:
        """Counts an answer. Answers with special numbers do not change `last_cxid`."""
        if cxid >= 0:
            self.last_cxid = cxid
        self.last_zxid = zxid
        self.last_operation = operation
        self.last_response_ms = now_ms
        self.last_latency_ms = now_ms - begin_ms
        self.latency.add(now_ms - begin_ms)
