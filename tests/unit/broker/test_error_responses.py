"""Answers with one error for everything: every API and version has one that can be encoded, with the longest names.

Texts that do not fit are shortened, and nothing else in these answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.requests.error_responses import (
    UNEXPECTED,
    encode_response,
    encode_response_in_steps,
    error_response,
    shortened,
)
from barnabas.broker.requests.steps import SLICE_UNITS
from barnabas.common.errors import EncodeError, ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.index import request_class
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchResponse

SERVED = sorted(
    {
        (key, version)
        for key, offer in itertools.chain(BROKER_APIS.items(), CONTROLLER_APIS.items())
        for version in range(offer.version_min, offer.version_max + 1)
    }
)
#: Requests whose connection is closed instead.
CLOSED = {0, 1, 18}
#: Versions whose answer has no place for an error that is not about one thing that was asked for.
SPEECHLESS = {(35, 1), (35, 2)}
LONGEST = "n" * 32_767
NUMBERS = {"int8": 1, "int16": 1, "int32": 7, "int64": 7, "uint16": 7, "float64": 1.0, "bool": True}


def filled(message: type[Message], cls: type[Struct], version: int) -> Any:
    """Returns a struct with two elements in each array, and the longest strings."""
    struct = cls()
    for field in cls.FIELDS:
        if not field.is_in(version):
            continue
        if field.is_struct:
            made = [filled(message, getattr(message, field.element_type), version) for _ in range(2)]
            setattr(struct, field.attribute, made if field.is_array else made[0])
            continue
        value: Any = NUMBERS.get(field.element_type)
        if field.element_type == "string":
            value = LONGEST
        elif field.element_type in ("bytes", "records"):
            value = b"b"
        elif field.element_type == "uuid":
            value = bytes(range(16))
        setattr(struct, field.attribute, [value, value] if field.is_array else value)
    return struct


def codes_of(struct: Struct, version: int) -> Iterator[int]:
    for field in struct.FIELDS:
        if not field.is_in(version):
            continue
        value = getattr(struct, field.attribute)
        if field.attribute in ("error_code", "partition_error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from codes_of(each, version)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_every_request_has_an_answer_that_says_an_error_of_all_of_it(api_key: int, version: int) -> None:
    cls = request_class(api_key)
    request = filled(cls, cls, version)
    codec.encode(request, version)
    answer = error_response(request, version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    if api_key in CLOSED or (api_key, version) in SPEECHLESS:
        assert answer is None
        return
    assert answer is not None
    out = bytearray()
    encode_response(answer, version, out)
    decoded, end = codec.decode(type(answer), version, bytes(out))
    assert end == len(out)
    assert set(codes_of(decoded, version)) == {-1}


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_an_empty_request_too(api_key: int, version: int) -> None:
    """There is nothing to which an error could belong."""
    answer = error_response(request_class(api_key)(), version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    if answer is not None:
        codec.encode(answer, version)


@pytest.mark.parametrize(("version", "name"), [(10, ""), (11, ""), (12, None), (13, None)])
def test_a_topic_asked_for_by_its_id_has_the_name_that_the_version_allows(version: int, name: str | None) -> None:
    topic = MetadataRequest.MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
    answer: Any = error_response(MetadataRequest(topics=[topic]), version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    assert [(row.topic_id, row.name) for row in answer.topics] == [(bytes(range(16)), name)]
    codec.encode(answer, version)


def test_each_thing_asked_for_has_its_row() -> None:
    cls = request_class(9)
    answer: Any = error_response(filled(cls, cls, 9), 9, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    assert isinstance(answer, OffsetFetchResponse)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [(LONGEST, -1)] * 2
    cls = request_class(24)
    answer = error_response(filled(cls, cls, 5), 5, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    (row, _) = answer.results_by_transaction[0].topic_results[1].results_by_partition
    assert (row.partition_index, row.partition_error_code) == (7, -1)
    cls = request_class(34)
    answer = error_response(filled(cls, cls, 2), 2, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
    assert [row.topic_name for row in answer.results] == [LONGEST] * 4


@pytest.mark.parametrize("version", range(2, 8))
def test_a_text_that_does_not_fit_is_shortened(version: int) -> None:
    text = f"Topic name is invalid: the length of '{LONGEST}' is longer than the max allowed length 249"
    result = CreateTopicsResponse.CreatableTopicResult(
        name=LONGEST, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=text
    )
    out = bytearray(b"head")
    encode_response(CreateTopicsResponse(topics=[result]), version, out)
    assert out[:4] == b"head"
    answer, _ = codec.decode(CreateTopicsResponse, version, bytes(out), 4)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == (LONGEST, 17)
    assert topic.error_message is not None
    assert topic.error_message.startswith("Topic name is invalid: the length of 'nnn")
    assert topic.error_message.endswith("n\N{HORIZONTAL ELLIPSIS} is longer than the max allowed length 249")


def test_a_text_that_fits_is_left_as_it_is() -> None:
    text = "x" * 30_000
    out = bytearray()
    result = CreateTopicsResponse.CreatableTopicResult(name="t", error_message=text)
    encode_response(CreateTopicsResponse(topics=[result]), 7, out)
    answer, _ = codec.decode(CreateTopicsResponse, 7, bytes(out))
    assert answer.topics[0].error_message == text


def test_what_does_not_fit_for_another_reason_is_refused() -> None:
    with pytest.raises(EncodeError):
        encode_response(CreateTopicsResponse(throttle_time_ms=1 << 40), 7, bytearray())


def test_texts_of_many_words_are_cut_as_well() -> None:
    assert len(shortened("word " * 10_000)) == 2_001
    assert shortened("a short text") == "a short text"


def test_texts_of_many_elements_are_shortened_in_steps() -> None:
    """An error text contains the name of its element, so a few hundred of them are millions of letters."""
    text = f"Topic name is invalid: the length of '{LONGEST}' is longer than the max allowed length 249"
    rows = [CreateTopicsResponse.CreatableTopicResult(name=f"t{number}", error_message=text) for number in range(333)]
    out = bytearray()
    steps = list(encode_response_in_steps(CreateTopicsResponse(topics=rows), 7, out))
    assert steps.count(SLICE_UNITS) >= 333 // 50
    answer, _ = codec.decode(CreateTopicsResponse, 7, bytes(out))
    assert all(len(topic.error_message or "") < 400 for topic in answer.topics)
