"""The queries of `barnabas status` to ZooKeeper: the controller, its epoch, the sessions of the brokers, and what the
controller and the brokers leave out because its znode is invalid: topics, configurations, the block of producer ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.embedded.failures import Failure
from barnabas.embedded.zookeeper_session import ZookeeperSession
from barnabas.znodes import paths
from barnabas.znodes.client_entities import CLIENT_TYPES
from barnabas.znodes.cluster_znodes import decode_controller, decode_controller_epoch
from barnabas.znodes.tree_records import topic_records, tree_records
from barnabas.znodes.znode_json import ZnodeError
from barnabas.znodes.znode_tree import Znode, ZnodeTree


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
            for name in session.children(paths.BROKER_IDS):
                if name.isdigit() and (found := session.read(paths.broker(int(name)))) is not None:
                    brokers[int(name)] = Registered(found.stat.ephemeral_owner, found.stat.czxid)
            for name in sorted(session.children(paths.TOPICS)):
                if (problem := _topic_problem(session, name)) is not None:
                    invalid.append(str(problem))
            invalid += map(str, _other_problems(session))
    except (Failure, ZnodeError) as error:
        return ZookeeperView(controller, epoch, brokers, str(error))
    return ZookeeperView(controller, epoch, brokers, invalid=tuple(invalid))


def _topic_problem(session: ZookeeperSession, name: str) -> ZnodeError | None:
    """Returns what is wrong with a topic's assignment, states or configuration."""
    path = paths.topic(name)
    found = {path: session.read(path)}
    if found[path] is None:
        return None  # deleted a moment ago
    for number in session.children(f"{path}/partitions"):
        state = f"{path}/partitions/{number}/state"
        found[state] = session.read(state)
    config = paths.config(paths.TOPIC_CONFIGS, name)
    found[config] = session.read(config)
    znodes = {each: Znode(read.data, read.stat.version, read.stat.czxid) for each, read in found.items() if read}
    try:
        for _ in topic_records(ZnodeTree(znodes), name, lambda: bytes(16)):
            pass
    except ZnodeError as error:
        return error
    return None


def _other_problems(session: ZookeeperSession) -> list[ZnodeError]:
    """Returns what is wrong with the configurations of brokers, users, clients and IP addresses, with the block of
    producer ids and with the features.
    """
    below = {kind: session.children(f"{paths.CONFIG}/{kind}") for kind in (paths.BROKER_CONFIGS, *CLIENT_TYPES)}
    names = [paths.PRODUCER_ID_BLOCK, paths.FEATURE]
    names += (f"{paths.CONFIG}/{kind}/{name}" for kind, found in below.items() for name in found)
    for user in below[paths.USER_CONFIGS]:
        clients = f"{paths.CONFIG}/{paths.USER_CONFIGS}/{user}/{paths.CLIENT_CONFIGS}"
        names += (f"{clients}/{client}" for client in session.children(clients))
    found = ((name, session.read(name)) for name in names)
    znodes = {name: Znode(read.data, read.stat.version, read.stat.czxid) for name, read in found if read is not None}
    return tree_records(ZnodeTree(znodes), lambda: bytes(16)).problems
