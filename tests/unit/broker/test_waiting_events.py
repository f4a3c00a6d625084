"""The events that a broker has not written to the journal yet, as a tagged field of a Fetch response."""

from __future__ import annotations

import pytest
from tests.support.secured import ALICE, SecuredBroker
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.fetching.fetch_responses import encode_fetch_response
from barnabas.broker.requests.in_flight import InFlight
from barnabas.common.errors import ErrorCode
from barnabas.common.metrics import TimeBuckets
from barnabas.common.types import EVENTS_TOPIC
from barnabas.common.waiting_events import WAITING_TAG, waiting_batch
from barnabas.journal.self_reports import SelfReport, SelfReportKind
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.monitor.journal_requests import event_of, records_in
from barnabas.protocol import codec
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.replication.fetch_items import FetchItem, FetchResult

_TAG = ((WAITING_TAG, b""),)
_VERSION = 12


def waiting(client: WiredClient, topic: str = EVENTS_TOPIC, *, tags: tuple[tuple[int, bytes], ...] = _TAG) -> list[str]:
    """Returns the kinds of the events in the answer."""
    asked = FetchRequest.FetchTopic(topic=topic, partitions=[FetchRequest.FetchPartition(partition=0)])
    request = FetchRequest(topics=[asked], session_epoch=-1, unknown_tags=tags)
    response = client.call(request, _VERSION, FetchResponse)
    records, _ = records_in(waiting_batch(response.unknown_tags), 0)
    return [event["kind"] for _, value in records if (event := event_of(value)) is not None]


def report(wired: WiredBroker, kind: SelfReportKind = SelfReportKind.BURST) -> None:
    facts = {"topic": "t", "bytes_per_s": 9, "usual_bytes_per_s": 1}
    wired.broker.journal.on_self_report(SelfReport(kind, 1, None, 5, facts=facts))


def test_events_that_wait_are_served_to_those_who_ask_for_them() -> None:
    wired = WiredBroker()
    client = wired.connect()
    assert waiting(client) == []
    report(wired)
    assert waiting(client) == ["burst"]
    assert waiting(client) == ["burst"], "they stay until they are written"
    assert waiting(client, tags=()) == []
    assert waiting(client, tags=((WAITING_TAG + 1, b""),)) == []
    assert waiting(client, "orders") == [], "a reader of another topic gets none"


def test_only_readers_of_the_journal_get_them() -> None:
    secured = SecuredBroker()
    report(secured)
    client = secured.connect_as(ALICE)
    assert waiting(client) == []
    secured.allow(AclOperation.READ, AclResource.TOPIC, EVENTS_TOPIC)
    assert waiting(client) == ["burst"]


@pytest.mark.parametrize("version", [12, 16])
def test_the_field_follows_those_of_the_protocol(version: int) -> None:
    wired = WiredBroker()
    request = InFlight(wired.connect().core, 1, version, 1, "c", 0, TimeBuckets())
    result = FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    result.leader = (1, 7)
    reported = [(FetchItem("t", bytes(16), 0), result)]
    data = b"x" * 300
    work = encode_fetch_response(request, wired.broker.services, ErrorCode.NONE, 0, reported, data)
    try:
        while True:
            next(work)
    except StopIteration as end:
        response, _ = codec.decode(FetchResponse, version, b"".join(end.value), 9)
    assert response.unknown_tags == ((WAITING_TAG, data),)
    assert [each.node_id for each in response.node_endpoints or ()] == ([1] if version >= 16 else [])
