"""Short constructors of polls, tables and journal events for tests of the monitor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from barnabas.monitor.changes import Change, Event, changes_of
from barnabas.monitor.course import Course
from barnabas.monitor.delta import Delta, NameRange, Partitions, VolumesSeen
from barnabas.monitor.partition_state import BrokerState, Key, PartitionState, ReplicaDetail
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom_state import PhantomState

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


def look(
    *partitions: PartitionState,
    at_ms: int = T0,
    brokers: Iterable[int] = (1, 2, 3),
    problems: Mapping[int, str | None] = {},
    **more: Any,
) -> Delta:
    """Returns a poll of a whole cluster with these partitions."""
    more.setdefault("controller", 1)
    more.setdefault("covers", NameRange())
    return Delta(
        at_ms,
        partitions=columns_of(partitions),
        brokers={broker: BrokerState(broker, "host", 9000 + broker) for broker in brokers},
        problems=problems,
        cluster_id="watched",
        min_isrs={state.topic: state.min_isr for state in partitions if state.min_isr is not None},
        **more,
    )


def columns_of(
    partitions: Iterable[PartitionState], *, is_complete: bool = True, epochs: Mapping[Key, int] | None = None
) -> Partitions:
    """Returns partitions as the input of the table. `epochs` are partition epochs, which polls do not return."""
    found = Partitions(frozenset({"offline"} if epochs is None else {"partition_epoch"}))
    for (topic, topic_id), states in groupby(
        sorted(partitions, key=lambda state: state.key), key=lambda state: (state.topic, state.topic_id)
    ):
        found.add_topic(topic, topic_id.ljust(16, b"\0"), is_complete=is_complete)
        for state in states:
            found.add(
                state.partition,
                state.leader,
                state.leader_epoch,
                state.replicas,
                state.isr,
                partition_epoch=-1 if epochs is None else epochs[state.key],
                offline=state.offline_replicas,
            )
    return found


def table_of(*partitions: PartitionState, **more: Any) -> ClusterTable:
    """Returns a table after one poll. The details of the partitions are their sizes and offsets."""
    table = ClusterTable()
    table.apply(look(*partitions, **more))
    for broker in {replica for state in partitions for replica in state.details}:
        own = {state.key: state.details[broker] for state in partitions if broker in state.details}
        table.apply_volumes(
            VolumesSeen(
                T0,
                broker,
                sizes={key: each.size_bytes for key, each in own.items() if each.size_bytes is not None},
                end_offsets={key: each.log_end_offset for key, each in own.items() if each.log_end_offset is not None},
                reported_lags={key: each.reported_lag for key, each in own.items() if each.reported_lag is not None},
            )
        )
    return table


def changed(before: Delta, after: Delta) -> list[Change]:
    """Returns the changes between two polls."""
    table = ClusterTable()
    table.apply(before)
    change_set = table.apply(after)
    return [] if change_set is None else changes_of(change_set, table)


class Watched:
    """A course over the polls of a test."""

    def __init__(self, *, wait_ms: int, has_journal: bool = False) -> None:
        self.table = ClusterTable()
        self.course = Course(self.table, wait_ms=wait_ms)
        self.course.has_journal = has_journal

    def seen(self, look: Delta, events: Iterable[Event] = ()) -> list[Change]:
        """Applies a poll; the first one makes no changes. Returns the changes that can be shown."""
        is_first = self.table.version == 0
        change_set = self.table.apply(look)
        found = self.course.reachable(look.time_ms)
        if change_set is not None and not is_first:
            self.course.seen(change_set)
        return found + self.course.explained(events, look.time_ms)


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


def look_at(state: PhantomState, now_ms: int, brokers: Iterable[int] = (1, 2, 3)) -> Delta:
    """Returns a poll of all partitions of a phantom cluster."""
    rows = [
        PartitionState(
            topic.name,
            index,
            row.leader,
            row.leader_epoch,
            tuple(row.replicas),
            tuple(row.isr),
            topic_id=topic.topic_id,
        )
        for topic, index, row in state.every()
    ]
    return look(*rows, at_ms=now_ms, brokers=brokers)
