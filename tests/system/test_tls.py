"""Listeners with TLS: others' clients with stores of each format, refusals, and a cluster whose nodes use it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.process_nodes import Node, Nodes, until
from tests.support.tls_stores import Stores

import kafka_jars

KINDS = ("PEM", "PKCS12", "JKS")


class TlsBroker:
    """A broker with a listener for each format of key stores; all of them request a client certificate."""

    def __init__(self, folder: Path) -> None:
        self.stores = Stores(folder)
        self.stores.pem("broker")
        self.stores.pem("client")
        ports = kafka_jars.free_ports(len(KINDS))
        self.ports = dict(zip(KINDS, ports, strict=True))
        self.nodes = Nodes(folder, {1: "broker,controller"})
        node = self.node
        node.settings["listeners"] += "".join(f",{kind}://localhost:{port}" for kind, port in self.ports.items())
        protocols = ",".join(f"{kind}:SSL" for kind in KINDS)
        node.settings["listener.security.protocol.map"] = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}"
        node.settings["ssl.client.auth"] = "requested"
        for kind in KINDS:
            node.settings |= self.stores.settings(kind, "broker", f"listener.name.{kind.lower()}.")
        self.nodes.start()

    @property
    def node(self) -> Node:
        return self.nodes[1]

    def client(self, kind: str = "PEM", name: str | None = None) -> dict[str, str]:
        return {"bootstrap.servers": f"localhost:{self.ports[kind]}", **self.stores.librdkafka(name)}

    def logged(self, text: str) -> str:
        """Waits for a line of the broker's log."""
        return until(text, lambda: next((line for line in self.node.log.splitlines() if text in line), None), 10)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    made = TlsBroker(tmp_path_factory.mktemp("tls"))
    yield made
    made.nodes.close()


def round_trip(settings: dict[str, str], topic: str) -> list[bytes]:
    """Produces three records and returns what a consumer then reads."""
    producer = Producer(settings)
    for value in (b"a", b"b", b"c"):
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < 3 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_librdkafka_reads_what_it_wrote_with_each_format_of_the_brokers_stores(broker: TlsBroker, kind: str) -> None:
    assert round_trip(broker.client(kind), f"librdkafka-{kind}") == [b"a", b"b", b"c"]


def test_aiokafka_reads_what_it_wrote(broker: TlsBroker) -> None:
    context = ssl.create_default_context(cafile=broker.stores.trusted)

    async def run() -> bytes:
        common = {
            "bootstrap_servers": f"localhost:{broker.ports['PEM']}",
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait("aiokafka", b"over TLS")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **common) as consumer:
            message = await asyncio.wait_for(consumer.getone(), 30)
            return bytes(message.value)

    assert asyncio.run(run()) == b"over TLS"


@pytest.mark.parametrize("kind", ["PEM", *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS[1:])])
def test_javas_client_with_each_format_of_its_own_stores(broker: TlsBroker, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    settings = {"security.protocol": "SSL", **broker.stores.settings(kind, "client")}
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    address = ("--bootstrap-server", f"localhost:{broker.ports[kind]}")
    topic = ("--topic", f"java-{kind}")
    tools = "org.apache.kafka.tools"
    sent = kafka_jars.run_tool(
        f"{tools}.ConsoleProducer", *address, *topic, "--producer.config", str(file), stdin="one\n"
    )
    assert sent.returncode == 0, sent.stderr
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "60000", "--consumer.config", str(file))
    read = kafka_jars.run_tool(f"{tools}.consumer.ConsoleConsumer", *address, *topic, *limits)
    assert read.stdout == "one\n", read.stderr


def openssl(broker: TlsBroker, *options: str) -> str:
    """Returns what `openssl s_client` says about a handshake."""
    command = ["openssl", "s_client", "-connect", f"localhost:{broker.ports['PEM']}", "-CAfile", *options]
    command.insert(command.index("-CAfile") + 1, str(broker.stores.trusted))
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_openssl_agrees_on_each_enabled_version(broker: TlsBroker, version: str) -> None:
    told = openssl(broker, f"-{version}")
    assert "Verify return code: 0 (ok)" in told
    assert "Secure Renegotiation IS NOT supported" in told or version == "tls1_2"


@pytest.mark.parametrize("version", ["tls1", "tls1_1"])
def test_older_versions_are_refused(broker: TlsBroker, version: str) -> None:
    """Guard S16."""
    told = openssl(broker, f"-{version}", "-cipher", "DEFAULT:@SECLEVEL=0")
    assert "Cipher is (NONE)" in told
    assert "SSL handshake failed" in broker.logged("unsupported protocol")


def test_a_plain_client_on_a_listener_with_tls_is_logged_in_one_line(broker: TlsBroker) -> None:
    """Guard S16."""
    with socket.create_connection(("localhost", broker.ports["PEM"]), 10) as link:
        link.sendall(bytes.fromhex("0000001300120004000000010004746573740005616161610131"))
        assert link.recv(100) == b""
    broker.logged("the client does not speak TLS, which this listener requires")


def test_a_client_with_tls_on_a_plain_listener_is_logged_in_one_line(broker: TlsBroker) -> None:
    """Guard S16."""
    context = ssl.create_default_context(cafile=broker.stores.trusted)
    with socket.create_connection(broker.node.address, 10) as link, pytest.raises(OSError):
        context.wrap_socket(link, server_hostname="localhost")
    broker.logged("the client speaks TLS, which this listener does not")


def test_an_expired_certificate_of_a_client_is_refused_and_named(broker: TlsBroker) -> None:
    broker.stores.pem("late", days=1, begin=datetime.now(UTC) - timedelta(days=2))
    failed: list[KafkaError] = []
    settings: dict[str, object] = {**broker.client("PEM", "late"), "error_cb": failed.append}
    producer = Producer(settings)
    until("a failure", lambda: producer.poll(0.1) == 0 and failed, 30)
    broker.logged("certificate has expired")


def test_silent_connections_do_not_keep_others_out(broker: TlsBroker) -> None:
    links = [socket.create_connection(("localhost", broker.ports["PEM"]), 10) for _ in range(300)]
    try:
        assert AdminClient({**broker.client()}).list_topics(timeout=20).brokers
    finally:
        for link in links:
            link.close()


class TlsCluster:
    """Three nodes that use TLS among brokers and among controllers, with certificates of both sides."""

    def __init__(self, folder: Path) -> None:
        self.stores = Stores(folder)
        self.stores.pem("node")
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.client.auth": "required",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self.stores.settings("PEM", "node"),
        }
        self.nodes = Nodes(folder, dict.fromkeys((1, 2, 3), "broker,controller"), properties=properties)

    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.nodes.bootstrap, "acks": "all", **self.stores.librdkafka("node")}


@pytest.mark.full
def test_three_nodes_replicate_and_elect_over_tls(tmp_path: Path) -> None:
    cluster = TlsCluster(tmp_path)
    try:
        cluster.nodes.start()
        admin = AdminClient({**cluster.client()})
        admin.create_topics([NewTopic("replicated", 3, 3)])["replicated"].result(30)
        assert sorted(round_trip(cluster.client(), "replicated")) == [b"a", b"b", b"c"]  # from three partitions
        cluster.nodes[1].kill()

        def moved() -> bool:
            rows = admin.list_topics("replicated", timeout=10).topics["replicated"].partitions.values()
            return len(rows) == 3 and all(row.leader in (2, 3) for row in rows)

        until("leaders on the other nodes", moved, 60)
        producer = Producer(cluster.client())
        producer.produce("replicated", b"after")
        assert producer.flush(60) == 0
        cluster.nodes.start([1])

        def in_sync() -> bool:
            rows = admin.list_topics("replicated", timeout=10).topics["replicated"].partitions.values()
            return all(len(row.isrs) == 3 for row in rows)

        until("three replicas in sync", in_sync, 60)
    finally:
        cluster.nodes.close()


def test_a_node_with_an_expired_certificate_is_named_by_itself_and_by_the_others(tmp_path: Path) -> None:
    cluster = TlsCluster(tmp_path)
    expired = cluster.stores.pem("expired", days=1, begin=datetime.now(UTC) - timedelta(days=2))
    cluster.nodes[3].settings["listener.name.controller.ssl.keystore.location"] = str(expired)
    try:
        cluster.nodes.start([1, 2])
        cluster.nodes[3].launch(cluster.nodes.cluster_id)
        until("the node's own warning", lambda: "the certificate of CN=expired is valid from" in cluster.nodes[3].log)
        text = "peer's certificate is refused: certificate has expired"
        until("the refusal", lambda: any(text in cluster.nodes[each].log for each in (1, 2)), 60)
    finally:
        cluster.nodes.close()


def test_a_log_in_over_tls_for_clients_brokers_and_controllers(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    stores.pem("node")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    entry = f'{module} required username="node" password="n" user_node="n" user_alice="a";'
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": entry,
        "listener.name.controller.plain.sasl.jaas.config": entry,
        "ssl.client.auth": "required",
        **stores.settings("PEM", "node"),
    }
    nodes = Nodes(tmp_path, {1: "broker,controller", 2: "broker,controller"}, properties=properties)
    try:
        nodes.start()
        client = {"bootstrap.servers": nodes.bootstrap, **stores.librdkafka(), "security.protocol": "sasl_ssl"}
        client |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "a"}
        assert round_trip(client, "log-in") == [b"a", b"b", b"c"]
        assert "Broker configuration 'ssl.client.auth' is applied only to SSL listeners." in nodes[1].log
    finally:
        nodes.close()


def alter(broker: TlsBroker, key: str, value: str) -> str:
    """Changes a setting of the broker with Kafka's own tool. Returns what it says."""
    entity = ("--entity-type", "brokers", "--entity-name", "1", "--alter", "--add-config", f"{key}={value}")
    address = "{}:{}".format(*broker.node.address)
    done = kafka_jars.run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", address, *entity)
    return done.stdout + done.stderr


def served_certificate(broker: TlsBroker) -> str:
    return ssl.get_server_certificate(("localhost", broker.ports["PEM"]))


@pytest.mark.full
def test_kafkas_tool_replaces_a_certificate_and_open_connections_stay(broker: TlsBroker) -> None:
    key = "listener.name.pem.ssl.keystore.location"
    file = broker.node.settings[key]
    producer = Producer(broker.client())
    producer.produce("kept", b"before")
    assert producer.flush(30) == 0
    connected = broker.node.log.count("closing the connection")
    before = served_certificate(broker)
    broker.stores.pem("broker")
    assert served_certificate(broker) == before, "the file alone changes nothing"
    assert "Completed updating config" in alter(broker, key, file)
    until("the new certificate", lambda: served_certificate(broker) != before, 10)
    assert "listener PEM uses CN=broker (until" in broker.node.log
    producer.produce("kept", b"after")
    assert producer.flush(30) == 0
    assert broker.node.log.count("closing the connection") == connected
    other = broker.stores.pem("other")
    told = alter(broker, key, str(other))
    assert "Keystore DistinguishedName does not match:  existing={alias=kafka, DN=CN=broker}" in told
    told = alter(broker, "ssl.keystore.location", str(other))
    assert "can be dynamically updated only per-listener using the listener prefix" in told
