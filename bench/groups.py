"""The courses of the rows of groups, on three brokers: rebalances, commits, idle groups, the failure of a
coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import wire
from barnabas.coordinators.partitioning import partition_for
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from clusters import Cluster, has_leaders
from group_members import (
    COMMIT_VERSION,
    HEARTBEAT_VERSION,
    ExchangeRunner,
    Member,
    check_committed,
    commit_request,
    one_after_the_other,
    run_exchanges,
)
from targets import cpu_s

Options = Mapping[str, Any]

_OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_PARTITIONS = 50
_FIND_VERSION, _DESCRIBE_VERSION, _LIST_VERSION, _FETCH_VERSION = 4, 4, 2, 5
_NAMES_AT_ONCE = 1_000
_POLL_S = 0.002
_TIMEOUT_S = 60.0


def coordinators(cluster: Cluster, names: Sequence[str], node_id: int = 1) -> dict[str, int]:
    """Returns the coordinator of each group as the broker `node_id` reports it, once it knows one for each."""

    def call(link: wire.Link) -> dict[str, int] | None:
        found: dict[str, int] = {}
        for begin in range(0, len(names), _NAMES_AT_ONCE):
            request = FindCoordinatorRequest(coordinator_keys=list(names[begin : begin + _NAMES_AT_ONCE]))
            answer = link.call(request, _FIND_VERSION, FindCoordinatorResponse)
            if any(one.error_code for one in answer.coordinators):
                return None
            found |= {one.key: one.node_id for one in answer.coordinators}
        return found

    return cluster.poll(node_id, call, "all groups have coordinators")


def _ready(cluster: Cluster, name: str) -> int:
    """Returns the port of a group's coordinator, once it serves the group."""
    port = cluster.nodes[coordinators(cluster, [name])[name]].port
    link = wire.Link(port)
    deadline = time.monotonic() + _TIMEOUT_S
    while _describe(link, name).error_code:
        if time.monotonic() > deadline:
            raise RuntimeError(f"group {name} is not served")
        time.sleep(_POLL_S)
    link.close()
    return port


def _describe(link: wire.Link, name: str) -> DescribeGroupsResponse.DescribedGroup:
    return link.call(DescribeGroupsRequest(groups=[name]), _DESCRIBE_VERSION, DescribeGroupsResponse).groups[0]


# -- one more joins


def join(cluster: Cluster, options: Options) -> dict[str, list[float]]:
    """Measures from the new member's JoinGroup until all members have their assignments. The first of the others sends
    heartbeats until it learns of the rebalance; then each of them sends one and joins.
    """
    group, topic = "joined", "joined"
    cluster.create_topic(topic, options["partitions"])
    port = _ready(cluster, group)
    watch = wire.Link(port)
    lines: list[tuple[wire.Link, Member]] = []
    times_ms = []
    _add(lines, options["members"], port, watch, group, topic, options["partitions"])
    for index in range(options["warm_up"] + options["times"]):
        took_s = _add(lines, 1, port, watch, group, topic, options["partitions"])
        if index >= options["warm_up"]:
            times_ms.append(1000 * took_s)
    generations = {member.generation for _, member in lines}
    given = sum(len(member.assignment) > 10 for _, member in lines)
    if len(generations) != 1 or given != min(len(lines), options["partitions"]):
        raise RuntimeError(f"{len(lines)} members: generations {generations}, {given} have partitions")
    for link, _ in lines:
        link.close()
    watch.close()
    return {"ms": times_ms}


def _add(
    lines: list[tuple[wire.Link, Member]],
    count: int,
    port: int,
    watch: wire.Link,
    group: str,
    topic: str,
    partitions: int,
) -> float:
    """Lets `count` more members join, and returns the seconds from their JoinGroup to the last assignment."""
    if not lines and count > 1:
        # The first member of a group is alone in the first generation; the others join the second.
        _add(lines, 1, port, watch, group, topic, partitions)
        count -= 1
    newcomers = [(wire.Link(port), Member(group, topic, partitions)) for _ in range(count)]
    run_exchanges((link, member.introduce()) for link, member in newcomers)
    runner = ExchangeRunner()
    begun = time.monotonic()
    for link, member in newcomers:
        runner.begin(link, member.join())
    if lines and count == 1:
        _await_rebalance(watch, lines[0][1])
    while count > 1 and len(_describe(watch, group).members) < len(lines) + count:
        time.sleep(_POLL_S)
    for link, member in lines:
        runner.begin(link, member.rejoin())
    ended_at = runner.finish()
    lines += newcomers
    return ended_at - begun


def _await_rebalance(watch: wire.Link, member: Member) -> None:
    """Sends heartbeats of this member until one is answered with the rebalance."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not watch.call(member.heartbeat(), HEARTBEAT_VERSION, HeartbeatResponse).error_code:
        if time.monotonic() > deadline:
            raise RuntimeError("no rebalance has begun")


# -- commits


def commit(cluster: Cluster, options: Options) -> dict[str, list[float]]:
    """Measures commits of a client outside the group, on a connection to the coordinator."""
    cluster.create_topic("committed", 1)
    link = wire.Link(_ready(cluster, "committed"))
    request = commit_request("committed", "committed", 1)
    frame = wire.framed(request, COMMIT_VERSION)
    for _ in range(options["warm_up"]):
        link.exchange(frame)
    latencies = []
    begun = before = time.monotonic()
    for _ in range(options["commits"]):
        data = link.exchange(frame)
        after = time.monotonic()
        latencies.append(after - before)
        before = after
    per_s = options["commits"] / (before - begun)
    check_committed(wire.decoded(request, COMMIT_VERSION, OffsetCommitResponse, data))
    link.close()
    return {"per_s": [per_s], "p99_ms": [1000 * sorted(latencies)[len(latencies) * 99 // 100]]}


# -- idle groups


def idle(cluster: Cluster, options: Options) -> dict[str, list[float]]:
    """Measures the CPU time of all brokers, minus that of the same duration before there were any groups."""
    cluster.create_topic("idle", 1)
    names = [f"idle-{index}" for index in range(options["groups"])]
    _ready(cluster, names[0])
    time.sleep(options["settle_s"])
    before = _cpu_percent(cluster, options["measure_s"])
    settled = _settle(cluster, names, "idle", 1, connections=16, with_offsets=True)
    time.sleep(options["settle_s"])
    idle_percent = _cpu_percent(cluster, options["measure_s"])
    beating_percent = _beating(cluster, settled, options)
    return {
        "percent": [max(0.0, idle_percent - before)],
        "beating_percent": [max(0.0, beating_percent - before)],
    }


def _beating(cluster: Cluster, settled: Mapping[int, list[Member]], options: Options) -> float:
    links = {node_id: wire.Link(cluster.nodes[node_id].port) for node_id in settled}
    begun, used = time.monotonic(), _cpu_s(cluster)
    rounds = int(options["measure_s"] / options["beat_s"])
    for index in range(rounds):
        exchanges = (
            (links[node_id], one_after_the_other([member.beat() for member in members]))
            for node_id, members in settled.items()
        )
        run_exchanges(exchanges)
        time.sleep(max(0.0, begun + (index + 1) * options["beat_s"] - time.monotonic()))
    percent = 100 * (_cpu_s(cluster) - used) / (time.monotonic() - begun)
    for link in links.values():
        link.close()
    return percent


def _cpu_s(cluster: Cluster) -> float:
    return sum(cpu_s(node.pid) for node in cluster.nodes.values())


def _cpu_percent(cluster: Cluster, duration_s: float) -> float:
    used, begun = _cpu_s(cluster), time.monotonic()
    time.sleep(duration_s)
    return 100 * (_cpu_s(cluster) - used) / (time.monotonic() - begun)


def _settle(
    cluster: Cluster, names: Sequence[str], topic: str, partitions: int, *, connections: int, with_offsets: bool
) -> dict[int, list[Member]]:
    """Creates groups of one member each, and returns the members by their coordinators."""
    members: dict[int, list[Member]] = {}
    for name, node_id in coordinators(cluster, names).items():
        members.setdefault(node_id, []).append(Member(name, topic, partitions))
    exchanges = []
    for node_id, chosen in members.items():
        for index in range(connections):
            steps = [
                step
                for member in chosen[index::connections]
                for step in (member.introduce(), member.join(), *([member.commit()] if with_offsets else []))
            ]
            if steps:
                exchanges.append((wire.Link(cluster.nodes[node_id].port), one_after_the_other(steps)))
    run_exchanges(exchanges)
    for link, _ in exchanges:
        link.close()
    return members


# -- a coordinator is lost


def load(cluster: Cluster, options: Options) -> dict[str, list[float]]:
    """Measures how long the groups of a killed coordinator are not served. Groups of one member and ten offsets each
    are all coordinated by one broker, which is killed and is not the active controller. Offsets of one group of each
    partition of `__consumer_offsets` are requested until all are answered; afterwards all groups are counted.
    """
    cluster.create_topic("loaded", options["partitions"])
    _ready(cluster, "loaded-0")
    active = cluster.controller()
    victim = next(node_id for node_id in cluster.nodes if node_id != active)
    names = _coordinated_by(cluster, victim, options["groups"])
    _settle(cluster, names, "loaded", options["partitions"], connections=options["connections"], with_offsets=True)
    survivors = [node_id for node_id in cluster.nodes if node_id != victim]
    samples = list({partition_for(name, _OFFSETS_PARTITIONS): name for name in reversed(names)}.values())
    killed_at = time.monotonic()
    cluster.nodes[victim].kill()
    elected_at = cluster.await_metadata(
        survivors[0],
        [_OFFSETS_TOPIC],
        lambda found: has_leaders(found, _OFFSETS_PARTITIONS, {victim}),
        "new leaders of the groups",
    )
    served_at = _await_served(cluster, survivors, samples, options["partitions"])
    listed = {name for node_id in survivors for name in _listed(cluster, node_id)}
    if lost := set(names) - listed:
        raise RuntimeError(f"{cluster.name}: {len(lost)} of {len(names)} groups are not there any more")
    return {
        "s": [served_at - killed_at],
        "elect_s": [elected_at - killed_at],
        "load_s": [served_at - elected_at],
    }


def _coordinated_by(cluster: Cluster, node_id: int, count: int) -> list[str]:
    found: list[str] = []
    begin = 0
    while len(found) < count:
        names = [f"loaded-{index}" for index in range(begin, begin + 10 * _NAMES_AT_ONCE)]
        found += [name for name, owner in coordinators(cluster, names).items() if owner == node_id]
        begin += len(names)
    return found[:count]


def _await_served(cluster: Cluster, survivors: Sequence[int], samples: Sequence[str], partitions: int) -> float:
    """Waits until each of these groups returns all its offsets, and returns the time when the last one did."""
    links = {node_id: wire.Link(cluster.nodes[node_id].port) for node_id in survivors}
    left, deadline, at = list(samples), time.monotonic() + _TIMEOUT_S, time.monotonic()
    while left:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{cluster.name}: {left} are not served")
        owners = coordinators(cluster, left, survivors[0])
        waiting = [
            name for name in left if owners[name] not in links or not _is_served(links, owners, name, partitions)
        ]
        if len(waiting) < len(left):
            at = time.monotonic()
        else:
            time.sleep(_POLL_S)
        left = waiting
    for link in links.values():
        link.close()
    return at


def _is_served(links: Mapping[int, wire.Link], owners: Mapping[str, int], name: str, partitions: int) -> bool:
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = links[owners[name]].call(request, _FETCH_VERSION, OffsetFetchResponse)
    if answer.error_code:
        return False
    offsets = [row.committed_offset for topic in answer.topics for row in topic.partitions]
    if offsets != [7] * partitions:
        raise RuntimeError(f"group {name} has the offsets {offsets}")
    return True


def _listed(cluster: Cluster, node_id: int) -> Iterator[str]:
    def call(link: wire.Link) -> list[str] | None:
        answer = link.call(ListGroupsRequest(), _LIST_VERSION, ListGroupsResponse)
        return None if answer.error_code else [group.group_id for group in answer.groups]

    yield from cluster.poll(node_id, call, "groups are listed")


COURSES = {
    "groups_commit_shipped": commit,
    "groups_idle": idle,
    "groups_commit": commit,
    "groups_join": join,
    "groups_load": load,
}
