"""Log-in by SCRAM in ZooKeeper mode: the credentials that one kind of broker, or Kafka's tool, writes let users in at
both kinds, and brokers at each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.log_in import SECURED, jaas
from tests.support.process_nodes import call, until
from tests.support.zookeeper_mode import SETTINGS, WAIT_S, OurBroker, ZooKeeperModeCluster
from tests.support.zookeeper_process import OurZooKeeper

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafka39_jars import KafkaBroker, run_tool

pytestmark = pytest.mark.full
USER, PASSWORD = "carol", "carol-marker-Secret"
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SETTINGS = {
    **SECURED,
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    **{f"listener.name.plaintext.{name.lower()}.sasl.jaas.config": _SCRAM for name in MECHANISMS},
}


#: The answers to one request with all errors, by user.
ANSWERS = {
    "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
    "a b/c,d=e": (ErrorCode.NONE, ""),
    "absent": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    "both": (ErrorCode.NONE, ""),
    "double": (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"),
    "half": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
    "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
    "mixed": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    "strange": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    "unknown": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
}
_ABSENT = "Attempt to describe a user credential that does not exist: {}"
_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: eve"
DESCRIBED = {
    "both": (0, "", [(1, 4_096), (2, 16_384)]),
    "a b/c,d=e": (0, "", [(1, 4_096)]),
    "eve": (ErrorCode.DUPLICATE_RESOURCE, _TWICE, []),
    "double": (ErrorCode.RESOURCE_NOT_FOUND, _ABSENT.format("double"), []),
}
KINDS = pytest.mark.parametrize(
    "kind", [pytest.param(OurBroker, id="under-ours"), pytest.param(KafkaBroker, id="under-theirs")]
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZooKeeperModeCluster]:
    made = ZooKeeperModeCluster(tmp_path, [OurBroker, KafkaBroker], _SETTINGS)
    yield made
    made.close()


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[OurZooKeeper]:
    server = OurZooKeeper(tmp_path / "zookeeper").start()
    yield server
    server.kill()


@pytest.fixture
def open_cluster(tmp_path: Path) -> Iterator[ZooKeeperModeCluster]:
    """A cluster without a log-in."""
    made = ZooKeeperModeCluster(tmp_path, [OurBroker, KafkaBroker])
    yield made
    made.close()


def settings_of(broker: KafkaBroker, mechanism: str, user: str, password: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def client_of(broker: KafkaBroker, mechanism: str, user: str, password: str) -> AdminClient:
    return AdminClient(settings_of(broker, mechanism, user, password))


def knows_controller(cluster: ZooKeeperModeCluster, broker: KafkaBroker) -> bool:
    found = client_of(broker, "PLAIN", "node", "node-marker-Secret").list_topics(timeout=10).controller_id
    return bool(found == cluster.controller_id)


def is_refused(broker: KafkaBroker, mechanism: str) -> bool:
    return not is_let_in(broker, mechanism)


def is_let_in(broker: KafkaBroker, mechanism: str) -> bool:
    try:
        return bool(client_of(broker, mechanism, USER, PASSWORD).list_topics(timeout=3).brokers)
    except KafkaException:
        return False


def alter(broker: KafkaBroker, *changes: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
    admin = client_of(broker, "PLAIN", "node", "node-marker-Secret")
    for done in admin.alter_user_scram_credentials(list(changes)).values():
        done.result(WAIT_S)


@pytest.mark.parametrize(
    "kind", [pytest.param(OurBroker, id="under-ours"), pytest.param(KafkaBroker, id="under-theirs")]
)
def test_credentials_count_at_brokers_of_both_kinds(cluster: ZooKeeperModeCluster, kind: type[KafkaBroker]) -> None:
    cluster.let_claim(kind)
    for broker in cluster.brokers.values():
        until("the controller is known", partial(knows_controller, cluster, broker), WAIT_S)
        assert not is_let_in(broker, "SCRAM-SHA-256")
    assert type(cluster.brokers[cluster.controller_id]) is kind
    for name, mechanism in MECHANISMS.items():
        info = ScramCredentialInfo(mechanism, 4_096)
        alter(cluster.brokers[1], UserScramCredentialUpsertion(USER, info, PASSWORD.encode()))
        for broker in cluster.brokers.values():
            until(f"{USER} is let in by {name}", partial(is_let_in, broker, name), WAIT_S)
    admin = client_of(cluster.brokers[2], "PLAIN", "node", "node-marker-Secret")
    asked = admin.describe_user_scram_credentials([USER])
    assert isinstance(asked, dict), "one future for each user"
    assert {info.mechanism for info in asked[USER].result(WAIT_S).scram_credential_infos} == set(MECHANISMS.values())
    alter(cluster.brokers[2], UserScramCredentialDeletion(USER, ScramMechanism.SCRAM_SHA_256))
    for broker in cluster.brokers.values():
        until(f"{USER} is refused", partial(is_refused, broker, "SCRAM-SHA-256"), WAIT_S)
        assert is_let_in(broker, "SCRAM-SHA-512")


def deletion(name: str, mechanism: int = 1) -> AlterUserScramCredentialsRequest.ScramCredentialDeletion:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def upsertion(
    name: str, mechanism: int = 1, iterations: int = 4_096
) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(32)
    )


@KINDS
def test_both_kinds_of_controllers_give_the_same_answers(
    open_cluster: ZooKeeperModeCluster, kind: type[KafkaBroker]
) -> None:
    """Requests that no client of Kafka sends, too."""
    controller = open_cluster.let_decide(kind)
    addresses = {number: ("localhost", broker.port) for number, broker in open_cluster.brokers.items()}
    request = AlterUserScramCredentialsRequest(
        deletions=[deletion("absent"), deletion(""), deletion("strange", 7), deletion("mixed")],
        upsertions=[
            *(upsertion("both"), upsertion("both", 2, 16_384), upsertion("double"), upsertion("double")),
            *(upsertion("half"), upsertion("half", 2, 4_095), upsertion("many", 1, 16_385), upsertion("unknown", 0)),
            *(upsertion("mixed", 2), upsertion("a b/c,d=e")),
        ],
    )
    answer = call(addresses[controller], request, 0, AlterUserScramCredentialsResponse)
    assert {row.user: (row.error_code, row.error_message) for row in answer.results} == ANSWERS
    assert len(answer.results) == len(ANSWERS)
    refused = call(addresses[3 - controller], request, 0, AlterUserScramCredentialsResponse)
    assert {(row.error_code, row.error_message) for row in refused.results} == {(ErrorCode.NOT_CONTROLLER, None)}
    for number, address in addresses.items():
        until(f"broker {number} knows the users", partial(knows_users, address), WAIT_S)
        assert described(address, ["both", "a b/c,d=e", "eve", "eve", "double"]) == DESCRIBED


def knows_users(address: tuple[str, int]) -> bool:
    return described(address, []).keys() == {"both", "a b/c,d=e"}


def described(address: tuple[str, int], names: list[str]) -> dict[str, tuple[int, str | None, list[tuple[int, int]]]]:
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users or None)
    answer = call(address, request, 0, DescribeUserScramCredentialsResponse)
    assert answer.error_code == 0
    return {
        row.user: (row.error_code, row.error_message, sorted((i.mechanism, i.iterations) for i in row.credential_infos))
        for row in answer.results
    }


def test_the_first_users_are_written_by_kafkas_tool_before_the_brokers_start(
    zookeeper: OurZooKeeper, tmp_path: Path
) -> None:
    """Brokers of both kinds log in to each other with what the tool wrote: acks=all needs the other one's fetches."""
    connect = f"127.0.0.1:{zookeeper.port}"
    for user in ("node", USER):
        entity = ("--entity-type", "users", "--entity-name", user)
        change = ("--alter", "--add-config", f"SCRAM-SHA-256=[password={PASSWORD}]")
        done = run_tool("kafka.admin.ConfigCommand", "--zookeeper", connect, *entity, *change)
        assert f"Completed updating config for entity: user-principal '{user}'" in done.stdout, (
            done.stdout + done.stderr
        )
    changed = {
        **SETTINGS,
        **_SETTINGS,
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": jaas("node", PASSWORD, "SCRAM-SHA-256"),
    }
    brokers = [
        kind(tmp_path / f"broker-{number}", connect, number, properties=changed)
        for number, kind in enumerate((OurBroker, KafkaBroker), 1)
    ]
    errors: list[object] = []
    try:
        for broker in brokers:
            broker.start()
        for leader, broker in enumerate(brokers, 1):
            admin = client_of(broker, "SCRAM-SHA-256", USER, PASSWORD)
            topic = NewTopic(f"led-by-{leader}", 1, replica_assignment=[[leader, 3 - leader]])
            admin.create_topics([topic])[topic.topic].result(WAIT_S)
            producer = Producer(settings_of(broker, "SCRAM-SHA-256", USER, PASSWORD))
            producer.produce(topic.topic, b"x", on_delivery=lambda error, message: errors.append(error))
            assert producer.flush(WAIT_S) == 0
        assert errors == [None, None]
    finally:
        for broker in brokers:
            broker.kill()
            print(f"--- {type(broker).__name__}\n{broker.log_path.read_text(errors='replace')[-3000:]}")
