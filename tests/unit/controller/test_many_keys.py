"""A request with thousands of keys of one resource is refused before any record is built."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER = 2, 4


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    broker = WiredBroker()
    broker.create_topic("orders")
    return broker


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "orders"), (BROKER, "1")])
@pytest.mark.parametrize("count", [1_000, 1_001, 20_000])
def test_keys_of_one_resource(wired: WiredBroker, kind: int, name: str, count: int) -> None:
    keys = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=f"my.key-{n}", config_operation=1) for n in range(count)
    ]
    one = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=keys)
    request = IncrementalAlterConfigsRequest(resources=[one])
    (row,) = wired.connect().call(request, 1, IncrementalAlterConfigsResponse).responses
    assert row.error_code == (ErrorCode.NONE if count <= 1_000 else ErrorCode.POLICY_VIOLATION)


def test_keys_of_a_new_topic(wired: WiredBroker) -> None:
    keys = [CreateTopicsRequest.CreatableTopicConfig(name=f"my.key-{n}", value="x") for n in range(20_000)]
    topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=keys)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
    (row,) = wired.connect().call(request, 7, CreateTopicsResponse).topics
    assert row.error_code == ErrorCode.POLICY_VIOLATION
    assert "new" not in wired.broker.metadata.image.topics_by_name
