"""Metadata records from a tree of znodes, as Kafka's migration to KRaft reads it (KIP-866).

An invalid znode affects only its own topic or entity: it yields no records, and `problems` names it. Topics that are
marked for deletion yield no records either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import PartitionRecord, TopicRecord
from barnabas.znodes import acl_znodes, entity_records, paths
from barnabas.znodes.broker_znodes import decode_registration
from barnabas.znodes.client_entities import client_records
from barnabas.znodes.cluster_znodes import decode_features, decode_producer_id_block
from barnabas.znodes.config_znodes import decode_config
from barnabas.znodes.token_znodes import decode_token
from barnabas.znodes.topic_znodes import PartitionState, ReplicaAssignment, check_state, decode_state, decode_topic
from barnabas.znodes.znode_json import ZnodeError
from barnabas.znodes.znode_tree import ZnodeTree

NewId = Callable[[], bytes]


class TreeRecords(NamedTuple):
    """The records of a tree, in the order of topics, configurations, quotas, producer ids, ACLs and tokens."""

    records: list[Message]
    problems: list[ZnodeError]
    #: Topics that wait for their deletion, and are left out.
    deleted_topics: list[str]


class _Collected:
    """The records of the entities that were read, and the problems of the others."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.problems: list[ZnodeError] = []

    def take(self, records: Iterable[Message]) -> None:
        """Adds all records of one entity; if one of them is invalid, adds none, and records the problem."""
        try:
            self.records += list(records)
        except ZnodeError as error:
            self.problems.append(error)


def tree_records(tree: ZnodeTree, new_id: NewId) -> TreeRecords:
    """Returns the records of everything but the brokers. `new_id` gives ids to topics without one and to ACLs."""
    found = _Collected()
    deleted = tree.children(paths.DELETE_TOPICS)
    for name in tree.children(paths.TOPICS):
        if name not in deleted:
            found.take(topic_records(tree, name, new_id))
    for name in tree.children(f"{paths.CONFIG}/{paths.BROKER_CONFIGS}"):
        found.take(_broker_configs(tree, name))
    for records in _client_configs(tree):
        found.take(records)
    found.take(_producer_ids(tree))
    for root in (paths.ACLS, paths.PREFIXED_ACLS):
        for kind in tree.children(root):
            for path in _below(tree, f"{root}/{kind}"):
                found.take(_acls(tree, path, new_id))
    for token_id in tree.children(paths.TOKENS):
        found.take(_token(tree, paths.token(token_id)))
    found.take(_features(tree))
    return TreeRecords(found.records, found.problems, deleted)


def broker_records(tree: ZnodeTree) -> TreeRecords:
    """Returns the registrations of the brokers that are alive, sorted by id; their epochs are the znodes' czxids."""
    found = _Collected()
    names = tree.children(paths.BROKER_IDS)
    for name in sorted(names, key=lambda name: (len(name), name)):
        found.take(_broker(tree, name))
    return TreeRecords(found.records, found.problems, [])


def _broker(tree: ZnodeTree, name: str) -> Iterator[Message]:
    path = f"{paths.BROKER_IDS}/{name}"
    if not paths.is_number(name):
        raise ZnodeError(path, "has a name that is not a broker id")
    znode = tree.znodes[path]
    yield entity_records.broker_record(int(name), znode.czxid, decode_registration(path, znode.data))


def topic_records(tree: ZnodeTree, name: str, new_id: NewId) -> Iterator[Message]:
    """Yields the topic, its partitions and its configuration. Raises ZnodeError for a topic with a broken znode, with
    holes in its partition numbers, or with a leader that is not a replica.

    Topics of releases before 2.8 have no id and get a new one.
    """
    path = paths.topic(name)
    assignment = decode_topic(path, tree.data(path))
    topic_id = assignment.topic_id if assignment.topic_id is not None else new_id()
    missing = sorted(set(range(len(assignment.partitions))) - set(assignment.partitions))
    if missing:
        raise ZnodeError(path, f"has no partition {missing[0]}, but has higher ones")
    if not assignment.partitions:
        raise ZnodeError(path, "has no partitions")
    yield TopicRecord(name=name, topic_id=topic_id)
    for number in range(len(assignment.partitions)):
        replicas = assignment.partitions[number]
        if not replicas.replicas:
            raise ZnodeError(path, f"has no replicas of partition {number}")
        state_path = paths.state(name, number)
        znode = tree.get(state_path)
        state = decode_state(state_path, znode.data) if znode is not None else None
        if state is not None:
            check_state(state_path, state, replicas.replicas)
        yield partition_record(topic_id, number, replicas, state, znode.version if znode is not None else 0)
    config_path = paths.config(paths.TOPIC_CONFIGS, name)
    yield from entity_records.config_records(TOPIC_RESOURCE, name, decode_config(config_path, tree.data(config_path)))


def partition_record(
    topic_id: bytes, number: int, replicas: ReplicaAssignment, state: PartitionState | None, partition_epoch: int
) -> PartitionRecord:
    """Returns the record of a partition; `partition_epoch` is the data version of its state znode.

    A partition without a state has not been led yet: as in Kafka's migration, all replicas are in its ISR, and the
    first one leads.
    """
    if state is None:
        state = PartitionState(replicas.replicas[0], 0, replicas.replicas, 0)
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas.replicas),
        isr=list(state.isr),
        removing_replicas=list(replicas.removing),
        adding_replicas=list(replicas.adding),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=partition_epoch,
    )


def _broker_configs(tree: ZnodeTree, name: str) -> Iterator[Message]:
    path = paths.config(paths.BROKER_CONFIGS, name)
    if name != paths.DEFAULT_ENTITY and not paths.is_number(name):
        raise ZnodeError(path, "has a name that is not a broker id")
    resource = "" if name == paths.DEFAULT_ENTITY else name
    yield from entity_records.config_records(BROKER_RESOURCE, resource, decode_config(path, tree.data(path)))


def _client_configs(tree: ZnodeTree) -> Iterator[Iterator[Message]]:
    """Yields the records of each entity that can have quotas, in Kafka's order of their kinds."""
    users = tree.children(f"{paths.CONFIG}/{paths.USER_CONFIGS}")
    names = [f"{paths.USER_CONFIGS}/{user}" for user in users]
    names += (f"{paths.CLIENT_CONFIGS}/{name}" for name in tree.children(f"{paths.CONFIG}/{paths.CLIENT_CONFIGS}"))
    for user in users:
        below = f"{paths.USER_CONFIGS}/{user}/{paths.CLIENT_CONFIGS}"
        names += (f"{below}/{client}" for client in tree.children(f"{paths.CONFIG}/{below}"))
    names += (f"{paths.IP_CONFIGS}/{name}" for name in tree.children(f"{paths.CONFIG}/{paths.IP_CONFIGS}"))
    for name in names:
        yield client_records(name, tree.data(f"{paths.CONFIG}/{name}"))


def _producer_ids(tree: ZnodeTree) -> Iterator[Message]:
    block = decode_producer_id_block(paths.PRODUCER_ID_BLOCK, tree.data(paths.PRODUCER_ID_BLOCK))
    if block is not None:
        yield entity_records.producer_ids_record(block)


def _below(tree: ZnodeTree, path: str) -> Iterator[str]:
    """Yields the paths below this one that have content: a name of a resource can contain slashes."""
    for name in tree.children(path):
        child = f"{path}/{name}"
        if tree.data(child):
            yield child
        yield from _below(tree, child)


def _acls(tree: ZnodeTree, path: str, new_id: NewId) -> Iterator[Message]:
    pattern = acl_znodes.pattern_of(path)
    if pattern is None:
        raise ZnodeError(path, "is not a resource that has ACLs")
    yield from entity_records.acl_records(pattern, acl_znodes.decode_acls(path, tree.data(path)), new_id)


def _token(tree: ZnodeTree, path: str) -> Iterator[Message]:
    yield entity_records.token_record(decode_token(path, tree.data(path)))


def _features(tree: ZnodeTree) -> Iterator[Message]:
    if tree.data(paths.FEATURE):
        yield from entity_records.feature_records(decode_features(paths.FEATURE, tree.data(paths.FEATURE)))
