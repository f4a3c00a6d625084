"""GSSAPI with the system's library and a Kerberos server of MIT: nodes among themselves, librdkafka and Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.clients.servers import BarnabasServer
from tests.support.kdc import REALM, Kdc

import kafka_jars

pytestmark = pytest.mark.full
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


class Realm(NamedTuple):
    kdc: Kdc
    service: Path
    alice: Path
    nodes: list[BarnabasServer]

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.nodes[0].port}"


def _properties(ports: list[int], node: int, keytab: Path) -> dict[str, str]:
    controller = ports[0]
    entry = f'{_MODULE} keyTab="{keytab}" principal="kafka/localhost@{REALM}" serviceName="kafka";'
    listeners = f"CLIENTS://localhost:{ports[node]}"
    return {
        "process.roles": "broker,controller" if node == 1 else "broker",
        "node.id": str(node),
        "listeners": f"{listeners},CONTROLLER://localhost:{controller}" if node == 1 else listeners,
        "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.clients.gssapi.sasl.jaas.config": entry,
        "listener.name.controller.gssapi.sasl.jaas.config": entry,
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]/L,DEFAULT",
    }


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("kerberos")
    kdc = Kdc(folder / "kdc")
    nodes: list[BarnabasServer] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        try:
            kdc.start()
            service, alice = kdc.keytab("kafka/localhost"), kdc.keytab("Alice")
            ports = kafka_jars.free_ports(3)
            cluster = kafka_jars.CLUSTER_ID
            for node in (1, 2):
                made = BarnabasServer(
                    folder / f"node{node}", port=ports[node], properties=_properties(ports, node, service)
                )
                nodes.append(made)
                made.directory.mkdir()
                made.properties_path.write_text("".join(f"{key}={value}\n" for key, value in made.properties.items()))
                options = ["--standalone"] if node == 1 else ["--no-initial-controllers"]
                command = ["format", str(made.properties_path), "-t", cluster, *options]
                barnabas = str(Path(sys.executable).with_name("barnabas"))
                subprocess.run([barnabas, *command], check=True, capture_output=True, timeout=60)
                made.start()
            yield Realm(kdc, service, alice, nodes)
        finally:
            for server in nodes:
                server.stop()
            kdc.stop()


def _kcat(
    realm: Realm, keytab: Path, principal: str, *arguments: str, text: str = "", service: str = "kafka"
) -> subprocess.CompletedProcess[str]:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": service,
        "sasl.kerberos.keytab": str(keytab),
        "sasl.kerberos.principal": principal,
        "message.timeout.ms": "20000",
    }
    flags = [flag for key, value in settings.items() for flag in ("-X", f"{key}={value}")]
    return subprocess.run(
        ["kcat", "-q", "-b", realm.bootstrap, *flags, *arguments],
        env={**realm.kdc.environment, "KRB5CCNAME": f"FILE:{keytab}.cache"},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _java(
    realm: Realm, folder: Path, main: str, *arguments: str, takes: str = "--command-config", text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a program of Kafka. `takes` is its option for the settings of the client."""
    config = folder / "java.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={_MODULE} keyTab="{realm.alice}" principal="Alice@{REALM}";\n'
    )
    jvm = (*kafka_jars.LIGHT_JVM, f"-Djava.security.krb5.conf={realm.kdc.krb5_conf}")
    where = ("--bootstrap-server", realm.bootstrap, takes, str(config))
    command = kafka_jars.java_command(main, *arguments, *where, jvm=jvm)
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def test_kcat_and_nodes_log_in_by_kerberos(realm: Realm) -> None:
    """The topic has a replica on the node that reaches the controller and the other broker by Kerberos only."""
    principal = f"Alice@{REALM}"
    sent = _kcat(realm, realm.alice, principal, "-t", "orders", "-P", text="value\n")
    assert sent.returncode == 0, sent.stderr
    read = _kcat(realm, realm.alice, principal, "-t", "orders", "-C", "-o", "beginning", "-e")
    assert read.stdout == "value\n", read.stderr
    listed = _kcat(realm, realm.alice, principal, "-L", "-J")
    assert [f'"id":{node}' in listed.stdout for node in (1, 2)] == [True, True], listed.stdout


def test_java_logs_in_by_kerberos(realm: Realm, tmp_path: Path) -> None:
    tool = "org.apache.kafka.tools.TopicCommand"
    made = _java(realm, tmp_path, tool, "--create", "--topic", "java", "--replication-factor", "2")
    assert made.returncode == 0, made.stdout + made.stderr
    described = _java(realm, tmp_path, tool, "--describe", "--topic", "java")
    assert "ReplicationFactor: 2" in described.stdout, described.stdout + described.stderr
    tools, topic = "org.apache.kafka.tools", ("--topic", "java")
    sent = _java(realm, tmp_path, f"{tools}.ConsoleProducer", *topic, takes="--producer.config", text="one\n")
    assert sent.returncode == 0, sent.stderr
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
    read = _java(realm, tmp_path, f"{tools}.consumer.ConsoleConsumer", *topic, *limits, takes="--consumer.config")
    assert read.stdout == "one\n", read.stderr


def test_a_principal_of_another_service_is_refused(realm: Realm) -> None:
    """A client whose ticket is for a service with another key proves nothing here."""
    other = realm.kdc.keytab("imposter/localhost", "bob")
    done = _kcat(realm, other, f"bob@{REALM}", "-L", "-m", "5", service="imposter")
    assert done.returncode != 0
    assert "a login by GSSAPI failed" in realm.nodes[0].log_path.read_text()
