"""OAUTHBEARER on all listeners of three nodes, with an identity provider, and the clients of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.identity_provider import IdentityProvider
from tests.support.process_nodes import Nodes, until
from tests.support.tokens import AUDIENCE, ISSUER, key, unsecured

import kafka_jars

#: Tokens end soon, so that sessions are renewed within a test.
LIFETIME_S: Final = 4
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
CLIENTS: Final = {"node": "node-marker-Secret", "alice": "alice-marker-Secret"}


class Secured:
    """A cluster of three whose nodes and clients have their tokens from one provider."""

    def __init__(self, folder: Path) -> None:
        self.provider = provider = IdentityProvider(CLIENTS, LIFETIME_S)
        entry = f'{MODULE} clientId="node" clientSecret="{CLIENTS["node"]}";'
        properties = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "listener.name.plaintext.oauthbearer.sasl.jaas.config": entry,
            "listener.name.controller.oauthbearer.sasl.jaas.config": entry,
            "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
            "sasl.oauthbearer.token.endpoint.url": provider.token_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "barnabas.sasl.oauthbearer.allowed.urls": f"{provider.keys_url},{provider.token_url}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:alice",
        }
        self.nodes = Nodes(folder, dict.fromkeys((1, 2, 3), "broker,controller"), properties=properties)
        self.nodes.start()

    def client(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.nodes.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            **more,
        }

    def oidc(self) -> dict[str, Any]:
        """Returns the settings of a client that asks the provider itself."""
        return self.client(
            **{
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "alice",
                "sasl.oauthbearer.client.secret": CLIENTS["alice"],
                "sasl.oauthbearer.token.endpoint.url": self.provider.token_url,
            }
        )

    def with_callback(self, name: str = "alice", **changes: Any) -> dict[str, Any]:
        def token(config: str) -> tuple[str, float]:
            return self.provider.token(name, **changes), time.time() + LIFETIME_S

        return self.client(oauth_cb=token)

    def has_logged(self, text: str) -> bool:
        return text in self.logs

    @property
    def logs(self) -> str:
        return "".join(node.log for node in self.nodes.all)

    def close(self) -> None:
        self.nodes.close()
        self.provider.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("oauth"))
    yield made
    logs = made.logs
    made.close()
    assert "marker-Secret" not in logs
    assert "eyJ" not in logs, "no token is logged"


def read(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() or b"" for message in consumer.consume(count, timeout=30)]
    consumer.close()
    return values


def test_librdkafka_asks_the_provider_and_renews_its_sessions(cluster: Secured) -> None:
    """The nodes replicate meanwhile, with sessions of their own that end as soon."""
    admin = AdminClient(cluster.oidc())
    admin.create_topics([NewTopic("oidc", 1, 3)])["oidc"].result(30)
    producer = Producer({**cluster.oidc(), "acks": "all"})
    failed: list[Any] = []
    for number in range(60):
        producer.produce("oidc", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.01)
        time.sleep(1.3 * LIFETIME_S / 60)
    assert producer.flush(30) == 0
    assert not failed
    assert read(cluster.oidc(), "oidc", 60) == [b"%d" % number for number in range(60)]
    assert "session has ended" not in cluster.logs
    assert cluster.provider.asked.count("/token") > 3 * 2 + 1, "each node has replaced its tokens"


def test_librdkafka_with_a_callback(cluster: Secured) -> None:
    producer = Producer(cluster.with_callback())
    producer.produce("callback", b"value")
    assert producer.flush(30) == 0
    assert read(cluster.with_callback(), "callback", 1) == [b"value"]


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, provider: IdentityProvider) -> None:
        self._provider = provider

    async def token(self) -> str:
        return self._provider.token("alice")


def test_aiokafka_with_a_token_provider(cluster: Secured) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.nodes.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(cluster.provider),
    }

    async def both() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("aiokafka", b"value")
        async with AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), 30)
            return bytes(message.value)

    assert asyncio.run(both()) == b"value"


def test_tokens_that_are_refused(cluster: Secured) -> None:
    """A token for others, an unsecured one, and one that another key signed; the log tells why."""
    tokens = [cluster.provider.token("alice", aud="other"), unsecured(exp=time.time() + 60, iat=time.time())]
    other, cluster.provider.private = cluster.provider.private, key("RS256", "stranger")
    tokens.append(cluster.provider.token("alice"))
    cluster.provider.private = other
    clients = []
    for token in tokens:
        settings = cluster.client(oauth_cb=lambda config, token=token: (token, time.time() + 60))
        clients.append(AdminClient(settings))
    for client in clients:
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.7)
    for cause in (
        "its audience (aud) has none of the expected ones",
        "its algorithm (alg) is not one of",
        "its key is not in the key set",
    ):
        until(cause, partial(cluster.has_logged, cause), 5)


@pytest.mark.full
def test_javas_client_asks_the_provider(cluster: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = cluster.provider.token_url
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    file = tmp_path / "client.properties"
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={handler}\nsasl.oauthbearer.token.endpoint.url={url}\n"
        f'sasl.jaas.config={MODULE} clientId="alice" clientSecret="{CLIENTS["alice"]}";\n'
    )
    where = ("--bootstrap-server", cluster.nodes.bootstrap, "--topic", "java")
    tools = "org.apache.kafka.tools"
    sent = kafka_jars.run_tool(f"{tools}.ConsoleProducer", *where, "--producer.config", str(file), stdin="one\n")
    assert sent.returncode == 0, sent.stderr
    limits = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "60000", "--consumer.config", str(file))
    found = kafka_jars.run_tool(f"{tools}.consumer.ConsoleConsumer", *where, *limits)
    assert found.stdout == "one\n", found.stderr
    refused = file.read_text().replace(CLIENTS["alice"], "guess")
    file.write_text(refused)
    told = kafka_jars.run_tool(f"{tools}.TopicCommand", *where[:2], "--list", "--command-config", str(file))
    assert told.returncode != 0


@pytest.mark.full
def test_nodes_and_javas_client_with_unsecured_tokens_from_a_jaas_file(tmp_path: Path) -> None:
    entry = f'{MODULE} unsecuredLoginStringClaim_sub="node";'
    (tmp_path / "jaas.conf").write_text(f"KafkaServer {{\n  {entry}\n}};\n")
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "barnabas.jaas.config.file": str(tmp_path / "jaas.conf"),
    }
    nodes = Nodes(tmp_path, {1: "broker,controller", 2: "broker,controller"}, properties=properties)
    try:
        nodes.start()
        file = tmp_path / "client.properties"
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={entry}\n")
        where = ("--bootstrap-server", nodes.bootstrap, "--command-config", str(file))
        done = kafka_jars.run_tool(
            "org.apache.kafka.tools.TopicCommand", *where, "--create", "--topic", "t", "--replication-factor", "2"
        )
        assert done.returncode == 0, done.stderr
        assert all(node.log.count("accepts unsecured tokens of OAUTHBEARER") == 2 for node in nodes.all)
    finally:
        nodes.close()
