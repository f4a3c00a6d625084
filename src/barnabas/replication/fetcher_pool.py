"""The fetchers of this broker: one per leader, created for the first partition that follows it and closed with the
last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import StorageFault
from barnabas.common.host import Host, LinkCondition
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.peer_security import inter_broker_security
from barnabas.protocol.reach import Reach
from barnabas.replication.environment import ReplicaEnvironment
from barnabas.replication.fetcher import Fetcher
from barnabas.replication.partition import Partition, Role
from barnabas.replication.quotas import ReplicationQuota

_BACKOFF_MS: Final = 20
#: The pause is short, because an unreachable leader is soon replaced or back.
_BACKOFF_MS_MAX: Final = 200


class ConfiguredLimits:
    """The current values of `replica.fetch.*`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    @property
    def wait_ms_max(self) -> int:
        return self._config.int_of("replica.fetch.wait.max.ms")

    @property
    def bytes_min(self) -> int:
        return self._config.int_of("replica.fetch.min.bytes")

    @property
    def response_bytes_max(self) -> int:
        return self._config.int_of("replica.fetch.response.max.bytes")

    @property
    def partition_bytes_max(self) -> int:
        return self._config.int_of("replica.fetch.max.bytes")

    @property
    def backoff_ms(self) -> int:
        return self._config.int_of("replica.fetch.backoff.ms")

    @property
    def timeout_ms_max(self) -> int:
        return self._config.int_of("replica.socket.timeout.ms")


class FetcherPool:
    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        on_fault: Callable[[StorageFault], None],
        takes_writes: Callable[[str], bool],
        own: ReplicaEnvironment,
        quota: ReplicationQuota,
    ) -> None:
        """Creates a pool without fetchers. `takes_writes` returns whether logs in a directory can be appended to, as
        far as known.
        """
        self._host = host
        self._config = config
        self._area = ReceiveArea()
        self._on_fault = on_fault
        self._limits = ConfiguredLimits(config)
        self._fetchers: dict[tuple[int, str, int], Fetcher] = {}
        #: (topic id, index) -> the fetcher that has it.
        self._by_partition: dict[tuple[bytes, int], tuple[int, str, int]] = {}
        self._own = own
        self._takes_writes = takes_writes
        self._quota = quota

    def follow(self, partition: Partition, leader_id: int, image: MetadataImage) -> None:
        """Fetches the partition from this leader from now on, in the partition's epoch; stops if the leader's address
        is unknown.
        """
        key = (partition.topic_id, partition.topic_partition.partition)
        broker = image.brokers.get(leader_id)
        endpoint = None if broker is None else broker.endpoint(self._config.inter_broker_listener)
        if endpoint is None:
            self.unfollow(partition)
            return
        leader = (leader_id, endpoint.host, endpoint.port)
        if self._by_partition.get(key, leader) != leader:
            self.unfollow(partition)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make(leader)
        self._by_partition[key] = leader
        fetcher.add(partition)

    def on_brokers(self, changed: Collection[int], partitions: Iterable[Partition], image: MetadataImage) -> None:
        """Updates the fetchers after these brokers registered again, possibly with other addresses."""
        for partition in partitions:
            leader_id = NO_LEADER if partition.image is None else partition.image.leader
            if partition.role is Role.FOLLOWER and leader_id in changed and not self._is_right(partition, image):
                self.follow(partition, leader_id, image)

    def _is_right(self, partition: Partition, image: MetadataImage) -> bool:
        """Returns whether the partition is fetched from the registered address of its leader."""
        leader = self._by_partition.get((partition.topic_id, partition.topic_partition.partition))
        broker = None if leader is None else image.brokers.get(leader[0])
        endpoint = None if broker is None else broker.endpoint(self._config.inter_broker_listener)
        return leader is not None and endpoint is not None and leader[1:] == (endpoint.host, endpoint.port)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.topic_partition.partition)
        leader = self._by_partition.pop(key, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(*key)
        if fetcher.is_idle:
            del self._fetchers[leader]
            fetcher.close()

    def unanswered(self) -> Iterator[tuple[int, int, Reach]]:
        """Yields each leader that has not answered a fetch yet, the time of that fetch, and what is known of it."""
        for (leader_id, _, _), fetcher in self._fetchers.items():
            if fetcher.unanswered_ms is not None:
                yield leader_id, fetcher.unanswered_ms, fetcher.channel.reach.known

    def conditions(self) -> Iterator[tuple[int, LinkCondition]]:
        """Yields each leader whose connection works, with the condition of the network."""
        for (leader_id, _, _), fetcher in self._fetchers.items():
            condition = fetcher.channel.reach.condition()
            if condition is not None:
                yield leader_id, condition

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._by_partition.clear()

    def _make(self, leader: tuple[int, str, int]) -> Fetcher:
        node_id = self._config.node_id
        leader_id, host, port = leader
        times = ChannelTimes(
            self._config.int_of("replica.socket.timeout.ms"),
            backoff_ms=_BACKOFF_MS,
            backoff_ms_max=_BACKOFF_MS_MAX,
        )
        client_id = f"broker-{node_id}-fetcher-0-leader-{leader_id}"
        security = inter_broker_security(self._config)
        channel = Channel(self._host, self._area, (host, port), client_id, times, security)
        replica = (node_id, self._own.broker_epoch)
        return Fetcher(self._host, channel, self._limits, replica, self._on_fault, self._takes_writes, self._quota)
