"""The requests of `barnabas configs`: DescribeConfigs and IncrementalAlterConfigs.

They use connections of their own: confluent-kafka knows neither broker loggers nor the default of all brokers, and
keeps only one of several synonyms of the same name. A broker answers for its own configs and loggers only, so these
requests go to that broker; all others go to any broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient

from barnabas.cli.clients import TIMEOUT_S, admin_client, result
from barnabas.cli.options import key_values
from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.monitor.broker_connection import Address, BrokerConnection, NoAnswer, Security
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

M = TypeVar("M", bound=Message)

_SET: Final = 0
_DELETE: Final = 1
#: Kafka's names of the sources, by their numbers in the protocol.
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}
_CODES: Final = frozenset(ErrorCode)
_TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")


class EntityKind(StrEnum):
    """The type of an entity, by the names of Kafka's tool."""

    TOPICS = "topics"
    BROKERS = "brokers"
    LOGGERS = "broker-loggers"


_RESOURCE_TYPES: Final = {EntityKind.TOPICS: 2, EntityKind.BROKERS: 4, EntityKind.LOGGERS: 8}


class Entity(NamedTuple):
    """An entity with configs: a topic, a broker or a broker's loggers. The name is empty for the default of all
    brokers.
    """

    kind: EntityKind
    name: str

    def __str__(self) -> str:
        if self.kind is EntityKind.BROKERS and not self.name:
            return "the default of all brokers"
        return f"{'topic' if self.kind is EntityKind.TOPICS else 'broker'} {self.name}"

    @property
    def own_source(self) -> str:
        """The source of the values that are set on this entity itself."""
        if self.kind is EntityKind.TOPICS:
            return _SOURCES[1]
        if self.kind is EntityKind.LOGGERS:
            return _SOURCES[6]
        return _SOURCES[2] if self.name else _SOURCES[3]


class Synonym(NamedTuple):
    """A value for a key from one of its sources; the first one counts."""

    name: str
    value: str | None
    source: str


class Entry(NamedTuple):
    """A config key of an entity as a broker describes it: value, source, type, synonyms and documentation."""

    name: str
    #: The value; None if it is sensitive, or if the key has none.
    value: str | None
    source: str
    type: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None


class Access:
    """Connections to the brokers of a cluster, as a context manager."""

    def __init__(self, bootstrap: str, properties: Sequence[str] | None) -> None:
        try:
            self._security = Security.from_properties(key_values(properties or [], "--property"))
        except (ConfigError, OSError) as error:
            raise Failure(str(error)) from error
        self.admin: AdminClient = admin_client(bootstrap, properties)
        described = result(self.admin.describe_cluster(request_timeout=TIMEOUT_S), "cannot describe the cluster")
        self.brokers: dict[int, Address] = {node.id: (node.host, node.port) for node in described.nodes}
        self._connections: dict[int, BrokerConnection] = {}
        self._runner = asyncio.Runner()

    def __enter__(self) -> Access:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._runner.close()

    def topics(self) -> list[str]:
        return sorted(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def describe(self, entity: Entity) -> list[Entry]:
        """Returns all entries of an entity, sorted by name. Raises Failure if there is no such entity."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_RESOURCE_TYPES[entity.kind], resource_name=entity.name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        what = f"cannot describe {entity}"
        (found,) = self._call(entity, request, DescribeConfigsResponse, what).results
        _require(found.error_code, found.error_message, entity, what)
        return sorted(
            Entry(
                one.name,
                one.value,
                _SOURCES.get(one.config_source, "UNKNOWN"),
                _TYPES[one.config_type] if one.config_type < len(_TYPES) else _TYPES[0],
                one.read_only,
                one.is_sensitive,
                tuple(Synonym(each.name, each.value, _SOURCES.get(each.source, "UNKNOWN")) for each in one.synonyms),
                one.documentation,
            )
            for one in found.configs
        )

    def alter(self, entity: Entity, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Sets keys, and deletes those whose value is None. Raises Failure with the broker's reason for a refusal."""
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=_RESOURCE_TYPES[entity.kind], resource_name=entity.name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        what = f"cannot alter {entity}"
        (outcome,) = self._call(entity, request, IncrementalAlterConfigsResponse, what).responses
        _require(outcome.error_code, outcome.error_message, entity, what)

    def _call(self, entity: Entity, request: Message, response: type[M], what: str) -> M:
        reasons = []
        for broker in self._answering(entity):
            try:
                return self._runner.run(self._connection(broker).call(request, response))
            except NoAnswer as error:
                reasons.append(f"broker {broker}: {error}")
        raise Failure(f"{what}: {'; '.join(reasons)}")

    def _answering(self, entity: Entity) -> list[int]:
        """Returns the brokers that can answer requests about an entity."""
        if entity.kind is EntityKind.TOPICS or not entity.name:
            return sorted(self.brokers)
        broker = int(entity.name) if entity.name.isascii() and entity.name.isdigit() else -1
        if broker not in self.brokers:
            running = ", ".join(map(str, sorted(self.brokers)))
            raise Failure(f"there is no broker {entity.name}", f"brokers that run: {running}")
        return [broker]

    def _connection(self, broker: int) -> BrokerConnection:
        if broker not in self._connections:
            self._connections[broker] = BrokerConnection(
                self.brokers[broker], self._security, client_id="barnabas", timeout_s=TIMEOUT_S
            )
        return self._connections[broker]


def _require(code: int, message: str | None, entity: Entity, what: str) -> None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Failure(f"there is no {entity}", "`barnabas topics list` shows the existing ones")
    if code:
        name = ErrorCode(code).name if code in _CODES else str(code)
        raise Failure(f"{what}: {message or 'refused'} ({name})")
