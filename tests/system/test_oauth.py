"""OAUTHBEARER on all listeners of three nodes, with an identity provider, and the clients of others."""

from __future__ import annotations

import asyncio
import socket
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
from tests.clients.servers import BarnabasServer
from tests.support.identity_provider import JWT_BEARER, IdentityProvider
from tests.support.log_in import authenticate, handshake
from tests.support.process_nodes import Nodes, until
from tests.support.tokens import AUDIENCE, ISSUER, claims, first_message, key, signed, unsecured

import kafka_jars
from barnabas.cli.app import run
from barnabas.protocol import codec
from barnabas.protocol.client_session import ClientSession, LoginRefused
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.sasl.logins import Login

#: Tokens end soon, so that sessions are renewed within a test.
LIFETIME_S: Final = 10
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
MODULE: Final = f"{_PACKAGE}.OAuthBearerLoginModule required"
CLIENTS: Final = {"node": "node-marker-Secret", "alice": "alice-marker-Secret"}


def properties_of(provider: IdentityProvider, entry: str) -> dict[str, str]:
    """Returns the properties of nodes that log in by tokens of the provider; `entry` is their JAAS entry."""
    return {
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
        "barnabas.sasl.oauthbearer.allowed.urls": f"{provider.keys_url},{provider.token_url}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }


class Secured:
    """A cluster of three whose nodes and clients have their tokens from one provider."""

    def __init__(self, folder: Path) -> None:
        self.provider = provider = IdentityProvider(CLIENTS, LIFETIME_S)
        entry = f'{MODULE} clientId="node" clientSecret="{CLIENTS["node"]}";'
        properties = {
            **properties_of(provider, entry),
            "sasl.oauthbearer.clock.skew.seconds": "0",
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


def test_librdkafka_asks_the_provider(cluster: Secured) -> None:
    admin = AdminClient(cluster.oidc())
    admin.create_topics([NewTopic("oidc", 1, 3)])["oidc"].result(30)
    producer = Producer({**cluster.oidc(), "acks": "all"})
    producer.produce("oidc", b"value")
    assert producer.flush(30) == 0
    assert read(cluster.oidc(), "oidc", 1) == [b"value"]


def test_our_commands_over_librdkafka(cluster: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    settings = cluster.oidc()
    where = ["-b", settings.pop("bootstrap.servers")]
    for name, text in settings.items():
        where += ["--property", f"{name}={text}"]
    assert run(["topics", "create", "by-command", *where]) == 0
    assert run(["topics", "list", "--json", *where]) == 0
    assert '"by-command"' in capsys.readouterr().out


@pytest.mark.full
def test_sessions_are_renewed_with_new_tokens(cluster: Secured) -> None:
    """The nodes replicate meanwhile, with sessions of their own that end as soon."""
    admin = AdminClient(cluster.oidc())
    admin.create_topics([NewTopic("renewed", 1, 3)])["renewed"].result(30)
    producer = Producer({**cluster.oidc(), "acks": "all"})
    failed: list[Any] = []
    for number in range(130):
        producer.produce(
            "renewed", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0.01)
        time.sleep(2 * LIFETIME_S / 130)
    assert producer.flush(30) == 0
    assert not failed
    assert read(cluster.oidc(), "renewed", 130) == [b"%d" % number for number in range(130)]
    assert "session has ended" not in cluster.logs
    assert cluster.provider.asked.count("/token") > 3 * 2 + 3, "each node has replaced its tokens"


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


def test_nodes_log_in_by_assertions_of_their_private_key(tmp_path: Path) -> None:
    """KIP-1139, at the brokers' side."""
    provider = IdentityProvider({})
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    key_file.write_bytes(provider.asserting.as_pem(private=True))
    template.write_text('{"payload": {"sub": "node"}}')
    properties = {
        **properties_of(provider, f"{MODULE};"),
        "sasl.oauthbearer.jwt.retriever.class": f"{_PACKAGE}.JwtBearerJwtRetriever",
        "sasl.oauthbearer.assertion.private.key.file": str(key_file),
        "sasl.oauthbearer.assertion.template.file": str(template),
        "sasl.oauthbearer.assertion.claim.iss": "cluster",
        "sasl.oauthbearer.assertion.claim.jti.include": "true",
        "barnabas.sasl.oauthbearer.allowed.files": f"{key_file},{template}",
        "super.users": "User:node",
    }
    nodes = Nodes(tmp_path, {1: "broker,controller", 2: "broker,controller"}, properties=properties)
    try:
        nodes.start()
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, **_by_assertion(provider, key_file)})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(30)
        assert {claims["iss"] for claims in provider.assertions if "iss" in claims} == {"cluster"}
        identities = [claims["jti"] for claims in provider.assertions if claims.get("iss") == "cluster"]
        assert len(identities) == len(set(identities)) >= 4, "one for each of two listeners, of two nodes"
    finally:
        nodes.close()
        provider.close()


def _by_assertion(provider: IdentityProvider, key_file: Path) -> dict[str, Any]:
    """Returns the settings of a client of librdkafka that asks for a token by an assertion, as the user `node`."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.grant.type": JWT_BEARER,
        "sasl.oauthbearer.assertion.private.key.file": str(key_file),
        "sasl.oauthbearer.assertion.claim.sub": "node",
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
    }


@pytest.mark.full
def test_javas_client_asks_by_an_assertion(cluster: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = cluster.provider
    key_file, file = tmp_path / "key.pem", tmp_path / "client.properties"
    key_file.write_bytes(provider.asserting.as_pem(private=True))
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{allowed}.urls={provider.token_url} {allowed}.files={key_file}")
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={_PACKAGE}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.jwt.retriever.class={_PACKAGE}.JwtBearerJwtRetriever\n"
        f"sasl.oauthbearer.token.endpoint.url={provider.token_url}\n"
        f"sasl.oauthbearer.assertion.private.key.file={key_file}\n"
        "sasl.oauthbearer.assertion.claim.sub=alice\n"
        f"sasl.jaas.config={MODULE};\n"
    )
    where = ("--bootstrap-server", cluster.nodes.bootstrap, "--command-config", str(file))
    done = kafka_jars.run_tool("org.apache.kafka.tools.TopicCommand", *where, "--create", "--topic", "by-assertion")
    assert done.returncode == 0, done.stderr
    assert "alice" in {claims["sub"] for claims in provider.assertions}


def _unsecured_listener(module: str) -> dict[str, str]:
    options = 'unsecuredLoginStringClaim_sub="node" unsecuredValidatorRequiredScope="LOGIN"'
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.jaas.config": f"{module} {options};",
    }


def _answers(port: int, *messages: bytes) -> list[tuple[int, str | None, bytes, bool]]:
    """Returns what a broker answers to the messages of a log-in: error, text, message, and whether a session ends."""
    found: list[tuple[int, str | None, bytes, bool]] = []
    with socket.create_connection(("127.0.0.1", port), 30) as link, link.makefile("rb") as stream:
        for request in (handshake("OAUTHBEARER"), *map(authenticate, messages)):
            link.sendall(len(request).to_bytes(4, "big") + request)
            data = stream.read(int.from_bytes(stream.read(4), "big"))
            if not data:
                found.append((-1, "closed", b"", False))
                break
            if request != handshake("OAUTHBEARER"):
                answer = codec.decode(SaslAuthenticateResponse, 2, data, 5)[0]
                ends = answer.session_lifetime_ms > 0
                found.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes), ends))
                if answer.error_code or not answer.auth_bytes:
                    break
    return found


def _log_in(port: int, token: str) -> None:
    """Logs in as a node of ours does. Raises LoginRefused."""
    with socket.create_connection(("127.0.0.1", port), 30) as link, link.makefile("rb") as stream:

        def carry(frame: bytearray) -> bytes:
            link.sendall(frame)
            return stream.read(int.from_bytes(stream.read(4), "big"))

        ClientSession("test", "test", Login("OAUTHBEARER", "alice", token), "nonce").shake_hands(carry)


@pytest.mark.full
def test_kafka_answers_the_same(tmp_path: Path) -> None:
    """Every kind of message and of unsecured token, at Apache Kafka and here: the same bytes. One is missing: another
    scheme than Bearer closes the connection in Kafka, because the text of its refusal cannot be made.
    """
    now_s = int(time.time())
    good = {"exp": now_s + 600, "iat": now_s - 10, "scope": ["LOGIN"]}
    tokens = [
        unsecured(**good),
        unsecured(**{**good, "scope": None}),
        unsecured(**{**good, "scope": ["OTHER"]}),
        unsecured(**{**good, "exp": now_s - 1}),
        unsecured(**{**good, "exp": None}),
        unsecured(**{**good, "exp": "soon"}),
        unsecured(**{**good, "iat": now_s + 100}),
        unsecured(**{**good, "sub": None}),
        unsecured(**{**good, "sub": 7}),
        signed(claims(**good)),
        "a.b.c",
        "a",
    ]
    exchanges: list[tuple[bytes, ...]] = [(first_message(token), b"\x01") for token in tokens]
    exchanges += [(first_message(tokens[0], name),) for name in ("alice", "eve")]
    exchanges += [
        (first_message(tokens[0], traceId="7"),),
        (first_message(tokens[0]).replace(b"Bearer", b"bEARER  "),),
        (first_message(tokens[0])[:-1],),
        (first_message(tokens[0]).replace(b"auth=", b"other="),),
        (first_message(tokens[0]).replace(b"n,,", b"y,,"),),
        (first_message(tokens[0], k1="v"),),
        (b"\x01",),
        (b"",),
    ]
    found = []
    for make in (kafka_jars.KafkaServer, BarnabasServer):
        port = kafka_jars.free_ports(1)[0]
        server: Any = make(tmp_path / make.__name__, properties=_unsecured_listener(MODULE))
        server.properties["listeners"] += f",CLIENTS://127.0.0.1:{port}"
        server.start()
        try:
            _log_in(port, unsecured(**good))
            with pytest.raises(LoginRefused, match="invalid_token"):
                _log_in(port, unsecured(**{**good, "exp": now_s - 1}))
            found.append([_answers(port, *each) for each in exchanges])
        finally:
            server.stop()
    for exchange, theirs, ours in zip(exchanges, *found, strict=True):
        assert ours == theirs, exchange


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
        assert all(node.log.count("accepts unsecured OAUTHBEARER tokens") == 2 for node in nodes.all)
    finally:
        nodes.close()
