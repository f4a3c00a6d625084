"""ReplicaManager, Partition, delayed operations and fetch sessions: the replicas of this broker, in total and one by
one, the requests that wait, and the partitions in sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, GAUGE, Family, Labels, Number, Sample, labelled, single
from barnabas.replication.partition import Partition, Role

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_MANAGER: Final = "kafka_server_replicamanager_"
_PARTITION: Final = "kafka_cluster_partition_"
#: The class of a delayed operation -> its name in Kafka.
_OPERATIONS: Final = {
    "DelayedProduce": "Produce",
    "DelayedFetch": "Fetch",
    "DelayedSessionFetch": "Fetch",
    "DelayedDeleteRecords": "DeleteRecords",
}


def collect(broker: Broker) -> Iterator[Family]:
    if broker.config.is_broker:
        yield from _totals(broker)
        yield from _one_by_one(tuple(broker.replicas.partitions()))
        yield from _waiting(broker)


def labels_of(partition: Partition) -> Labels:
    topic, index = partition.topic_partition
    return ("topic", topic), ("partition", str(index))


def replication_factor(partition: Partition) -> int:
    """Returns the number of replicas without those that a reassignment adds, as Kafka's gauges count; 0 if another
    broker leads the partition."""
    image = partition.image
    if partition.leadership is None or image is None:
        return 0
    return len(set(image.replicas) - set(image.adding_replicas))


def is_under_replicated(partition: Partition) -> bool:
    """Returns whether the ISR of a partition led by this broker lacks a replica."""
    led = partition.leadership
    return led is not None and len(led.isr) < replication_factor(partition)


def is_under_min_isr(partition: Partition) -> bool:
    return partition.leadership is not None and not partition.enough_in_sync


def is_at_min_isr(partition: Partition) -> bool:
    led = partition.leadership
    return led is not None and len(led.isr) == min(partition.log.config.min_insync_replicas, led.replication_factor)


def is_reassigning(partition: Partition) -> bool:
    image = partition.image
    return (
        partition.leadership is not None
        and image is not None
        and bool(image.adding_replicas or image.removing_replicas)
    )


def _totals(broker: Broker) -> Iterator[Family]:
    replicas = broker.replicas
    partitions = tuple(replicas.partitions())
    unopened = replicas.unopened_count
    offline = sum(each.role is Role.OFFLINE for each in partitions) + unopened
    gauges: tuple[tuple[str, str, Number], ...] = (
        ("partitioncount", "Replicas on this broker", len(partitions) + unopened),
        ("leadercount", "Partitions that this broker leads", sum(each.role is Role.LEADER for each in partitions)),
        (
            "underreplicatedpartitions",
            "Under-replicated partitions that this broker leads",
            sum(map(is_under_replicated, partitions)),
        ),
        (
            "underminisrpartitioncount",
            "Partitions that this broker leads whose ISR is smaller than min.insync.replicas",
            sum(map(is_under_min_isr, partitions)),
        ),
        (
            "atminisrpartitioncount",
            "Partitions that this broker leads whose ISR is exactly min.insync.replicas",
            sum(map(is_at_min_isr, partitions)),
        ),
        ("offlinereplicacount", "Replicas whose log directory is offline", offline),
        (
            "reassigningpartitions",
            "Partitions that this broker leads and that are being reassigned",
            sum(map(is_reassigning, partitions)),
        ),
        (
            "produceridcount",
            "Producer ids in the producer state of this broker's logs",
            sum(len(each.log.producers.producers) for each in partitions),
        ),
    )
    for name, text, value in gauges:
        yield single(_MANAGER + name, GAUGE, text, value)
    changes = replicas.environment.isr_changes
    yield single(
        f"{_MANAGER}isrshrinks_total", COUNTER, "ISR shrinks of partitions that this broker leads", changes.shrinks
    )
    yield single(
        f"{_MANAGER}isrexpands_total", COUNTER, "ISR expansions of partitions that this broker leads", changes.expands
    )
    yield single(
        f"{_MANAGER}failedisrupdates_total", COUNTER, "ISR changes that the controller refused", changes.failures
    )


def _one_by_one(partitions: tuple[Partition, ...]) -> Iterator[Family]:
    values: tuple[tuple[str, str, Callable[[Partition], Number]], ...] = (
        (
            "underreplicated",
            "1 if this broker leads the partition and its ISR lacks a replica",
            lambda each: int(is_under_replicated(each)),
        ),
        (
            "underminisr",
            "1 if this broker leads the partition and its ISR is smaller than min.insync.replicas",
            lambda each: int(is_under_min_isr(each)),
        ),
        (
            "atminisr",
            "1 if this broker leads the partition and its ISR is exactly min.insync.replicas",
            lambda each: int(is_at_min_isr(each)),
        ),
        (
            "insyncreplicascount",
            "Size of the ISR; 0 if this broker is not the leader",
            lambda each: 0 if each.leadership is None else len(each.leadership.isr),
        ),
        (
            "replicascount",
            "Number of replicas; 0 if this broker is not the leader",
            replication_factor,
        ),
        (
            "laststableoffsetlag",
            "Records between the last stable offset and the high watermark",
            lambda each: max(0, each.high_watermark - each.last_stable_offset),
        ),
    )
    for name, text, value in values:
        yield Family(_PARTITION + name, GAUGE, text, (Sample(labels_of(each), value(each)) for each in partitions))
    yield Family(
        "barnabas_partition_high_watermark",
        GAUGE,
        "High watermark that this replica knows",
        (Sample(labels_of(each), each.high_watermark) for each in partitions),
    )
    yield Family(
        "barnabas_partition_replica_lag",
        GAUGE,
        "Records of the leader's log that a follower lacks, according to its last fetch; -1 before the first fetch",
        _lags(partitions),
    )


def _lags(partitions: tuple[Partition, ...]) -> Iterator[Sample]:
    for each in partitions:
        if each.leadership is None:
            continue
        end = each.log.log_end_offset
        for replica, follower in tuple(each.leadership.followers.items()):
            # A replica that is marked as caught up has the whole log, although the fetches of its session no longer
            # contain its position.
            lag = 0 if follower.session_fetch is not None else -1 if follower.leo < 0 else max(0, end - follower.leo)
            yield Sample((*labels_of(each), ("replica", str(replica))), lag)


def _waiting(broker: Broker) -> Iterator[Family]:
    found = Counter(dict.fromkeys(_OPERATIONS.values(), 0))
    for operation in broker.replicas.purgatory.waiting():
        name = type(operation).__name__
        found[_OPERATIONS.get(name, name)] += 1
    counts = sorted(found.items())
    prefix = "kafka_server_delayedoperationpurgatory_"
    for name in ("purgatorysize", "numdelayedoperations"):
        yield labelled(prefix + name, GAUGE, "Delayed requests by kind", "delayedOperation", counts)
    sessions = broker.services.fetch_sessions
    prefix = "kafka_server_fetchsessioncache_"
    yield single(f"{prefix}numincrementalfetchsessions", GAUGE, "Fetch sessions (KIP-227)", len(sessions))
    yield single(
        f"{prefix}numincrementalfetchpartitionscached", GAUGE, "Partitions in fetch sessions", sessions.partition_count
    )
    yield single(
        f"{prefix}incrementalfetchsessionevictions_total", COUNTER, "Evicted fetch sessions", sessions.evictions
    )
