"""SCRAM credentials in ZooKeeper mode: kept in znodes, changed by requests at the controller, used by log-ins."""

from __future__ import annotations

import base64

import pytest
from tests.support.log_in import SECURED, log_in
from tests.support.wired import WiredClient
from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.sasl.scram_server import keys_of, salted_password
from barnabas.znodes.config_znodes import decode_config, encode_config

_Request = AlterUserScramCredentialsRequest
_Deletion = _Request.ScramCredentialDeletion
_Upsertion = _Request.ScramCredentialUpsertion
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SALT = b"a-salt-of-some-length-here"
PATH = "/config/users/carol"


def upsertion(name: str, mechanism: str = "SCRAM-SHA-256", *, iterations: int = 4_096) -> _Upsertion:
    salted = salted_password(HASHES[mechanism], "pencil", SALT, iterations)
    return _Upsertion(name=name, mechanism=NUMBERS[mechanism], iterations=iterations, salt=SALT, salted_password=salted)


def alter(client: WiredClient, *alterations: _Upsertion | _Deletion) -> list[tuple[str, int, str | None]]:
    request = _Request(
        deletions=[each for each in alterations if isinstance(each, _Deletion)],
        upsertions=[each for each in alterations if isinstance(each, _Upsertion)],
    )
    answer = client.call(request, 0, AlterUserScramCredentialsResponse)
    return [(row.user, row.error_code, row.error_message) for row in answer.results]


def described(client: WiredClient) -> dict[str, list[tuple[int, int]]]:
    answer = client.call(DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse)
    return {row.user: [(info.mechanism, info.iterations) for info in row.credential_infos] for row in answer.results}


def config(broker: ZooKeeperBroker, path: str = PATH) -> dict[str, str]:
    znode = broker.tree.content(path)
    assert znode is not None
    return decode_config(path, znode.data)


@pytest.fixture
def alone() -> ZooKeeperBroker:
    return ZooKeeperBroker().start()


def secured() -> ZooKeeperBroker:
    properties = {key.replace(".", "_"): value for key, value in SECURED.items()}
    properties["listener_security_protocol_map"] = "PLAINTEXT:SASL_PLAINTEXT"
    return ZooKeeperBroker(None, None, **properties).start()


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_user_logs_in_until_the_credential_is_deleted(mechanism: str) -> None:
    broker = secured()
    admin = broker.connect()
    assert log_in(admin).error_code == 0
    assert log_in(broker.connect(), "carol", "pencil", mechanism).error_code == 58
    assert alter(admin, upsertion("carol", mechanism)) == [("carol", 0, "")]
    assert log_in(broker.connect(), "carol", "pencil", mechanism).error_code == 0
    assert log_in(broker.connect(), "carol", "pen", mechanism).error_code == 58
    assert alter(admin, _Deletion(name="carol", mechanism=NUMBERS[mechanism])) == [("carol", 0, "")]
    assert log_in(broker.connect(), "carol", "pencil", mechanism).error_code == 58


def test_the_znode_has_both_mechanisms_and_keeps_the_quotas(alone: ZooKeeperBroker) -> None:
    """`kafka-configs` sets several mechanisms of a user with one request."""
    client = alone.connect()
    entity = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="carol")
    quota = AlterClientQuotasRequest.OpData(key="consumer_byte_rate", value=2048.0)
    entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=[quota])
    client.call(AlterClientQuotasRequest(entries=[entry]), 1, AlterClientQuotasResponse)
    both = upsertion("carol"), upsertion("carol", "SCRAM-SHA-512", iterations=8_192)
    assert alter(client, *both) == [("carol", 0, "")]
    stored, server = (base64.b64encode(key).decode() for key in keys_of("sha256", both[0].salted_password))
    found = config(alone)
    assert found["consumer_byte_rate"] == "2048"
    salt = base64.b64encode(SALT).decode()
    assert found["SCRAM-SHA-256"] == f"salt={salt},stored_key={stored},server_key={server},iterations=4096"
    assert found["SCRAM-SHA-512"].endswith("iterations=8192")
    assert described(client) == {"carol": [(1, 4_096), (2, 8_192)]}
    assert alter(client, _Deletion(name="carol", mechanism=1)) == [("carol", 0, "")]
    assert config(alone).keys() == {"SCRAM-SHA-512", "consumer_byte_rate"}
    assert len(alone.tree.names("/config/changes")) == 3


def test_each_user_is_decided_alone(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    twice = "A user credential cannot be altered twice in the same request"
    assert sorted(
        alter(
            client,
            _Deletion(name="absent", mechanism=1),
            _Deletion(name="", mechanism=1),
            _Deletion(name="strange", mechanism=7),
            upsertion("double"),
            upsertion("double"),
            upsertion("half"),
            upsertion("half", "SCRAM-SHA-512", iterations=4_095),
            upsertion("a,b/c"),
        )
    ) == [
        ("", 93, "Username must not be empty"),
        ("a,b/c", 0, ""),
        ("absent", 91, "Attempt to delete a user credential that does not exist"),
        ("double", 92, twice),
        ("half", 93, "Too few iterations"),
        ("strange", 33, "Unknown SCRAM mechanism"),
    ]
    assert alone.tree.names("/config/users") == ("a%2Cb%2Fc",)
    assert described(client) == {"a,b/c": [(1, 4_096)]}


def test_what_a_tool_wrote_is_kept(alone: ZooKeeperBroker) -> None:
    """The decision reads the znode, not the broker's image."""
    client = alone.connect()
    assert alter(client, upsertion("dave")) == [("dave", 0, "")]
    text = config(alone, "/config/users/dave")["SCRAM-SHA-256"]
    data = encode_config({"SCRAM-SHA-256": text, "producer_byte_rate": "1024"})
    alone.tree.set(PATH, data)
    assert alter(client, upsertion("carol", "SCRAM-SHA-512")) == [("carol", 0, "")]
    assert config(alone).keys() == {"SCRAM-SHA-256", "SCRAM-SHA-512", "producer_byte_rate"}
    assert described(client)["carol"] == [(1, 4_096), (2, 4_096)]


def test_a_user_whose_znode_is_broken_is_refused_alone(alone: ZooKeeperBroker) -> None:
    alone.tree.set(PATH, b"{")
    rows = alter(alone.connect(), upsertion("carol"), upsertion("dave"))
    text = "/config/users/carol is not a configuration; see the log of the broker."
    assert rows == [("carol", int(ErrorCode.UNKNOWN_SERVER_ERROR), text), ("dave", 0, "")]


def test_a_change_is_written_after_a_reconnect(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    client.send(_Request(upsertions=[upsertion("carol")]), 0)
    alone.store.disconnect()
    alone.settle(100)
    assert not client.received()
    alone.store.reconnect()
    alone.settle()
    ((_, answer),) = client.received()
    assert isinstance(answer, AlterUserScramCredentialsResponse)
    assert [(row.user, row.error_code) for row in answer.results] == [("carol", 0)]
    assert config(alone).keys() == {"SCRAM-SHA-256"}


def test_another_broker_refuses_what_the_controller_decides(alone: ZooKeeperBroker) -> None:
    other = ZooKeeperBroker(alone.tree, broker_id="2", listeners="PLAINTEXT://localhost:9094").start()
    other.settle(6_000)
    assert not other.broker.side.controller.is_active
    assert alter(other.connect(), upsertion("carol")) == [("carol", int(ErrorCode.NOT_CONTROLLER), None)]
    assert alter(alone.connect(), upsertion("carol")) == [("carol", 0, "")]
