"""The znodes of a decision: its metadata records as writes, in units that take effect together.

    TopicRecord            create the topic's configuration, or set it, and create its assignment
    PartitionRecord        without a state: in the topic's assignment
                           with its first one: create `partitions` (first partition of a topic), P, P/state
    PartitionChangeRecord  set P/state under its data version, which is the partition epoch; the topic's assignment too
                           if replicas are added, removed or settled
    ProducerIdsRecord      set the block under its own data version
    FeatureLevelRecord     set `/feature`

A controller writes neither registrations of brokers nor changes of configurations: the broker that gets the request
writes these. A topic is deleted by `offline_units`, and when its replicas are gone by `partition_deletions` and
`topic_deletion`.

A change of an assignment is one unit with the states that belong to it. Where one multi cannot hold them, the order
preserves what only the assignment contains: it is written before the states when a reassignment begins, and as the last
write when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.controller.requests.result import Versioned
from barnabas.controller.zookeeper.assignment_texts import AssignmentTexts
from barnabas.controller.zookeeper.fenced_writer import GROUP_BYTES_MAX, Unit
from barnabas.controller.zookeeper.znode_writes import ZnodeWrite, create, delete, put, set_data
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import NO_LEADER, PartitionImage, TopicImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import Features, ProducerIdBlock, encode_features, encode_producer_id_block
from barnabas.znodes.config_znodes import encode_config
from barnabas.znodes.topic_znodes import PartitionState, encode_state
from barnabas.zookeeper.wire.codes import ANY_VERSION

#: The version of `/feature` that Kafka 3.9 writes.
_FEATURES_VERSION: Final = 2


class WriteContext(NamedTuple):
    """The epoch of the controller, the images before and after a decision, and everything else that its writes depend
    on.
    """

    controller_epoch: int
    before: MetadataImage
    after: MetadataImage
    texts: AssignmentTexts
    #: The data version of a znode that the image does not know.
    version_of: Callable[[str], int] = lambda path: ANY_VERSION
    #: The size of a producer id block.
    block_size: int = 1000


def units_of(context: WriteContext, records: Sequence[Versioned]) -> list[Unit]:
    """Returns the writes of a decision, topic by topic in the order of the records."""
    changed: dict[bytes, dict[int, Message]] = {}
    units: list[Unit] = []
    for record, _ in records:
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            changed.setdefault(record.topic_id, {})[record.partition_id] = record
        elif isinstance(record, TopicRecord):
            units.append(_creation(context, record.topic_id))
        elif isinstance(record, ProducerIdsRecord):
            units.append(_producer_ids(context, record))
    for topic_id, partitions in changed.items():
        units += _topic_units(context, topic_id, partitions)
    if any(isinstance(record, FeatureLevelRecord) for record, _ in records):
        features = encode_features(Features(_FEATURES_VERSION, True, dict(sorted(context.after.features.items()))))
        units.append(Unit(paths.FEATURE, (set_data(paths.FEATURE, features),)))
    return units


def _topic_units(context: WriteContext, topic_id: bytes, changed: Mapping[int, Message]) -> Iterator[Unit]:
    after = context.after.topics_by_id[topic_id]
    before = context.before.topics_by_id.get(topic_id)
    states: list[Unit] = []
    is_grown = False
    for partition_id in changed:
        partition = after.partitions[partition_id]
        old = before.partitions[partition_id] if before is not None and partition_id < len(before.partitions) else None
        if partition.partition_epoch < 0:
            continue
        if old is None or old.partition_epoch < 0:
            is_grown = True
            states.append(Unit(after.name, tuple(_first_state(context, after.name, partition_id, partition))))
        else:
            assert partition.partition_epoch == old.partition_epoch + 1, "a decision changes a partition once"
            state = set_data(paths.state(after.name, partition_id), _state(context, partition), old.partition_epoch)
            states.append(Unit(after.name, (state,)))
    if is_grown and not _has_states(before):
        yield Unit(after.name, (create(paths.partitions(after.name)),))
    if before is None or not _is_assigned_anew(before, after, changed):
        yield from states
        return
    topic_path = paths.topic(after.name)
    assignment = set_data(topic_path, context.texts.encoded(after), context.version_of(topic_path))
    whole = Unit(after.name, (assignment, *(write for unit in states for write in unit.writes)))
    if whole.size_bytes <= GROUP_BYTES_MAX:
        yield whole
    elif any(_ends_reassignment(before, after, index) for index in changed):
        yield from states
        yield Unit(after.name, (assignment,), is_last=True)
    else:
        yield Unit(after.name, (assignment,))
        yield from states


def _has_states(topic: TopicImage | None) -> bool:
    return topic is not None and any(partition.partition_epoch >= 0 for partition in topic.partitions)


def _is_assigned_anew(before: TopicImage, after: TopicImage, changed: Mapping[int, Message]) -> bool:
    known = len(before.partitions)
    if len(after.partitions) > known:
        return True
    return any(_assigned(before.partitions[index]) != _assigned(after.partitions[index]) for index in changed)


def _ends_reassignment(before: TopicImage, after: TopicImage, index: int) -> bool:
    return not set(before.partitions[index].replicas) <= set(after.partitions[index].replicas)


def _assigned(partition: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _first_state(
    context: WriteContext, name: str, partition_id: int, partition: PartitionImage
) -> Iterator[ZnodeWrite]:
    yield create(paths.partition(name, partition_id))
    yield create(paths.state(name, partition_id), _state(context, partition))


def _state(context: WriteContext, partition: PartitionImage) -> bytes:
    return encode_state(
        PartitionState(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            context.controller_epoch,
            partition.leader_recovery_state,
        )
    )


def _creation(context: WriteContext, topic_id: bytes) -> Unit:
    topic = context.after.topics_by_id[topic_id]
    return topic_creation(topic.name, context.after.topic_config(topic.name), context.texts.encoded(topic))


def topic_creation(name: str, config: Mapping[str, str], assignment: bytes) -> Unit:
    """Returns the writes that create a topic: its configuration, and its assignment with this content."""
    writes = (
        # As in Kafka, what a deletion or a tool has left of an earlier topic's configuration is replaced.
        put(paths.config(paths.TOPIC_CONFIGS, name), encode_config(dict(sorted(config.items())))),
        create(paths.topic(name), assignment),
    )
    return Unit(name, writes)


def topic_growth(name: str, assignment: bytes, version: int) -> Unit:
    """Returns the write that adds partitions to a topic, whose assignment then has this content."""
    return Unit(name, (set_data(paths.topic(name), assignment, version),))


def offline_units(topic: TopicImage, partition_ids: Iterable[int], controller_epoch: int) -> Iterator[Unit]:
    """Yields states of a topic whose deletion begins: no leader, under a higher leader epoch, as in Kafka."""
    for partition_id in partition_ids:
        partition = topic.partitions[partition_id]
        if partition.partition_epoch >= 0 and partition.leader != NO_LEADER:
            state = PartitionState(
                NO_LEADER,
                partition.leader_epoch + 1,
                partition.isr,
                controller_epoch,
                partition.leader_recovery_state,
            )
            path = paths.state(topic.name, partition_id)
            yield Unit(topic.name, (set_data(path, encode_state(state), partition.partition_epoch),))


def partition_deletions(name: str, below: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Unit]:
    """Yields the writes that delete partitions of a topic whose replicas are gone. `below` names the znodes below each
    of them.
    """
    for number, names in below:
        partition_path = f"{paths.partitions(name)}/{number}"
        yield Unit(name, (*(delete(f"{partition_path}/{each}") for each in names), delete(partition_path)))


def topic_deletion(name: str) -> Unit:
    """Returns the writes that delete a topic without partitions. The marker goes with the rest, so that the next
    controller that finds it continues.
    """
    writes = (
        delete(paths.partitions(name)),
        delete(paths.topic(name)),
        delete(paths.config(paths.TOPIC_CONFIGS, name)),
        delete(paths.delete_topic(name)),
    )
    return Unit(name, writes)


def _producer_ids(context: WriteContext, record: ProducerIdsRecord) -> Unit:
    path = paths.PRODUCER_ID_BLOCK
    first_id = record.next_producer_id - context.block_size
    block = ProducerIdBlock(record.broker_id, first_id, record.next_producer_id - 1)
    return Unit(path, (set_data(path, encode_producer_id_block(block), context.version_of(path)),))
