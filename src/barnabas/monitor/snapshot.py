"""The state of a cluster at one moment: plain values, with the problems of each partition.

    CRITICAL  offline            no broker leads it: it can be neither written nor read
              leader silent      its leader does not answer, whatever the metadata says
    ERROR     under min ISR      writes with acks=all are refused
    WARNING   at min ISR         they would be after one more loss; only if a replica is already missing
    NOTICE    under-replicated   a replica is out of sync

min ISR is `min.insync.replicas`, at most the number of replicas. A partition with all replicas in sync is healthy even
at its min ISR (one replica, or min ISR = replicas).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final, NamedTuple

NO_NODE: Final = -1


class Severity(IntEnum):
    """The severity of a state; higher is worse."""

    OK = 0
    NOTICE = 1
    WARNING = 2
    ERROR = 3
    CRITICAL = 4


#: The name of a partition's state by severity.
STATES: Final = {
    Severity.OK: "in sync",
    Severity.NOTICE: "under-replicated",
    Severity.WARNING: "at min ISR",
    Severity.ERROR: "under min ISR",
    Severity.CRITICAL: "offline",
}


class ReplicaDetail(NamedTuple):
    """The report about a replica from its broker. A value is None if that broker did not report it."""

    log_end_offset: int | None = None
    size_bytes: int | None = None
    #: Records up to the high watermark known to its broker that the replica lacks.
    reported_lag: int | None = None


class Key(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. `min_isr` is the topic's configuration, None if it is unknown."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    topic_id: bytes = b""
    min_isr: int | None = None
    #: Replicas whose broker or log directory is offline.
    offline_replicas: tuple[int, ...] = ()
    #: Replicas whose broker is in the cluster but did not answer.
    silent: tuple[int, ...] = ()
    details: Mapping[int, ReplicaDetail] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return Key(self.topic, self.partition)

    @property
    def is_internal(self) -> bool:
        """Whether the topic is internal, by its name."""
        return self.topic.startswith("__")

    @property
    def followers(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica != self.leader)

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.isr)

    @property
    def min_isr_in_force(self) -> int:
        return min(self.min_isr or 1, max(1, len(self.replicas)))

    @property
    def severity(self) -> Severity:
        if self.leader == NO_NODE or self.leader in self.silent:
            return Severity.CRITICAL
        in_sync = sum(replica not in self.silent for replica in self.isr)
        if in_sync < self.min_isr_in_force:
            return Severity.ERROR
        if in_sync >= len(self.replicas):
            return Severity.OK
        if in_sync == self.min_isr_in_force:
            return Severity.WARNING
        return Severity.NOTICE

    @property
    def state(self) -> str:
        """Returns the severity as text."""
        return "leader silent" if self.leader in self.silent else STATES[self.severity]

    @property
    def size_bytes(self) -> int | None:
        """Returns the size of the leader's log; without a leader, the largest size that a replica reports."""
        own = self.details.get(self.leader, _NOTHING).size_bytes
        if own is not None:
            return own
        return max((d.size_bytes for d in self.details.values() if d.size_bytes is not None), default=None)

    def lag_of(self, replica: int) -> int | None:
        """Returns how many records of the leader's log a replica lacks. The two log ends are not read at the same
        instant: under load, the difference includes records in flight between the reads.
        """
        detail = self.details.get(replica, _NOTHING)
        end = self.details.get(self.leader, _NOTHING).log_end_offset
        if end is not None and detail.log_end_offset is not None:
            return max(0, end - detail.log_end_offset)
        return detail.reported_lag

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "state": self.state,
            "severity": self.severity.name.lower(),
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "osr": list(self.out_of_sync),
            "followers": list(self.followers),
            "offline_replicas": list(self.offline_replicas),
            "silent": list(self.silent),
            "min_isr": self.min_isr,
            "size_bytes": self.size_bytes,
            "replica_details": [
                {
                    "broker": replica,
                    "in_sync": replica in self.isr,
                    "log_end_offset": self.details.get(replica, _NOTHING).log_end_offset,
                    "size_bytes": self.details.get(replica, _NOTHING).size_bytes,
                    "lag": self.lag_of(replica),
                }
                for replica in self.replicas
            ],
        }


_NOTHING: Final = ReplicaDetail()


class BrokerState(NamedTuple):
    """A broker in the cluster. `problem` says why it did not answer the request about its logs."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    problem: str | None = None


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


def at(time_ms: int) -> str:
    """Formats a time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def leader_name(leader: int) -> str:
    return "none" if leader == NO_NODE else str(leader)
