"""One partition as a value: a row of the table, taken out to be shown or reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.monitor.severity import STATES, Severity
from barnabas.monitor.texts import NO_NODE


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
    """A broker in the cluster. `problem` says why it did not answer; `answered_ms` is the time of its last answer."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    problem: str | None = None
    answered_ms: int = 0

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port
