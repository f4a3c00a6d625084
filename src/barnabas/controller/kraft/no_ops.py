"""NoOpRecords, which the active controller appends every `metadata.max.idle.interval.ms` (KIP-835).

They show followers of the metadata log that it advances, and how far behind they are, even if nothing changes. A quorum
of one voter without other brokers writes none: each would cost an fsync and inform no one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import RequestFailed
from barnabas.common.host import Host, Timer
from barnabas.protocol.messages.records_metadata import NoOpRecord
from barnabas.raft.node import RaftNode


class NoOpWriter:
    """The timer that appends no-op records, from the activation of this controller to its resignation."""

    def __init__(self, host: Host, config: BrokerConfig, raft: RaftNode, brokers: Callable[[], Iterable[int]]) -> None:
        self._host = host
        self._interval_ms = config.int_of("metadata.max.idle.interval.ms")
        self._raft = raft
        self._own_id = config.node_id
        self._brokers = brokers
        self._timer: Timer | None = None

    def start(self) -> None:
        if self._interval_ms > 0:
            self._timer = self._host.timers.call_later(self._interval_ms, self._write)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self) -> None:
        self.start()
        others = any(broker_id != self._own_id for broker_id in self._brokers())
        if not others and len(self._raft.voters) < 2:
            return
        try:
            self._raft.propose([(NoOpRecord(), 0)], wall_ms=self._host.clock.wall_ms())
        except RequestFailed:
            # There is no space for this record now; the next one has the same effect.
            return
