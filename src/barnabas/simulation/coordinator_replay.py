"""Checks coordinators against a simple replay of `__consumer_offsets` and `__transaction_state`.

A coordinator that has just loaded its partition must have exactly what the log says: offsets, open offsets, groups of
both protocols with their members, transactions. One that never failed is compared with the same replay at intervals,
so that all coordinators agree with the log, whichever of them serves the clients. A classic group is compared after its
start only while it is stable: during a rebalance its log is behind by design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.broker.assembly import Broker
from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.runtime import ShardState
from barnabas.coordinators.transactions.shard import TransactionShard
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.coordinator_dict import CoordinatorDict
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.plain_decoding import Json
from barnabas.simulation.replication_checkers import Key, UncleanElections
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US

_INTERVAL_US: Final = 10 * SECOND_US
_LOOK_US: Final = SECOND_US // 2
#: The assignment of a member that was written without a current one.
_NO_CURRENT: Final[Json] = {"epoch": 0, "previous_epoch": 0, "state": 0, "assigned": set(), "revoking": set()}


class _Comparison(NamedTuple):
    """A comparison that is due. `is_loaded`: the coordinator has just loaded this partition."""

    shard: GroupShard | TransactionShard
    partition: Partition
    is_loaded: bool


@dataclass(slots=True)
class _Served:
    """The partitions that one node coordinates."""

    shards: tuple[GroupShard | TransactionShard, ...]
    #: The time of the next comparison of those that were loaded before.
    next_us: int
    loaded: list[GroupShard | TransactionShard]
    loading: list[GroupShard | TransactionShard]


class Coordinators:
    """Compares coordinators with the replay. A partition that had an unclean election is not checked: its log can have
    changed.
    """

    def __init__(self, unclean: UncleanElections | None = None) -> None:
        self._unclean = UncleanElections() if unclean is None else unclean
        self._replayed: dict[Key, CoordinatorDict] = {}
        self._compared_us: dict[object, int] = {}
        self._served: dict[str, _Served] = {}
        #: The numbers of coordinators that were compared right after their load, and later.
        self.loaded = self.serving = 0

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        for node in cluster.dirty:
            broker = node.broker
            if broker is None:
                continue
            served = self._served.get(node.name)
            shards: tuple[GroupShard | TransactionShard, ...] = (
                *broker.groups.shards(),
                *broker.transactions.shards(),
            )
            if served is None or served.shards != shards or now_us >= served.next_us:
                if not broker.config.is_broker or not node.is_running:
                    continue
                served = self._served[node.name] = self._serving(shards, now_us)
                for shard in served.loaded:
                    self._maybe_compare(node, broker, shard, now_us, is_end=cluster.checks_all)
            elif cluster.checks_all:
                for shard in served.loaded:
                    self._maybe_compare(node, broker, shard, now_us, is_end=True)
            for shard in served.loading:
                self._maybe_compare(node, broker, shard, now_us, is_end=False)
            if served.loading:
                served.loaded += [shard for shard in served.loading if shard.state is not ShardState.LOADING]
                served.loading = [shard for shard in served.loading if shard.state is ShardState.LOADING]

    def _serving(self, shards: tuple[GroupShard | TransactionShard, ...], now_us: int) -> _Served:
        loaded = [shard for shard in shards if shard in self._compared_us]
        loading = [shard for shard in shards if shard not in self._compared_us]
        return _Served(shards, now_us + _LOOK_US, loaded, loading)

    def _maybe_compare(
        self, node: Node, broker: Broker, shard: GroupShard | TransactionShard, now_us: int, *, is_end: bool
    ) -> None:
        if shard.state is not ShardState.ACTIVE:
            return
        at_us = self._compared_us.get(shard)
        if at_us is None or is_end or now_us >= at_us + _INTERVAL_US:
            self._compared_us[shard] = now_us
            partition = broker.replicas.find(*shard.partition)
            # Writes in flight are already part of the state, but not below the HW.
            in_flight = partition is not None and partition.high_watermark < partition.log.log_end_offset
            if partition is not None and partition.role is Role.LEADER and not in_flight:
                self._compare(node, _Comparison(shard, partition, at_us is None))

    def replay_of(self, broker: Broker, shard: GroupShard | TransactionShard) -> CoordinatorDict | None:
        """Returns the replay of a partition that this node coordinates, if it is complete."""
        partition = broker.replicas.find(*shard.partition)
        if partition is None or shard.state is not ShardState.ACTIVE:
            return None
        replayed = self._replayed.get((partition.topic_partition, partition.topic_id))
        return replayed if replayed is not None and replayed.end == partition.high_watermark else None

    def _compare(self, node: Node, comparison: _Comparison) -> None:
        partition = comparison.partition
        key = (partition.topic_partition, partition.topic_id)
        if key in self._unclean.partitions:
            return
        replayed = self._replayed.setdefault(key, CoordinatorDict())
        if replayed.end > partition.high_watermark:
            return  # The coordinator was deposed and has not noticed: the log continues on another broker.
        if comparison.is_loaded:
            # A follower that was away for longer than `delete.retention.ms` misses tombstones, in Kafka too.
            replayed = self._replayed[key] = CoordinatorDict()
        replayed = self._follow(node, partition, replayed)
        shard = comparison.shard
        problem = (
            wrong_groups(shard, replayed, is_loaded=comparison.is_loaded)
            if isinstance(shard, GroupShard)
            else wrong_transactions(shard, replayed, is_loaded=comparison.is_loaded)
        )
        if problem:
            when = "just loaded" if comparison.is_loaded else "serving"
            where = f"{shard.partition} on {node.name}, {when}, epoch {shard.leader_epoch}"
            raise Violation(f"a coordinator differs from its log: {where}: {problem}")
        self.loaded += comparison.is_loaded
        self.serving += not comparison.is_loaded

    def _follow(self, node: Node, partition: Partition, replayed: CoordinatorDict) -> CoordinatorDict:
        """Replays the log up to its HW; from its start if it was compacted since the last replay."""
        end = partition.high_watermark
        if replayed.end < end:
            is_new, replayed.has_gap = replayed.end == 0, False
            self._add(node, partition, replayed)
            if replayed.has_gap and not is_new:
                replayed = CoordinatorDict()
                self._replayed[partition.topic_partition, partition.topic_id] = replayed
                self._add(node, partition, replayed)
        return replayed

    def _add(self, node: Node, partition: Partition, replayed: CoordinatorDict) -> None:
        """Adds the log's files: a read of the log could change what it keeps in memory."""
        end, directory = partition.high_watermark, partition.log.directory
        with node.disk.without_effects():
            names = sorted(name for name in node.disk.list_dir(directory) if name.endswith(".log"))
            bases = [int(name.partition(".")[0]) for name in names]
            for place, name in enumerate(names):
                if place + 1 == len(names) or bases[place + 1] > replayed.end:
                    replayed.add(node.disk.read(f"{directory}/{name}"), end)


def _first_difference(what: str, found: Any, expected: Any) -> str:
    """Returns the innermost difference of two nested dicts, or ""."""
    if found == expected:
        return ""
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return f"{what} is {found}, the log says {expected}"
    key = next(key for key in sorted({*found, *expected}, key=repr) if found.get(key) != expected.get(key))
    return _first_difference(f"{what} {key}", found.get(key), expected.get(key))


# -- groups


def wrong_groups(shard: GroupShard, replayed: CoordinatorDict, *, is_loaded: bool) -> str:
    """Compares a shard of groups with the replay. Returns a description of the first difference, or ""."""
    offsets = {
        (group_id, *place): tuple(committed)
        for group_id in shard.offsets.groups()
        for place, committed in shard.offsets.of(group_id).items()
    }
    group_ids = {group_id for group_id, *_ in (*offsets, *replayed.open_offsets())}
    there = {(group_id, *place) for group_id in group_ids for place in shard.offsets.unstable_of(group_id)}
    consumer = {group.group_id: _consumer_group(group) for group in shard.consumers.groups()}
    wrong = (
        _first_difference("the offset", offsets, replayed.offsets())
        or ("" if there == replayed.open_offsets() else f"open are {there}, in the log {replayed.open_offsets()}")
        or _first_difference("the group", consumer, _expected_consumer_groups(replayed))
    )
    return wrong or _wrong_classic_groups(shard, replayed, consumer, {place[0] for place in offsets}, is_loaded)


def _wrong_classic_groups(
    shard: GroupShard, replayed: CoordinatorDict, consumer: dict[str, Json], with_offsets: set[str], is_loaded: bool
) -> str:
    groups = {group.group_id: group for group in shard.groups()}
    written = {group_id: value for group_id, value in replayed.classic_groups().items() if group_id not in consumer}
    if is_loaded:
        expected_ids = {*written, *(with_offsets - set(consumer))}
        if set(groups) != expected_ids:
            return f"the classic groups are {sorted(groups)}, the log says {sorted(expected_ids)}"
    for group_id, group in groups.items():
        value = written.get(group_id)
        if value is None:
            if group.is_in(GroupState.STABLE):
                return f"the group {group_id} is stable and not in the log"
        elif is_loaded or group.is_in(GroupState.STABLE):
            wrong = _first_difference(f"of the group {group_id}", _classic_group(group), _expected_classic(value))
            if wrong:
                return wrong
    return ""


def _classic_group(group: ClassicGroup) -> Json:
    members = {
        member.member_id: (
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            bytes(member.protocols.get(group.protocol_name or "", b"")),
            bytes(member.assignment),
        )
        for member in group.members.values()
    }
    return {
        "type": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "members": members,
    }


def _expected_classic(value: Json) -> Json:
    members = {
        row["id"]: (
            row["instance"],
            row["client"],
            row["host"],
            row["rebalance_ms"] if row["rebalance_ms"] >= 0 else row["session_ms"],
            row["session_ms"],
            row["subscription"] if value["protocol"] is not None else b"",
            row["assignment"],
        )
        for row in value["members"]
    }
    leader = value["leader"] if value["leader"] in members else next(iter(members), None)
    return {
        "type": value["type"],
        "generation": value["generation"],
        "protocol": value["protocol"],
        "leader": leader,
        "members": members,
    }


def _consumer_group(group: ConsumerGroup) -> Json:
    members, currents = {}, {}
    for member_id, member in group.members.items():
        members[member_id] = (
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            sorted(member.topic_names),
            member.regex,
            member.rebalance_timeout_ms,
            member.server_assignor,
            None if member.classic is None else (member.classic.session_timeout_ms, list(member.classic.protocols)),
        )
        currents[member_id] = {
            "epoch": member.epoch,
            "previous_epoch": member.previous_epoch,
            "state": int(member.state),
            "assigned": _places(member.assigned),
            "revoking": _places(member.revoking),
        }
    return {
        "epoch": {"epoch": group.epoch, "hash": group.metadata_hash},
        "target_epoch": group.assignment_epoch,
        "members": members,
        "currents": currents,
        "targets": {member_id: places for member_id in members if (places := _places(group.target(member_id)))},
        "regexes": {
            regex: {"topics": sorted(resolved.topics), "version": resolved.version, "at_ms": resolved.timestamp_ms}
            for regex, resolved in group.regexes.items()
        },
    }


def _classic_part(row: Json | None) -> Any:
    return None if row is None else (row["session_ms"], [(each["name"], each["metadata"]) for each in row["protocols"]])


def _places(assignment: Any) -> set[tuple[bytes, int]]:
    return {(topic_id, index) for topic_id, indexes in assignment.items() for index in indexes}


def _expected_consumer_groups(replayed: CoordinatorDict) -> dict[str, Json]:
    found = {}
    for group_id, group in replayed.consumer_groups().items():
        members = {
            member_id: (
                row["instance"],
                row["rack"],
                row["client"],
                row["host"],
                sorted(row["topics"]),
                row["regex"] or "",
                row["rebalance_ms"],
                row["assignor"],
                _classic_part(row["classic"]),
            )
            for member_id, row in group["members"].items()
        }
        found[group_id] = {
            "epoch": group["epoch"],
            "target_epoch": max(group.get("target_epoch", 0), 0),
            "members": members,
            "currents": _owned_once(
                {member_id: group["currents"].get(member_id, _NO_CURRENT) for member_id in members}
            ),
            "targets": {
                member_id: places for member_id, places in group["targets"].items() if places and member_id in members
            },
            "regexes": group["regexes"],
        }
    return found


def _owned_once(currents: dict[str, Json]) -> dict[str, Json]:
    """Leaves each partition to one member, that with the highest epoch: a log without its tombstones has more members
    than the group."""
    taken: set[tuple[bytes, int]] = set()
    found = {}
    for member_id in sorted(currents, key=lambda member_id: (-currents[member_id]["epoch"], member_id)):
        assigned = currents[member_id]["assigned"] - taken
        revoking = currents[member_id]["revoking"] - taken - assigned
        taken |= assigned | revoking
        found[member_id] = {**currents[member_id], "assigned": assigned, "revoking": revoking}
    return found


# -- transactions


def wrong_transactions(shard: TransactionShard, replayed: CoordinatorDict, *, is_loaded: bool) -> str:
    """Compares a shard of transactions with the replay. Returns a description of the first difference, or ""."""
    found: dict[str, Json] = {}
    for transaction in shard.transactions():
        image = transaction.image
        found[transaction.transactional_id] = {
            "producer": image.producer_id,
            "epoch": image.producer_epoch,
            "timeout_ms": image.timeout_ms,
            "state": int(image.state),
            "partitions": set(image.partitions),
            "updated_ms": image.updated_ms,
            "started_ms": image.start_ms,
            "previous_producer": image.previous_producer_id,
            "next_producer": image.next_producer_id,
            "client_version": image.client_version,
        }
    expected = replayed.transactions()
    if not is_loaded:
        # An id becomes known before its first record is committed.
        found = {name: value for name, value in found.items() if name in expected or value["epoch"] >= 0}
    return _first_difference("the transaction of", found, expected)
