"""The first state of partitions in ZooKeeper mode: created by the controller for every partition in
`/brokers/topics/T`.

A partition exists in the image from the moment its assignment is read. It has no state znode before one of its replicas
is alive: until then its partition epoch, which is the data version of that znode, is `NO_STATE`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.controller.requests.partitions import Located, with_first_state
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.topics import NO_LEADER, PartitionImage, partition_to_record
from barnabas.znodes.topic_znodes import ReplicaAssignment

#: The partition epoch of a partition that has no state znode.
NO_STATE: Final = -1


def without_state(assignment: ReplicaAssignment, directory: bytes) -> PartitionImage:
    """Returns a partition that has never had a leader. `directory` is used for every replica."""
    return PartitionImage(
        replicas=assignment.replicas,
        isr=(),
        leader=NO_LEADER,
        leader_epoch=NO_STATE,
        partition_epoch=NO_STATE,
        directories=(directory,) * len(assignment.replicas),
        removing_replicas=assignment.removing,
        adding_replicas=assignment.adding,
    )


def has_state(partition: PartitionImage) -> bool:
    return partition.partition_epoch != NO_STATE


def first_states(view: ControllerView, partitions: Iterable[Located]) -> Result[None]:
    """Gives a first state to each partition that has none and has a live replica."""
    records: list[Versioned] = []
    for topic, partition_id, partition in partitions:
        first = None if has_state(partition) else with_first_state(view, partition)
        if first is not None:
            records.append((partition_to_record(topic.topic_id, partition_id, first), 0))
    return Result(records, None, Cause(ControllerEvent.CREATE_TOPICS, "controller", f"{len(records)} partitions"))
