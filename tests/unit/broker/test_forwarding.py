"""What becomes of a request that only the controller can decide while nobody leads the quorum."""

from __future__ import annotations

from tests.support.wired import WiredBroker

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


def test_a_client_whose_request_no_controller_takes_is_told_so_on_the_same_connection() -> None:
    wired = WiredBroker()
    wired.broker.controller.resign()
    client = wired.connect()
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    response = client.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse, within_ms=60_000)
    assert [each.error_code for each in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert wired.closes.causes == []
