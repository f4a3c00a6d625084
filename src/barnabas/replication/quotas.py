"""Replication quotas (KIP-73): limits on the traffic of replicas that their topic's configuration names.

    leader.replication.throttled.rate      bytes per second that this broker sends for the replicas in the topics'
                                           leader.replication.throttled.replicas
    follower.replication.throttled.rate    bytes per second that it fetches for those in
                                           follower.replication.throttled.replicas

The rates are dynamic keys of one broker, else of all brokers; the windows are `replication.quota.window.num` and
`.size.seconds`. All traffic of a named replica counts, but only replicas out of sync are delayed: `acks=all` needs the
others. Traffic can exceed the rate, since it is counted after the fact, so any rate allows progress.

A leader returns no data for a delayed replica (`fetching._read_into`); a follower leaves it out of its next fetch
(`Fetcher._is_held`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Clock
from barnabas.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.replication.fetch_items import FetchItem, FetchResult
from barnabas.replication.partition import Partition
from barnabas.replication.throttle import UNLIMITED, Throttle

LEADER: Final = "leader.replication.throttled"
FOLLOWER: Final = "follower.replication.throttled"


def dynamic_rate(image: MetadataImage, node_id: int, key: str) -> int:
    """Returns the rate of this broker, else that of all brokers, in bytes per second; not from the properties file."""
    rates = (image.config_of(BROKER_RESOURCE, name).get(key) for name in (str(node_id), ""))
    return next((int(rate) for rate in rates if rate is not None), UNLIMITED)


class ReplicationQuota:
    """The replication quota of one side (leader or follower): the rate, and the replicas of this broker that it
    limits.
    """

    __slots__ = ("_listed", "_node_id", "_prefix", "throttle")

    def __init__(self, prefix: str, node_id: int, throttle: Throttle) -> None:
        self._prefix = prefix
        self._node_id = node_id
        #: Topic -> partitions whose replica on this broker is throttled; None for all.
        self._listed: dict[str, frozenset[int] | None] = {}
        self.throttle = throttle

    def __bool__(self) -> bool:
        """Returns whether any replica is throttled."""
        return bool(self._listed)

    def is_listed(self, topic: str, index: int) -> bool:
        if topic not in self._listed:
            return False
        indexes = self._listed[topic]
        return indexes is None or index in indexes

    def holds_back(self, topic: str, index: int, now_ms: int) -> bool:
        """Returns whether a replica that is out of sync has to wait, because the quota is exceeded."""
        return self.is_listed(topic, index) and self.throttle.wait_ms(now_ms) > 0

    def follow_rate(self, image: MetadataImage) -> None:
        self.throttle.rate_bytes = dynamic_rate(image, self._node_id, f"{self._prefix}.rate")

    def follow_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Updates the throttled replicas of a topic. `config` are the topic's overrides, which were validated when they
        were set.
        """
        listed = [item.strip() for item in config.get(f"{self._prefix}.replicas", "").split(",") if item.strip()]
        if listed == ["*"]:
            self._listed[topic] = None
            return
        pairs = (item.partition(":") for item in listed)
        indexes = frozenset(int(index) for index, _, broker in pairs if int(broker) == self._node_id)
        if indexes:
            self._listed[topic] = indexes
        else:
            self._listed.pop(topic, None)


class ReplicationQuotas:
    """The quotas of a broker as leader and as follower."""

    __slots__ = ("_clock", "follower", "leader")

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        windows = config.int_of("replication.quota.window.num")
        window_ms = config.int_of("replication.quota.window.size.seconds") * 1000
        node_id = config.node_id
        self.leader = ReplicationQuota(LEADER, node_id, Throttle(windows, window_ms))
        self.follower = ReplicationQuota(FOLLOWER, node_id, Throttle(windows, window_ms))

    def holds_back(self, partition: Partition, replica_id: int) -> bool:
        """Returns whether a follower gets no data now, because it is out of sync and the rate is exceeded."""
        leadership = partition.leadership
        if not self.leader or leadership is None or replica_id in leadership.isr:
            return False
        return self.leader.holds_back(*partition.topic_partition, self._clock.now_ms())

    def count_sent(self, sent: Iterable[tuple[FetchItem, FetchResult]]) -> None:
        """Counts bytes that were sent to a follower."""
        quota = self.leader
        if not quota:
            return
        size_bytes = sum(len(result.data) for item, result in sent if quota.is_listed(item.topic or "", item.index))
        if size_bytes:
            quota.throttle.record(size_bytes, self._clock.now_ms())

    def follow_rates(self, image: MetadataImage) -> None:
        self.leader.follow_rate(image)
        self.follower.follow_rate(image)

    def follow_topic(self, topic: str, config: Mapping[str, str]) -> None:
        self.leader.follow_topic(topic, config)
        self.follower.follow_topic(topic, config)
