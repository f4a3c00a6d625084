"""Log-in by SCRAM in ZooKeeper mode: the credentials that one kind of broker writes let users in at both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.log_in import SECURED
from tests.support.process_nodes import until
from tests.support.zookeeper_mode import WAIT_S, OurBroker, ZooKeeperModeCluster

from kafka39_jars import KafkaBroker

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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZooKeeperModeCluster]:
    made = ZooKeeperModeCluster(tmp_path, [OurBroker, KafkaBroker], _SETTINGS)
    yield made
    made.close()


def client_of(broker: KafkaBroker, mechanism: str, user: str, password: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )


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
