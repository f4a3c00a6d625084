"""Listeners that are added to a running broker and removed from it, compared with Apache Kafka's answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.servers import BarnabasServer
from tests.support.process_nodes import call, until
from tests.support.tls_stores import Stores

import kafka_jars
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

#: An ApiVersions request of version 0.
REQUEST = bytes.fromhex("0000000a00120000000000010000")
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,SECOND:PLAINTEXT,THIRD:PLAINTEXT,SECURE:SASL_SSL"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'

Server = BarnabasServer | kafka_jars.KafkaServer
Answer = tuple[int, str | None]


def alter(server: Server, changes: dict[str, str | None], broker: str = "1") -> Answer:
    """Returns the error code and message of the response to these changes; None deletes a key."""
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0 if value else 1, value=value)
        for key, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name=broker, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = call(("127.0.0.1", server.port), request, 1, IncrementalAlterConfigsResponse).responses[0]
    return response.error_code, response.error_message


def is_served(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as link:
            link.settimeout(5)
            link.sendall(REQUEST)
            return bool(link.recv(1))
    except OSError:
        return False


def written_and_read(client: dict[str, str], value: bytes) -> bool:
    """Produces a record through these listeners and reads it back."""
    producer = Producer(client)
    producer.produce("orders", value)
    assert producer.flush(20) == 0
    consumer = Consumer({**client, "group.id": value.decode(), "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = b""
    deadline = time.monotonic() + 20
    while found != value and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        found = (message.value() or b"") if message is not None else b""
    consumer.close()
    return found == value


def test_a_listener_with_tls_and_a_log_in_is_added_survives_a_restart_and_is_removed(tmp_path: Path) -> None:
    stores, (port,) = Stores(tmp_path), kafka_jars.free_ports(1)
    stores.pem("broker")
    server = BarnabasServer(tmp_path / "broker", properties={"listener.security.protocol.map": MAP})
    given = server.properties["listeners"]
    prefix = "listener.name.secure."
    added: dict[str, str | None] = {
        "listeners": f"{given},SECURE://localhost:{port}",
        **stores.settings("PEM", "broker", prefix),
        f"{prefix}sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}plain.sasl.jaas.config": JAAS,
    }
    client = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(stores.trusted),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    server.start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(20)
        assert alter(server, added) == (0, None)
        assert written_and_read(client, b"added")
        # A file that names the advertised listeners makes it one that can be removed.
        server.stop()
        server.properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{server.port}"
        server.start()
        link = until("the listener", lambda: socket.create_connection(("127.0.0.1", port), 5), 10)
        assert alter(server, dict.fromkeys(added)) == (0, None)
        link.settimeout(10)
        assert link.recv(1) == b"", "a connection of a removed listener is closed"
        assert until("the end of the listener", lambda: not is_served(port), 10)
        assert is_served(server.port)
        log = server.log_path.read_text()
        assert "closed listener SECURE and its connections" in log
    finally:
        server.stop()


def servers(folder: Path, properties: dict[str, str], extra: str) -> Iterator[Server]:
    for made in (kafka_jars.KafkaServer(folder / "kafka"), BarnabasServer(folder / "barnabas")):
        made.properties |= properties | {"listeners": made.properties["listeners"] + extra}
        if properties["advertised.listeners"]:
            made.properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{made.port}"
        else:
            del made.properties["advertised.listeners"]
        made.start()
        try:
            yield made
        finally:
            made.stop()


def steps(given: str, ports: list[int]) -> list[tuple[str, dict[str, str | None], str]]:
    """Returns the alterations: a name, the changes, the broker (empty: the whole cluster)."""
    plain, controller, extra, second = given.split(",")
    third = f"THIRD://127.0.0.1:{ports[2]}"

    def listeners(*each: str) -> dict[str, str | None]:
        return {"listeners": ",".join(each)}

    def protocols(text: str) -> dict[str, str | None]:
        return {"listener.security.protocol.map": text}

    own = "listener.name.extra.sasl.enabled.mechanisms"
    every = (plain, controller, extra, second)
    return [
        ("advertised", {"advertised.listeners": plain}, "1"),
        ("of the cluster", listeners(*every, third), ""),
        ("map of the cluster", protocols(MAP), ""),
        ("no inter-broker", listeners(controller, extra, second), "1"),
        ("no controller", listeners(plain, extra, second), "1"),
        ("unknown name", listeners(*every, f"NOBODY://127.0.0.1:{ports[2]}"), "1"),
        ("same port", listeners(*every, f"THIRD://127.0.0.1:{ports[0]}"), "1"),
        ("same port by name", listeners(*every, f"THIRD://localhost:{ports[2]}", f"TOO://localhost:{ports[2]}"), "1"),
        ("same name", listeners(*every, f"EXTRA://127.0.0.1:{ports[2]}"), "1"),
        ("no address", listeners(*every, "THIRD"), "1"),
        ("no port", listeners(*every, "THIRD://127.0.0.1"), "1"),
        ("all interfaces", listeners(*every, f"THIRD://0.0.0.0:{ports[2]}"), "1"),
        ("protocol of another", protocols(MAP.replace("EXTRA:PLAINTEXT", "EXTRA:SASL_PLAINTEXT")), "1"),
        ("protocol gone", protocols(MAP.replace("EXTRA:PLAINTEXT,", "")), "1"),
        ("no protocol", protocols(f"{MAP},X:NOPE"), "1"),
        ("one more name", protocols(f"{MAP},TOO:PLAINTEXT"), "1"),
        ("names of the file", {"listener.security.protocol.map": None}, "1"),
        ("setting of one that stays", {**listeners(*every, third), own: "PLAIN"}, "1"),
        ("setting alone", {own: "PLAIN"}, "1"),
        ("setting gone", {own: None}, "1"),
        ("added", listeners(*every, third), "1"),
        ("lower case", listeners(*every, third.lower()), "1"),
        ("one removed", listeners(plain, controller, second, third), "1"),
        ("two removed", listeners(plain, controller), "1"),
        ("those of the file", {"listeners": None}, "1"),
    ]


@pytest.mark.full
@pytest.mark.parametrize("advertises", [True, False], ids=["advertised", "not advertised"])
def test_alterations_are_answered_as_kafka_answers_them(advertises: bool, tmp_path: Path) -> None:
    ports = kafka_jars.free_ports(3)
    properties = {"listener.security.protocol.map": MAP, "advertised.listeners": "yes" if advertises else ""}
    extra = f",EXTRA://127.0.0.1:{ports[0]},SECOND://127.0.0.1:{ports[1]}"
    answers: list[list[tuple[str, Answer, list[bool]]]] = []
    for server in servers(tmp_path, properties, extra):
        given = server.properties["listeners"]
        hidden = {str(server.port): "PORT", given.split(",")[1].rpartition(":")[2]: "CONTROLLER-PORT"}
        made = []
        for name, changes, broker in steps(given, ports):
            code, message = alter(server, changes, broker)
            for port, word in hidden.items():
                message = message and message.replace(port, word)
            time.sleep(0.7 if code == 0 else 0)  # A broker of Kafka answers before it has the change.
            made.append((name, (code, message), [is_served(port) for port in ports]))
        answers.append(made)
    kafka, ours = answers
    assert sum(code == 0 for _, (code, _), _ in kafka) >= 6
    assert [json.dumps(each) for each in ours] == [json.dumps(each) for each in kafka]


@pytest.mark.full
def test_kafka_configs_adds_a_listener(tmp_path: Path) -> None:
    (port,) = kafka_jars.free_ports(1)
    server = BarnabasServer(tmp_path, properties={"listener.security.protocol.map": MAP}).start()
    try:
        value = f"listeners=[{server.properties['listeners']},THIRD://127.0.0.1:{port}]"
        options = ("--entity-type", "brokers", "--entity-name", "1")
        at = ("--bootstrap-server", server.bootstrap)
        done = kafka_jars.run_tool("kafka.admin.ConfigCommand", *at, *options, "--alter", "--add-config", value)
        assert done.returncode == 0, done.stdout + done.stderr
        assert until("the listener", lambda: is_served(port), 10)
        shown = kafka_jars.run_tool("kafka.admin.ConfigCommand", *at, *options, "--describe")
        assert f"THIRD://127.0.0.1:{port} sensitive=false" in shown.stdout.replace("\n", " ")
    finally:
        server.stop()
