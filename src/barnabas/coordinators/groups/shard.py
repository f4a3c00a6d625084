"""A partition of `__consumer_offsets` that this broker coordinates: its groups, its offsets and their expiry.

LOADING   elected; the log is replayed in slices; requests are answered with COORDINATOR_LOAD_IN_PROGRESS
ACTIVE    requests are served
FAILED    the log could not be read; requests are answered as if this broker were not the coordinator
CLOSED    leadership was lost
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.groups.classic.group import ClassicGroup, HeldBytes
from barnabas.coordinators.groups.classic.images import restore_group
from barnabas.coordinators.groups.classic.joining import Joining
from barnabas.coordinators.groups.classic.membership import Membership
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.committers import Committers
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig, GroupOverride
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.service import ConsumerGroups
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.coordinators.groups.consumer.writes import Writes
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.groups.group_records import (
    OffsetKey,
    parse_group,
    parse_key,
    parse_offset,
    parse_plain_offset,
)
from barnabas.coordinators.groups.offset_removal import OffsetRemoval
from barnabas.coordinators.groups.offsets import Offsets
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.coordinators.loading import Loads, LogLoader
from barnabas.coordinators.runtime import (
    PartitionWriter,
    ShardLifecycle,
    ShardLog,
    ShardState,
)
from barnabas.coordinators.steps import ROWS, Turns, in_steps

#: The number of groups processed in one turn of the loop after loading.
_SLICE = 256
#: The cost of a check for expired offsets per group, in offsets.
_GROUP_WEIGHT = 4


class ConsumerPorts(NamedTuple):
    """The ports that groups of the consumer protocol use in addition to those of all groups."""

    config: ConsumerConfig
    topics: Topics
    override_of: GroupOverride


class Shared(NamedTuple):
    """The objects that all shards of a coordinator share: the queue of loads, the memory of members' metadata, and the
    queue of long work.
    """

    loads: Loads
    held: HeldBytes
    turns: Turns


class GroupShard:
    """The groups and offsets of one partition, and the sink that its log is replayed into; the module docstring has its
    states.
    """

    __slots__ = (
        "_config",
        "_context",
        "_expiry",
        "_host",
        "_lifecycle",
        "_loader",
        "_rebalancer",
        "committers",
        "consumers",
        "joining",
        "leader_epoch",
        "membership",
        "offsets",
        "partition",
        "removal",
        "skipped_records",
    )

    def __init__(
        self,
        host: Host,
        config: GroupConfig,
        consumer: ConsumerPorts,
        writer: PartitionWriter,
        shared: Shared,
        partition: TopicPartition,
        leader_epoch: int,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._host = host
        self._config = config
        self._lifecycle = ShardLifecycle()
        deadlines = Deadlines(host.clock, host.timers)
        log = ShardLog(
            host,
            writer,
            partition,
            deadlines,
            timeout_ms=config.offsets_commit_timeout_ms,
            codec=config.offsets_topic_codec,
        )
        timeout_ms = config.offsets_commit_timeout_ms
        writes = Writes(log, host, deadlines, self._on_consumer_group, shared.turns, timeout_ms=timeout_ms)
        self._context = GroupContext(host, config, log, deadlines, writes, shared.held)
        self._rebalancer = Rebalancer(self._context)
        self._expiry = deadlines.new()
        self._loader = LogLoader(host, shared.loads, partition, self)
        self.joining = Joining(self._context, self._rebalancer)
        self.membership = Membership(self._context, self._rebalancer)
        self.committers = Committers(self._context, self._rebalancer)
        self.offsets = Offsets(self._context, self._rebalancer)
        self.removal = OffsetRemoval(self._context, self.offsets)
        self.consumers = ConsumerGroups(
            self._context, self._rebalancer, consumer.config, consumer.topics, consumer.override_of
        )
        #: The number of records of share and streams groups, which are not served; they stay in the log.
        self.skipped_records = 0

    @property
    def state(self) -> ShardState:
        return self._lifecycle.state

    @property
    def log(self) -> ShardLog:
        return self._context.log

    def check_serving(self) -> None:
        """Raises RequestFailed unless requests can be served."""
        self._lifecycle.check_serving()

    # -- groups

    def groups(self) -> tuple[ClassicGroup, ...]:
        return tuple(self._context.groups.values())

    def find(self, group_id: str) -> ClassicGroup | None:
        return self._context.groups.get(group_id)

    def _on_consumer_group(self, group_id: str) -> None:
        """Ends the classic group of this id, if there is one: its members must join the new consumer group."""
        group = self._context.groups.pop(group_id, None)
        if group is not None:
            self._rebalancer.end_group(group, ErrorCode.REBALANCE_IN_PROGRESS)

    # -- loading

    def load(self) -> None:
        self._loader.start()

    def replay(self, key: bytes, value: bytes) -> None:
        plain = parse_plain_offset(key, value)
        if plain is not None:
            self.offsets.replay_offset(*plain)
            return
        parsed = parse_key(key)
        if isinstance(parsed, OffsetKey):
            self.offsets.replay_offset(parsed, parse_offset(value))
        elif parsed is None:
            if not self.consumers.replay(key, value):
                self.skipped_records += 1
        else:
            group_id = parsed.group_id
            group = restore_group(group_id, parse_group(value), self._context.deadlines)
            group.hold_in(self._context.held)
            self._context.groups[group_id] = group

    def replay_open(self, producer_id: int, key: bytes, value: bytes) -> None:
        self.offsets.replay_open(producer_id, key, value)

    def finish(self) -> Iterator[None]:
        """Builds the consumer groups, and a classic group for each group id that has only offsets."""
        yield from self.consumers.finish_loading()
        for count, group_id in enumerate(tuple(self.offsets.groups()), 1):
            if group_id not in self._context.groups and not self.consumers.has(group_id):
                self._context.create(group_id)
            if not count % _SLICE:
                yield

    def on_loaded(self) -> None:
        """Begins to serve, starts all sessions, and schedules expiry."""
        self._lifecycle.move(ShardState.ACTIVE)
        self._restart_sessions_slice((*self.groups(), *self.consumers.groups()), 0)
        self._schedule_expiry()

    def _restart_sessions_slice(self, groups: tuple[ClassicGroup | ConsumerGroup, ...], start: int) -> None:
        """Starts the sessions of all members, some groups in each turn of the loop."""
        if self.state is not ShardState.ACTIVE:
            return
        for group in groups[start : start + _SLICE]:
            if isinstance(group, ClassicGroup):
                self._rebalancer.restart_sessions(group)
            elif self.consumers.find(group.group_id) is group:
                self.consumers.restart_sessions(group)
        if start + _SLICE < len(groups):
            self._host.timers.call_soon(lambda: self._restart_sessions_slice(groups, start + _SLICE))

    def on_load_failed(self, error: Exception) -> None:
        self._lifecycle.move(ShardState.FAILED)
        self._host.faults.report(f"cannot load {self.partition}", error)

    # -- leaving

    def close(self) -> None:
        """Ends all work after a loss of leadership: waiting requests are redirected to the new coordinator."""
        self._lifecycle.move(ShardState.CLOSED)
        self._loader.stop()
        self.consumers.close()
        self._context.log.close()
        for group in self.groups():
            self._rebalancer.end_group(group, ErrorCode.NOT_COORDINATOR)
        self._context.groups.clear()
        self._context.deadlines.close()

    # -- expiry and deletion

    def delete_groups(self, group_ids: Sequence[str], done: Callable[[Mapping[str, ErrorCode]], None]) -> None:
        """Deletes empty groups with their offsets; calls `done` with the error code of each."""
        consumers = [group_id for group_id in group_ids if self.consumers.find(group_id) is not None]
        classic = [group_id for group_id in group_ids if self.consumers.find(group_id) is None]

        def finish(codes: Sequence[Mapping[str, ErrorCode]]) -> None:
            done({group_id: code for found in codes for group_id, code in found.items()})

        gather: Gather[Mapping[str, ErrorCode]] = Gather(len(consumers) + bool(classic), finish)
        for index, group_id in enumerate(consumers):
            self._delete_into(gather.slot(index), group_id)
        if classic:
            self.removal.delete_groups(classic, gather.slot(len(consumers)))

    def _delete_into(self, slot: Callable[[Mapping[str, ErrorCode]], None], group_id: str) -> None:
        self.delete_consumer_group(group_id, lambda code: slot({group_id: code}))

    def delete_consumer_group(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """Deletes a consumer group with its offsets: as many as fit into one batch together with the group's
        records, the others in batches before that one. Calls `done(code)`, for example with NON_EMPTY_GROUP."""

        def take_offsets(draft: Draft) -> None:
            records, drop = self.removal.tombstones_of(group_id)
            draft.records += records
            draft.effects.append(drop)

        def delete(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.consumers.delete(group_id, take_offsets, done)
            else:
                done(code)

        self.removal.delete_most(group_id, delete)

    def _schedule_expiry(self) -> None:
        self._expiry.schedule(self._config.offsets_retention_check_interval_ms, self._begin_expiry)

    def _begin_expiry(self) -> None:
        in_steps(self._host.timers, self._expire())
        self._schedule_expiry()

    def _expire(self) -> Iterator[None]:
        consumer_ids = (group.group_id for group in self.consumers.groups())
        weight = 0
        for group_id in (*self._context.groups, *consumer_ids):
            weight += _GROUP_WEIGHT + len(self.offsets.of(group_id))
            if weight > ROWS:
                yield
                weight = _GROUP_WEIGHT + len(self.offsets.of(group_id))
            if self.state is not ShardState.ACTIVE:
                return
            group = self._context.groups.get(group_id)
            consumer_group = self.consumers.find(group_id)
            if group is not None:
                self.removal.expire(group)
            elif consumer_group is not None:
                self.removal.expire_consumer_group(consumer_group, self._delete_expired)

    def _delete_expired(self, group_id: str) -> None:
        self.delete_consumer_group(group_id, lambda _: None)
