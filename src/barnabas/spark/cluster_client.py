"""The cluster as a client sees it: the leader of each partition, and where the logs begin and end.

Every request goes to a broker that can answer it and is repeated, with growing pauses, as long as the error is
retriable (a moved leader, a broker that starts). After the timeout, the exception names the last cause. Connections are
kept, and opened again after a failure.

`of(settings)` returns one `ClusterClient` per process and settings: Spark's Python workers live longer than one task,
and a micro-batch should not have to connect again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.spark.blocking_connection import Connection
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.errors import ClusterUnreachable, RequestRefused

M = TypeVar("M", bound=Message)

LATEST = -1
EARLIEST = -2
_READ_UNCOMMITTED = 0
#: Errors in a metadata response about a topic that is being created or loses its leader.
_PASSING = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE})


class PartitionLeader(NamedTuple):
    """The leader of one partition. Node -1 means that there is none."""

    node_id: int
    host: str
    port: int
    epoch: int


class TopicView(NamedTuple):
    """A topic; `topic_id` is 16 zero bytes if the cluster has none."""

    name: str
    topic_id: bytes
    leaders: dict[int, PartitionLeader]


class LogEnd(NamedTuple):
    """A result of ListOffsets. Offset -1: no record has the requested timestamp."""

    offset: int
    epoch: int


class RetryDeadline:
    """The time to stop trying, and the growing pauses between two tries."""

    def __init__(self, settings: ClientSettings, timeout_ms: int) -> None:
        self._end = time.monotonic() + timeout_ms / 1000
        self._pause_s = settings.backoff_ms / 1000
        self._pause_max_s = settings.backoff_ms_max / 1000

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def pause(self) -> None:
        time.sleep(min(self._pause_s, max(0.0, self._end - time.monotonic())))
        self._pause_s = min(self._pause_s * 2, self._pause_max_s)


class ClusterClient:
    """Metadata, offsets and connections. Not safe for use by two threads at the same time."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicView] = {}
        #: The broker that answered last is tried first: one that hangs costs its timeout once, not every time.
        self._answered: tuple[str, int] | None = None
        #: Whether any broker has answered this process, or, for a task, the driver.
        self.was_reached = False

    # -- connections

    def deadline(self) -> RetryDeadline:
        settings = self.settings
        return RetryDeadline(settings, settings.api_timeout_ms if self.was_reached else settings.first_timeout_ms)

    def connection(self, address: tuple[str, int]) -> Connection:
        """Returns the kept connection or a new one. Raises OSError."""
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = Connection(address, self.settings)
        return found

    def drop(self, address: tuple[str, int]) -> None:
        """Closes a connection that failed, or has responses that no caller awaits."""
        found = self._connections.pop(address, None)
        if found is not None:
            found.close()

    def lend(self, address: tuple[str, int]) -> Connection:
        """Returns a connection for exclusive use; `give_back` returns it after all its responses. Raises OSError."""
        return self._connections.pop(address, None) or Connection(address, self.settings)

    def give_back(self, connection: Connection) -> None:
        """Keeps the connection for others, if it has no outstanding response and there is no other one."""
        if connection.waiting or connection.address in self._connections:
            connection.close()
        else:
            self._connections[connection.address] = connection

    def close(self) -> None:
        for address in list(self._connections):
            self.drop(address)

    def send_to(
        self, address: tuple[str, int], request: Message, answer: type[M], *, version_max: int | None = None
    ) -> M:
        """Sends one request to one broker, over a new connection if the kept one has failed. Raises OSError."""
        was_kept = address in self._connections
        try:
            return self.connection(address).call(request, answer, version_max)
        except OSError:
            self.drop(address)
            if not was_kept:
                raise
        try:
            return self.connection(address).call(request, answer, version_max)
        except OSError:
            self.drop(address)
            raise

    def send_to_any(self, request: Message, answer: type[M], *, version_max: int | None = None) -> M:
        """Sends one request that every broker can answer. Raises ClusterUnreachable."""
        deadline = self.deadline()
        while True:
            last: OSError | None = None
            known = [*self._brokers.values(), *self.settings.bootstrap]
            for address in dict.fromkeys(known if self._answered is None else [self._answered, *known]):
                try:
                    found = self.send_to(address, request, answer, version_max=version_max)
                except OSError as error:
                    last = error
                else:
                    self._answered, self.was_reached = address, True
                    return found
            if deadline.passed:
                raise ClusterUnreachable(
                    f"no broker answers at kafka.bootstrap.servers={self.settings.shown}: {last}"
                ) from last
            deadline.pause()

    # -- metadata

    def topics(self, names: Iterable[str], *, fresh: bool = False) -> dict[str, TopicView]:
        """Returns those of `names` that exist."""
        wanted = list(dict.fromkeys(names))
        if fresh or any(name not in self._topics for name in wanted):
            self._learn([MetadataRequest.MetadataRequestTopic(name=name) for name in wanted])
        return {name: self._topics[name] for name in wanted if name in self._topics}

    def matching(self, pattern: re.Pattern[str]) -> dict[str, TopicView]:
        """Returns all topics whose whole name matches, never Kafka's internal ones."""
        known = self._learn(None)
        return {name: self._topics[name] for name in sorted(known) if pattern.fullmatch(name)}

    def leader(self, partition: TopicPartition, *, fresh: bool = False) -> PartitionLeader | None:
        """Returns the leader; None if the partition does not exist or has no leader now."""
        view = self.topics([partition.topic], fresh=fresh).get(partition.topic)
        found = view.leaders.get(partition.partition) if view is not None else None
        return found if found is not None and found.node_id >= 0 else None

    def _learn(self, topics: list[MetadataRequest.MetadataRequestTopic] | None) -> set[str]:
        """Requests the metadata of the topics, or of all; returns the names that exist and are not internal."""
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = self.send_to_any(request, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for requested in topics or ():
            if requested.name is not None:
                self._topics.pop(requested.name, None)
        named = set()
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if topic.error_code not in (ErrorCode.NONE, *_PASSING):
                raise RequestRefused(f"topic {topic.name}: {ErrorCode(topic.error_code).name}")
            leaders = {
                partition.partition_index: PartitionLeader(
                    partition.leader_id if partition.leader_id in self._brokers else -1,
                    *self._brokers.get(partition.leader_id, ("", -1)),
                    partition.leader_epoch,
                )
                for partition in topic.partitions
            }
            self._topics[topic.name] = TopicView(topic.name, topic.topic_id or ZERO_UUID, leaders)
            if not topic.is_internal:
                named.add(topic.name)
        return named

    # -- questions to leaders

    def log_ends(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = _READ_UNCOMMITTED
    ) -> dict[TopicPartition, LogEnd]:
        """Sends ListOffsets with LATEST, EARLIEST or a timestamp (ms) for each.

        Raises:
            RequestRefused, ClusterUnreachable.
        """

        def call(address: tuple[str, int], requested: dict[str, list[TopicPartition]]) -> dict[TopicPartition, _Answer]:
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                timeout_ms=self.settings.request_timeout_ms,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsRequest.ListOffsetsPartition(
                                partition_index=each.partition, timestamp=timestamps[each]
                            )
                            for each in partitions
                        ],
                    )
                    for topic, partitions in requested.items()
                ],
            )
            response = self.send_to(address, request, ListOffsetsResponse)
            return {
                TopicPartition(topic.name, each.partition_index): _Answer(
                    each.error_code, LogEnd(each.offset, each.leader_epoch)
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return self._of_leaders(timestamps, call)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogEnd]:
        """Sends OffsetForLeaderEpoch (KIP-320). Returns for each partition the largest epoch of the leader's log that
        is not above the requested one, and its end offset; (-1, -1) if the leader knows none.
        """

        def call(address: tuple[str, int], requested: dict[str, list[TopicPartition]]) -> dict[TopicPartition, _Answer]:
            request = OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                                partition=each.partition, leader_epoch=epochs[each]
                            )
                            for each in partitions
                        ],
                    )
                    for topic, partitions in requested.items()
                ],
            )
            response = self.send_to(address, request, OffsetForLeaderEpochResponse)
            return {
                TopicPartition(topic.topic, each.partition): _Answer(
                    each.error_code, LogEnd(each.end_offset, each.leader_epoch)
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return self._of_leaders(epochs, call)

    def _of_leaders(
        self,
        wanted: Iterable[TopicPartition],
        call: Callable[[tuple[str, int], dict[str, list[TopicPartition]]], dict[TopicPartition, _Answer]],
    ) -> dict[TopicPartition, LogEnd]:
        """Sends a request to each partition's leader, and repeats those with a retriable error after fresh metadata."""
        done: dict[TopicPartition, LogEnd] = {}
        left = dict.fromkeys(wanted)
        causes: dict[TopicPartition, str] = {}
        deadline = self.deadline()
        fresh = False
        while left:
            views = self.topics({each.topic for each in left}, fresh=fresh)
            for address, requested in _by_leader(left, views, causes).items():
                try:
                    answers = call(address, requested)
                except OSError as error:
                    causes |= {each: str(error) for each in left if each in requested.get(each.topic, ())}
                    continue
                for partition, answer in answers.items():
                    if answer.error_code == ErrorCode.NONE:
                        done[partition] = answer.end
                        left.pop(partition, None)
                    elif ErrorCode(answer.error_code).retriable:
                        causes[partition] = ErrorCode(answer.error_code).name
                    else:
                        raise RequestRefused(f"{partition}: {ErrorCode(answer.error_code).name}")
            if left:
                if deadline.passed:
                    shown = ", ".join(f"{each} ({causes.get(each, 'no answer')})" for each in left)
                    raise ClusterUnreachable(f"no leader answers for {shown}")
                deadline.pause()
                fresh = True
        return done


class _Answer(NamedTuple):
    error_code: int
    end: LogEnd


def _by_leader(
    wanted: Iterable[TopicPartition], views: Mapping[str, TopicView], causes: dict[TopicPartition, str]
) -> dict[tuple[str, int], dict[str, list[TopicPartition]]]:
    grouped: dict[tuple[str, int], dict[str, list[TopicPartition]]] = {}
    for partition in wanted:
        view = views.get(partition.topic)
        leader = view.leaders.get(partition.partition) if view is not None else None
        if leader is None:
            causes[partition] = "it does not exist"
        elif leader.node_id < 0:
            causes[partition] = "it has no leader"
        else:
            grouped.setdefault((leader.host, leader.port), {}).setdefault(partition.topic, []).append(partition)
    return grouped


_clusters: dict[ClientSettings, ClusterClient] = {}


def of(settings: ClientSettings) -> ClusterClient:
    """Returns the `ClusterClient` of this process."""
    found = _clusters.get(settings)
    if found is None:
        found = _clusters[settings] = ClusterClient(settings)
    return found
