"""The registration of a broker in ZooKeeper: its epoch, and a registration that is in the way (G35)."""

from __future__ import annotations

import pytest
from tests.support.znode_memory import MemoryTree, answer_all
from tests.support.zookeeper_broker import PROPERTIES, MemoryClient

from barnabas.broker.zookeeper.registration import Registrar
from barnabas.broker.zookeeper.store_steps import StoreSteps, make_roots
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.metadata.registrations import Endpoint
from barnabas.simulation.host import MemoryHost
from barnabas.znodes import paths
from barnabas.znodes.broker_znodes import decode_registration
from barnabas.zookeeper.wire.codes import EventType

PATH = paths.broker(1)


class Node:
    """A process of a broker, which receives its watches."""

    def __init__(self, tree: MemoryTree, host: MemoryHost, broker_id: int = 1, port: int = 9092) -> None:
        config = BrokerConfig.from_properties(
            {**PROPERTIES, "broker.id": str(broker_id), "zookeeper.session.timeout.ms": "6000"}
        )
        self.store = MemoryClient(tree=tree, listener=self)
        self.registrar = Registrar(host, config, self.store, [Endpoint("PLAINTEXT", "localhost", port, 0)])
        self.found: list[int | ConfigError] = []

    def register(self) -> StoreSteps:
        steps = StoreSteps(self.registrar.register(), self.found.append).start()
        answer_all(self.store)
        return steps

    @property
    def epoch(self) -> int:
        found = self.found[-1]
        assert isinstance(found, int), found
        return found

    def changed(self, path: str, event_type: EventType) -> None:
        self.registrar.changed(path, event_type)

    def session_opened(self, session_id: int) -> None: ...

    def disconnected(self) -> None:
        self.registrar.disconnected()

    def reconnected(self) -> None:
        self.registrar.reconnected()

    def session_expired(self) -> None: ...
    def auth_failed(self) -> None: ...


@pytest.fixture
def tree() -> MemoryTree:
    tree = MemoryTree()
    store = MemoryClient(tree=tree)
    StoreSteps(make_roots(store), lambda _: None).start()
    store.answer_all()
    return tree


def test_the_epoch_is_the_czxid_and_the_data_has_version_one(tree: MemoryTree) -> None:
    """G45: creation and content of one znode in one multi."""
    node = Node(tree, MemoryHost())
    node.register()
    stat, znode = tree.stat(PATH), tree.content(PATH)
    assert stat is not None
    assert znode is not None
    assert (node.epoch, stat.version, stat.ephemeral_owner) == (stat.czxid, 1, node.store.session_id)
    assert decode_registration(PATH, znode.data).endpoints == (Endpoint("PLAINTEXT", "localhost", 9092, 0),)


def test_a_lost_answer_that_was_a_success_is_a_registration(tree: MemoryTree) -> None:
    node = Node(tree, MemoryHost())
    steps = StoreSteps(node.registrar.register(), node.found.append).start()
    node.store.answer(1)
    node.store.disconnect(happened=1)
    node.store.reconnect()
    steps.resume()
    node.store.answer_all()
    stat = tree.stat(PATH)
    assert stat is not None
    assert node.epoch == stat.czxid
    assert len([entry for entry in node.store.log if entry]) == 1


def test_an_earlier_session_of_the_same_process_is_replaced(tree: MemoryTree) -> None:
    """G35: the znode of an own earlier session is no obstacle."""
    node = Node(tree, MemoryHost())
    node.register()
    before = node.epoch
    owner = node.store.session_id
    node.store.expire()
    node.store.open_session()
    tree.apply([], 0)
    # The server still has the znode of the session that this process has seen expire.
    node.store.session_id, new = owner, node.store.session_id
    node.register()
    node.store.session_id = new
    node.register()
    stat = tree.stat(PATH)
    assert stat is not None
    assert stat.ephemeral_owner == new
    assert node.epoch == stat.czxid > before


def test_a_predecessor_that_has_ended_is_waited_for(tree: MemoryTree) -> None:
    """G35: the znode of a process that died ends with its session."""
    host = MemoryHost()
    old, new = Node(tree, host), Node(tree, host)
    old.register()
    new.register()
    assert new.found == []
    host.time.run_for(3_000)
    old.store.expire()
    answer_all(new.store)
    stat = tree.stat(PATH)
    assert stat is not None
    assert new.epoch == stat.czxid > old.epoch


def test_another_process_that_lives_is_not_replaced(tree: MemoryTree) -> None:
    """G35: an id that is taken is refused in one line."""
    host = MemoryHost()
    old, new = Node(tree, host), Node(tree, host)
    old.register()
    new.register()
    host.time.run_for(20_000)
    (found,) = new.found
    assert isinstance(found, ConfigError)
    assert "broker.id=1 is taken" in str(found)
    stat = tree.stat(PATH)
    assert stat is not None
    assert stat.ephemeral_owner == old.store.session_id


def test_the_wait_begins_anew_when_zookeeper_is_back(tree: MemoryTree) -> None:
    """G35: a server that starts again gives the session of the process that died its whole timeout once more."""
    host = MemoryHost()
    old, new = Node(tree, host), Node(tree, host)
    old.register()
    new.register()
    host.time.run_for(9_000)
    new.store.disconnect()
    host.time.run_for(20_000)
    new.store.reconnect()
    host.time.run_for(9_000)
    assert new.found == []
    old.store.expire()
    answer_all(new.store)
    assert new.epoch > old.epoch


def test_a_process_that_lives_is_refused_although_the_connection_was_lost(tree: MemoryTree) -> None:
    host = MemoryHost()
    old, new = Node(tree, host), Node(tree, host)
    old.register()
    new.register()
    new.store.disconnect()
    new.store.reconnect()
    host.time.run_for(11_000)
    assert "broker.id=1 is taken" in str(new.found)


def test_a_connection_that_is_lost_after_the_registration_changes_nothing(tree: MemoryTree) -> None:
    host = MemoryHost()
    node = Node(tree, host)
    node.register()
    node.store.disconnect()
    node.store.reconnect()
    host.time.run_for(11_000)
    assert len(node.found) == 1


def test_an_address_of_another_broker_is_refused(tree: MemoryTree) -> None:
    host = MemoryHost()
    Node(tree, host).register()
    other = Node(tree, host, broker_id=2)
    other.register()
    (found,) = other.found
    assert isinstance(found, ConfigError)
    assert "localhost:9092 in advertised listeners are already registered by broker 1" in str(found)
    assert tree.stat(paths.broker(2)) is None


def test_a_registration_that_the_acl_forbids_is_refused(tree: MemoryTree) -> None:
    tree.closed = frozenset({paths.BROKER_IDS})
    node = Node(tree, MemoryHost())
    node.register()
    (found,) = node.found
    assert isinstance(found, ConfigError)
    assert "/brokers/ids/1 cannot be created: NO_AUTH: the ACL of /brokers/ids admits other identities" in str(found)


def test_roots_that_are_missing_are_made_again() -> None:
    node = Node(MemoryTree(), MemoryHost())
    node.register()
    assert node.epoch > 0
