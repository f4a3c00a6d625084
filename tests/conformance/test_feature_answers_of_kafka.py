"""UpdateFeatures as Apache Kafka 4.1.0 answered it in the recorded frames, byte by byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.controller_world import ControllerWorld

from barnabas.controller.kraft.features import update_features
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest

FRAMES = Path(__file__).resolve().parents[1] / "data" / "wire" / "frames-4.1.0.json.gz"


def recorded() -> list[dict[str, Any]]:
    with gzip.open(FRAMES, "rt") as file:
        return [frame for frame in json.load(file) if frame["api_key"] == 57]


@pytest.mark.parametrize("frame", recorded(), ids=lambda frame: f"{frame['version']}-{frame['client_id']}")
def test_answered_as_kafka_does(frame: dict[str, Any]) -> None:
    # The active controller of the recorded cluster was node 2.
    world = ControllerWorld({"node.id": "2"})
    data = memoryview(bytes.fromhex(frame["request_hex"]))[4:]
    key, version, _, _, position = decode_request_header(data)
    request, _ = codec.decode(UpdateFeaturesRequest, version, data, position)
    answer = update_features(world.view(), request, version, 1, "User:ANONYMOUS")
    assert answer.records == []
    expected = bytes.fromhex(frame["response_hex"])[8 + response_header_version(key, version) :]
    assert bytes(codec.encode(answer.response, version)) == expected
