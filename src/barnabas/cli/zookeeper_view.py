"""The queries of `barnabas status` to ZooKeeper: the controller, its epoch, the sessions of the brokers, and what the
controller and the brokers leave out because its znode is invalid: topics, configurations, the block of producer ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.embedded.failures import Failure
from barnabas.embedded.zookeeper_session import ZookeeperSession
from barnabas.znodes import paths
from barnabas.znodes.client_entities import CLIENT_TYPES
from barnabas.znodes.cluster_znodes import decode_controller, decode_controller_epoch
from barnabas.znodes.tree_records import topic_records, tree_records
from barnabas.znodes.znode_json import ZnodeError
from barnabas.znodes.znode_tree import Znode, ZnodeTree

#: The number of topics whose znodes are read at a time, so that memory stays small.
_TOPICS_AT_ONCE: Final = 200


class Registered(NamedTuple):
    """A registered broker: the session that its znode belongs to, and the zxid of its creation."""

    session_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ZookeeperView:
    """The state of a cluster as its znodes show it. If ZooKeeper does not answer, `problem` says why."""

    controller: int = -1
    controller_epoch: int = -1
    brokers: dict[int, Registered] = field(default_factory=dict)
    problem: str = ""
    #: A line for each topic and each other entity with an invalid znode: its path, and what is wrong.
    invalid: tuple[str, ...] = ()


def view_of(connect: str) -> ZookeeperView:
    """Returns the state that ZooKeeper at this address shows, or only the problem if it does not answer."""
    controller = epoch = -1
    brokers: dict[int, Registered] = {}
    invalid: list[str] = []
    try:
        with ZookeeperSession(connect) as session:
            if (found := session.read(paths.CONTROLLER)) is not None:
                controller = decode_controller(paths.CONTROLLER, found.data).broker_id
            if (found := session.read(paths.CONTROLLER_EPOCH)) is not None:
                epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, found.data)
            ids = {paths.broker(int(name)): int(name) for name in session.children(paths.BROKER_IDS) if name.isdigit()}
            for path, found in session.read_all(ids).items():
                brokers[ids[path]] = Registered(found.stat.ephemeral_owner, found.stat.czxid)
            topics = sorted(session.children(paths.TOPICS))
            for begin in range(0, len(topics), _TOPICS_AT_ONCE):
                invalid += map(str, _topic_problems(session, topics[begin : begin + _TOPICS_AT_ONCE]))
            invalid += map(str, _other_problems(session))
    except (Failure, ZnodeError) as error:
        return ZookeeperView(controller, epoch, brokers, str(error))
    return ZookeeperView(controller, epoch, brokers, invalid=tuple(invalid))


def _topic_problems(session: ZookeeperSession, names: Sequence[str]) -> Iterator[ZnodeError]:
    """Yields what is wrong with the assignments, states and configurations of these topics."""
    states = [
        f"{parent}/{number}/state"
        for parent, numbers in session.children_of_all(f"{paths.topic(name)}/partitions" for name in names).items()
        for number in numbers
    ]
    configs = (paths.config(paths.TOPIC_CONFIGS, name) for name in names)
    tree = _tree(session, [*map(paths.topic, names), *states, *configs])
    for name in names:
        if tree.get(paths.topic(name)) is None:
            continue  # The topic was deleted in the meantime.
        try:
            for _ in topic_records(tree, name, lambda: bytes(16)):
                pass
        except ZnodeError as error:
            yield error


def _other_problems(session: ZookeeperSession) -> list[ZnodeError]:
    """Returns what is wrong with the configurations of brokers, users, clients and IP addresses, with the block of
    producer ids and with the features.
    """
    kinds = (paths.BROKER_CONFIGS, *CLIENT_TYPES)
    below = session.children_of_all(f"{paths.CONFIG}/{kind}" for kind in kinds)
    users = below[f"{paths.CONFIG}/{paths.USER_CONFIGS}"]
    below |= session.children_of_all(
        f"{paths.CONFIG}/{paths.USER_CONFIGS}/{user}/{paths.CLIENT_CONFIGS}" for user in users
    )
    names = [paths.PRODUCER_ID_BLOCK, paths.FEATURE]
    names += (f"{parent}/{name}" for parent, found in below.items() for name in found)
    return tree_records(_tree(session, names), lambda: bytes(16)).problems


def _tree(session: ZookeeperSession, names: Iterable[str]) -> ZnodeTree:
    found = session.read_all(names)
    return ZnodeTree({path: Znode(read.data, read.stat.version, read.stat.czxid) for path, read in found.items()})
