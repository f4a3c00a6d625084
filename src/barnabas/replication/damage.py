"""What a replica does whose log lost something: decided by who else has the partition, as the metadata say.

    another one leads, and this one is in neither ISR nor ELR    cut at the first lost offset, and fetched from there
    this one leads, for nobody else is in sync                   it goes on with what it has (`storage.mending`)
    nobody leads                                                 nothing yet

A broker that found such a log at its start registers as after a stop that was not in order: the controller takes it out
of ISR and ELR wherever another replica is in sync.
"""

from __future__ import annotations

from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import NO_LEADER, PartitionImage
from barnabas.replication.partition import Partition
from barnabas.storage.log import Log
from barnabas.storage.manager import LogManager


def may_be_cut(image: PartitionImage, node_id: int) -> bool:
    """Whether others have all that was committed, and no election counts on this replica."""
    return image.leader not in (node_id, NO_LEADER) and node_id not in (*image.isr, *image.elr)


def settle(logs: LogManager, partition: Partition, image: PartitionImage, node_id: int) -> None:
    """Before it assumes its role. Raises StorageFault."""
    log = partition.log
    losses = log.losses
    if losses.suspected and not log.config.is_compacted:
        logs.damaged.suspect(log)
    if log.losses.damage is None:
        if log.holes and may_be_cut(image, node_id):
            logs.damaged.cut(partition.topic_partition)
            partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
        return
    if may_be_cut(image, node_id):
        logs.damaged.cut(partition.topic_partition)
        partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
    elif image.leader != NO_LEADER:
        mended = logs.damaged.mend(partition.topic_partition)
        mended.signals.succeed(log.signals)
        partition.log = mended


def set_aside(logs: LogManager, topic_partition: TopicPartition, image: PartitionImage, node_id: int) -> bool:
    """Whether a log that could not be opened is out of the way now. Raises StorageFault."""
    if not may_be_cut(image, node_id):
        return False
    logs.damaged.give_up(topic_partition)
    return True


def is_waiting(log: Log) -> bool:
    """Whether something is to be decided about it when its role is known."""
    return log.losses.damage is not None or bool(log.losses.suspected or log.holes)
