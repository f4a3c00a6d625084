"""A node's configuration: layers, precedence, listeners, and refusals with their texts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.common.config import Address, BrokerConfig, Listener, Voter, parse_properties
from barnabas.common.config_docs import HEEDED
from barnabas.common.config_keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigSource, ConfigType, parse_text, show
from barnabas.common.errors import ConfigError
from barnabas.common.log_config import LogConfig, validate_topic_overrides

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def build(**changes: str | None) -> BrokerConfig:
    properties = {**MINIMAL, **{key.replace("_", "."): value for key, value in changes.items() if value is not None}}
    for key, value in changes.items():
        if value is None:
            del properties[key.replace("_", ".")]
    return BrokerConfig.from_properties(properties)


def test_kafkas_own_server_properties_load_unchanged() -> None:
    config = BrokerConfig.from_properties(parse_properties((DATA / "server.properties").read_text("utf-8")))
    assert config.node_id == 1
    assert config.is_broker
    assert config.is_controller
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092", "CONTROLLER://:9093"]
    assert config.broker_listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.controller_listeners == (Listener("CONTROLLER", "", 9093, "PLAINTEXT"),)
    assert [str(listener) for listener in config.advertised_listeners] == [
        "PLAINTEXT://localhost:9092",
        "CONTROLLER://localhost:9093",
    ]
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.bootstrap_controllers == (Address("localhost", 9093),)
    assert config.voters == ()
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    assert not [warning for warning in config.warnings if "is ignored" in warning]


def test_every_key_of_kafka_is_known_with_its_default() -> None:
    config = build()
    for row in json.loads((DATA / "configs" / "4.1.0-broker-definitions.json").read_text("utf-8")):
        key = BROKER_KEYS[row["name"]]
        assert (key.type.name, key.default, key.update_mode) == (row["type"], row["default"], row["update_mode"])
        if row["name"] not in MINIMAL and row["name"] != "broker.id":
            assert show(config.value_of(row["name"])) == row["default"]
    assert len(BROKER_KEYS) == 336
    assert len(TOPIC_KEYS) == 34
    assert len(GROUP_KEYS) == 10


def test_log_config_defaults_are_kafkas() -> None:
    assert LogConfig() == LogConfig.resolve(build(), {})
    for name, key in TOPIC_KEYS.items():
        assert LogConfig().value_of(name) == key.default_value(), name


def test_the_table_is_what_the_generator_writes() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_config_table.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_unknown_keys_warn_and_keys_without_effect_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # Today, all passwords have an effect.
    monkeypatch.delitem(HEEDED, "sasl.oauthbearer.assertion.private.key.passphrase")
    config = build(
        foo_bar="1",
        zookeeper_session_timeout_ms="6000",
        inter_broker_protocol_version="3.9",
        config_providers="file",
        num_io_threads="9",
        sasl_oauthbearer_assertion_private_key_passphrase="sesame",
    )
    text = "\n".join(config.warnings)
    assert "foo.bar is ignored: neither Kafka 4.1 nor Barnabas has this key" in text
    assert "zookeeper.session.timeout.ms is ignored: it belongs to ZooKeeper mode" in text
    assert "inter.broker.protocol.version is ignored: Kafka 4.0 removed it" in text
    assert "config.providers is ignored" in text
    assert "num.io.threads=9 has no effect: one event loop serves all connections" in text
    assert "sasl.oauthbearer.assertion.private.key.passphrase=[hidden]" in text
    assert "sesame" not in text
    assert build().warnings == []


def test_a_key_of_a_listener_that_the_node_does_not_know_is_warned_of() -> None:
    config = build(
        **{"listener.name.clients.ssl.client.auth": "required", "listener.name.SSL.ssl.client.auth": "required"},
        **{"listener.name.controller.ssl.client.auth": "none", "listener.name.ssl.ssl.client.auth": "none"},
    )
    assert [text.partition(" ")[0] for text in config.warnings] == [
        "listener.name.clients.ssl.client.auth",
        "listener.name.SSL.ssl.client.auth",
    ]


@pytest.mark.parametrize(
    "key",
    [
        *("max.connections", "listener.name.plaintext.max.connections"),
        "listener.name.plaintext.plain.connections.max.reauth.ms",
    ],
)
def test_an_invalid_value_is_refused_with_its_whole_key(key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"Invalid value x for configuration {key}: Not a number")):
        build(**{key: "x"})


@pytest.mark.parametrize("value", ["${file:/run/secrets:key}", "${file:key}", "a ${file:/marker:key} b"])
def test_a_reference_to_a_config_provider_prevents_a_start(value: str) -> None:
    """Guard S7: a password would be the text of the reference, which others can know."""
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password refers to the config provider file") as refused:
        build(config_providers="env, file", ssl_keystore_password=value)
    assert value not in str(refused.value)
    assert build(ssl_keystore_password=value).str_of("ssl.keystore.password") == value, "as in Kafka"
    assert build(config_providers="env", ssl_keystore_password=value).str_of("ssl.keystore.password") == value


@pytest.mark.parametrize(
    "changes, retention_ms",
    [
        ({}, 168 * 3_600_000),
        ({"log_retention_hours": "1"}, 3_600_000),
        ({"log_retention_hours": "1", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_hours": "1", "log_retention_minutes": "3", "log_retention_ms": "7"}, 7),
        ({"log_retention_hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_counts(changes: dict[str, str], retention_ms: int) -> None:
    config = build(**changes)
    assert config.log_retention_ms == retention_ms
    assert LogConfig.resolve(config, {}).retention_ms == retention_ms
    assert LogConfig.resolve(config, {"retention.ms": "5"}).retention_ms == 5


def test_topic_settings_stand_above_the_brokers() -> None:
    config = build(log_segment_bytes="2000000", log_roll_hours="2", log_flush_scheduler_interval_ms="50")
    resolved = LogConfig.resolve(config, {"cleanup.policy": " compact , delete ", "internal.segment.bytes": "100"})
    assert resolved.is_compacted
    assert resolved.is_deletable
    assert (resolved.segment_bytes, resolved.segment_ms, resolved.flush_ms) == (100, 7_200_000, 50)
    assert LogConfig.resolve(config, {"a.later.key": "1"}).segment_bytes == 2_000_000


def test_dynamic_layers_and_their_subscribers() -> None:
    config = build(log_retention_hours="1")
    seen: list[frozenset[str]] = []
    config.subscribe(seen.append)
    assert config.update_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "6", "message.max.bytes": "7"}) == []
    assert seen == [frozenset({"log.retention.ms", "message.max.bytes"})]
    assert (config.log_retention_ms, config.int_of("message.max.bytes")) == (5, 7)
    assert config.synonyms_of("log.retention.ms") == [
        (ConfigSource.DYNAMIC_BROKER, "log.retention.ms", "5"),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, "log.retention.ms", "6"),
        (ConfigSource.STATIC_BROKER, "log.retention.hours", "1"),
        (ConfigSource.DEFAULT, "log.retention.hours", "168"),
    ]
    assert config.update_dynamic({}, {"log.retention.ms": "6"}) == []
    assert config.log_retention_ms == 6
    assert LogConfig.resolve(config, {}).retention_ms == 6
    assert config.update_dynamic({}, {}) == []
    assert config.log_retention_ms == 3_600_000
    assert len(seen) == 3


def test_a_dynamic_value_that_does_not_fit_is_left_out_and_reported() -> None:
    config = build()
    (problem,) = config.update_dynamic({"message.max.bytes": "many", "log.retention.ms": "5"}, {})
    assert "Invalid value many for configuration message.max.bytes: Not a number of type INT" in problem
    assert config.int_of("message.max.bytes") == 1_048_588
    assert config.log_retention_ms == 5


def test_trying_a_change_changes_nothing() -> None:
    config = build()
    assert config.with_dynamic({"message.max.bytes": "9"}, {}).int_of("message.max.bytes") == 9
    assert config.int_of("message.max.bytes") == 1_048_588
    with pytest.raises(ConfigError, match=r"log\.retention\.ms must be unlimited"):
        config.with_dynamic({"log.retention.ms": "0"}, {})


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"node_id": None}, r'Missing required configuration "node.id"'),
        ({"process_roles": None}, r'Missing required configuration "process.roles"'),
        ({"process_roles": "broker,emperor"}, "String must be one of: broker, controller"),
        ({"broker_id": "2"}, "You must set `node.id` to the same value as `broker.id`"),
        ({"node_id": "-1"}, "Value must be at least 0"),
        ({"listeners": "PLAINTEXT://:x,CONTROLLER://:9093"}, "the form host:port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "Each listener must have a different port"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094"}, "Each listener must have a different name"),
        ({"listeners": "INSIDE://:9092,CONTROLLER://:9093"}, "No security protocol defined for listener INSIDE"),
        ({"listeners": "PLAINTEXT://:9092"}, "must name one of the listeners"),
        ({"principal_builder_class": "org.x.Y"}, "it decides who a client is"),
        ({"listener_name_plaintext_principal_builder_class": "org.x.Y"}, "it decides who a client is"),
        ({"authorizer_class_name": "org.x.Y"}, "StandardAuthorizer is allowed in KRaft mode"),
        (
            {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"},
            "StandardAuthorizer is allowed in KRaft",
        ),
        ({"controller_listener_names": None}, "No security protocol defined for listener CONTROLLER"),
        (
            {
                "controller_listener_names": None,
                "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            },
            "must contain at least one value",
        ),
        ({"controller_quorum_voters": "2@127.0.0.1:9093"}, "node.id=1 must be among controller.quorum.voters"),
        ({"controller_quorum_voters": "1-127.0.0.1"}, "a voter must have the form id@host:port"),
        ({"controller_quorum_voters": None}, "either controller.quorum.bootstrap.servers must contain"),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "SSL"},
            r"Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.*\(PLAINTEXT\)",
        ),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable meta-address"),
        ({"advertised_listeners": "SSL://localhost:9092"}, "not one of the listeners"),
        ({"log_segment_bytes": "1"}, "Value must be at least 1048576"),
        ({"log_retention_ms": "0"}, "must be unlimited"),
        ({"auto_create_topics_enable": "ja"}, "Expected value to be either true or false"),
        ({"compression_type": "rar"}, "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"log_dirs": ","}, None),
    ],
)
def test_what_a_node_must_not_start_with(changes: dict[str, str | None], words: str | None) -> None:
    if words is None:
        assert build(**changes).log_dirs == ("/tmp/kafka-logs",)
        return
    with pytest.raises(ConfigError, match=words):
        build(**changes)


def test_addresses() -> None:
    config = build(
        listeners="IN://[::1]:9092,PLAINTEXT://127.0.0.1:9092,CONTROLLER://localhost:0",
        listener_security_protocol_map="in:plaintext,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        controller_quorum_voters="1@[::1]:9093,2@other:9094",
    )
    assert config.listeners[0] == Listener("IN", "::1", 9092, "PLAINTEXT")
    assert str(config.listeners[0]) == "IN://[::1]:9092"
    assert config.voters == (Voter(1, "::1", 9093), Voter(2, "other", 9094))


@pytest.mark.parametrize("text", ["1_000", "٣", "", "+", "0x10", "1.0", "2147483648"])
def test_what_java_does_not_read_as_an_integer(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        parse_text("key", ConfigType.INT, text)


@pytest.mark.parametrize(
    "value, text",
    [(0.5, "0.5"), (1e-5, "1.0E-5"), (1.7976931348623157e308, "1.7976931348623157E308"), (1e7, "1.0E7"), (3.0, "3.0"),
     (0.00012, "1.2E-4"), (-12345678.9, "-1.23456789E7"), (True, "true"), (("a", "b"), "a,b"), (None, None)],
)  # fmt: skip
def test_values_are_shown_as_java_prints_them(value: float | tuple[str, ...] | None, text: str | None) -> None:
    assert show(value) == text


def test_topic_settings_that_contradict() -> None:
    validate_topic_overrides({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="conflict topic config setting"):
        validate_topic_overrides({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match=r"Unknown topic config name: no\.such"):
        validate_topic_overrides({"no.such": "1"})
