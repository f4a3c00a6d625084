"""Work on all topics of a broker is divided into steps, however few partitions each topic has."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.wired import WiredBroker

from barnabas.broker.handlers import describe_log_dirs
from barnabas.common.errors import ErrorCode
from barnabas.metadata.image import BROKER_RESOURCE
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPICS = 250


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    """A broker with topics of one partition each."""
    broker = WiredBroker()
    topics = [
        CreateTopicsRequest.CreatableTopic(name=f"t{index}", num_partitions=1, replication_factor=1)
        for index in range(TOPICS)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    response = broker.connect().call(request, 7, CreateTopicsResponse, within_ms=10_000)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.NONE}
    broker.host.time.run_for(1_000)
    return broker


@pytest.mark.parametrize("are_named", [True, False])
def test_log_directories_are_described_in_steps(wired: WiredBroker, are_named: bool) -> None:
    """The rows of 20,000 topics took one turn of 97 ms: the steps counted the rows of one topic."""
    named = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=f"t{index}", partitions=[0]) for index in range(TOPICS)
    ]
    context: Any = None
    work = describe_log_dirs.handle(
        context, DescribeLogDirsRequest(topics=named if are_named else None), wired.broker.services
    )
    assert work is not None
    steps = sum(1 for _ in work)
    rounds = 3 if are_named else 2
    assert steps >= rounds * (TOPICS // describe_log_dirs._ROWS_PER_STEP)


def retentions(wired: WiredBroker) -> list[int]:
    return [partition.log.config.retention_ms for partition in wired.broker.replicas.partitions()]


def test_a_changed_default_reaches_the_logs_in_slices(wired: WiredBroker) -> None:
    """A new default of 20,000 topics took one turn of 232 ms."""
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="log.retention.ms", config_operation=0, value="12345")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="", configs=[change]
    )
    client = wired.connect()
    client.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    changed = [value == 12_345 for value in retentions(wired)]
    assert 0 < sum(changed) <= 100
    wired.create_topic("late")
    wired.host.time.run_for(0)
    ((_, response),) = client.received()
    assert isinstance(response, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == ErrorCode.NONE
    assert set(retentions(wired)) == {12_345}
    assert len(retentions(wired)) > TOPICS
