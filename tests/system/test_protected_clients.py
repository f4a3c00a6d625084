"""Eight unmodified Kafka clients over TLS, with each mechanism of a log-in and with certificates of their own.

Each client creates a topic, writes and reads back; an authorizer allows nobody but the names that the log-ins prove.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.clients import programs
from tests.clients.drivers import Client, ProcessClient
from tests.clients.kcat import Kcat
from tests.clients.protection import OAUTHBEARER, Protection
from tests.clients.python_clients import AioKafka, ConfluentKafka, KafkaPython
from tests.clients.servers import BarnabasServer
from tests.support.identity_provider import IdentityProvider
from tests.support.tls_stores import Stores
from tests.support.tokens import AUDIENCE, ISSUER
from tests.system.test_client_matrix import expect_equal, partitions_of, records_for

import kafka_jars

PASSWORD: Final = "alice-marker-Secret"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
NAMES: Final = ("confluent-kafka", "aiokafka", "kafka-python", "kcat", "java", "franz-go", "sarama", "kafkajs")
#: The way that is tried in the ordinary run for the client that no other test uses with a log-in or TLS; those in Go
#: take long to compile.
ORDINARY: Final = ("kafkajs", "SCRAM-SHA-512")
#: Debian's kcat is built without the library by which librdkafka asks for tokens.
IMPOSSIBLE: Final = {("kcat", OAUTHBEARER)}
MODULES: Final = "org.apache.kafka.common.security"


class Protected:
    """A broker with a listener for log-ins over TLS, and one for certificates of clients."""

    def __init__(self, folder: Path) -> None:
        self.stores = Stores(folder)
        self.stores.pem("broker")
        self.certificate = self.stores.pem("client")
        self.provider = IdentityProvider({"alice": PASSWORD})
        self.token = folder / "token"
        self.token.write_text(self.provider.token("alice"))
        probed, self.sasl_port, self.tls_port, controller_port = kafka_jars.free_ports(4)
        prefix = "listener.name.sasl_ssl."
        scram = f"{MODULES}.scram.ScramLoginModule required;"
        properties = {
            "listeners": f"PLAINTEXT://localhost:{probed},SASL_SSL://localhost:{self.sasl_port},"
            f"SSL://localhost:{self.tls_port},CONTROLLER://localhost:{controller_port}",
            "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{prefix}plain.sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
            f"{prefix}scram-sha-256.sasl.jaas.config": scram,
            f"{prefix}scram-sha-512.sasl.jaas.config": scram,
            f"{prefix}oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "barnabas.sasl.oauthbearer.allowed.urls": self.provider.keys_url,
            "listener.name.ssl.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
            "auto.create.topics.enable": "true",
            "num.partitions": "2",
            **self.stores.settings("PEM", "broker"),
        }
        self.server = BarnabasServer(folder / "server", port=probed, properties=properties)
        self.server.start()
        admin = AdminClient({"bootstrap.servers": f"localhost:{probed}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4_096), PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)
        self._programs: dict[str, ProcessClient] = {}

    def client(self, name: str, way: str) -> Client:
        """Returns a client that logs in by the mechanism `way`, or has a certificate (`mTLS`)."""
        if way == "mTLS":
            bootstrap = f"localhost:{self.tls_port}"
            protection = Protection(self.stores.trusted, None, certificate=self.certificate)
        else:
            bootstrap = f"localhost:{self.sasl_port}"
            tokens = {"token": self.token, "token_url": self.provider.token_url} if way == OAUTHBEARER else {}
            protection = Protection(self.stores.trusted, way, "alice", PASSWORD, **tokens)  # type: ignore[arg-type]
        if name == "java":
            return programs.java(bootstrap).at(bootstrap, settings=protection.java())
        if name in ("franz-go", "sarama", "kafkajs"):
            library = {"library": "sarama"} if name == "sarama" else {}
            return self._program(name).at(bootstrap, security=protection.json(), **library)
        made: Client = {
            "confluent-kafka": ConfluentKafka,
            "aiokafka": AioKafka,
            "kafka-python": KafkaPython,
            "kcat": Kcat,
        }[name](bootstrap, protection)
        return made

    def _program(self, name: str) -> ProcessClient:
        key = "kafkajs" if name == "kafkajs" else "go"
        if key not in self._programs:
            self._programs[key] = (programs.kafkajs if key == "kafkajs" else programs.franz_go)("localhost:1")
        return self._programs[key]

    def close(self) -> str:
        """Stops everything and returns the broker's log."""
        for each in self._programs.values():
            each.close()
        self.server.stop()
        self.provider.close()
        return self.server.log_path.read_text()


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    made = Protected(tmp_path_factory.mktemp("protected"))
    try:
        yield made
    finally:
        log = made.close()
    assert "marker-Secret" not in log
    assert "eyJ" not in log, "no token is logged"


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=() if (name, way) == ORDINARY else pytest.mark.full)
        for name in NAMES
        for way in (*MECHANISMS, "mTLS")
        if (name, way) not in IMPOSSIBLE
    ],
)
def test_a_client_reads_back_what_it_wrote(protected: Protected, name: str, way: str) -> None:
    client = protected.client(name, way)
    topic = f"{name}-{way}"
    client.create_topic(topic, 2)
    written = records_for(client.traits, f"{name} {way}")
    client.produce(topic, "gzip", written)
    for partition, expected in partitions_of(written).items():
        expect_equal(client.consume(topic, partition, len(expected)), expected)
