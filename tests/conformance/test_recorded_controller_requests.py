"""The requests of an Apache Kafka 3.9.1 controller in ZooKeeper mode, as recorded, and what its brokers answered.

The frames are in `tests/data/wire/controller-3.9.1.json.gz`, up to twelve of each API: each broker gets those that were
recorded at it, in their order, and answers as was recorded.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.zookeeper_broker import PROPERTIES

from barnabas.broker.zookeeper.controller_feed import ControllerFeed
from barnabas.broker.zookeeper.directory_assignments import UnreportedAssignments
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.portions import whole
from barnabas.metadata.store import MetadataStore
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import request_class, response_class
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager, ReplicaPorts
from barnabas.simulation.host import MemoryHost
from barnabas.storage.log_manager import LogManager

DATA = Path(__file__).resolve().parents[1] / "data" / "wire" / "controller-3.9.1.json.gz"
REQUESTS = (LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)
Frame = dict[str, Any]


def decoded(frame: Frame) -> Any:
    data = memoryview(bytes.fromhex(frame["request_hex"]))[4:]
    api_key, version, _, _, position = decode_request_header(data)
    return codec.decode(request_class(api_key), version, data, position)[0]


def load_frames() -> list[Frame]:
    with gzip.open(DATA, "rt") as file:
        frames: list[Frame] = json.load(file)
    return frames


FRAMES = load_frames()


class Receiver:
    """A broker of the recording, in one of its lives; it has none of its predecessors' logs."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        self.host = MemoryHost(seed=1)
        config = BrokerConfig.from_properties({**PROPERTIES, "broker.id": str(broker_id)})
        logs = LogManager(self.host, config)
        ports = ReplicaPorts(self._send, lambda: broker_epoch, self._report, UnreportedAssignments())
        replicas = ReplicaManager(self.host, config, logs, ports)
        logs.start(high_watermark_of=replicas.high_watermark_of)
        replicas.start(logs.checkpointed_high_watermarks())
        store = MetadataStore()
        store.subscribe(replicas.on_image)
        self.feed = ControllerFeed(broker_id, store, replicas, self.host.clock, lambda: broker_epoch)

    def _send(self, request: Message, reply: Any) -> None: ...
    def _report(self, partition: Partition, what: str, facts: dict[str, int]) -> None: ...

    def answer(self, request: Any, version: int) -> Message:
        if isinstance(request, LeaderAndIsrRequest):
            return whole(self.feed.leader_and_isr(request, version))
        if isinstance(request, StopReplicaRequest):
            return whole(self.feed.stop_replica(request))
        return whole(self.feed.update_metadata(request))


def lives() -> list[Any]:
    """Returns the frames by broker and broker epoch."""
    found: dict[tuple[str, int], list[Frame]] = {}
    for frame in FRAMES:
        found.setdefault((frame["listener"], decoded(frame).broker_epoch), []).append(frame)
    return [pytest.param(*key, frames, id=f"{key[0]}-{key[1]}") for key, frames in sorted(found.items())]


def rows_of(answer: Any) -> tuple[int, list[tuple[object, int, int]]]:
    """Returns the error of a response and its rows; Kafka's are in the order of a hash table."""
    rows = [(row.topic_name, row) for row in getattr(answer, "partition_errors", ())]
    rows += [(topic.topic_id, row) for topic in getattr(answer, "topics", ()) for row in topic.partition_errors]
    return answer.error_code, sorted((name, row.partition_index, row.error_code) for name, row in rows)


@pytest.mark.parametrize(("listener", "broker_epoch", "frames"), lives())
def test_a_broker_answers_as_it_was_recorded(listener: str, broker_epoch: int, frames: list[Frame]) -> None:
    receiver = Receiver(int(listener.removeprefix("broker")), broker_epoch)
    for frame in sorted(frames, key=lambda frame: (decoded(frame).controller_epoch, frame["correlation_id"])):
        version, response = frame["version"], response_class(frame["api_key"])
        data = bytes.fromhex(frame["response_hex"])[4:]
        recorded, _ = codec.decode(response, version, data, 4 + response_header_version(frame["api_key"], version))
        answer = receiver.answer(decoded(frame), version)
        if any(code == ErrorCode.STALE_CONTROLLER_EPOCH for _, _, code in rows_of(recorded)[1]):
            # The broker had these roles already, by a request that is not among the frames.
            answer = receiver.answer(decoded(frame), version)
        encoded = bytes(codec.encode(answer, version))
        assert rows_of(codec.decode(response, version, encoded, 0)[0]) == rows_of(recorded)


def test_requests_for_another_life_of_a_broker_are_refused() -> None:
    """G37."""
    for frame in FRAMES:
        request = decoded(frame)
        receiver = Receiver(int(frame["listener"].removeprefix("broker")), request.broker_epoch + 1)
        answer: Any = receiver.answer(request, frame["version"])
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
