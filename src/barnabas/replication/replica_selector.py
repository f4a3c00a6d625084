"""The replica that a consumer should read from, chosen by the leader (KIP-392, `replica.selector.class`).

A replica can be chosen if it is in the ISR, has the offset, and its broker is alive and has the listener that the
consumer used. The leader remains the choice if it is in the consumer's rack, or there is no other one.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ConfigError
from barnabas.metadata.image import MetadataImage
from barnabas.replication.fetch_items import NO_REPLICA
from barnabas.replication.partition import Partition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"


class RackAwareSelector:
    def preferred(self, partition: Partition, offset: int, rack: str, listener: str, image: MetadataImage) -> int:
        """Returns the id of a replica other than the leader, or NO_REPLICA (-1)."""
        leadership = partition.leadership
        own = image.brokers.get(partition.node_id)
        if leadership is None or not rack or (own is not None and own.rack == rack):
            return NO_REPLICA
        best: tuple[int, int, int] | None = None
        for replica, follower in leadership.followers.items():
            broker = image.brokers.get(replica)
            if (
                broker is not None
                and broker.rack == rack
                and not broker.fenced
                and replica in leadership.isr
                and 0 <= follower.log_start_offset <= offset <= follower.leo
                and broker.endpoint(listener) is not None
            ):
                candidate = (follower.leo, follower.caught_up_at(), replica)
                best = candidate if best is None else max(best, candidate)
        return NO_REPLICA if best is None else best[2]


def selector_of(name: str | None) -> RackAwareSelector | None:
    """Returns the selector with this class name; None if consumers read from leaders only. Raises ConfigError for an
    unknown name.
    """
    if name is None or name in ("", LEADER):
        return None
    if name == RACK_AWARE:
        return RackAwareSelector()
    raise ConfigError(f"replica.selector.class={name}: expected {RACK_AWARE} or {LEADER}")
