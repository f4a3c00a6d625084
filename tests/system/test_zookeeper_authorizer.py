"""The authorizer in ZooKeeper mode beside Apache Kafka 3.9.1's: rules of one kind of broker, or of Kafka's tool, act on
both kinds, their znodes are the same, and so are the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from tests.support.acl_filters import EVERY_RULE
from tests.support.log_in import PASSWORD, SECURED, jaas
from tests.support.process_nodes import call, until
from tests.support.zookeeper_mode import SETTINGS, WAIT_S, OurBroker, ZooKeeperModeCluster
from tests.support.zookeeper_process import OurZooKeeper

from barnabas.common.authorizer_keys import ACL_AUTHORIZER
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclPattern
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafka39_jars import KafkaBroker, run_tool
from zookeeper_jars import ApacheZooKeeper

pytestmark = pytest.mark.full
ACL_COMMAND: Final = "kafka.admin.AclCommand"
NODE_PASSWORD: Final = "node-marker-Secret"
_LOG_IN: Final = {
    **SECURED,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "authorizer.class.name": ACL_AUTHORIZER,
}
#: Brokers without a log-in, whose clients are all super users.
_OPEN: Final = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZooKeeperModeCluster]:
    made = ZooKeeperModeCluster(tmp_path, [OurBroker, KafkaBroker], {**_LOG_IN, "super.users": "User:node"})
    yield made
    made.close()


@pytest.fixture
def open_cluster(tmp_path: Path) -> Iterator[ZooKeeperModeCluster]:
    """A cluster without a log-in, on Apache's ZooKeeper."""
    made = ZooKeeperModeCluster(tmp_path, [OurBroker, KafkaBroker], _OPEN, ApacheZooKeeper)
    yield made
    made.close()


def settings_of(broker: KafkaBroker, user: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": NODE_PASSWORD if user == "node" else PASSWORD,
        "log_level": 0,
    }


class Tool:
    """Kafka's AclCommand as the user `node`."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "node.properties"
        self.config.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas('node', NODE_PASSWORD)}\n"
        )

    def run(self, broker: KafkaBroker, *arguments: str) -> str:
        base = ("--bootstrap-server", broker.bootstrap, "--command-config", str(self.config))
        done = run_tool(ACL_COMMAND, *base, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Error" not in done.stdout, done.stdout
        return done.stdout


def visible(broker: KafkaBroker, topic: str) -> bool:
    """Returns whether alice sees a topic at this broker alone."""
    found = AdminClient(settings_of(broker, "alice")).list_topics(topic, timeout=30).topics[topic]
    if found.error is None:
        return True
    assert found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, found.error
    return False


def hidden(broker: KafkaBroker, topic: str) -> bool:
    return not visible(broker, topic)


def await_all(is_so: Callable[[KafkaBroker, str], bool], cluster: ZooKeeperModeCluster) -> None:
    for number, broker in cluster.brokers.items():
        until(f"the topic is {is_so.__name__} at broker {number}", partial(is_so, broker, "orders"), WAIT_S)


def knows_both(admin: AdminClient) -> bool:
    return len(admin.list_topics(timeout=30).brokers) == 2


def listed(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if "principal=" in line}


def test_rules_of_kafkas_tool_act_on_brokers_of_both_kinds(cluster: ZooKeeperModeCluster, tmp_path: Path) -> None:
    tool = Tool(tmp_path)
    admin = AdminClient(settings_of(cluster.brokers[1], "node"))
    until("both brokers are known", partial(knows_both, admin), WAIT_S)
    admin.create_topics([NewTopic("orders", 1, 2)])["orders"].result(WAIT_S)
    reads = ("--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers")
    denies = ("--deny-principal", "User:*", "--deny-host", "127.0.0.1", "--operation", "All", "--topic", "ord")
    for number, broker in cluster.brokers.items():
        other = cluster.brokers[3 - number]
        assert hidden(broker, "orders")
        assert hidden(other, "orders")
        tool.run(broker, "--add", *reads)
        await_all(visible, cluster)
        tool.run(other, "--add", *denies, "--resource-pattern-type", "prefixed")
        await_all(hidden, cluster)
        texts = [listed(tool.run(each, "--list")) for each in (broker, other)]
        assert texts[0] == texts[1]
        assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in texts[0]
        assert "(principal=User:*, host=127.0.0.1, operation=ALL, permissionType=DENY)" in texts[0]
        tool.run(broker, "--remove", "--force", *denies, "--resource-pattern-type", "prefixed")
        await_all(visible, cluster)
        tool.run(other, "--remove", "--force", *reads)
        await_all(hidden, cluster)
        for path in ("/kafka-acl/Topic/orders", "/kafka-acl/Group/readers", "/kafka-acl-extended/prefixed/Topic/ord"):
            assert cluster.znode(path) is None


VALID: Final[dict[str, Any]] = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def create(broker: KafkaBroker, *chosen: dict[str, Any]) -> list[int]:
    """Adds rules at this broker: clients choose a broker themselves. Returns the error codes."""
    request = CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**VALID | each) for each in chosen])
    answer = call(("localhost", broker.port), request, 3, CreateAclsResponse)
    return [row.error_code for row in answer.results]


def test_both_kinds_write_the_same_znodes(open_cluster: ZooKeeperModeCluster) -> None:
    """The same bytes and versions; the order of several entries of one resource is that of a hash set in Kafka."""
    literal, prefixed, odd = AclPattern.LITERAL, AclPattern.PREFIXED, 'User:al\\i"c\xe9'
    steps = ((AclOperation.READ, literal), (AclOperation.DESCRIBE_CONFIGS, prefixed), (AclOperation.WRITE, literal))
    client = KazooClient(f"127.0.0.1:{open_cluster.zookeeper.port}/kafka")
    client.start(timeout=15)
    written: dict[int, list[tuple[bytes, int, bytes, str]]] = {1: [], 2: []}
    try:
        for number, broker in open_cluster.brokers.items():
            name = f"topic-{number}"
            for operation, pattern in steps:
                rule = {"resource_name": name, "resource_pattern_type": pattern, "operation": operation}
                assert create(broker, {**rule, "principal": odd}) == [0]
                is_literal = pattern is literal
                folder = "/kafka-acl" if is_literal else "/kafka-acl-extended/prefixed"
                content, stat = client.get(f"{folder}/Topic/{name}")
                shown = bytes(sorted(content)) if operation is AclOperation.WRITE else content
                changes = "/kafka-acl-changes" if is_literal else "/kafka-acl-extended-changes"
                last = max(client.get_children(changes))
                told = client.get(f"{changes}/{last}")[0].replace(name.encode(), b"NAME")
                written[number].append((shown, stat.version, told, last[:-10]))
    finally:
        client.stop()
        client.close()
    print(written)
    assert written[1] == written[2]


def test_both_kinds_give_the_same_answers(open_cluster: ZooKeeperModeCluster) -> None:
    """Requests that no client of Kafka sends, too. Texts of errors differ: Kafka's hide the cause."""
    wrong: list[dict[str, Any]] = [
        {},
        {"resource_name": "a/b"},
        {"resource_name": ""},
        {"resource_type": 4},
        {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 9},
        {"resource_name": "ord", "resource_pattern_type": 4},
        {"resource_name": "*", "permission_type": 2},
        {},
        {"resource_name": ".."},
        {"resource_name": "a\x01b"},
    ]
    filters: list[dict[str, Any]] = [
        {"resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 2, "permission_type": 2},
        {"resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 3},
        {"principal_filter": "User:nobody"},
        {},
    ]
    delete = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**EVERY_RULE | each) for each in filters])
    answers: list[Any] = []
    for broker in open_cluster.brokers.values():
        address = ("localhost", broker.port)
        made = create(broker, *wrong)
        shown = call(address, DescribeAclsRequest(**EVERY_RULE), 3, DescribeAclsResponse)
        gone = call(address, delete, 3, DeleteAclsResponse)
        left = call(address, DescribeAclsRequest(**EVERY_RULE), 3, DescribeAclsResponse)
        answers.append(
            (
                made,
                sorted(
                    (one.resource_type, one.resource_name, one.pattern_type, len(one.acls)) for one in shown.resources
                ),
                [
                    (row.error_code, row.error_message, sorted(rule.resource_name for rule in row.matching_acls))
                    for row in gone.filter_results
                ],
                (left.error_code, left.error_message, left.resources),
            )
        )
    print(answers)
    assert answers[0] == answers[1]
    assert answers[0][0] == [0, *[ErrorCode.INVALID_REQUEST] * 3, 0, 0, 0, 0, -1, -1]


def test_brokers_need_only_rules_that_kafkas_tool_writes_before_they_start(tmp_path: Path) -> None:
    """No broker is a super user: both kinds replicate from each other by CLUSTER_ACTION."""
    zookeeper = OurZooKeeper(tmp_path / "zookeeper").start()
    connect = f"127.0.0.1:{zookeeper.port}"
    rules = (
        ("--allow-principal", "User:node", "--operation", "ClusterAction", "--cluster"),
        ("--allow-principal", "User:alice", "--operation", "Create", "--cluster"),
        ("--allow-principal", "User:alice", "--producer", "--topic", "led-by-", "--resource-pattern-type", "prefixed"),
    )
    for rule in rules:
        done = run_tool(ACL_COMMAND, "--authorizer-properties", f"zookeeper.connect={connect}", "--add", *rule)
        assert done.returncode == 0, done.stdout + done.stderr
    changed = {**SETTINGS, **_LOG_IN}
    brokers = [
        kind(tmp_path / f"broker-{number}", connect, number, properties=changed)
        for number, kind in enumerate((OurBroker, KafkaBroker), 1)
    ]
    errors: list[object] = []
    try:
        for broker in brokers:
            broker.start()
        for leader, broker in enumerate(brokers, 1):
            admin = AdminClient(settings_of(broker, "alice"))
            until("both brokers are known", partial(knows_both, admin), WAIT_S)
            topic = NewTopic(f"led-by-{leader}", 1, replica_assignment=[[leader, 3 - leader]])
            admin.create_topics([topic])[topic.topic].result(WAIT_S)
            producer = Producer({**settings_of(broker, "alice"), "acks": "all"})
            producer.produce(topic.topic, b"x", on_delivery=lambda error, message: errors.append(error))
            assert producer.flush(WAIT_S) == 0
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                admin.delete_topics([topic.topic])[topic.topic].result(WAIT_S)
        assert errors == [None, None]
    finally:
        for broker in brokers:
            broker.kill()
            print(f"--- {type(broker).__name__}\n{broker.log_path.read_text(errors='replace')[-3000:]}")
        zookeeper.kill()
