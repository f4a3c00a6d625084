"""The recorded DescribeConfigs answers of a node with dynamic settings on every level, value by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from barnabas.broker.configs.config_describe import ConfigEntry, describe, topic_entries
from barnabas.common.config import BrokerConfig
from barnabas.common.config_docs import HEEDED, ZOOKEEPER
from barnabas.common.config_keys import ConfigSource, ResourceType
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.metadata.image import MetadataImage

DATA = Path(__file__).parents[2] / "data" / "configs"
#: The golden files name the sources as Java's enum does.
SOURCES = {
    ConfigSource.DYNAMIC_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
}


def recorded(what: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((DATA / f"4.1.0-describe-{what}.json").read_text("utf-8"))["entries"]
    return entries


@pytest.fixture
def config() -> BrokerConfig:
    """Returns a configuration with the static values of the recorded broker."""
    static = {
        entry["name"]: entry["value"]
        for entry in recorded("broker")
        if any(synonym["source"] == "STATIC_BROKER_CONFIG" for synonym in entry["synonyms"])
    }
    built = BrokerConfig.from_properties(static)
    default = {"background.threads": "12", "log.retention.ms": "700000000", "min.insync.replicas": "1"}
    assert built.update_dynamic({"background.threads": "11"}, default) == []
    return built


def as_recorded(entries: list[ConfigEntry]) -> list[dict[str, Any]]:
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "type": entry.type.name,
            "source": SOURCES[entry.source],
            "is_default": entry.source is ConfigSource.DEFAULT,
            "read_only": entry.read_only,
            "sensitive": entry.is_sensitive,
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": SOURCES[synonym.source]}
                for synonym in entry.synonyms
            ],
        }
        for entry in entries
    ]


def test_broker(config: BrokerConfig) -> None:
    assert as_recorded(describe(config, MetadataImage(), ResourceType.BROKER, "1")) == recorded("broker")


def test_cluster_wide_default(config: BrokerConfig) -> None:
    assert as_recorded(describe(config, MetadataImage(), ResourceType.BROKER, "")) == recorded("broker-default")


def test_topic(config: BrokerConfig) -> None:
    assert as_recorded(topic_entries(config, {"retention.ms": "86400000"})) == recorded("topic")


@pytest.mark.parametrize("kind, what", [(ResourceType.GROUP, "group"), (ResourceType.CLIENT_METRICS, "client-metrics")])
def test_resources_without_settings(config: BrokerConfig, kind: ResourceType, what: str) -> None:
    assert as_recorded(describe(config, MetadataImage(), kind, "g")) == recorded(what)


def test_a_group_takes_its_default_from_the_broker() -> None:
    static = {**minimal(), "group.consumer.session.timeout.ms": "50000"}
    image = MetadataImage(configs=Map({(int(ResourceType.GROUP), "other"): Map({"share.isolation.level": "x"})}))
    entries = describe(BrokerConfig.from_properties(static), image, ResourceType.GROUP, "g")
    assert {entry.name: entry.value for entry in entries}["consumer.session.timeout.ms"] == "50000"


def test_passwords_and_unknown_keys_are_not_described() -> None:
    static = {**minimal(), "ssl.truststore.password": "sesame", "some.plugin.secret": "sesame"}
    entries = describe(BrokerConfig.from_properties(static), MetadataImage(), ResourceType.BROKER, "1")
    assert "sesame" not in repr(entries)
    told = {entry.name: entry for entry in entries}
    assert told["ssl.truststore.password"].is_sensitive
    assert told["some.plugin.secret"].is_sensitive


def test_a_topic_that_does_not_exist(config: BrokerConfig) -> None:
    with pytest.raises(RequestFailed) as caught:
        describe(config, MetadataImage(), ResourceType.TOPIC, "nowhere")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def minimal() -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
    }


def test_a_segment_size_below_the_public_limit_is_described_under_its_own_name_only(config: BrokerConfig) -> None:
    entries = {entry.name: entry for entry in topic_entries(config, {"internal.segment.bytes": "1000"})}
    assert entries["internal.segment.bytes"].value == "1000"
    assert entries["segment.bytes"] == {entry.name: entry for entry in topic_entries(config, {})}["segment.bytes"]


def test_every_key_with_an_effect_is_documented_in_either_mode() -> None:
    zookeeper = {"zookeeper.connect": "localhost:2181", "broker.id": "1", "listeners": "PLAINTEXT://:9092"}
    for static, keys in ((minimal(), HEEDED), (zookeeper, ZOOKEEPER)):
        entries = describe(BrokerConfig.from_properties(static), MetadataImage(), ResourceType.BROKER, "1")
        found = {entry.name: entry.documentation for entry in entries}
        assert all(found[name] for name in keys if name in found)
        assert len(found.keys() & keys.keys()) > 8
