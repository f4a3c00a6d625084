"""Work on all topics of a broker is divided into steps, however few partitions each topic has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.finished import finished
from tests.support.wired import WiredBroker

from barnabas.broker.handlers import (
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    fetch,
)
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.controller.requests import reassignments
from barnabas.coordinators.transactions.state import TxnState
from barnabas.metadata.image import BROKER_RESOURCE
from barnabas.metadata.topics import TopicImage
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

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


def test_a_page_of_topics_is_judged_up_to_its_end(wired: WiredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page of 50,000 topics sorted all names and judged all topics: 39 ms without an authorizer."""
    judged: list[str] = []

    class Allowing:
        def allows(self, context: Any, operation: Any, resource: Any, name: str, **options: Any) -> bool:
            judged.append(name)
            return name != "t101"

        def operations(self, *arguments: Any) -> int:
            return 0

    monkeypatch.setattr(wired.broker.services, "authorizer", Allowing())
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t10", partition_index=0)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=3, cursor=cursor)
    context: Any = SimpleNamespace(listener="PLAINTEXT", principal="User:a", client_host="/127.0.0.1")
    response = finished(describe_topic_partitions.handle(context, request, wired.broker.services))
    assert [topic.name for topic in response.topics] == ["t10", "t100", "t102"]
    assert response.next_cursor.topic_name == "t103"
    assert judged == ["t10", "t100", "t101", "t102", "t103"]


def test_reassignments_are_listed_in_steps(wired: WiredBroker) -> None:
    topics = [
        ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="t1", partition_indexes=[0] * 1_000)
    ]
    for asked in (None, topics):
        request = ListPartitionReassignmentsRequest(topics=asked)
        work = reassignments.list_reassignments(wired.broker.metadata.image, request)
        assert sum(1 for _ in work) >= (TOPICS if asked is None else 1_000) // reassignments._LISTED_PER_UNIT


def test_a_new_min_isr_asks_no_topic_without_an_elr(wired: WiredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new default of 50,000 topics took one turn of 163 ms: all of them were asked three times."""
    asked: list[str] = []
    monkeypatch.setattr(TopicImage, "has_elr", property(lambda topic: asked.append(topic.name)))
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="", configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = wired.connect().call(request, 1, IncrementalAlterConfigsResponse)
    assert response.responses[0].error_code == ErrorCode.NONE
    assert asked == []


def test_a_fetch_of_very_many_partitions_waits_without_watching_them(
    wired: WiredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch of 50,000 partitions outside of a session registered with each of them in one turn, of 70 ms."""
    monkeypatch.setattr(fetch, "_WATCHED_MAX", 100)
    image = wired.broker.metadata.image
    topics = [
        FetchRequest.FetchTopic(
            topic_id=topic.topic_id,
            partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)],
        )
        for topic in image.topics()
    ]
    request = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    client = wired.connect()
    client.send(request, 16)
    wired.host.time.run_for(200)
    assert client.received() == []
    assert not any(partition._watchers for partition in wired.broker.replicas.partitions())
    wired.host.time.run_for(150)
    ((_, response),) = client.received()
    assert isinstance(response, FetchResponse)
    assert len(response.responses) == len(topics)


def test_a_repeated_partition_is_described_once_and_in_steps(
    wired: WiredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition with 20,000 producers, named 100 times, had a response of 2,000,000 rows, built in one turn."""
    state = SimpleNamespace(
        producer_id=1, epoch=0, last_sequence=0, last_timestamp=0, coordinator_epoch=-1, txn_first_offset=None
    )
    log = SimpleNamespace(producers=SimpleNamespace(producers=dict.fromkeys(range(2_000), state)))
    monkeypatch.setattr(wired.broker.replicas, "leader", lambda *arguments, **options: SimpleNamespace(log=log))
    topic = DescribeProducersRequest.TopicRequest(name="t1", partition_indexes=[0] * 100)
    work = describe_producers.handle(cast("Any", None), DescribeProducersRequest(topics=[topic]), wired.broker.services)
    steps = 0
    while True:
        try:
            steps += next(work)
        except StopIteration as end:
            response = end.value
            break
    ((row,),) = [topic.partitions for topic in response.topics]
    assert len(row.active_producers) == 2_000
    assert steps >= 2_000 // describe_producers._PRODUCERS_PER_STEP


def test_a_transaction_of_many_partitions_is_described_once_and_in_steps(
    wired: WiredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = frozenset(TopicPartition(f"t{index % 500}", index) for index in range(5_000))
    image = SimpleNamespace(
        partitions=partitions, state=TxnState.ONGOING, timeout_ms=1, start_ms=2, producer_id=3, producer_epoch=4
    )
    transaction = SimpleNamespace(transactional_id="x", image=image)
    monkeypatch.setattr(wired.broker.services.transactions, "describe", lambda _: transaction)
    request = DescribeTransactionsRequest(transactional_ids=["x"] * 100)
    work = describe_transactions.handle(cast("Any", None), request, wired.broker.services)
    response = finished(work)
    (row,) = response.transaction_states
    found = {TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions}
    assert found == partitions
    assert [topic.topic for topic in row.topics] == sorted({each.topic for each in partitions})
    again = describe_transactions.handle(cast("Any", None), request, wired.broker.services)
    assert sum(again) >= 5_000 // describe_transactions._PARTITIONS_PER_STEP


def test_the_offsets_of_a_group_are_fetched_once(wired: WiredBroker) -> None:
    """A group with 50,000 offsets, named 1,000 times, had a response of a gigabyte."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    named = OffsetFetchRequest.OffsetFetchRequestTopics(name="t1", partition_indexes=[0])
    groups = [*[group(group_id="g", topics=None)] * 1_000, *[group(group_id="g", topics=[named])] * 2]
    client = wired.connect()
    keys = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    client.call(keys, 4, FindCoordinatorResponse)
    wired.host.time.run_for(5_000)
    response = client.call(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
    assert [len(one.topics) for one in response.groups] == [0, 1, 1]
