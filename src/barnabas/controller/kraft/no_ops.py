"""Records that say nothing, appended by the active controller every `metadata.max.idle.interval.ms` (KIP-835).

By them whoever follows the metadata log sees that it moves on, and how far behind it is, also where nothing changes.
A quorum of one voter that nobody else follows has no use for them: there they would cost an fsync each and tell nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import RequestFailed
from barnabas.common.host import Host, Timer
from barnabas.protocol.messages.records_metadata import NoOpRecord
from barnabas.raft.node import RaftNode


class NoOpWriter:
    """`start` when this controller becomes active, `stop` when it is no more."""

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
            # No room for it now: it is not missed.
            return
