"""Short constructors of snapshots and journal events for tests of the monitor."""

from __future__ import annotations

from typing import Any

from barnabas.monitor.changes import Event
from barnabas.monitor.snapshot import BrokerState, Key, PartitionState, ReplicaDetail, Snapshot

T0 = 1_700_000_000_000


def partition(
    name: str = "orders-0",
    *,
    leader: int = 1,
    epoch: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    **more: Any,
) -> PartitionState:
    topic, _, index = name.rpartition("-")
    more.setdefault("min_isr", 2)
    more.setdefault("topic_id", topic.encode())
    return PartitionState(topic, int(index), leader, epoch, replicas, isr, **more)


def snapshot(
    *partitions: PartitionState, at_ms: int = T0, brokers: tuple[int, ...] = (1, 2, 3), **more: Any
) -> Snapshot:
    more.setdefault("controller", 1)
    return Snapshot(
        time_ms=at_ms,
        cluster_id="watched",
        brokers={broker: BrokerState(broker, "host", 9000 + broker) for broker in brokers},
        partitions={Key(state.topic, state.partition): state for state in partitions},
        **more,
    )


def details(**ends: int | None) -> dict[int, ReplicaDetail]:
    """Returns log end offsets of replicas from b1=10, b2=None, with 100 bytes per record."""
    return {int(name[1:]): ReplicaDetail(end, None if end is None else end * 100, None) for name, end in ends.items()}


def explained(offset: int, before: PartitionState, after: PartitionState, text: str, *, at_ms: int = T0) -> Event:
    """Returns the journal's event of a partition."""
    return {
        "id": f"{offset}:{after.key}",
        "kind": "leader-change",
        "time_ms": at_ms,
        "metadata_offset": offset,
        "topic": after.topic,
        "partition": after.partition,
        "text": text,
        "cause": "tested",
        "before": _shown(before),
        "after": _shown(after),
    }


def told_of_broker(offset: int, kind: str, broker: int, text: str, *, at_ms: int = T0) -> Event:
    return {
        "id": f"{offset}:broker-{broker}",
        "kind": kind,
        "time_ms": at_ms,
        "metadata_offset": offset,
        "broker": broker,
        "text": text,
    }


def _shown(state: PartitionState) -> dict[str, Any]:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "replicas": list(state.replicas),
    }
