"""Invalid znodes that are deleted: `status` does not show them any more."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.znodes import paths

_CONFIG = paths.config(paths.TOPIC_CONFIGS, "orders")
_STATE = paths.state("orders", 0)
_TOPIC = [_STATE, paths.partition("orders", 0), paths.partitions("orders"), paths.topic("orders")]
#: An invalid znode, and the znodes that are deleted then.
_GONE = {
    "assignment": (paths.topic("orders"), _TOPIC),
    "state": (_STATE, [_STATE]),
    "configuration": (_CONFIG, [_CONFIG]),
    "configuration of a topic that is gone": (_CONFIG, [*_TOPIC, _CONFIG]),
    "registration": (paths.broker(7), [paths.broker(7)]),
    "name of a registration": (f"{paths.BROKER_IDS}/seven", [f"{paths.BROKER_IDS}/seven"]),
    "reassignment": (paths.REASSIGN_PARTITIONS, [paths.REASSIGN_PARTITIONS]),
}
_DELETED_BY_THE_CONTROLLER = [
    paths.PREFERRED_REPLICA_ELECTION,
    f"{paths.NEW_LOG_DIR_EVENT}0000000000",
    f"{paths.ISR_CHANGES}/isr_change_0000000000",
]


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(0, 1)
    cluster.create_topic("orders", (0, 1))
    cluster.settle()
    return cluster


@pytest.mark.parametrize("case", _GONE)
def test_an_invalid_znode_that_is_deleted_is_no_problem_any_more(cluster: Cluster, case: str) -> None:
    path, deleted = _GONE[case]
    cluster.kill(0)
    cluster.tree.set(path, b"{")
    cluster.settle()
    assert [line.partition(":")[0] for line in cluster.controller.problems] == [path]
    for each in deleted:
        cluster.tree.delete(each)
    cluster.settle()
    assert list(cluster.controller.problems) == []


@pytest.mark.parametrize("path", _DELETED_BY_THE_CONTROLLER)
def test_an_invalid_request_of_a_tool_is_reported_once_and_deleted(cluster: Cluster, path: str) -> None:
    cluster.tree.set(path, b"{")
    cluster.settle()
    assert not cluster.exists(path)
    assert list(cluster.controller.problems) == []
    reported = cluster.brokers[cluster.controller.leader_id].host.faults.reported
    assert [text for text, _ in reported if path in text]
