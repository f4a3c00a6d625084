"""A stopped cluster in ZooKeeper mode as the beginning of a KRaft cluster: recorded trees, and log directories."""

from __future__ import annotations

import pytest
from tests.support.recorded_znodes import recorded_trees
from tests.support.znode_images import image_of_records

from barnabas.common.errors import ConfigError
from barnabas.common.types import Uuid
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION
from barnabas.metadata.versions import LATEST_METADATA_VERSION, V_3_9_IV0
from barnabas.raft.migrated_directories import DirectoryState, migrate_directories, plan_directories
from barnabas.raft.snapshots import decode_snapshot
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import MetaProperties, decode_meta_properties, encode_meta_properties
from barnabas.znodes import paths
from barnabas.znodes.kraft_migration import kraft_migration, running_brokers
from barnabas.znodes.znode_json import ZnodeError
from barnabas.znodes.znode_tree import Znode, ZnodeTree

_CLUSTER = "mXlaWKrERa-ZxMUJhTZPXw"
_CLUSTER_ZNODE = Znode(b'{"version":"1","id":"mXlaWKrERa-ZxMUJhTZPXw"}')


def _tree(step: str = "35-cluster-stopped") -> ZnodeTree:
    recorded = recorded_trees()[step]
    return ZnodeTree({path: Znode(znode.data, znode.version, znode.czxid) for path, znode in recorded.items()})


def test_a_stopped_cluster_becomes_an_image_without_leaders() -> None:
    migration = kraft_migration(_tree(), LATEST_METADATA_VERSION)
    assert not migration.problems
    assert migration.cluster_id == _CLUSTER
    image = migration.image
    assert sorted(image.topics_by_name) == ["__consumer_offsets", "duo", "orders", "solo"]
    assert not image.brokers
    assert (image.metadata_version, image.features.get(ELR_VERSION)) == (LATEST_METADATA_VERSION, None)
    assert image.next_producer_id == 1000
    assert dict(image.config_of(BROKER_RESOURCE, ""))["log.retention.ms"] == "100000000"
    state = _tree().znodes["/brokers/topics/orders/partitions/0/state"]
    partition = image.topics_by_name["orders"].partitions[0]
    assert partition.leader == -1
    assert partition.isr
    assert f'"leader_epoch":{partition.leader_epoch - 1},'.encode() in (state.data or b"")
    assert partition.partition_epoch == state.version + 1


def test_its_records_build_the_same_image_and_are_the_same_every_time() -> None:
    acl = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}'
    tree = ZnodeTree(dict(_tree().znodes) | {"/kafka-acl/Topic/t": Znode(acl)})
    first, second = kraft_migration(tree, LATEST_METADATA_VERSION), kraft_migration(tree, LATEST_METADATA_VERSION)
    assert first.records == second.records
    rebuilt = image_of_records([record for record, _ in first.records])
    assert rebuilt.topics_by_name == first.image.topics_by_name
    assert rebuilt.configs == first.image.configs
    assert rebuilt.security == first.image.security
    assert len(first.image.security.acls) == 1


def test_an_older_metadata_version_gets_the_features_of_its_time() -> None:
    image = kraft_migration(_tree(), V_3_9_IV0).image
    assert dict(image.features) == {"metadata.version": V_3_9_IV0}


def test_a_pending_deletion_is_left_out_and_named() -> None:
    migration = kraft_migration(_tree("32-topic-deletion-pending"), LATEST_METADATA_VERSION)
    assert migration.deleted_topics == ["orders"]
    assert "orders" not in migration.image.topics_by_name
    assert running_brokers(_tree("32-topic-deletion-pending")) == ["0", "2"]


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        (paths.topic("orders"), b"{", "is not JSON"),
        (paths.CONTROLLER, b'{"version":2,"brokerid":3000,"kraftControllerEpoch":3}', "KRaft controller 3000"),
        (
            paths.MIGRATION,
            b'{"version":0,"kraft_metadata_offset":9,"kraft_controller_id":1,"kraft_metadata_epoch":5,'
            b'"kraft_controller_epoch":4}',
            "finish it there",
        ),
        (paths.MIGRATION, b"{", "is not JSON"),
        (
            paths.config("brokers", "1"),
            b'{"version":1,"config":{"listener.name.in.ssl.keystore.password":"x"}}',
            "is encrypted with password.encoder.secret",
        ),
    ],
)
def test_what_a_migration_would_lose_is_a_problem(path: str, data: bytes, problem: str) -> None:
    tree = ZnodeTree(dict(_tree().znodes) | {path: Znode(data)})
    (found,) = kraft_migration(tree, LATEST_METADATA_VERSION).problems
    assert found.path == path
    assert problem in found.problem


def test_a_tree_that_is_no_kafkas_is_refused() -> None:
    with pytest.raises(ZnodeError, match="/cluster/id: has no content"):
        kraft_migration(ZnodeTree({}), LATEST_METADATA_VERSION)


# Log directories


def _host(**directories: tuple[int, int, str | None]) -> MemoryHost:
    """Returns a machine with these directories: name -> version, node and cluster of `meta.properties`."""
    host = MemoryHost()
    for name, (version, node, cluster) in directories.items():
        host.disk.make_dirs(f"/{name}/t-0")
        identity = MetaProperties(version, node, cluster, Uuid(b"d" * 16) if version else None)
        host.disk.write(f"/{name}/meta.properties", encode_meta_properties(identity, 0), sync=True)
    return host


def _identity(host: MemoryHost, directory: str) -> MetaProperties:
    path = f"/{directory}/meta.properties"
    return decode_meta_properties(path, host.disk.read(path))


def test_directories_get_a_new_identity_and_the_first_records() -> None:
    migration = kraft_migration(ZnodeTree({paths.CLUSTER_ID: _CLUSTER_ZNODE}), LATEST_METADATA_VERSION)
    host = _host(a=(0, 4, _CLUSTER), b=(0, 4, None))
    plans = plan_directories(host, ["/a", "/b"], _CLUSTER)
    assert [(plan.state, plan.node_id) for plan in plans] == [(DirectoryState.ZOOKEEPER, 4)] * 2
    migrate_directories(host, plans, _CLUSTER, migration.records)
    for directory in ("a", "b"):
        identity = _identity(host, directory)
        assert identity[:3] == (1, 4, _CLUSTER)
        assert identity.directory_id is not None
        written = decode_snapshot(host.disk.read(f"/{directory}/bootstrap.checkpoint"))
        assert written.records == migration.records
        assert host.disk.is_dir(f"/{directory}/t-0")
    assert _identity(host, "a").directory_id != _identity(host, "b").directory_id


def test_a_second_run_changes_nothing_and_a_half_finished_one_is_finished() -> None:
    host = _host(a=(0, 4, _CLUSTER), b=(1, 4, _CLUSTER))
    plans = plan_directories(host, ["/a", "/b"], _CLUSTER)
    assert [plan.state for plan in plans] == [DirectoryState.ZOOKEEPER, DirectoryState.KRAFT]
    migrate_directories(host, plans, _CLUSTER, ())
    assert _identity(host, "b").directory_id == b"d" * 16
    assert not host.disk.exists("/b/bootstrap.checkpoint")
    first = {name: host.disk.read(f"/a/{name}") for name in ("meta.properties", "bootstrap.checkpoint")}
    again = plan_directories(host, ["/a", "/b"], _CLUSTER)
    assert {plan.state for plan in again} == {DirectoryState.KRAFT}
    migrate_directories(host, again, _CLUSTER, ())
    assert {name: host.disk.read(f"/a/{name}") for name in first} == first


def test_an_empty_directory_needs_the_id_of_its_node() -> None:
    host = MemoryHost()
    host.disk.make_dirs("/new")
    with pytest.raises(ConfigError, match="give the id of their node"):
        plan_directories(host, ["/new"], _CLUSTER)
    (plan,) = plan_directories(host, ["/new"], _CLUSTER, node_id=9)
    migrate_directories(host, [plan], _CLUSTER, ())
    assert _identity(host, "new")[:3] == (1, 9, _CLUSTER)


@pytest.mark.parametrize(
    ("directories", "node_id", "problem"),
    [
        ({"a": (0, 4, "other")}, None, "belongs to cluster other, ZooKeeper to cluster"),
        ({"a": (0, 4, _CLUSTER), "b": (0, 5, _CLUSTER)}, None, "belong to different nodes"),
        ({"a": (0, 4, _CLUSTER)}, 5, "belong to different nodes"),
    ],
)
def test_directories_of_others_are_refused(
    directories: dict[str, tuple[int, int, str | None]], node_id: int | None, problem: str
) -> None:
    host = _host(**directories)
    with pytest.raises(ConfigError, match=problem):
        plan_directories(host, [f"/{name}" for name in directories], _CLUSTER, node_id)


def test_directories_that_are_none_of_a_broker_are_refused() -> None:
    host = _host(a=(0, 4, _CLUSTER))
    with pytest.raises(ConfigError, match="/b is not a directory"):
        plan_directories(host, ["/a", "/b"], _CLUSTER)
    host.disk.make_dirs("/c/t-0")
    with pytest.raises(ConfigError, match=r"/c has no .* and is not empty"):
        plan_directories(host, ["/a", "/c"], _CLUSTER)
    host.disk.write("/a/meta.properties", b"version=7\n", sync=True)
    with pytest.raises(ConfigError, match="version 7"):
        plan_directories(host, ["/a"], _CLUSTER)
    host.disk.write("/a/meta.properties", b"version=0\n", sync=True)
    with pytest.raises(ConfigError, match=r"without broker\.id"):
        plan_directories(host, ["/a"], _CLUSTER)
