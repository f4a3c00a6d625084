"""Which replica a consumer had better read from, as its leader sees it (KIP-392, `replica.selector.class`).

Only replicas that are in the ISR, whose broker lives and can be reached as the consumer reached this one, and which
have the offset, can be chosen; the leader stays the choice where it is in the consumer's rack, or nobody else is.
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
        """The id of another replica than the leader, or -1."""
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
    """By the class's name; None where the leader serves everybody. Raises ConfigError for one that is not known."""
    if name is None or name in ("", LEADER):
        return None
    if name == RACK_AWARE:
        return RackAwareSelector()
    raise ConfigError(f"replica.selector.class={name}: there are {RACK_AWARE} and {LEADER}")
