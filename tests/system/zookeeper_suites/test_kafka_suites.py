"""Apache Kafka 3.9.1's own tests of its ZooKeeper client and its ZooKeeper controller, unchanged, on our server.

Brokers and controllers in them are Kafka's. Tests that Kafka runs for both modes run here in KRaft mode too, where the
server plays no part; they are in the list by their name with `quorum=kraft`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.clients import zookeeper_suites
from tests.support.suite_results import check, expected, failed, with_second_run

CLASSES: Final = (
    "kafka.admin.AddPartitionsTest",
    "kafka.admin.AdminZkClientTest",
    "kafka.admin.DeleteTopicTest",
    "kafka.common.ZkNodeChangeNotificationListenerTest",
    "kafka.controller.ControllerFailoverTest",
    "kafka.controller.ControllerIntegrationTest",
    "kafka.integration.UncleanLeaderElectionTest",
    "kafka.security.authorizer.AuthorizerTest",
    "kafka.server.BrokerEpochIntegrationTest",
    "kafka.server.DynamicConfigChangeTest",
    "kafka.server.KafkaServerTest",
    "kafka.server.LeaderElectionTest",
    "kafka.server.ServerGenerateBrokerIdTest",
    "kafka.server.ServerShutdownTest",
    "kafka.server.ServerStartupTest",
    "kafka.zk.KafkaZkClientTest",
    "kafka.zk.migration.ZkAclMigrationClientTest",
    "kafka.zk.migration.ZkConfigMigrationClientTest",
    "kafka.zk.migration.ZkMigrationClientTest",
    "kafka.zookeeper.ZooKeeperClientTest",
)
SAMPLE: Final = (
    "KafkaZkClientTest.testTopicAssignments",
    "KafkaZkClientTest.testSetTopicPartitionStatesRaw",
    "ZooKeeperClientTest.testPipelinedGetData",
    "ZooKeeperClientTest.testSessionExpiry",
    "ZooKeeperClientTest.testZNodeChildChangeHandlerForChildChange",
)


def simple(name: str) -> str:
    return name.rpartition(".")[2]


def method(test: str) -> str:
    """Returns class and method of a test's name, which may end with its parameters."""
    return test.partition(" ")[0]


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CLASSES, ids=simple)
def test_the_class_passes(name: str, tmp_path: Path) -> None:
    results = zookeeper_suites.kafka(tmp_path, [name])
    if failures := failed(results):
        # Some tests of these suites measure time; they get a second run, alone.
        again = sorted({method(test) for test in failures})
        results = with_second_run(results, zookeeper_suites.kafka(tmp_path, [name], [f"+{test}" for test in again]))
    check(tmp_path, results, [test for test in expected("kafka") if test.startswith(f"{simple(name)}.")])


@pytest.mark.full
def test_a_sample_passes(tmp_path: Path) -> None:
    classes = [name for name in CLASSES if any(test.startswith(f"{simple(name)}.") for test in SAMPLE)]
    results = zookeeper_suites.kafka(tmp_path, classes, [f"+{test}" for test in SAMPLE])
    check(tmp_path, results, [test for test in expected("kafka") if method(test) in SAMPLE])
