"""Features of work that a seed draws in addition to the kind of its work, each with topics, clients and promises.

With all features in every run, none would have the time and the partitions to reach rare states, so each seed draws
some of them (a swarm over work).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from random import Random
from typing import Final

from barnabas.simulation.simulated_cluster import Layout

#: The chance of each feature.
_SHARE: Final = 0.3


class WorkFeature(Enum):
    BULK = "bulk"  # large and compressed batches, several requests in flight, acks of every kind, look-ups by time
    COMPACTED = "compacted"  # keys and tombstones in a compacted topic
    SHRINKING = "shrinking"  # DeleteRecords and retention
    READERS = "readers"  # fetch sessions, fetches from replicas in the reader's rack
    REGISTERS = "registers"  # offsets and groups that are committed, deleted and committed again
    STATIC = "static"  # static members of both protocols
    ABANDONED = "abandoned"  # transactions that outlive their time
    IDLE = "idle"  # days without work


#: The clients of each feature that faults can affect.
CLIENTS: Final[Mapping[WorkFeature, tuple[str, ...]]] = {
    WorkFeature.BULK: ("hauler1", "hauler2", "clerk"),
    WorkFeature.COMPACTED: ("keeper1", "keeper2"),
    WorkFeature.SHRINKING: ("filler", "remover"),
    WorkFeature.READERS: ("browser1", "browser2", "browser3"),
    WorkFeature.REGISTERS: ("registrar1", "registrar2"),
    WorkFeature.STATIC: ("fixed1", "fixed2", "settled1", "settled2"),
    WorkFeature.ABANDONED: ("truant1", "truant2"),
    WorkFeature.IDLE: (),
}
#: The properties of nodes that a feature needs to have an effect within a run.
_PROPERTIES: Final[Mapping[WorkFeature, Mapping[str, str]]] = {
    WorkFeature.COMPACTED: {"log.cleaner.backoff.ms": "1000"},
    WorkFeature.SHRINKING: {"log.retention.check.interval.ms": "3000", "log.initial.task.delay.ms": "1000"},
    WorkFeature.READERS: {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
    WorkFeature.REGISTERS: {"offsets.retention.check.interval.ms": "3000"},
    WorkFeature.STATIC: {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "1000",
    },
    WorkFeature.IDLE: {
        # Records are kept, except where a topic says how long.
        "log.retention.ms": "-1",
        "log.retention.check.interval.ms": "20000",
        "log.initial.task.delay.ms": "1000",
        "offsets.retention.check.interval.ms": "30000",
        "producer.id.expiration.check.interval.ms": "30000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "30000",
    },
}
#: Features that ZooKeeper mode does not have.
_OF_A_QUORUM: Final = frozenset({WorkFeature.STATIC, WorkFeature.ABANDONED})
#: Features whose state nothing syncs: with fewer brokers, one power failure breaks promises.
_OF_REPLICAS: Final = frozenset({WorkFeature.REGISTERS, WorkFeature.STATIC, WorkFeature.ABANDONED})
_BROKERS_OF_COORDINATORS: Final = 3


def draw_features(random: Random, layout: Layout, among: Collection[WorkFeature]) -> frozenset[WorkFeature]:
    """Returns the features of a seed that the layout allows: some, drawn at random, if `among` has all features,
    otherwise those in `among`.
    """
    drawn = [feature for feature in WorkFeature if random.random() < _SHARE]
    chosen = drawn if len(among) == len(WorkFeature) else among
    return frozenset(feature for feature in chosen if _is_possible(feature, layout))


def _is_possible(feature: WorkFeature, layout: Layout) -> bool:
    if layout.zookeeper and feature in _OF_A_QUORUM:
        return False
    return layout.brokers >= _BROKERS_OF_COORDINATORS or feature not in _OF_REPLICAS


def properties_of(features: Collection[WorkFeature]) -> dict[str, str]:
    """Returns the properties of nodes that these features need."""
    found: dict[str, str] = {}
    for feature in WorkFeature:
        if feature in features:
            found.update(_PROPERTIES.get(feature, {}))
    return found


def clients_of(features: Collection[WorkFeature]) -> list[str]:
    """Returns the clients of these features that can be killed, paused or cut off."""
    return [name for feature in WorkFeature if feature in features for name in CLIENTS[feature]]
