"""Controller mutation quotas (KIP-599): strict requests are refused, older ones served, and the client pauses."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker, WiredClient
from tests.unit.broker.test_client_throttles import set_quota

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

REFUSED = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


@pytest.fixture
def wired() -> WiredBroker:
    """The bucket of the client "app" holds 11 tokens, and gets one per second."""
    made = WiredBroker()
    set_quota(made, "controller_mutation_rate", 1)
    return made


def create(wired: WiredBroker, names: list[str], partitions: int, version: int = 7) -> CreateTopicsResponse:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000)
    return WiredClient(wired, "app").call(request, version, CreateTopicsResponse)


def codes(answer: CreateTopicsResponse) -> dict[str, int]:
    return {row.name: row.error_code for row in answer.topics}


def test_a_strict_request_is_refused_while_tokens_are_owed(wired: WiredBroker) -> None:
    answer = create(wired, ["a", "b", "c"], 6)
    assert codes(answer) == {"a": 0, "b": 0, "c": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    refused = next(row for row in answer.topics if row.name == "c")
    assert (refused.error_code, refused.error_message) == REFUSED
    assert 900 <= answer.throttle_time_ms <= 1_000
    assert "c" not in wired.broker.metadata.image.topics_by_name
    wired.host.time.run_for(1_000)
    assert codes(create(wired, ["c"], 1)) == {"c": 0}


def test_the_broker_mutes_the_client_whose_request_the_controller_decided(wired: WiredBroker) -> None:
    create(wired, ["a"], 11)
    client = WiredClient(wired, "app")
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=5, replication_factor=1) for name in ("b", "c")
        ]
    )
    answer = client.call(request, 7, CreateTopicsResponse)
    assert answer.throttle_time_ms > 4_000
    assert not client.link.reading
    wired.host.time.run_for(answer.throttle_time_ms + 20)
    assert client.link.reading


def test_an_older_request_is_served_and_its_client_pauses(wired: WiredBroker) -> None:
    answer = create(wired, ["a", "b", "c"], 6, version=5)
    assert codes(answer) == {"a": 0, "b": 0, "c": 0}
    assert answer.throttle_time_ms > 6_000


def test_deletions_and_new_partitions_count(wired: WiredBroker) -> None:
    create(wired, ["a"], 6)
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=12, assignments=None)]
    )
    grown = WiredClient(wired, "app").call(grow, 3, CreatePartitionsResponse)
    assert [row.error_code for row in grown.results] == [0]
    assert grown.throttle_time_ms == 0, "a strict request that is served does not pause the client"
    delete = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a")], timeout_ms=1000)
    deleted = WiredClient(wired, "app").call(delete, 6, DeleteTopicsResponse)
    assert [(row.error_code, row.error_message) for row in deleted.responses] == [REFUSED]
    assert "a" in wired.broker.metadata.image.topics_by_name
    grow.topics[0].count = 13
    grown = WiredClient(wired, "app").call(grow, 3, CreatePartitionsResponse, within_ms=60_000)
    assert [row.error_code for row in grown.results] == [REFUSED[0]]
    wired.host.time.run_for(20_000)
    deleted = WiredClient(wired, "app").call(delete, 6, DeleteTopicsResponse)
    assert [row.error_code for row in deleted.responses] == [0]


def test_refused_topics_cost_nothing(wired: WiredBroker) -> None:
    create(wired, ["a"], 1)
    for _ in range(20):
        assert codes(create(wired, ["a"], 100)) == {"a": ErrorCode.TOPIC_ALREADY_EXISTS}
    assert codes(create(wired, ["b"], 1)) == {"b": 0}


def test_a_request_in_pieces_counts_each_topic_once_and_gets_the_longest_pause(wired: WiredBroker) -> None:
    answer = create(wired, [f"t{n}" for n in range(120)], 1)
    found = list(codes(answer).values())
    assert found.count(0) == 12, "11 tokens, and one owed"
    assert found.count(ErrorCode.THROTTLING_QUOTA_EXCEEDED) == 108
    assert answer.throttle_time_ms > 0


def test_other_clients_are_not_limited(wired: WiredBroker) -> None:
    create(wired, ["a"], 100)
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="b", num_partitions=50, replication_factor=1)]
    )
    assert codes(WiredClient(wired, "other").call(request, 7, CreateTopicsResponse)) == {"b": 0}
