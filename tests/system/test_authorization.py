"""Rules on a broker whose clients log in: Kafka's AclCommand, librdkafka's admin client, producers and consumers of
librdkafka and aiokafka that are denied and allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.clients import programs
from tests.clients.servers import BarnabasServer

import kafka_jars

PASSWORD: Final = "marker-Secret"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
ACL_COMMAND: Final = "org.apache.kafka.tools.AclCommand"


def client(bootstrap: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    port, controller_port = kafka_jars.free_ports(2)
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("node", "admin", "alice"))
    entry = f'{_PLAIN} required username="node" password="{PASSWORD}" {users};'
    properties = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": entry,
        "listener.name.controller.plain.sasl.jaas.config": entry,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
    }
    made = BarnabasServer(tmp_path_factory.mktemp("acls"), port=port, properties=properties)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def admin(server: BarnabasServer) -> AdminClient:
    return AdminClient(client(server.bootstrap, "admin"))


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    name: str = request.node.originalname
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def binding(resource: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    allow = AclPermissionType.ALLOW
    return AclBinding(resource, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, allow)


def allow(admin: AdminClient, *rules: AclBinding) -> None:
    for done in admin.create_acls(list(rules)).values():
        done.result(30)


def every_rule() -> AclBindingFilter:
    anything: Any = None
    return AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def remove_all(admin: AdminClient) -> list[AclBinding]:
    (done,) = admin.delete_acls([every_rule()]).values()
    return list(done.result(30))


def test_kafka_acls_adds_lists_and_removes(server: BarnabasServer, tmp_path: Path) -> None:
    java = programs.java(server.bootstrap)
    config = tmp_path / "admin.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={_PLAIN} required username="admin" password="{PASSWORD}";\n'
    )
    base = ("--bootstrap-server", server.bootstrap, "--command-config", str(config))
    consumer = ("--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers")
    prefixed = (
        *("--deny-principal", "User:alice", "--deny-host", "10.0.0.9", "--operation", "Write", "--topic", "ord"),
        *("--resource-pattern-type", "prefixed"),
    )

    def run(*arguments: str) -> str:
        result = java.tool(ACL_COMMAND, *base, *arguments)
        assert result.code == 0, result.text
        return str(result.out)

    try:
        run("--add", *consumer)
        run("--add", *consumer)
        run("--add", *prefixed)
        listed = run("--list")
        assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
        assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
        assert "(principal=User:alice, host=10.0.0.9, operation=WRITE, permissionType=DENY)" in listed
        assert listed.count("principal=User:alice") == 4
        matched = run("--list", "--topic", "orders-2", "--resource-pattern-type", "match")
        assert matched.count("principal=User:alice") == 1
        run("--remove", "--force", *consumer)
        run("--remove", "--force", *prefixed)
        assert "principal=" not in run("--list")
    finally:
        java.close()


def test_rules_by_librdkafka(admin: AdminClient) -> None:
    rule = binding(ResourceType.TOPIC, "orders", AclOperation.READ)
    allow(admin, rule)
    allow(admin, rule)
    anything = every_rule()
    assert admin.describe_acls(anything).result(30) == [rule]
    assert remove_all(admin) == [rule]
    assert admin.describe_acls(anything).result(30) == []


def test_only_administrators_change_rules(server: BarnabasServer) -> None:
    alice = AdminClient(client(server.bootstrap, "alice"))
    (done,) = alice.create_acls([binding(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL)]).values()
    with pytest.raises(KafkaException) as refused:
        done.result(30)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def produced(server: BarnabasServer, topic: str, value: bytes) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({**client(server.bootstrap, "alice"), "message.timeout.ms": 5_000})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    (found,) = errors
    return found


def test_librdkafka_is_denied_then_allowed_then_denied(server: BarnabasServer, admin: AdminClient, topic: str) -> None:
    denied = produced(server, topic, b"1")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(
        admin,
        binding(ResourceType.TOPIC, topic, AclOperation.WRITE),
        binding(ResourceType.TOPIC, topic, AclOperation.READ),
    )
    assert produced(server, topic, b"2") is None
    consumer = confluent_kafka.Consumer(
        {**client(server.bootstrap, "alice"), "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    allow(admin, binding(ResourceType.GROUP, topic, AclOperation.READ))
    consumer = confluent_kafka.Consumer(
        {**client(server.bootstrap, "alice"), "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert [message.value() for message in consumer.consume(1, timeout=30)] == [b"2"]
    consumer.close()
    assert len(remove_all(admin)) == 3
    denied = produced(server, topic, b"3")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_operations_that_a_client_may_do(server: BarnabasServer, admin: AdminClient, topic: str) -> None:
    allow(admin, binding(ResourceType.TOPIC, topic, AclOperation.READ))
    alice = AdminClient(client(server.bootstrap, "alice"))
    names = confluent_kafka.TopicCollection([topic])
    (described,) = alice.describe_topics(names, include_authorized_operations=True).values()
    assert set(described.result(30).authorized_operations) == {AclOperation.READ, AclOperation.DESCRIBE}
    everything = admin.describe_cluster(include_authorized_operations=True).result(30)
    assert len(everything.authorized_operations) == 7
    remove_all(admin)


def test_aiokafka_is_denied(server: BarnabasServer, admin: AdminClient, topic: str) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(**options)
        await producer.start()
        try:
            await producer.send_and_wait(topic, b"1")
        finally:
            await producer.stop()

    async def join() -> None:
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, **options)
        try:
            await consumer.start()
            await consumer.getone()
        finally:
            await consumer.stop()

    def refused(work: Callable[[], Any], error: type[Exception]) -> None:
        with pytest.raises(error):
            asyncio.run(work())

    refused(write, TopicAuthorizationFailedError)
    allow(
        admin,
        binding(ResourceType.TOPIC, topic, AclOperation.WRITE),
        binding(ResourceType.TOPIC, topic, AclOperation.READ),
    )
    asyncio.run(write())
    refused(join, GroupAuthorizationFailedError)
    remove_all(admin)
