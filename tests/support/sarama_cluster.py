"""Five brokers behind the proxies that the functional tests of sarama expect, with TLS and a log-in or without both."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.clients.sarama_suite import PROXY_PORTS, TOXIPROXY_PORT, VERSION
from tests.clients.toxiproxy import Toxiproxy
from tests.support.docker_commands import DockerCommands, write_tool
from tests.support.process_nodes import Nodes
from tests.support.suite_server import ADMIN, PASSWORD, USER, add_user, entries
from tests.support.tls_stores import Stores

import kafka_jars

BROKERS: Final = range(1, 6)
_TOOLS: Final = {
    "kafka-console-producer.sh": ("ConsoleProducer", "--producer.config"),
    "kafka-console-consumer.sh": ("consumer.ConsoleConsumer", "--consumer.config"),
    "kafka-verifiable-consumer.sh": ("VerifiableConsumer", "--consumer.config"),
}
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SaramaCluster:
    """Brokers and controllers that talk to each other over TLS. Clients come by the listener LOCAL, which is SASL_SSL
    or PLAINTEXT, and are told to go to the proxies. The user of a log-in is no super user.
    """

    def __init__(self, folder: Path, *, is_secure: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._is_secure = is_secure
        self._stores = Stores(folder)
        self._stores.pem("broker")
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL,"
            + ("LOCAL:SASL_SSL" if is_secure else "LOCAL:PLAINTEXT"),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.plaintext.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN=broker;User:{ADMIN}",
            "allow.everyone.if.no.acl.found": "true",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "default.replication.factor": "2",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "1",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            **self._stores.settings("PEM", "broker"),
            **(entries("local") if is_secure else {}),
        }
        self.nodes = Nodes(folder, dict.fromkeys(BROKERS, "broker,controller"), properties=properties)
        self.local = dict(zip(BROKERS, kafka_jars.free_ports(len(BROKERS)), strict=True))
        for node in self.nodes.all:
            port, proxy = self.local[node.node_id], PROXY_PORTS[node.node_id - 1]
            node.settings["broker.rack"] = str(node.node_id)
            node.settings["listeners"] += f",LOCAL://127.0.0.1:{port}"
            node.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{node.port},LOCAL://localhost:{proxy}"
        tools = folder / "tools"
        tools.mkdir()
        self._write_tools(tools)
        self._toxiproxy = Toxiproxy(folder, TOXIPROXY_PORT)
        for node_id, port in self.local.items():
            self._toxiproxy.add(f"kafka{node_id}", PROXY_PORTS[node_id - 1], port)
        self._docker = DockerCommands(
            {f"kafka-{node.node_id}": node for node in self.nodes.all},
            {"kafka-1:9091": f"localhost:{PROXY_PORTS[0]}", f"/opt/kafka-{VERSION}/bin": str(tools)},
            tools,
        )

    def start(self) -> SaramaCluster:
        self.nodes.start()
        if self._is_secure:
            add_user(self.client_settings(), USER)
        return self

    def client_settings(self) -> dict[str, str]:
        """Returns the settings of librdkafka for the user `admin`."""
        return {
            "bootstrap.servers": f"localhost:{PROXY_PORTS[0]}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self._stores.trusted),
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the tests."""
        found = dict(self._docker.environment)
        if self._is_secure:
            found |= {"SUITE_CA": str(self._stores.trusted), "SUITE_USER": USER, "SUITE_PASSWORD": PASSWORD}
        return found

    def _write_tools(self, folder: Path) -> None:
        """Writes Kafka's scripts. They connect as the user `admin`."""
        file = folder / "java.properties"
        entry = f'{_PLAIN} required username="{ADMIN}" password="{PASSWORD}";'
        lines = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": entry,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._stores.trusted),
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()) if self._is_secure else "")
        for name, (main, option) in _TOOLS.items():
            write_tool(folder / name, f"org.apache.kafka.tools.{main}", option, str(file))

    def close(self) -> None:
        self._docker.close()
        self._toxiproxy.close()
        self.nodes.close()
