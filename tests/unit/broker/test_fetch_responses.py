"""The encoding of Fetch responses with many rows, in steps."""

from __future__ import annotations

from tests.support.wired import WiredBroker

from barnabas.broker.fetching.fetch_responses import encode_fetch_response
from barnabas.broker.requests.in_flight import InFlight
from barnabas.common.errors import ErrorCode
from barnabas.common.metrics import TimeBuckets
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.replication.fetch_items import FetchItem, FetchResult

FETCH = 1
VERSION = 11
#: The size of the length, and of the response header.
HEAD_BYTES = 8


def test_a_response_of_many_topics_is_grouped_and_encoded_in_steps() -> None:
    wired = WiredBroker()
    connection = wired.connect().core
    request = InFlight(connection, FETCH, VERSION, 1, "c", 0, TimeBuckets())
    reported = [(FetchItem(f"topic-{place}", b"", 0), FetchResult()) for place in range(2_000)]
    work = encode_fetch_response(request, wired.broker.services, ErrorCode.NONE, 0, reported)
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            response, _ = codec.decode(FetchResponse, VERSION, b"".join(end.value), HEAD_BYTES)
            break
        steps += 1
    assert [topic.topic for topic in response.responses] == [item.topic for item, _ in reported]
    assert steps == 2_000 // 500 + 2_000 // 100, "rows per step of the grouping, and of the encoding"
