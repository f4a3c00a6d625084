"""The configuration of a broker in ZooKeeper mode: Kafka 3.9.1's keys and defaults, and what excludes each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.common import zookeeper_mode
from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import ZOOKEEPER_MODE_KEYS, show
from barnabas.common.errors import ConfigError

DATA = Path(__file__).parents[2] / "data"
MINIMAL = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092", "zookeeper.connect": "127.0.0.1:2181/kafka"}


def build(**changes: str) -> BrokerConfig:
    return BrokerConfig.from_properties({**MINIMAL, **{key.replace("_", "."): text for key, text in changes.items()}})


def test_the_mode_is_chosen_by_the_connect_string() -> None:
    config = build()
    assert config.is_zookeeper_mode
    assert config.is_broker
    assert config.is_controller
    assert config.node_id == 1
    assert config.controller_listener_names == ()
    assert config.warnings == []


def test_the_authorizer_is_that_of_zookeeper_mode() -> None:
    config = build(authorizer_class_name="kafka.security.authorizer.AclAuthorizer", super_users="User:a;User:b")
    assert config.str_of("authorizer.class.name") == "kafka.security.authorizer.AclAuthorizer"
    assert config.warnings == []


def test_every_key_has_the_default_of_kafka_3_9_1() -> None:
    config = build()
    rows = json.loads((DATA / "configs" / "3.9.1-broker-definitions.json").read_text("utf-8"))
    described = {name for name, key in ZOOKEEPER_MODE_KEYS.items() if not key.internal}
    assert described == {row["name"] for row in rows if not row["internal"]}
    for row in rows:
        key = ZOOKEEPER_MODE_KEYS[row["name"]]
        assert (key.type.name, key.default, key.update_mode) == (row["type"], row["default"], row["update_mode"])
        if row["name"] not in MINIMAL and row["name"] != "node.id":
            assert show(config.value_of(row["name"])) == row["default"], row["name"]


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"process_roles": "broker"}, "process.roles=broker and zookeeper.connect=127.0.0.1:2181/kafka exclude"),
        ({"inter_broker_protocol_version": "3.3"}, "3.3 for configuration inter.broker.protocol.version: 3.4 to 3.9"),
        ({"inter_broker_protocol_version": "4.0-IV0"}, "3.4 to 3.9 are allowed"),
        ({"inter_broker_protocol_version": "latest"}, "3.4 to 3.9 are allowed"),
        ({"broker_id": "1001"}, "not greater than reserved.broker.max.id (1001 and 1000)"),
        ({"broker_id": "-2"}, "greater than or equal to -1"),
        ({"broker_id": "-1", "broker_id_generation_enable": "false"}, "broker.id must be greater than or equal to 0"),
        ({"control_plane_listener_name": "CONTROL"}, "it must be one of the listeners (PLAINTEXT)"),
        ({"control_plane_listener_name": "PLAINTEXT"}, "it must not be the inter-broker listener"),
        ({"zookeeper_metadata_migration_enable": "true"}, "barnabas migrate-zookeeper"),
        (
            {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "kafka.security.authorizer.AclAuthorizer is allowed in ZooKeeper mode; leave it empty",
        ),
        (
            {
                "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
                "authorizer_zookeeper_url": "elsewhere:2181",
            },
            "elsewhere:2181 for configuration authorizer.zookeeper.url: the rules are read from",
        ),
        ({"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "alice"}, "Type:name"),
        ({"inter_broker_listener_name": "REPLICATION"}, "must be one of the broker's listeners (PLAINTEXT)"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build(**changes)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("version", ["3.4", "3.4-IV0", "3.9", "3.9.1", "3.7-IV4"])
def test_protocols_of_these_releases_are_allowed(version: str) -> None:
    assert build(inter_broker_protocol_version=version).str_of("inter.broker.protocol.version") == version


def test_a_generated_id_stays_over_dynamic_changes() -> None:
    config = build(broker_id="-1")
    assert zookeeper_mode.is_id_generated(config)
    config = config.with_broker_id(1001)
    assert not zookeeper_mode.is_id_generated(config)
    config.update_dynamic({"log.retention.ms": "7"}, {})
    assert (config.node_id, config.int_of("broker.id"), config.log_retention_ms) == (1001, 1001, 7)
    assert config.with_dynamic({}, {}).node_id == 1001


def test_the_connection_has_the_time_of_the_session_unless_it_has_its_own() -> None:
    assert zookeeper_mode.connection_timeout_ms(build()) == 18_000
    assert zookeeper_mode.connection_timeout_ms(build(zookeeper_connection_timeout_ms="7000")) == 7_000
