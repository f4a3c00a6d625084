"""A node whose metadata changes: it registers again, and applies its dynamic configs."""

from __future__ import annotations

import pytest
from tests.support.wired import PROPERTIES, NotedCloses, WiredBroker

from barnabas.broker.assembly import Broker
from barnabas.broker.quorum_side import QuorumSide
from barnabas.common.config import BrokerConfig
from barnabas.metadata.image import BROKER_RESOURCE, METADATA_VERSION
from barnabas.protocol.messages.records_metadata import ConfigRecord, FeatureLevelRecord
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.raft.formatting import ensure_formatted
from barnabas.simulation.crashing_disk import CrashingDisk
from barnabas.simulation.host import MemoryHost

V_3_6_IV2, V_3_7_IV0, V_3_7_IV2 = 14, 15, 17


def raised(wired: WiredBroker, level: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update])
    assert wired.connect().call(request, 1, UpdateFeaturesResponse).error_code == 0
    wired.host.time.run_for(3000)


def test_a_broker_registers_its_directories_when_metadata_version_rises() -> None:
    """KIP-858: an older metadata.version has no place for them."""
    host = MemoryHost(seed=1)
    bootstrap = [(FeatureLevelRecord(name=METADATA_VERSION, feature_level=V_3_6_IV2), 0)]
    ensure_formatted(host, BrokerConfig.from_properties(PROPERTIES), bootstrap=bootstrap)
    wired = WiredBroker(host)
    store = wired.broker.metadata
    before = store.image.brokers[1]
    assert before.directories == ()
    raised(wired, V_3_7_IV0)
    assert store.image.brokers[1] == before, "nothing to amend yet"
    raised(wired, V_3_7_IV2)
    amended = store.image.brokers[1]
    assert amended.directories == wired.broker.quorum.formatted.directory_ids
    assert (amended.epoch, amended.incarnation_id, amended.fenced) == (before.epoch, before.incarnation_id, False)
    offset = wired.broker.quorum.raft.log_end_offset
    raised(wired, V_3_7_IV2 + 1)
    assert wired.broker.quorum.raft.log_end_offset == offset + 1, "once is enough"
    wired.create_topic("works")


def test_a_broker_is_wired_without_a_change_on_its_disk() -> None:
    disk = CrashingDisk()
    host = MemoryHost(seed=1, disk=disk)
    config = BrokerConfig.from_properties(PROPERTIES)
    formatted = ensure_formatted(host, config)
    changes, opened = disk.changes, set(disk.locked)
    broker = Broker(host, config, NotedCloses(), lambda parts: QuorumSide(parts, formatted))
    assert (disk.changes, set(disk.locked)) == (changes, opened)
    broker.open()
    assert disk.changes > changes
    assert disk.locked


def test_a_controller_that_is_no_broker_takes_on_its_dynamic_configuration() -> None:
    host = MemoryHost(seed=1)
    properties = {**PROPERTIES, "process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}
    config = BrokerConfig.from_properties({k: v for k, v in properties.items() if k != "inter.broker.listener.name"})
    node = Broker.create(host, config, NotedCloses())
    node.open()
    node.start()
    host.time.run_for(100)
    key = "unclean.leader.election.enable"
    assert node.config.bool_of(key) is False
    for resource, value in (("", "true"), ("1", "false")):
        record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=resource, name=key, value=value)
        node.quorum.raft.propose([(record, 0)], wall_ms=host.clock.wall_ms())
        host.time.run_for(100)
        assert node.config.bool_of(key) is (value == "true")


@pytest.mark.parametrize(("enabled", "requested"), [("true", True), ("false", False)])
def test_a_controlled_shutdown_is_asked_for_only_where_it_is_enabled(enabled: str, requested: bool) -> None:
    wired = WiredBroker(controlled_shutdown_enable=enabled)
    offset = wired.broker.quorum.raft.log_end_offset
    wired.stop()
    written = wired.broker.quorum.raft.log_end_offset - offset
    assert bool(written) is requested, "the controller writes that the broker leaves"
