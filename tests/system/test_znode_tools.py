"""Tools of others that read and write Kafka's znodes show what is true of a cluster of ours, and change it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import znode_tools
from tests.support.process_nodes import until

from barnabas.testing import Cluster

pytestmark = pytest.mark.full
#: Topic, partition -> leader, replicas, ISR in order of ids.
State = dict[tuple[str, int], tuple[int, list[int], list[int]]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    properties = {"auto.leader.rebalance.enable": "false"}
    with Cluster(tmp_path_factory.mktemp("brokers"), brokers=3, zookeeper=True, properties=properties) as made:
        create(made, "orders", 6, 3)
        create(made, "small", 2, 2)
        yield made


def create(cluster: Cluster, topic: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(60)


def states(cluster: Cluster, *topics: str) -> State:
    """Returns the partitions of these topics as the brokers describe them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found: State = {}
    for topic, described in admin.describe_topics(TopicCollection(list(topics))).items():
        for row in described.result(60).partitions:
            replicas = [node.id for node in row.replicas]
            found[topic, row.id] = (row.leader.id if row.leader else -1, replicas, sorted(node.id for node in row.isr))
    return found


def states_in_go(cluster: Cluster, *topics: str) -> State:
    read = znode_tools.kazoo_go(cluster.zookeeper)["topics"]
    return {
        (topic, int(number)): (row["leader"], row["replicas"], sorted(row["isr"]))
        for topic in topics
        for number, row in read[topic].items()
    }


def assigned(cluster: Cluster, folder: Path) -> dict[tuple[str, int], list[int]]:
    """Returns the assignment that kafka-cluster-manager reads from the znodes."""
    code, text = manager(cluster, folder, "store_assignments")
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(text)["partitions"]
    return {(row["topic"], row["partition"]): row["replicas"] for row in rows if not row["topic"].startswith("__")}


def manager(cluster: Cluster, folder: Path, *args: str) -> tuple[int, str]:
    return znode_tools.kafka_utils(folder, cluster.zookeeper, cluster.bootstrap, "kafka-cluster-manager", *args)


def checked(cluster: Cluster, folder: Path, what: str) -> tuple[int, str]:
    return znode_tools.kafka_utils(folder, cluster.zookeeper, cluster.bootstrap, "kafka-check", what)


def test_kazoo_go_reads_what_the_brokers_say(cluster: Cluster) -> None:
    read = znode_tools.kazoo_go(cluster.zookeeper)
    addresses = dict(enumerate(cluster.bootstrap.split(","), 1))
    assert read["brokers"] == {str(number): address for number, address in addresses.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    controller = admin.describe_cluster().result(60).controller
    assert controller is not None
    assert read["controller"] == controller.id
    assert states_in_go(cluster, "orders", "small") == states(cluster, "orders", "small")


def test_kazoo_go_creates_and_deletes_a_topic(cluster: Cluster) -> None:
    znode_tools.kazoo_go(cluster.zookeeper, "create", "by-go", "3", "2")
    until("leaders", lambda: all_lead(cluster, "by-go", 3))
    assert states_in_go(cluster, "by-go") == states(cluster, "by-go")
    znode_tools.kazoo_go(cluster.zookeeper, "delete", "by-go")
    until("the deletion", lambda: not is_listed_in_go(cluster, "by-go"))


def is_listed_in_go(cluster: Cluster, topic: str) -> bool:
    """Whether kazoo-go lists a topic. It reads the list and then each topic, which can be gone by then."""
    try:
        return topic in znode_tools.kazoo_go(cluster.zookeeper)["topics"]
    except RuntimeError as error:
        if "node does not exist" not in str(error):
            raise
        return True


def all_lead(cluster: Cluster, topic: str, partitions: int) -> bool:
    try:
        leaders = [row[0] for row in states(cluster, topic).values()]
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return False  # The controller has not read the znode yet.
    return len(leaders) == partitions and -1 not in leaders


def test_kafka_utils_check_and_change_replicas(cluster: Cluster, tmp_path: Path) -> None:
    checks = ("min_isr", "offline", "replica_unavailability", "replication_factor")
    for what in checks:
        code, text = checked(cluster, tmp_path, what)
        assert (code, text[:3]) == (0, "OK:"), (what, text)
    wanted = {place: row[1] for place, row in states(cluster, "orders", "small").items()}
    assert assigned(cluster, tmp_path) == wanted

    code, text = manager(
        cluster, tmp_path, "--apply", "--no-confirm", "set_replication_factor", "--topic", "small", "3"
    )
    assert code == 0, text
    until("three replicas in sync", lambda: all(len(row[2]) == 3 for row in states(cluster, "small").values()))
    assert all(len(assigned(cluster, tmp_path)["small", number]) == 3 for number in range(2))

    cluster.kill(2)
    try:
        until("shrunk ISRs", lambda: all(2 not in row[2] for row in states(cluster, "orders", "small").values()))
        code, text = checked(cluster, tmp_path, "replica_unavailability")
        assert (code, text.partition(":")[0]) == (2, "CRITICAL"), text
        assert checked(cluster, tmp_path, "offline")[0] == 0
    finally:
        cluster.start_broker(2)
    until("full ISRs", lambda: all(len(row[2]) == 3 for row in states(cluster, "orders", "small").values()))


def test_kafka_assigner_reorders_and_balances(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster, "assigned", 6, 3)
    before = states(cluster, "assigned")
    znode_tools.kafka_assigner(cluster.zookeeper, "-e", "reorder")
    assert {place: sorted(row[1]) for place, row in states(cluster, "assigned").items()} == {
        place: sorted(row[1]) for place, row in before.items()
    }, "the same replicas in another order"
    text = znode_tools.kafka_assigner(cluster.zookeeper, "-e", "set-replication-factor", "-t", "assigned", "-r", "2")
    assert "Executing partition reassignment" in text
    until("two replicas", lambda: all(len(row[1]) == 2 for row in states(cluster, "assigned").values()))
    assert states_in_go(cluster, "assigned") == states(cluster, "assigned")
    znode_tools.kafka_assigner(cluster.zookeeper, "-e", "elect")
    until("preferred leaders", lambda: all(row[0] == row[1][0] for row in states(cluster, "assigned").values()))
    assert {place: row[1] for place, row in states(cluster, "assigned").items()} == {
        place: row for place, row in assigned(cluster, tmp_path).items() if place[0] == "assigned"
    }
