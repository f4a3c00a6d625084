"""The state that a broker gets as a whole, in slices: when it has registered, or has lost a log directory.

Each step reads the partitions as they are committed at its moment, and requests to a broker keep their order: a later
change never comes before an earlier state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.controller.zookeeper.broker_requests import RequestBatch
from barnabas.controller.zookeeper.core import Core, Place, located, places_of
from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE, Job, portions


def introduce(core: Core, epochs: Mapping[int, int]) -> Job:
    """Sends UpdateMetadata with all partitions to these brokers, then the roles of all their replicas. A broker whose
    epoch is no longer the given one gets no more.
    """
    for portion in portions(places_of(core.records.committed)):
        batch = core.batch(_present(core, epochs))
        batch.brokers_changed(first=False)
        for topic, index, partition in located(core.records.committed, portion):
            if has_state(partition):
                batch.show(topic.name, topic.topic_id, index, partition)
        core.send(batch)
        if len(portion) == PARTITIONS_AT_ONCE:
            yield
    yield from repeat_roles(core, epochs)


def repeat_roles(core: Core, epochs: Mapping[int, int]) -> Job:
    """Sends LeaderAndIsr for all replicas on these brokers, with their current roles."""
    wanted = frozenset(epochs)
    places: list[Place] = [
        (topic.topic_id, index)
        for topic in core.records.committed.topics()
        for index, partition in enumerate(topic.partitions)
        if has_state(partition) and not wanted.isdisjoint(partition.replicas)
    ]
    for number, portion in enumerate(portions(places)):
        if number:
            yield
        present = _present(core, epochs)
        batch = core.batch(present)
        for topic, index, partition in located(core.records.committed, portion):
            for replica in partition.replicas:
                if replica in present:
                    batch.role_on(replica, topic.name, topic.topic_id, index, partition)
        core.send(batch)


def _present(core: Core, epochs: Mapping[int, int]) -> Collection[int]:
    brokers = core.records.committed.brokers
    return {
        broker_id for broker_id, epoch in epochs.items() if broker_id in brokers and brokers[broker_id].epoch == epoch
    }


def add_unchanged(core: Core, batch: RequestBatch, portion: Collection[Place]) -> None:
    """Adds the roles and metadata of partitions to the requests, except for partitions with a decision that is not
    committed yet.
    """
    for topic, index, partition in located(core.records.committed, portion):
        now = core.image.topics_by_id.get(topic.topic_id)
        is_unchanged = now is not None and index < len(now.partitions) and now.partitions[index] == partition
        if has_state(partition) and is_unchanged:
            batch.role(topic.name, topic.topic_id, index, partition, new_on=())
            batch.show(topic.name, topic.topic_id, index, partition)
