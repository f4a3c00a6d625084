"""Answers to Fetch are bounded, whatever the request's limits: each is read in one turn of the event loop."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce

from barnabas.broker.handlers.fetch import ANSWER_BYTES_MAX
from barnabas.protocol.messages.fetch import FetchResponse

MIB = 1 << 20
pytestmark = pytest.mark.long_turns("disk, log and link are in memory, and each copies what is read")


def fetched_bytes(wired: WiredBroker, offset: int) -> int:
    """Returns the size of the answer to a fetch of 50 MB from this offset."""
    request = fetch_request(wired, offset, 12)
    request.max_bytes = request.topics[0].partitions[0].partition_max_bytes = 50_000_000
    row = wired.connect().call(request, 12, FetchResponse).responses[0].partitions[0]
    assert row.error_code == 0
    return len(row.records or b"")


def test_an_answer_is_bounded_and_the_next_one_goes_on() -> None:
    wired = WiredBroker(message_max_bytes=str(40 * MIB), socket_request_max_bytes=str(80 * MIB))
    wired.create_topic("orders")
    client = wired.connect()
    for _ in range(18):
        assert produce(wired, client, batch_of(b"x" * MIB))[0] == 0
    first = fetched_bytes(wired, 0)
    assert 15 * MIB < first <= ANSWER_BYTES_MAX
    assert 2 * MIB < fetched_bytes(wired, 15) < 4 * MIB


def test_one_batch_that_is_larger_comes_whole() -> None:
    wired = WiredBroker(message_max_bytes=str(40 * MIB), socket_request_max_bytes=str(80 * MIB))
    wired.create_topic("orders")
    assert produce(wired, wired.connect(), batch_of(b"x" * 20 * MIB))[0] == 0
    assert fetched_bytes(wired, 0) > 20 * MIB
