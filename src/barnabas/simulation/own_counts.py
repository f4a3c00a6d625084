"""The check of counts that components keep: each is compared with the number of the counted objects.

A wrong count shows late, if at all: memory that is never free again, a queue that is believed to be full, a member for
which a group waits in vain. Every ten seconds and at the end of a run, all counts of a node are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from barnabas.broker.assembly import Broker
from barnabas.coordinators.groups.classic.group import memory_of
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US
from barnabas.storage.directories import root_of

_INTERVAL_US: Final = 10 * SECOND_US

#: The name of a count, its value, and the value that it must have.
_Count = tuple[str, object, object]


class OwnCounts:
    """Compares the counts that nodes keep with the counted objects."""

    is_periodic = True

    def __init__(self) -> None:
        self._next_us: dict[str, int] = {}
        #: The number of counts that were compared.
        self.compared = 0

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        for node in cluster.dirty:
            if not cluster.checks_all and now_us < self._next_us.get(node.name, 0):
                continue
            self._next_us[node.name] = now_us + _INTERVAL_US
            if node.broker is None or not node.is_running:
                continue
            for name, count, counted in _counts(node, node.broker):
                self.compared += 1
                if count != counted:
                    raise Violation(f"counted wrongly: {name} on {node.name} is {count}, there are {counted}")


def _counts(node: Node, broker: Broker) -> Iterator[_Count]:
    yield from _of_replicas(broker)
    yield from _of_logs(broker)
    yield from _of_groups(broker)
    yield from _of_connections(node)


def _of_replicas(broker: Broker) -> Iterator[_Count]:
    replicas = broker.replicas
    for partition in replicas.partitions():
        waiters = partition._commit_waiters
        waiting = sum(waiter.done is not None for _, _, waiter in waiters._heap)
        yield f"waiters of {partition.topic_partition}", len(waiters._heap) - waiters._cancelled, waiting
        if partition.leadership is not None:
            yield from _of_leader(partition)
    for (leader, *_), fetcher in replicas.fetchers._fetchers.items():
        followed = fetcher._followed.values()
        inside = sum(each.session_position is not None for each in followed)
        yield f"partitions in the session with broker {leader}", fetcher._session_size, inside
    throttles = (replicas.quotas.leader.throttle, replicas.quotas.follower.throttle, replicas.moves.throttle)
    for number, throttle in enumerate(throttles):
        yield f"bytes of throttle {number}", throttle._total, sum(size for _, size in throttle._samples)


def _of_leader(partition: Any) -> Iterator[_Count]:
    """Yields the HW while all replicas are in the ISR: then it is at least the smallest end that the leader knows."""
    leadership, end = partition.leadership, partition.log.log_end_offset
    ends = [follower.leo for follower in leadership.followers.values()]
    if set(leadership.isr) >= set(leadership.followers) and min(ends, default=0) >= 0:
        high_watermark = partition.high_watermark
        is_right = min([end, *ends]) <= high_watermark <= end
        yield f"HW of {partition.topic_partition}", high_watermark, high_watermark if is_right else [end, *ends]


def _of_logs(broker: Broker) -> Iterator[_Count]:
    manager = broker.logs
    logs = [*manager, *manager.futures]
    if manager._counts is not None and manager._counted_at == manager.futures.changes:
        yield "logs by directory", +manager._counts, Counter(root_of(log.directory) for log in logs)
    for log in logs:
        size = sum(segment.size_bytes for segment in log.segments)
        yield f"size of {log.topic_partition}", log.size_bytes, size


def _of_groups(broker: Broker) -> Iterator[_Count]:
    total = 0
    for shard in broker.groups.shards():
        for group_id, group in shard._context.groups.items():
            held = sum(memory_of(member.protocols) for member in group.members.values())
            total += held
            yield f"memory of group {group_id}", group.held_bytes, held
            joining = sum(member.join_reply is not None for member in group.members.values())
            yield f"joins of group {group_id}", group.awaiting_joins, joining
            supported = Counter(name for member in group.members.values() for name in member.protocols)
            yield f"protocols of group {group_id}", Counter(group._supported), supported
    yield "memory of groups", broker.groups.held.bytes, total


def _of_connections(node: Node) -> Iterator[_Count]:
    for end in node.accepted_ends:
        if not end.is_closed:
            connection = end.connection
            ready = (request.chunks for request in connection.in_flight if request.chunks is not None)
            held = sum(len(chunk) for chunks in ready for chunk in chunks)
            yield f"responses held for {connection.peer}", connection._held_bytes, held
