"""The identity of a broker in ZooKeeper mode: roots, cluster id, broker id, meta.properties of version 0."""

from __future__ import annotations

from tests.support.znode_memory import MemoryTree
from tests.support.zookeeper_broker import PROPERTIES, MemoryClient, identified

from barnabas.broker.zookeeper.identity import Identity, identify
from barnabas.broker.zookeeper.store_steps import StoreSteps
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.simulation.host import MemoryHost
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import decode_cluster_id, encode_cluster_id

META = "/data/meta.properties"


def find(tree: MemoryTree, host: MemoryHost, **properties: str) -> Identity | ConfigError:
    changed = {key.replace("_", "."): value for key, value in properties.items()}
    config = BrokerConfig.from_properties({**PROPERTIES, **changed})
    return identified(host, config, MemoryClient(tree=tree))


def known(tree: MemoryTree, host: MemoryHost, **properties: str) -> Identity:
    found = find(tree, host, **properties)
    assert isinstance(found, Identity), found
    return found


def refused(tree: MemoryTree, host: MemoryHost, **properties: str) -> str:
    found = find(tree, host, **properties)
    assert isinstance(found, ConfigError), found
    assert "\n" not in str(found)
    return str(found)


def test_the_first_broker_makes_the_roots_and_the_cluster_id() -> None:
    tree, host = MemoryTree(), MemoryHost()
    found = known(tree, host)
    assert all(path in tree.nodes for path in paths.PERSISTENT_PATHS)
    znode = tree.content(paths.CLUSTER_ID)
    assert znode is not None
    assert decode_cluster_id(paths.CLUSTER_ID, znode.data) == found.cluster_id
    lines = host.disk.read(META).decode().splitlines()
    assert lines[2:] == ["broker.id=1", "version=0", f"cluster.id={found.cluster_id}"]


def test_the_cluster_id_that_is_there_counts() -> None:
    tree = MemoryTree()
    tree.set(paths.CLUSTER_ID, encode_cluster_id("A" * 22))
    assert known(tree, MemoryHost()).cluster_id == "A" * 22


def test_a_cluster_id_that_must_not_be_created_is_refused() -> None:
    tree = MemoryTree()
    tree.set("/cluster", b"")
    tree.closed = frozenset({"/cluster"})
    assert "/cluster/id cannot be created: NO_AUTH" in refused(tree, MemoryHost())


def test_a_directory_of_another_cluster_is_refused() -> None:
    host = MemoryHost()
    known(MemoryTree(), host)
    tree = MemoryTree()
    tree.set(paths.CLUSTER_ID, encode_cluster_id("A" * 22))
    assert "doesn't match stored clusterId" in refused(tree, host)


def test_a_directory_of_another_broker_is_refused() -> None:
    tree, host = MemoryTree(), MemoryHost()
    known(tree, host)
    text = refused(tree, host, broker_id="2")
    assert "Configured broker.id 2 doesn't match stored broker.id 1" in text


def test_a_directory_of_kraft_mode_is_refused() -> None:
    host = MemoryHost()
    host.disk.make_dirs("/data")
    host.disk.write(META, b"version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n", sync=True)
    assert "belongs to a node in KRaft mode" in refused(MemoryTree(), host)


def test_broken_content_of_the_cluster_id_is_said_with_its_path() -> None:
    tree = MemoryTree()
    tree.set(paths.CLUSTER_ID, b"nonsense")
    assert "/cluster/id" in refused(tree, MemoryHost())


def test_ids_are_generated_above_the_reserved_ones_and_kept() -> None:
    tree, first, second = MemoryTree(), MemoryHost(), MemoryHost()
    assert known(tree, first, broker_id="-1").config.node_id == 1001
    assert known(tree, second, broker_id="-1").config.node_id == 1002
    assert known(tree, first, broker_id="-1").config.node_id == 1001
    assert known(tree, MemoryHost(), broker_id="-1", reserved_broker_max_id="5").config.node_id == 8


def test_a_lost_answer_is_asked_for_again() -> None:
    tree, host = MemoryTree(), MemoryHost()
    store = MemoryClient(tree=tree)
    found: list[Identity | ConfigError] = []
    steps = StoreSteps(identify(host, BrokerConfig.from_properties(PROPERTIES), store), found.append).start()
    while not found:
        store.disconnect(happened=store.waiting)
        store.reconnect()
        steps.resume()
        store.answer()
    assert isinstance(found[0], Identity)
