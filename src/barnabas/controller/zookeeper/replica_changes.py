"""Changes of partitions when brokers or log directories come and go, with the rules of ZooKeeper mode.

The rules for one partition are `decisions/zookeeper_rules.py`; here is which partitions they apply to, and the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.controller.requests.partitions import Located, change_record, find
from barnabas.controller.requests.reassignments import is_in_progress
from barnabas.controller.requests.result import Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.broker_requests import online_replicas
from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.decisions import zookeeper_rules
from barnabas.metadata.topics import LOST_DIRECTORY, NO_LEADER, PartitionImage, partition_to_record
from barnabas.metadata.versions import partition_version
from barnabas.protocol.messages.records_metadata import PartitionChangeRecord, PartitionRecord


def settle(view: ControllerView, partitions: Iterable[Located]) -> list[Versioned]:
    """Returns the records that adapt partitions to the live replicas: members that are offline leave the ISR, a leader
    is elected, a reassignment whose replicas are all in sync is completed. A partition that needs no change gets no
    record.
    """
    records: list[Versioned] = []
    for located in partitions:
        topic, _, partition = located
        if not has_state(partition):
            continue
        online = online_replicas(view.image, partition)
        leads = zookeeper_rules.may_lead(partition, online, view.is_active)
        rules = view.rules(topic.name, len(partition.replicas), leads)
        record = change_record(view, located, rules, zookeeper_rules.isr_of_online(partition, online))
        if record is not None:
            records.append(record)
    return records


def is_unsettled(view: ControllerView, partition: PartitionImage) -> bool:
    """Returns whether `settle` possibly changes the partition."""
    if partition.leader == NO_LEADER or is_in_progress(partition):
        return True
    online = online_replicas(view.image, partition)
    return not all(member in online for member in partition.isr)


def controlled_shutdown(view: ControllerView, broker_id: int, partitions: Iterable[Located]) -> list[Versioned]:
    """Returns the records that move leaderships away from a broker that the view shows in controlled shutdown, and
    remove it from every ISR that has another member. It keeps the leaderships that no other replica can take over.
    """
    records: list[Versioned] = []
    for located in partitions:
        topic, _, partition = located
        if broker_id not in partition.isr:
            continue
        online = online_replicas(view.image, partition)
        staying = zookeeper_rules.isr_without_stopping(partition, broker_id, online, view.is_active)
        if staying is None:
            continue
        leads = zookeeper_rules.may_lead(partition, online, view.is_active)
        record = change_record(view, located, view.rules(topic.name, len(partition.replicas), leads), staying)
        if record is not None:
            records.append(record)
    return records


def raised(view: ControllerView, partitions: Iterable[Located]) -> list[Versioned]:
    """Returns records that raise the leader epoch of partitions whose states another client wrote, so that brokers
    accept them.
    """
    version = partition_version(view.image.metadata_version)
    found: list[Versioned] = []
    for topic, partition_id, partition in partitions:
        if has_state(partition):
            record = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=partition_id, leader=partition.leader)
            found.append((record, version))
    return found


def directories_lost(view: ControllerView, broker_id: int, partitions: Iterable[Located]) -> Iterator[PartitionRecord]:
    """Yields these partitions with the broker's replicas in a lost directory."""
    for topic, partition_id, partition in partitions:
        if broker_id in partition.replicas and partition.directory_of(broker_id) != LOST_DIRECTORY:
            changed = _with_directory(partition, broker_id, LOST_DIRECTORY)
            yield partition_to_record(topic.topic_id, partition_id, changed)


def directories_regained(view: ControllerView, broker_id: int) -> Iterator[PartitionRecord]:
    """Yields the partitions whose replicas on this broker were in lost directories, which a new registration ends."""

    def is_lost(partition: PartitionImage) -> bool:
        return broker_id in partition.replicas and partition.directory_of(broker_id) == LOST_DIRECTORY

    for topic, partition_id, partition in find(view, is_lost):
        changed = _with_directory(partition, broker_id, view.default_directory(broker_id))
        yield partition_to_record(topic.topic_id, partition_id, changed)


def _with_directory(partition: PartitionImage, broker_id: int, directory: bytes) -> PartitionImage:
    directories = list(partition.directories)
    directories[partition.replicas.index(broker_id)] = directory
    return partition._replace(directories=tuple(directories))
