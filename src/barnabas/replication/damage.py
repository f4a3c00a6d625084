"""Replicas whose logs lost records: what happens to them depends on the other replicas, as the metadata shows them.

    another broker leads, this replica is in neither ISR nor ELR    truncated at the first lost offset, fetched again
    this broker leads, because no other replica is in sync          continues with what it has (`hole_filling`)
    no leader                                                       undecided for now

A broker that finds a damaged log at startup registers as after an unclean shutdown: the controller removes it from ISR
and ELR wherever another replica is in sync.
"""

from __future__ import annotations

from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import NO_LEADER, PartitionImage
from barnabas.replication.partition import Partition
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager


def may_be_cut(image: PartitionImage, node_id: int) -> bool:
    """Returns whether this log can be truncated: other replicas have all committed records, and no election relies on
    this one.
    """
    return image.leader not in (node_id, NO_LEADER) and node_id not in (*image.isr, *image.elr)


def settle(logs: LogManager, partition: Partition, image: PartitionImage, node_id: int) -> None:
    """Repairs the log before its replica assumes its role, if the image already decides how: by truncation, or by
    accepting the losses. Raises StorageFault.
    """
    log = partition.log
    losses = log.losses
    if losses.suspected and not log.config.is_compacted:
        logs.damaged.mark_damaged(log)
    if log.losses.damage is None:
        if log.holes and may_be_cut(image, node_id):
            logs.damaged.truncate(partition.topic_partition)
            partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
        return
    if may_be_cut(image, node_id):
        logs.damaged.truncate(partition.topic_partition)
        partition.high_watermark = min(partition.high_watermark, log.log_end_offset)
    elif image.leader != NO_LEADER:
        mended = logs.damaged.accept_losses(partition.topic_partition)
        mended.signals.take_over_from(log.signals)
        partition.log = mended


def set_aside(logs: LogManager, topic_partition: TopicPartition, image: PartitionImage, node_id: int) -> bool:
    """Moves a log that cannot be opened out of the way; False if it must stay. Raises StorageFault."""
    if not may_be_cut(image, node_id):
        return False
    logs.damaged.set_aside(topic_partition)
    return True


def is_waiting(log: Log) -> bool:
    """Returns whether the log needs a decision (`settle`) once the role of its replica is known."""
    return log.losses.damage is not None or bool(log.losses.suspected or log.holes)
