"""Configuration requests get the answers that Apache Kafka 4.1.0 gave to the same ones, change after change."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.wired import PROPERTIES

from barnabas.broker.handlers import alter_configs, describe_configs, incremental_alter_configs
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.broker.quorum_side import QuorumSide
from barnabas.broker.requests.inner_requests import OwnNode
from barnabas.broker.requests.steps import Steps
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.types import Uuid
from barnabas.controller.requests import configs
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.image import BROKER_RESOURCE, MetadataDelta
from barnabas.metadata.store import MetadataStore
from barnabas.protocol import codec
from barnabas.protocol.api import CONTROLLER_APIS
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.records_metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from barnabas.simulation.host import MemoryHost

DATA = Path(__file__).parents[2] / "data" / "configs"
TOPIC_ID = Uuid(bytes(range(16)))
#: Keys where Barnabas refuses as Kafka does but says why in its own words (Kafka's are a Java exception's, or none).
OWN_WORDS = {
    "listener.security.protocol.map",
    "listeners",
    "max.connections.per.ip.overrides",
}
#: Settings with another answer than Kafka's.
OTHERWISE = {
    ("log.cleaner.threads", "0"): "Kafka divides by zero",
    ("metric.reporters", "nonsense"): "Java classes are not looked for",
    ("principal.builder.class", "no.Such"): "Java classes are not looked for",
    ("ssl.engine.factory.class", "no.Such"): "Java classes are not looked for",
    ("ssl.engine.factory.class", "1"): "Java classes are not looked for",
    ("retention.ms", "5", 9): "an unknown operation is an invalid request, not an unknown error",
}
KAFKA_LOGGER = "kafka.server.KafkaApis"
OUR_LOGGER = "barnabas.connections"


class Node:
    """The handlers of one broker, with a controller that decides and commits immediately."""

    is_active = True

    def __init__(self, properties: dict[str, str]) -> None:
        self.config = BrokerConfig.from_properties(properties)
        self.metadata = MetadataStore()
        self.metadata.subscribe(self._follow)
        host = self.host = MemoryHost()
        self.services: Any = SimpleNamespace(
            config=self.config,
            metadata=self.metadata,
            controller=self,
            random=None,
            host=host,
            side=self,
            quorum=SimpleNamespace(controller=self),
            authorizer=None,
            steps=Steps(host.timers, host.clock),
        )
        own = OwnNode(self.services, "CONTROLLER", CONTROLLER_APIS)  # type: ignore[arg-type]
        self.services.access = ControllerAccess(
            host, ReceiveArea(), "test", lambda: -1, lambda: None, 1000, lambda: own
        )
        self.problems: list[str] = []
        self.commit(
            [
                FeatureLevelRecord(name="metadata.version", feature_level=27),
                FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
                RegisterBrokerRecord(broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=1, fenced=False),
                ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
                TopicRecord(name="orders", topic_id=TOPIC_ID),
                PartitionRecord(
                    partition_id=0,
                    topic_id=TOPIC_ID,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                ),
            ]
        )

    def change_configs(self, context: Any, request: Any, changes: Any, reply: Any, *, replace: bool) -> None:
        side: Any = SimpleNamespace(access=self.services.access)
        QuorumSide.change_configs(side, context, request, changes, reply, replace=replace)

    def commit(self, records: Sequence[Any]) -> None:
        image = self.metadata.image
        delta = MetadataDelta(image)
        for record in records:
            delta.replay(record)
        self.metadata.publish(delta, delta.apply(image.offset + max(1, len(records)), 1, 0))

    def _follow(self, delta: Any, image: Any) -> None:
        self.problems += self.config.update_dynamic(
            image.config_of(BROKER_RESOURCE, "1"), image.config_of(BROKER_RESOURCE, "")
        )

    def alter_configs(
        self,
        changes: Any,
        validate_only: bool,
        reply: Callable[[Any], None],
        *,
        replace: bool = False,
        actor: str = "",
    ) -> None:
        view = ControllerView(self.metadata.image, self.config, self.services.random)
        result = configs.alter_configs(view, changes, actor, replace=replace)
        if not validate_only:
            self.commit([record for record, _ in result.records])
        reply(result.response)


class Context:
    principal = "User:ANONYMOUS"
    token_authenticated = is_forwarded = False
    listener = "PLAINTEXT"
    client_id = "test"
    client_host = "/127.0.0.1"
    correlation_id = 7

    def __init__(self, api_key: int, api_version: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.answers: list[Any] = []

    def reply(self, response: Any) -> None:
        self.answers.append(response)


def call(module: Any, node: Node, request: Any, version: int) -> Any:
    """Sends a request through the codec both ways, as a client would see it."""
    decoded, _ = codec.decode(type(request), version, bytes(codec.encode(request, version)))
    context = Context(type(request).API_KEY, version)
    response = module.handle(context, decoded, node.services)
    if response is None:
        node.host.time.run_for(0)
        (response,) = context.answers
    again, _ = codec.decode(type(response), version, bytes(codec.encode(response, version)))
    return again


def change(node: Node, probe: dict[str, Any]) -> list[list[Any]]:
    if probe["api"] == "AlterConfigs":
        replacing = AlterConfigsRequest(
            resources=[
                AlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in entries],
                )
                for kind, name, entries in probe["resources"]
            ],
            validate_only=probe["validate_only"],
        )
        response = call(alter_configs, node, replacing, 2)
    else:
        incremental = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=op, value=value)
                        for key, op, value in entries
                    ],
                )
                for kind, name, entries in probe["resources"]
            ],
            validate_only=probe["validate_only"],
        )
        response = call(incremental_alter_configs, node, incremental, 1)
    return [[row.error_code, row.error_message, row.resource_type, row.resource_name] for row in response.responses]


def describe(node: Node, probe: dict[str, Any]) -> dict[str, Any]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=probe["resource_type"],
                resource_name=probe["resource_name"],
                configuration_keys=probe["keys"],
            )
        ],
        include_synonyms=probe["synonyms"],
        include_documentation=probe["documentation"],
    )
    (result,) = call(describe_configs, node, request, 4).results
    return {
        "error_code": result.error_code,
        "error_message": result.error_message,
        "type": result.resource_type,
        "name": result.resource_name,
        "configs": {
            entry.name: {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "source": entry.config_source,
                "sensitive": entry.is_sensitive,
                "type": entry.config_type,
                "synonyms": [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms],
            }
            for entry in result.configs
        },
    }


def accepted(probe: dict[str, Any], actual: Any, expected: Any) -> bool:
    """Returns whether this difference is one of those named above; then the answer must still be the one given
    there.
    """
    if probe["api"] == "DescribeConfigs":
        unknown = probe["resource_type"] not in (2, 4, 8, 16, 32)
        return unknown and actual["error_code"] == expected["error_code"] == ErrorCode.INVALID_REQUEST
    ((_, _, ((key, operation, value),)),) = probe["resources"]
    if key in OWN_WORDS:
        return bool(actual[0][1]) and actual[0][0] == expected[0][0] == ErrorCode.INVALID_REQUEST
    if (key, value, operation) in OTHERWISE:
        return bool(actual[0][0] == ErrorCode.INVALID_REQUEST)
    return (key, value) in OTHERWISE


@pytest.fixture
def logger_levels() -> Iterator[None]:
    """Levels as the recorded node had them; afterwards as before."""
    names = ("barnabas", OUR_LOGGER)
    before = [logging.getLogger(name).level for name in names]
    logging.getLogger("barnabas").setLevel(logging.WARNING)
    logging.getLogger(OUR_LOGGER).setLevel(logging.NOTSET)
    yield
    for name, level in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("logger_levels")
def test_answers_are_those_of_apache_kafka() -> None:
    lines = (DATA / "4.1.0-answers.jsonl").read_text("utf-8").replace(KAFKA_LOGGER, OUR_LOGGER).splitlines()
    node = Node(json.loads(lines[0])["static"])
    different = []
    for line in lines[1:]:
        probe = json.loads(line)
        expected = probe.pop("answer")
        actual: Any
        if probe["api"] == "DescribeConfigs":
            expected["configs"] = {entry["name"]: entry for entry in expected["configs"]}
            actual = describe(node, probe)
        else:
            actual = change(node, probe)
        if actual != expected and not accepted(probe, actual, expected):
            different.append((probe, actual, expected))
    assert logging.getLogger(OUR_LOGGER).level == logging.DEBUG, "the last change of a level was carried out"
    for probe, actual, expected in different:
        print(probe, actual, expected, sep="\n  ")
    assert not different


def test_limits_of_one_listener_change_at_both_levels() -> None:
    node = Node(PROPERTIES)

    def answer(broker: str, key: str, value: str) -> tuple[int, str | None]:
        changes = [[4, broker, [[key, 0, value]]]]
        probe = {"api": "IncrementalAlterConfigs", "validate_only": False, "resources": changes}
        ((code, message, _, _),) = change(node, probe)
        return code, message

    prefixed = "listener.name.plaintext."
    for broker in ("", "1"):
        for key in ("max.connections", "max.connection.creation.rate"):
            assert answer(broker, prefixed + key, "7") == (0, None)
            code, message = answer(broker, prefixed + key, "0")
            assert (code, message) == (
                ErrorCode.INVALID_REQUEST,
                f"Invalid value org.apache.kafka.common.config.ConfigException: Invalid {key} 0 for configuration "
                "Invalid dynamic configuration",
            )
            assert node.config.value_on("PLAINTEXT", key) == 7
    code, message = answer("", prefixed + "ssl.keystore.location", "/k")
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert message.startswith("Cannot update these configs at default cluster level")
