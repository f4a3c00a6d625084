"""Clusters that start cold although what their nodes need to know each other is of two kinds: certificates or Kerberos
for one of the two listeners, and any log-in for the other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.kdc import REALM, Kdc
from tests.support.log_in import jaas
from tests.support.logged_in import LoggedIn
from tests.support.process_nodes import Nodes, creation, until
from tests.support.tls_stores import Stores

import kafka_jars
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.sasl.logins import Login

pytestmark = pytest.mark.full
#: The kind of the certificates, which need no log-in.
CERTIFICATES: Final = "SSL"
KERBEROS: Final = "GSSAPI"
KINDS: Final = (CERTIFICATES, KERBEROS, "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
#: The pairs without certificates and Kerberos start cold in tests/simulation/test_log_in.py.
PAIRS: Final = [pair for pair in product(KINDS, KINDS) if {CERTIFICATES, KERBEROS} & set(pair)]
#: The names of nodes: each kind of log-in gives another one.
PRINCIPALS: Final = {
    CERTIFICATES: "User:CN=by-certificate",
    KERBEROS: "User:kafka",
    "PLAIN": "User:by-password",
    "SCRAM-SHA-512": "User:by-scram",
    "OAUTHBEARER": "User:by-token",
}
PASSWORD: Final = "node-marker-Secret"
#: The listener of brokers for each other; the one of clients is PLAINTEXT.
NODES: Final = "NODES"
ADMIN: Final = Login("PLAIN", "admin", "admin-marker-Secret")
TOPIC: Final = "orders"
_TIMEOUT_S: Final = 60


@pytest.fixture(scope="module")
def keytab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        try:
            kdc.start()
            yield kdc.keytab("kafka/localhost")
        finally:
            kdc.stop()


def _entry(kind: str, keytab: Path) -> str:
    """Returns the JAAS entry with which a node logs in, and others log in to it."""
    user = PRINCIPALS[kind].removeprefix("User:")
    if kind == KERBEROS:
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{keytab}" principal="kafka/localhost@{REALM}" serviceName="kafka";'
        )
    if kind == "OAUTHBEARER":
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        return f'{module} required unsecuredLoginStringClaim_sub="{user}";'
    entry = jaas(user, PASSWORD, kind)
    return entry.rstrip(";") + f' user_{user}="{PASSWORD}";' if kind == "PLAIN" else entry


def _properties(folder: Path, keytab: Path, at_controllers: str, at_brokers: str) -> dict[str, str]:
    """Returns the properties of nodes; both listeners have TLS. Only their two names, and `ADMIN`, have any right."""
    stores = Stores(folder / "stores")
    stores.pem(PRINCIPALS[CERTIFICATES].removeprefix("User:CN="))
    found = {
        "inter.broker.listener.name": NODES,
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": ADMIN.mechanism,
        "listener.name.plaintext.plain.sasl.jaas.config": (
            jaas(ADMIN.username, ADMIN.password).rstrip(";") + f' user_{ADMIN.username}="{ADMIN.password}";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"{PRINCIPALS[at_controllers]};{PRINCIPALS[at_brokers]};User:{ADMIN.username}",
        "min.insync.replicas": "3",
        **stores.settings("PEM", PRINCIPALS[CERTIFICATES].removeprefix("User:CN=")),
    }
    mechanisms = {"controller": at_controllers, NODES.lower(): at_brokers}
    for listener, kind in mechanisms.items():
        protocol = CERTIFICATES if kind == CERTIFICATES else "SASL_SSL"
        found["listener.security.protocol.map"] += f",{listener.upper()}:{protocol}"
        prefix = f"listener.name.{listener}"
        if kind == CERTIFICATES:
            found[f"{prefix}.ssl.client.auth"] = "required"
        else:
            found[f"{prefix}.sasl.enabled.mechanisms"] = kind
            found[f"{prefix}.{kind.lower()}.sasl.jaas.config"] = _entry(kind, keytab)
    if at_controllers != CERTIFICATES:
        found["sasl.mechanism.controller.protocol"] = at_controllers
    if at_brokers != CERTIFICATES:
        found["sasl.mechanism.inter.broker.protocol"] = at_brokers
    return found


@pytest.fixture
def nodes(tmp_path: Path, keytab: Path, at_controllers: str, at_brokers: str) -> Iterator[Nodes]:
    """Three nodes that are formatted and do not run."""
    ids = (1, 2, 3)
    made = Nodes(
        tmp_path,
        dict.fromkeys(ids, "broker,controller"),
        properties=_properties(tmp_path, keytab, at_controllers, at_brokers),
        hosts=dict.fromkeys(ids, "localhost"),
    )
    credential = f"SCRAM-SHA-512=[name=by-scram,password={PASSWORD}]"
    for node, port in zip(made.all, kafka_jars.free_ports(len(ids)), strict=True):
        node.settings["listeners"] += f",{NODES}://localhost:{port}"
        node.format(made.cluster_id, "--add-scram", credential)
    try:
        yield made
    finally:
        made.close()


def _are_in_sync(nodes: Nodes) -> bool:
    """Returns whether each node knows that all replicas of the topic are in sync."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    answers = [LoggedIn(node.port, ADMIN).call(request, 12, MetadataResponse) for node in nodes.all]
    return all([len(row.isr_nodes) for row in answer.topics[0].partitions] == [3] for answer in answers)


def _settings(nodes: Nodes) -> dict[str, Any]:
    return {
        "bootstrap.servers": nodes.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": ADMIN.mechanism,
        "sasl.username": ADMIN.username,
        "sasl.password": ADMIN.password,
        "log_level": 0,
    }


def _write(nodes: Nodes, value: bytes) -> None:
    errors: list[Any] = []
    producer = Producer({**_settings(nodes), "acks": "all"})
    producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(_TIMEOUT_S)
    assert errors == [None]


def _values(nodes: Nodes, count: int) -> list[bytes | None]:
    consumer = Consumer({**_settings(nodes), "group.id": "readers"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        return [message.value() for message in consumer.consume(count, _TIMEOUT_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize(("at_controllers", "at_brokers"), PAIRS)
def test_a_cluster_starts_cold(nodes: Nodes) -> None:
    """Guard S21: each write is on all three replicas, so links of both listeners work before and after."""
    nodes.start()
    made = LoggedIn(nodes[1].port, ADMIN).call(creation(TOPIC, replicas=3), 7, CreateTopicsResponse)
    assert made.topics[0].error_code == 0
    until("replicas in sync", lambda: _are_in_sync(nodes))
    _write(nodes, b"first")
    for node in nodes.all:
        node.kill()
    nodes.start()
    until("replicas in sync again", lambda: _are_in_sync(nodes))
    _write(nodes, b"second")
    assert _values(nodes, 2) == [b"first", b"second"]
