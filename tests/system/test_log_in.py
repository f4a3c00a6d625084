"""Listeners with SASL, and the clients and tools of others: Kafka's own, librdkafka, kcat, aiokafka, kafka-python."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.clients import programs
from tests.clients.drivers import ProcessClient
from tests.clients.servers import BarnabasServer

import kafka
import kafka_jars
from barnabas.cli.app import run

PASSWORD: Final = "alice-marker-Secret"
NODE_PASSWORD: Final = "node-marker-Secret"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def jaas(mechanism: str, user: str, password: str) -> str:
    return f'{_PLAIN if mechanism == "PLAIN" else _SCRAM} required username="{user}" password="{password}";'


def secured(port: int, controller_port: int, inter_broker: str = "PLAIN", controller: str = "PLAIN") -> dict[str, str]:
    """Returns the properties of a node with SASL on all listeners, as an operator of Kafka writes them."""
    users = f' user_node="{NODE_PASSWORD}" user_alice="{PASSWORD}";'
    properties = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": inter_broker,
        "sasl.mechanism.controller.protocol": controller,
    }
    for listener in ("sasl_plaintext", "controller"):
        for mechanism in MECHANISMS:
            entry = jaas(mechanism, "node", NODE_PASSWORD)
            if mechanism == "PLAIN":
                entry = entry.rstrip(";") + users
            properties[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = entry
    return properties


def client_properties(bootstrap: str, mechanism: str, user: str = "alice", password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    """A broker whose user alice has a credential of each mechanism."""
    folder = tmp_path_factory.mktemp("sasl")
    port, controller_port = kafka_jars.free_ports(2)
    properties = secured(port, controller_port) | {
        "connections.max.reauth.ms": "3000",
        "delegation.token.secret.key": "key-marker-Secret",
    }
    made = BarnabasServer(folder, port=port, properties=properties)
    made.start()
    admin = AdminClient(client_properties(made.bootstrap, "PLAIN"))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4_096)
        upsertion = UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([upsertion]).values():
            done.result(30)
    yield made
    made.stop()
    assert "marker-Secret" not in made.log_path.read_text()


@pytest.fixture(scope="module")
def java() -> Iterator[ProcessClient]:
    made = programs.java("127.0.0.1:1")
    yield made
    made.close()


def _java_properties(folder: Path, mechanism: str, user: str = "alice", password: str = PASSWORD) -> str:
    path = folder / f"client-{mechanism}-{user}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={jaas(mechanism, user, password)}\n"
    )
    return str(path)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(server: BarnabasServer, mechanism: str) -> None:
    """The producer writes for longer than a session lasts, and must authenticate again."""
    properties = client_properties(server.bootstrap, mechanism)
    producer = confluent_kafka.Producer(properties)
    topic = f"confluent-{mechanism}"
    failed: list[Any] = []
    for number in range(45):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.1)
    assert producer.flush(30) == 0
    assert not failed
    consumer = confluent_kafka.Consumer({**properties, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values = [message.value() or b"" for message in consumer.consume(45, timeout=30)]
    consumer.close()
    assert sorted(values) == sorted(b"%d" % number for number in range(45))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(server: BarnabasServer, mechanism: str) -> None:
    settings = client_properties(server.bootstrap, mechanism)
    flags = [flag for key, value in settings.items() for flag in ("-X", f"{key}={value}")]
    command = ["kcat", "-q", "-t", f"kcat-{mechanism}", *flags]
    subprocess.run([*command, "-P"], input="value\n", text=True, check=True, timeout=60)
    read = subprocess.run(
        [*command, "-C", "-o", "beginning", "-e"], capture_output=True, text=True, timeout=60, check=True
    )
    assert read.stdout == "value\n"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(server: BarnabasServer, mechanism: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }

    async def both() -> bytes:
        topic = f"aiokafka-{mechanism}"
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), 30)
            return bytes(message.value)

    assert asyncio.run(both()) == b"value"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(server: BarnabasServer, mechanism: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": server.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    producer = kafka.KafkaProducer(**settings)
    topic = f"python-{mechanism}"
    assert producer.send(topic, b"value").get(30).offset == 0
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_tools_of_kafka(server: BarnabasServer, java: ProcessClient, tmp_path: Path, mechanism: str) -> None:
    config = _java_properties(tmp_path, mechanism)
    topic = f"java-{mechanism}"
    where = ("--bootstrap-server", server.bootstrap)
    made = java.tool(
        "org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, "--command-config", config, *where
    )
    assert made.code == 0, made.text
    sent = java.tool(
        "org.apache.kafka.tools.ConsoleProducer", "--topic", topic, "--producer.config", config, *where, stdin="value\n"
    )
    assert sent.code == 0, sent.text
    read = java.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic, "--consumer.config", config, "--from-beginning", "--max-messages", "1", *where),
    )
    assert read.out.splitlines() == ["value"], read.text


def test_kafka_configs_changes_users(server: BarnabasServer, java: ProcessClient, tmp_path: Path) -> None:
    config = _java_properties(tmp_path, "PLAIN")
    tool = "kafka.admin.ConfigCommand"
    base = ("--bootstrap-server", server.bootstrap, "--command-config", config, "--entity-type", "users")
    user = (*base, "--entity-name", "carol")
    done = java.tool(
        tool, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=carol-marker-Secret]"
    )
    assert done.code == 0, done.text
    carol = client_properties(server.bootstrap, "SCRAM-SHA-256", "carol", "carol-marker-Secret")
    assert AdminClient(carol).list_topics(timeout=30).brokers
    done = java.tool(tool, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert done.code == 0, done.text
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(carol).list_topics(timeout=3)


def test_scram_credentials_by_librdkafka(server: BarnabasServer) -> None:
    admin = AdminClient(client_properties(server.bootstrap, "PLAIN"))
    (described,) = [done.result(30) for done in _described(admin, "alice")]
    assert {info.mechanism: info.iterations for info in described.scram_credential_infos} == {
        ScramMechanism.SCRAM_SHA_256: 4_096,
        ScramMechanism.SCRAM_SHA_512: 4_096,
    }
    deletion = UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256)
    (failed,) = admin.alter_user_scram_credentials([deletion]).values()
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        failed.result(30)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_reported_to_the_client(
    server: BarnabasServer, java: ProcessClient, tmp_path: Path, mechanism: str
) -> None:
    config = _java_properties(tmp_path, mechanism, "alice", "guess")
    refused = java.tool(
        "org.apache.kafka.tools.TopicCommand",
        "--list",
        "--command-config",
        config,
        "--bootstrap-server",
        server.bootstrap,
    )
    assert refused.code != 0
    assert ": Authentication failed" in refused.text


@pytest.mark.full
def test_java_renews_its_sessions_under_load(server: BarnabasServer, java: ProcessClient, tmp_path: Path) -> None:
    """S13: sessions last three seconds; no record is lost, and no connection is closed."""
    config = _java_properties(tmp_path, "SCRAM-SHA-256")
    load = ("--num-records", "6000", "--throughput", "500", "--record-size", "100")
    where = ("--producer-props", f"bootstrap.servers={server.bootstrap}")
    before = server.log_path.read_text().count("session has ended")
    sent = java.tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "renewed", *load, "--producer.config", config, *where
    )
    assert "6000 records sent" in sent.out, sent.text
    read = java.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", "renewed", "--consumer.config", config, "--from-beginning", "--max-messages", "6000"),
        *("--bootstrap-server", server.bootstrap),
    )
    assert len(read.out.splitlines()) == 6_000, read.err
    assert server.log_path.read_text().count("session has ended") == before


@pytest.mark.full
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_directory_that_kafka_formatted_with_users_starts_here_and_the_reverse(
    java: ProcessClient, tmp_path: Path, mechanism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes log in to each other by SCRAM from the first moment."""
    users = [f"SCRAM-SHA-512=[name={user},password={password}]" for user, password in _users().items()]
    for formatted_by in ("kafka", "barnabas"):
        folder = tmp_path / formatted_by
        folder.mkdir()
        port, controller_port = kafka_jars.free_ports(2)
        properties = secured(port, controller_port, mechanism, mechanism)
        theirs = kafka_jars.KafkaServer(folder, port=port, properties=properties)
        theirs.properties_path.write_text("".join(f"{key}={value}\n" for key, value in theirs.properties.items()))
        options = [option for user in users for option in ("--add-scram", user)]
        if formatted_by == "kafka":
            arguments = ("format", "-t", kafka_jars.CLUSTER_ID, "-c", str(theirs.properties_path), "--standalone")
            done = java.tool("kafka.tools.StorageTool", *arguments, *options)
            assert done.code == 0, done.text
            node: Any = BarnabasServer(folder, port=port, properties=properties)
        else:
            own = ("format", str(theirs.properties_path), "-t", kafka_jars.CLUSTER_ID, "--standalone")
            assert run([*own, *options]) == 0, capsys.readouterr().err
            node = theirs
        node.start()
        try:
            admin = AdminClient(client_properties(node.bootstrap, "SCRAM-SHA-512"))
            (described,) = [done.result(30) for done in _described(admin, "alice")]
            assert [info.iterations for info in described.scram_credential_infos] == [4_096]
        finally:
            node.stop()


def _described(admin: AdminClient, user: str) -> list[Any]:
    found = admin.describe_user_scram_credentials([user])
    assert isinstance(found, dict)
    return list(found.values())


def _users() -> dict[str, str]:
    return {"alice": PASSWORD, "node": NODE_PASSWORD}


def test_the_command_for_users(
    server: BarnabasServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = client_properties(server.bootstrap, "PLAIN")
    where = ["-b", server.bootstrap]
    for key, value in settings.items():
        where += [] if key == "bootstrap.servers" else ["--property", f"{key}={value}"]
    monkeypatch.setattr("sys.stdin", io.StringIO("erin-marker-Secret\n"))
    assert run(["users", "add", "erin", "--iterations", "5000", *where]) == 0
    assert run(["users", "list", "--json", *where]) == 0
    out = capsys.readouterr().out
    assert '"user": "erin"' in out
    assert "marker" not in out
    erin = client_properties(server.bootstrap, "SCRAM-SHA-512", "erin", "erin-marker-Secret")
    assert AdminClient(erin).list_topics(timeout=30).brokers
    assert run(["users", "remove", "erin", *where]) == 0
    assert run(["users", "remove", "erin", *where]) == 1
    assert "Attempt to delete a user credential that does not exist" in capsys.readouterr().err


# -- delegation tokens


def _flags(server: BarnabasServer, user: str = "alice", password: str = PASSWORD) -> list[str]:
    settings = client_properties(server.bootstrap, "PLAIN", user, password)
    properties = [f"{key}={value}" for key, value in settings.items() if key != "bootstrap.servers"]
    return ["-b", server.bootstrap, *(flag for each in properties for flag in ("--property", each))]


def _token_properties(folder: Path, mechanism: str, token: str, hmac: str) -> str:
    entry = jaas(mechanism, token, hmac).replace(";", ' tokenauth="true";')
    path = folder / f"token-{mechanism}.properties"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={entry}\n")
    return str(path)


def test_a_client_of_java_logs_in_by_a_token_from_the_command(
    server: BarnabasServer, java: ProcessClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = _flags(server)
    assert run(["tokens", "create", "--renewer", "User:bob", "--max-lifetime", "1h", "--json", *where]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["max_ms"] - made["issued_ms"] == made["expires_ms"] - made["issued_ms"] == 3_600_000
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = _token_properties(tmp_path, mechanism, made["id"], made["hmac"])
        listed = java.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--list", "--command-config", config, "--bootstrap-server", server.bootstrap),
        )
        assert listed.code == 0, listed.text
    refused = java.tool(
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--create", "--max-life-time-period", "-1", "--command-config", config),
        *("--bootstrap-server", server.bootstrap),
    )
    assert "Delegation Token requests are not allowed" in refused.text


def test_the_command_for_tokens(server: BarnabasServer, capsys: pytest.CaptureFixture[str]) -> None:
    where = _flags(server)
    assert run(["tokens", "create", *where]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    token, hmac = shown["id"], shown["hmac"]
    assert run(["tokens", "list", "--json", *where]) == 0
    listed = capsys.readouterr().out
    (row,) = [each for each in json.loads(listed) if each["id"] == token]
    assert row["owner"] == "User:alice"
    assert hmac not in listed
    assert run(["tokens", "list", "--hmac", "--owner", "User:alice", *where]) == 0
    assert hmac in capsys.readouterr().out
    assert run(["tokens", "list", "--owner", "User:nobody", *where]) == 0
    assert capsys.readouterr().out == "there is no token that you have a right to see\n"
    assert run(["tokens", "renew", token, "--for", "10m", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)["expires_ms"] < row["expires_ms"]
    stranger = _flags(server, "node", NODE_PASSWORD)
    assert run(["tokens", "renew", token, *stranger]) == 1
    assert "DELEGATION_TOKEN_OWNER_MISMATCH" in capsys.readouterr().err
    assert run(["tokens", "expire", token, "--in", "5m", *where]) == 0
    assert run(["tokens", "expire", token, *where]) == 0
    assert f"{token} is removed" in capsys.readouterr().out
    assert run(["tokens", "expire", token, *where]) == 1
    assert run(["tokens", "create", "--renewer", "bob", *where]) == 1
    assert run(["tokens", "create", "--renewer", "Group:staff", *where]) == 1
    assert "INVALID_PRINCIPAL_TYPE" in capsys.readouterr().err


@pytest.mark.full
def test_the_delegation_token_command_of_kafka(server: BarnabasServer, java: ProcessClient, tmp_path: Path) -> None:
    base = ("--bootstrap-server", server.bootstrap, "--command-config", _java_properties(tmp_path, "PLAIN"))

    def tool(*arguments: str, code: int = 0) -> str:
        done = java.tool("org.apache.kafka.tools.DelegationTokenCommand", *arguments, *base)
        assert done.code == code, done.text
        return str(done.text)

    made = tool(
        *("--create", "--max-life-time-period", "7200000", "--renewer-principal", "User:bob"),
        *("--owner-principal", "User:carol"),
    )
    assert "User:carol" in made
    assert "User:alice" in made
    assert "[User:bob]" in made
    others = re.search(r"(\S{22})\s+(\S{88})", made)
    assert others is not None
    own = re.search(r"(\S{22})\s+(\S{88})", tool("--create", "--max-life-time-period", "-1"))
    assert own is not None
    shown = tool("--describe", "--owner-principal", "User:alice")
    assert own[1] in shown
    assert others[1] in shown
    assert others[1] not in tool("--describe", "--owner-principal", "User:dave")
    for pick in ("--renew", "--renew-time-period", "60000"), ("--expire", "--expiry-time-period", "50000"):
        assert "expiry date" in tool(*pick, "--hmac", own[2]).lower()
    assert "Delegation Token can not be found" not in tool("--expire", "--expiry-time-period", "-1", "--hmac", own[2])
    assert own[1] not in tool("--describe")
    for pick in ("--renew", "--renew-time-period", "-1"), ("--expire", "--expiry-time-period", "-1"):
        assert "Delegation Token is not found" in tool(*pick, "--hmac", own[2], code=1)
        assert "not valid Owner" in tool(*pick, "--hmac", others[2], code=1)
