"""Requests of thousands of rows hold the loop for some milliseconds at a time, and get the answers of a single turn.

Every test checks that no turn takes more than 50 ms of CPU (`support/turn_watch.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.bulk import Bulk, Situation
from tests.support.wired import WiredBroker

from barnabas.broker.requests import inner_requests, pieces
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse


@pytest.fixture(scope="module")
def situation() -> Situation:
    return Situation(small=250, middle=100, large=1_000, names=3_000)


@pytest.fixture(scope="module")
def wired(situation: Situation) -> WiredBroker:
    broker = WiredBroker()
    broker.create_topic("large", situation.large)
    for bulk in situation.creations():
        requested(broker, bulk)
    return broker


def requested(wired: WiredBroker, bulk: Bulk) -> Any:
    return wired.connect().call(bulk.request, bulk.version, Message, within_ms=60_000)


def in_one_piece(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pieces, "is_long", lambda *_: False)


def by_name(struct: Any) -> Any:
    """Returns a value without the order of rows and without random ids."""
    if isinstance(struct, list):
        return sorted((by_name(each) for each in struct), key=repr)
    if isinstance(struct, Struct):
        left_out = {"topic_id", "controller_id", "throttle_time_ms", "unknown_tags", "usable_bytes"}
        fields = [field.attribute for field in struct.FIELDS if field.attribute not in left_out]
        return {name: by_name(getattr(struct, name)) for name in fields}
    return struct


@pytest.mark.long_turns("the same is asked in one piece, to compare")
def test_pieces_are_answered_as_the_whole(
    wired: WiredBroker, situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, changes = list(situation.questions()), list(situation.changes("/data"))
    requested(wired, next(bulk for bulk in questions if bulk.name == "coordinators"))
    wired.host.time.run_for(1_000)
    for every in (questions, [bulk for bulk in changes if bulk.name != "add partitions"]):
        found = [requested(wired, bulk) for bulk in every]
        with monkeypatch.context() as patch:
            in_one_piece(patch)
            for bulk, answer in zip(every, found, strict=True):
                assert by_name(requested(wired, bulk)) == by_name(answer), bulk.name


def test_no_turn_is_long(situation: Situation) -> None:
    """The turns are measured from the creation of the first topic to the deletion of the last."""
    wired = WiredBroker()
    wired.create_topic("large", situation.large)
    for bulk in _everything(situation):
        requested(wired, bulk)
        wired.host.time.run_for(1_000)
    image = wired.broker.metadata.image
    assert set(image.topics_by_name) - INTERNAL_TOPICS == {"large"}


def _everything(situation: Situation) -> Iterator[Bulk]:
    yield from situation.creations()
    yield from situation.questions()
    yield from situation.fetches()
    yield from situation.changes("/data")
    yield from situation.deletions()


def test_a_topic_named_twice_is_refused_however_far_apart(wired: WiredBroker) -> None:
    new = CreateTopicsRequest.CreatableTopic
    names = ["twice", *(f"other-{number}" for number in range(400)), "twice"]
    request = CreateTopicsRequest(
        topics=[new(name=name, num_partitions=1, replication_factor=1) for name in names],
        timeout_ms=1_000,
        validate_only=True,
    )
    answer = wired.connect().call(request, 7, CreateTopicsResponse)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes.pop("twice") == 42
    assert len(answer.topics) == 401
    assert set(codes.values()) == {0}


def test_the_partitions_of_one_request_are_limited_as_with_kafka(wired: WiredBroker) -> None:
    new = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[new(name=f"wide-{number}", num_partitions=3_000, replication_factor=1) for number in range(4)],
        timeout_ms=1_000,
        validate_only=True,
    )
    answer = wired.connect().call(request, 7, CreateTopicsResponse)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0, 44]
    assert "Excessively large number of partitions" in (answer.topics[3].error_message or "")


def test_the_next_request_of_the_connection_comes_after_a_long_one(wired: WiredBroker, situation: Situation) -> None:
    client = wired.connect()
    long = [MetadataRequest.MetadataRequestTopic(name=name) for name in situation.topics]
    first = client.send(MetadataRequest(topics=long, allow_auto_topic_creation=False), 12)
    second = client.send(MetadataRequest(topics=[]), 12)
    assert client.received() == [], "it is served in steps, and the second one waits for it"
    wired.host.time.run_for(0)
    answers = client.received()
    assert [correlation_id for correlation_id, _ in answers] == [first, second]
    metadata = answers[0][1]
    assert isinstance(metadata, MetadataResponse)
    assert len(metadata.topics) == len(situation.topics)
    assert client.link.reading


def test_others_are_served_between_the_steps(wired: WiredBroker, situation: Situation) -> None:
    greedy, other = wired.connect(), wired.connect()
    bulk = next(bulk for bulk in situation.questions() if bulk.name == "ends of epochs")
    greedy.send(bulk.request, bulk.version)
    enter = wired.host.time.enter
    served: list[Any] = []

    def between(callback: Any) -> None:
        enter(callback)
        if not greedy.link.sent and len(served) < 5:
            sent = other.send(MetadataRequest(topics=[]), 12)
            assert [correlation_id for correlation_id, _ in other.received()] == [sent]
            served.append(True)

    wired.host.time.enter = between  # type: ignore[method-assign]
    try:
        wired.host.time.run_for(0)
    finally:
        del wired.host.time.enter
    assert len(served) == 5
    assert len(greedy.received()) == 1


def test_who_is_gone_is_served_no_further(wired: WiredBroker, situation: Situation) -> None:
    """The rest of the request leaves no state."""
    served: list[Message] = []
    client = wired.connect()
    bulk = next(bulk for bulk in situation.questions() if bulk.name == "latest offsets")
    with pytest.MonkeyPatch.context() as patch:
        serve_with = inner_requests.InnerRequest.serve_with

        def noted(self: Any, handler: Any, message: Message, services: Any) -> None:
            serve_with(self, handler, message, services)
            if isinstance(message, ListOffsetsRequest):
                served.append(message)
                client.core.close()

        patch.setattr(inner_requests.InnerRequest, "serve_with", noted)
        client.send(bulk.request, bulk.version)
        wired.host.time.run_for(1_000)
    assert len(served) == 1
    assert len(wired.broker.services.steps) == 0
