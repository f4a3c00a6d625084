"""The answers of Apache Kafka 4.1.0 to a client that sent every request in every version (tests/data/wire)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.messages.index import request_class, response_class

FRAMES = Path(__file__).parent.parent / "data" / "wire" / "frames-4.1.0.json.gz"
SWEEP = "golden-sweep"
JAVA = "golden-java"

#: API key, version, request, response.
Frame = tuple[int, int, Any, Any]


@cache
def _frames() -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = json.loads(gzip.decompress(FRAMES.read_bytes()))
    return frames


def recorded(*api_keys: int, client: str = SWEEP) -> list[Frame]:
    """Returns the frames of a client with these API keys, in their order, decoded again for each caller."""
    found = []
    for frame in _frames():
        key, version = frame["api_key"], frame["version"]
        if key not in api_keys or frame["client_id"] != client:
            continue
        request_frame, response_frame = bytes.fromhex(frame["request_hex"]), bytes.fromhex(frame["response_hex"])
        start = decode_request_header(memoryview(request_frame)[4:])[4]
        request, _ = codec.decode(request_class(key), version, memoryview(request_frame)[4:], start)
        head = 8 + response_header_version(key, version)
        response, _ = codec.decode(response_class(key), version, memoryview(response_frame), head)
        found.append((key, version, request, response))
    return found
