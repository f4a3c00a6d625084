"""ListConfigResources: types and names, in the order and with the refusals of Apache Kafka 4.1."""

from __future__ import annotations

import pytest
from tests.support.bulk import create
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.requests.inner_requests import OwnNode
from barnabas.common.errors import ErrorCode
from barnabas.protocol.api import BROKER_APIS
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.simulation.worlds.replicated import Replicated

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    wired = WiredBroker()
    wired.create_topic("plain")
    wired.create_topic("configured", retention_ms="70000")
    configure(wired, GROUP, "g", "consumer.session.timeout.ms", "50000")
    configure(wired, METRICS, "sub", "interval.ms", "100000")
    return wired


def configure(wired: WiredBroker, kind: int, name: str, key: str, value: str | None) -> None:
    entry = IncrementalAlterConfigsRequest.AlterableConfig(
        name=key, config_operation=DELETE if value is None else SET, value=value
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[entry]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = wired.connect().call(request, 1, IncrementalAlterConfigsResponse)
    assert [row.error_code for row in answer.responses] == [0], answer.responses[0].error_message


def listed(wired: WiredBroker, *types: int, version: int = 1) -> list[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    answer = wired.connect().call(request, version, ListConfigResourcesResponse)
    assert answer.error_code == 0
    return [(row.resource_type, row.resource_name) for row in answer.config_resources]


def test_version_0_lists_client_metrics_subscriptions(wired: WiredBroker) -> None:
    assert listed(wired, version=0) == [(METRICS, "sub")]
    assert listed(WiredBroker(), version=0) == []


def test_without_types_all_are_listed_in_kafkas_order(wired: WiredBroker) -> None:
    found = listed(wired)
    assert found[:4] == [(GROUP, "g"), (METRICS, "sub"), (LOGGER, "1"), (BROKER, "1")]
    assert sorted(found[4:]) == [(TOPIC, "configured"), (TOPIC, "plain")]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((TOPIC,), [(TOPIC, "configured"), (TOPIC, "plain")]),
        ((BROKER, GROUP), [(BROKER, "1"), (GROUP, "g")]),
        ((LOGGER, LOGGER), [(LOGGER, "1")]),
        ((METRICS,), [(METRICS, "sub")]),
    ],
)
def test_types_that_are_asked_for(wired: WiredBroker, types: tuple[int, ...], expected: list[tuple[int, str]]) -> None:
    assert sorted(listed(wired, *types)) == expected


@pytest.mark.parametrize("unknown", [0, 1, 3, 64, -1])
def test_one_type_that_there_is_not_refuses_all(wired: WiredBroker, unknown: int) -> None:
    request = ListConfigResourcesRequest(resource_types=[TOPIC, unknown])
    answer = wired.connect().call(request, 1, ListConfigResourcesResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.config_resources == []


def test_a_group_whose_last_setting_was_deleted_is_listed_no_more() -> None:
    wired = WiredBroker()
    configure(wired, GROUP, "g", "consumer.session.timeout.ms", "50000")
    assert listed(wired, GROUP) == [(GROUP, "g")]
    configure(wired, GROUP, "g", "consumer.session.timeout.ms", None)
    assert listed(wired, GROUP) == []


def test_a_fenced_broker_is_listed_as_by_kafka() -> None:
    world = Replicated()
    world.node(3).kill()
    world.run_until(lambda: world.broker(1).metadata.image.brokers[3].fenced, "broker 3 is fenced")
    for kind in (BROKER, LOGGER):
        request = ListConfigResourcesRequest(resource_types=[kind])
        answer = world.client.call("broker1", request, ListConfigResourcesResponse)
        assert [row.resource_name for row in answer.config_resources] == ["1", "2", "3"]


@pytest.fixture(scope="module")
def crowded() -> WiredBroker:
    wired = WiredBroker()
    for first in range(0, 3_000, 500):
        request = create([f"topic-{number}" for number in range(first, first + 500)], 1)
        answer = wired.connect().call(request, 7, CreateTopicsResponse, within_ms=60_000)
        assert {topic.error_code for topic in answer.topics} == {0}
    return wired


def test_thousands_of_rows_are_made_in_steps_with_others_served_between(crowded: WiredBroker) -> None:
    client, other = crowded.connect(), crowded.connect()
    first = client.send(ListConfigResourcesRequest(), 1)
    second = client.send(ListConfigResourcesRequest(), 1)
    assert client.received() == []
    sent = other.send(MetadataRequest(topics=[]), 12)
    assert [correlation_id for correlation_id, _ in other.received()] == [sent]
    assert len(crowded.broker.services.steps) == 1, "the second one waits for the first: its rows take no memory yet"
    crowded.host.time.run_for(0)
    answers = client.received()
    assert [correlation_id for correlation_id, _ in answers] == [first, second]
    assert [len(rows_of(answer)) for _, answer in answers] == [3_002, 3_002]


def rows_of(answer: Message) -> list[ListConfigResourcesResponse.ConfigResource]:
    assert isinstance(answer, ListConfigResourcesResponse)
    return answer.config_resources


def test_nothing_is_made_for_who_is_gone(crowded: WiredBroker) -> None:
    client: WiredClient = crowded.connect()
    client.send(ListConfigResourcesRequest(), 1)
    client.core.closed()
    crowded.host.time.run_for(0)
    assert len(crowded.broker.services.steps) == 0
    assert client.link.sent == b""
    assert crowded.closes.errors == []


def test_asked_from_within_the_process(crowded: WiredBroker) -> None:
    answers: list[Message] = []
    OwnNode(crowded.broker.services, "PLAINTEXT", BROKER_APIS).handle(ListConfigResourcesRequest(), answers.append)
    crowded.host.time.run_for(0)
    assert [len(rows_of(answer)) for answer in answers] == [3_002]


def test_a_request_of_a_long_frame(crowded: WiredBroker) -> None:
    """The request is decoded in steps, and then answered in steps."""
    request = ListConfigResourcesRequest(resource_types=[BROKER] * 20_000)
    client = crowded.connect()
    answer = client.call(request, 1, ListConfigResourcesResponse)
    assert [(row.resource_type, row.resource_name) for row in rows_of(answer)] == [(BROKER, "1")]
    assert client.call(MetadataRequest(topics=[]), 12, MetadataResponse).cluster_id
