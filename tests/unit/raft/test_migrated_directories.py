"""A node begins in the log directory of a broker that was in ZooKeeper mode."""

from __future__ import annotations

import pytest
from tests.support.node_world import LOG_DIR, NodeWorld
from tests.support.recorded_znodes import recorded_trees

from barnabas.common.errors import FatalFault
from barnabas.metadata.versions import LATEST_METADATA_VERSION
from barnabas.raft.log_checkpoint import log_checkpoint_path
from barnabas.raft.migrated_directories import migrate_directories, plan_directories
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import META_PROPERTIES, MetaProperties, encode_meta_properties
from barnabas.znodes.kraft_migration import kraft_migration
from barnabas.znodes.znode_tree import Znode, ZnodeTree

VOTERS = {"controller.quorum.voters": "1@localhost:9093"}


def _migrated() -> MemoryHost:
    recorded = recorded_trees()["35-cluster-stopped"]
    tree = ZnodeTree({path: Znode(znode.data, znode.version, znode.czxid) for path, znode in recorded.items()})
    migration = kraft_migration(tree, LATEST_METADATA_VERSION)
    host = MemoryHost()
    host.disk.make_dirs(f"{LOG_DIR}/orders-0")
    before = encode_meta_properties(MetaProperties(0, 1, migration.cluster_id, None), 0)
    host.disk.write(f"{LOG_DIR}/{META_PROPERTIES}", before)
    plans = plan_directories(host, [LOG_DIR], migration.cluster_id)
    migrate_directories(host, plans, migration.cluster_id, migration.records)
    return host


def test_a_node_begins_with_the_topics_although_it_has_no_metadata_log_yet() -> None:
    world = NodeWorld(VOTERS, disk=_migrated().disk).start()
    world.host.time.run_for(5_000)
    assert sorted(world.image.topics_by_name) == ["__consumer_offsets", "duo", "orders", "solo"]
    world.raft.stop()
    again = NodeWorld(VOTERS, disk=world.host.disk).start()
    again.host.time.run_for(5_000)
    assert sorted(again.image.topics_by_name) == ["__consumer_offsets", "duo", "orders", "solo"]


def test_partitions_without_a_metadata_log_and_its_checkpoint_are_refused() -> None:
    disk = _migrated().disk
    disk.remove(log_checkpoint_path(LOG_DIR))
    with pytest.raises(FatalFault, match="is missing or empty, but there are 1 partition directories"):
        NodeWorld(VOTERS, disk=disk).start()
