"""Settings changed while the broker runs: they take effect, are described with their source, and survive a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from tests.clients import programs
from tests.clients.servers import Server

NewServer = Callable[..., Server]
WAIT_S = 120.0


def admin_of(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})


def change(admin: AdminClient, kind: ResourceType, name: str, **values: str | None) -> None:
    """Sets each key to its value, or back to its default for None."""
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(WAIT_S)


def configure_all_brokers(server: Server, *arguments: str) -> str:
    """Configures all brokers with Kafka's own tool: librdkafka has no name for all brokers together."""
    place = ("--bootstrap-server", server.bootstrap, "--entity-type", "brokers", "--entity-default")
    done = programs.java(server.bootstrap).tool("kafka.admin.ConfigCommand", *place, *arguments)
    assert done.code == 0, done.text
    return done.out


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    entries: dict[str, ConfigEntry] = future.result(WAIT_S)
    return entries


def produced(server: Server, topic: str, size_bytes: int) -> KafkaError | None:
    """Returns the result of producing one record of this size."""
    outcome: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcome.append(error)

    producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 3})
    producer.produce(topic, b"x" * size_bytes, on_delivery=delivered)
    producer.flush(WAIT_S)
    (error,) = outcome
    return error


def refused_as_too_large(server: Server, topic: str, size_bytes: int) -> bool:
    error = produced(server, topic, size_bytes)
    return error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_topics_setting_counts_at_once_and_after_a_restart(own_server: NewServer) -> None:
    server = own_server()
    server.start()
    admin = admin_of(server)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
    assert produced(server, "orders", 1_000) is None
    change(admin, ResourceType.TOPIC, "orders", max_message_bytes="500", cleanup_policy="compact,delete")
    server.stop()
    server.start()
    entries = describe(admin_of(server), ResourceType.TOPIC, "orders")
    assert (entries["max.message.bytes"].value, entries["cleanup.policy"].value) == ("500", "compact,delete")
    assert ConfigSource(entries["max.message.bytes"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    change(admin_of(server), ResourceType.TOPIC, "orders", cleanup_policy=None)
    assert refused_as_too_large(server, "orders", 1_000)
    change(admin_of(server), ResourceType.TOPIC, "orders", max_message_bytes=None)
    assert produced(server, "orders", 1_000) is None


def test_broker_settings_reach_all_topics_by_their_precedence(own_server: NewServer) -> None:
    server = own_server(message_max_bytes="2000")
    server.start()
    admin = admin_of(server)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
    assert refused_as_too_large(server, "orders", 3_000)
    configure_all_brokers(server, "--alter", "--add-config", "message.max.bytes=5000")
    assert "message.max.bytes=5000" in configure_all_brokers(server, "--describe")
    assert produced(server, "orders", 3_000) is None
    change(admin, ResourceType.BROKER, "1", message_max_bytes="1000")
    assert refused_as_too_large(server, "orders", 3_000)
    entry = describe(admin, ResourceType.TOPIC, "orders")["max.message.bytes"]
    assert (entry.value, ConfigSource(entry.source)) == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    server.kill()
    server.start()
    assert refused_as_too_large(server, "orders", 3_000)
    change(admin_of(server), ResourceType.BROKER, "1", message_max_bytes=None)
    assert produced(server, "orders", 3_000) is None
    assert describe(admin_of(server), ResourceType.BROKER, "1")["message.max.bytes"].value == "5000"


def test_what_must_not_be_set_is_refused_with_the_reason(server: Server) -> None:
    admin = admin_of(server)
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        change(admin, ResourceType.BROKER, "1", node_id="2")
    with pytest.raises(KafkaException, match="Not a number of type INT"):
        change(admin, ResourceType.BROKER, "1", message_max_bytes="many")
    with pytest.raises(KafkaException, match="does not exist"):
        change(admin, ResourceType.TOPIC, "no-such-topic", retention_ms="1")
    assert describe(admin, ResourceType.BROKER, "1")["message.max.bytes"].value == "1048588"
