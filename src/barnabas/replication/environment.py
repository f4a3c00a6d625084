"""The services that the replicas of one broker share: time, ISR eligibility, requests to the controller, wake-ups."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.replication.fetch_items import NO_REPLICA
from barnabas.replication.follower_waits import FollowerWaits
from barnabas.replication.isr_changes import IsrChanges, SendRequest
from barnabas.replication.leadership import FOLLOWED_MS
from barnabas.replication.partition import Partition
from barnabas.replication.replica_selector import selector_of

_UNKNOWN_EPOCH = -1
#: (partition, event, facts)
EventReporter = Callable[[Partition, str, dict[str, int]], None]


class ReplicaEnvironment:
    """The `replication.partition.Environment` of a broker."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        send: SendRequest,
        broker_epoch: Callable[[], int],
        report_event: EventReporter,
    ) -> None:
        """`send` sends a request to the active controller. `broker_epoch` returns this broker's epoch, -1 before it is
        registered. `report_event` records the data that replicas of this broker lost or possibly lost."""
        self._clock = host.clock
        self._timers = host.timers
        self._config = config
        self._woken: dict[Partition, int] = {}
        self.image: MetadataImage = EMPTY_IMAGE
        self.selector = selector_of(config.str_or_none("replica.selector.class"))
        self.follower_waits = FollowerWaits(host.clock, host.timers)
        self.broker_epoch = broker_epoch
        self._report_event = report_event
        self.isr_changes = IsrChanges(host.timers, config.node_id, broker_epoch, send)

    @property
    def lag_ms_max(self) -> int:
        return self._config.int_of("replica.lag.time.max.ms")

    @property
    def followed_ms(self) -> int:
        return max(FOLLOWED_MS, 2 * self._config.int_of("replica.fetch.wait.max.ms"))

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def may_join(self, broker_id: int, broker_epoch: int, directory: bytes) -> bool:
        broker = self.image.brokers.get(broker_id)
        if broker is None or not broker.is_active:
            return False
        # In ZooKeeper mode brokers do not know the epochs of others.
        if _UNKNOWN_EPOCH not in (broker_epoch, broker.epoch) and broker_epoch != broker.epoch:
            return False
        return not broker.unwritable or broker.takes_writes(directory)

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def expect_followers(self, partition: Partition) -> None:
        assert partition.leadership is not None, "only a leader has followers"
        self.follower_waits.expect(partition.leadership.followers)

    @property
    def pushes_high_watermark(self) -> bool:
        return self.selector is not None

    def preferred(self, partition: Partition, offset: int, rack: str, listener: str) -> int:
        """Returns another replica that a consumer in this rack should read from (KIP-392), or NO_REPLICA."""
        if self.selector is None:
            return NO_REPLICA
        return self.selector.preferred(partition, offset, rack, listener, self.image)

    def propose(self, partition: Partition) -> None:
        self.isr_changes.submit(partition)

    def report_event(self, partition: Partition, what: str, **facts: int) -> None:
        self._report_event(partition, what, {**facts, "high_watermark": partition.high_watermark})

    def wake_followers_soon(self, partition: Partition, size_bytes: int) -> None:
        if not self._woken:
            self._timers.call_soon(self._wake)
        self._woken[partition] = self._woken.get(partition, 0) + size_bytes

    def _wake(self) -> None:
        woken, self._woken = self._woken, {}
        for partition, size_bytes in woken.items():
            partition.wake_followers(size_bytes)
