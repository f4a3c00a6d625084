"""Every recorded frame of Kafka 4.1.0 and 3.9.1 decodes to the content that Kafka shows, and encodes to the same bytes.

`tests/data/wire/frames-*.json.gz`: requests and responses recorded between Kafka's brokers and clients (Java,
librdkafka, aiokafka, kafka-python) with the content as Kafka's own JSON converters show it.
"""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, request_header_version, response_header_version
from barnabas.protocol.kafka_json import to_json_object
from barnabas.protocol.message import Message
from barnabas.protocol.messages.header import RequestHeader, ResponseHeader
from barnabas.protocol.messages.index import API_NAMES, request_class, response_class

DATA = Path(__file__).resolve().parents[1] / "data" / "wire"
Frame = dict[str, Any]


def load_frames() -> list[Frame]:
    frames: list[Frame] = []
    for release in ("4.1.0", "3.9.1"):
        with gzip.open(DATA / f"frames-{release}.json.gz", "rt") as file:
            frames += json.load(file)
    return frames


FRAMES = load_frames()
#: The one unsupported version: asked on purpose, and answered in version 0 as KIP-511 says.
REQUESTED_TOO_HIGH = [f for f in FRAMES if f["api_key"] == 18 and f["version"] == 99]
KNOWN = [f for f in FRAMES if f not in REQUESTED_TOO_HIGH]


def by_api() -> list[Any]:
    keys = sorted({f["api_key"] for f in KNOWN})
    return [pytest.param([f for f in KNOWN if f["api_key"] == key], id=API_NAMES[key]) for key in keys]


def body_of_frame(text: str) -> bytes:
    """Returns the frame without its size, which must be right."""
    data = bytes.fromhex(text)
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    return data[4:]


def check_whole(
    data: bytes, header: tuple[type[Message], int], body: tuple[type[Message], int]
) -> tuple[Message, Message]:
    """Checks that header and body consume all bytes and encode to them again."""
    head, offset = codec.decode(*header, data)
    message, end = codec.decode(*body, data, offset)
    assert end == len(data)
    out = codec.encode(head, header[1])
    codec.encode_into(message, body[1], out)
    assert out.hex() == data.hex()
    return head, message


@pytest.mark.parametrize("frames", by_api())
def test_requests_decode_as_kafka_says_and_encode_to_the_same_bytes(frames: list[Frame]) -> None:
    for frame in frames:
        api_key, version = frame["api_key"], frame["version"]
        data = body_of_frame(frame["request_hex"])
        header_version = request_header_version(api_key, version)
        assert header_version == frame["request"]["headerVersion"]
        cls = request_class(api_key)
        head, message = check_whole(data, (RequestHeader, header_version), (cls, version))
        assert to_json_object(head, header_version) == frame["request"]["header"]
        assert to_json_object(message, version) == frame["request"]["body"]


@pytest.mark.parametrize("frames", by_api())
def test_responses_decode_as_kafka_says_and_encode_to_the_same_bytes(frames: list[Frame]) -> None:
    for frame in frames:
        if "response_hex" not in frame:
            assert frame["api_key"] == 0, "only Produce with acks=0 has no answer"
            continue
        api_key, version = frame["api_key"], frame["version"]
        data = body_of_frame(frame["response_hex"])
        header_version = response_header_version(api_key, version)
        assert header_version == frame["response"]["headerVersion"]
        cls = response_class(api_key)
        head, message = check_whole(data, (ResponseHeader, header_version), (cls, version))
        assert to_json_object(head, header_version) == frame["response"]["header"]
        assert to_json_object(message, version) == frame["response"]["body"]


def test_quick_header_reader_agrees_with_the_declared_header() -> None:
    for frame in FRAMES:
        data = body_of_frame(frame["request_hex"])
        for view in (data, memoryview(bytearray(data))):
            api_key, version, correlation_id, client_id, offset = decode_request_header(view)
            head, end = codec.decode(RequestHeader, request_header_version(api_key, version), view)
            assert (api_key, version) == (frame["api_key"], frame["version"])
            assert (api_key, version) == (head.request_api_key, head.request_api_version)
            assert (correlation_id, client_id, offset) == (head.correlation_id, head.client_id, end)


def test_answer_to_an_api_versions_request_that_is_too_new_is_version_0() -> None:
    assert REQUESTED_TOO_HIGH
    for frame in REQUESTED_TOO_HIGH:
        data = body_of_frame(frame["response_hex"])
        _, answer = check_whole(data, (ResponseHeader, 0), (response_class(18), 0))
        assert to_json_object(answer, 0)["errorCode"] == 35
