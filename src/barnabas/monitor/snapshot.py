"""The state of a cluster at one moment: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.monitor.partition_state import BrokerState, Key, PartitionState
from barnabas.monitor.severity import STATES, Severity
from barnabas.monitor.texts import NO_NODE, at


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a cluster. `controller` is the active controller, -1 if it is unknown."""

    time_ms: int
    cluster_id: str | None = None
    controller: int = NO_NODE
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    partitions: Mapping[Key, PartitionState] = field(default_factory=dict)
    #: Whether the cluster has a journal of causes.
    has_journal: bool = False

    @property
    def topic_ids(self) -> dict[str, bytes]:
        return {state.topic: state.topic_id for state in self.partitions.values()}

    @property
    def severity(self) -> Severity:
        return max((state.severity for state in self.partitions.values()), default=Severity.OK)

    def counts(self) -> dict[Severity, int]:
        """Returns how many partitions are in each state."""
        found = dict.fromkeys(Severity, 0)
        for state in self.partitions.values():
            found[state.severity] += 1
        return found

    def by_severity(self) -> list[PartitionState]:
        """Returns the partitions, the worst first; among equals, internal topics last."""
        return sorted(self.partitions.values(), key=lambda state: (-state.severity, state.is_internal, state.key))

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "snapshot",
            "time": at(self.time_ms),
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "severity": self.severity.name.lower(),
            "counts": {STATES[severity]: count for severity, count in self.counts().items()},
            "brokers": [
                {
                    "broker": broker.broker_id,
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.rack,
                    "problem": broker.problem,
                }
                for _, broker in sorted(self.brokers.items())
            ],
            "partitions": [state.to_json() for _, state in sorted(self.partitions.items())],
        }
