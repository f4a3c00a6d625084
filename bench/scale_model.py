"""A large cluster's metadata in one separate process, by the controller's pure code: no quorum, no network.

    scale_model.py '{"brokers": 100, "topics": 100, "partitions_per_topic": 1000, "seed": 1}'

It builds the image as a controller would (registrations, CreateTopics), writes a snapshot of it and loads that into a
new image; then one broker is fenced, as when its process ends. Prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

from barnabas.common.config import BrokerConfig
from barnabas.common.portions import whole
from barnabas.controller.kraft.bootstrap import bootstrap_batches
from barnabas.controller.requests.brokers import fence
from barnabas.controller.requests.result import Versioned
from barnabas.controller.requests.topics import create_topics
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.frame import decode_record, encode_record
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.records_metadata import RegisterBrokerRecord
from barnabas.raft.metadata_batches import encode_in_portions
from barnabas.raft.snapshots import decode_snapshot, encode_snapshot

REPLICATION_FACTOR = 3
_WALL_MS = 1_700_000_000_000
_PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1000",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "min.insync.replicas": "2",
    "log.dirs": "/none",
}


class Chance:
    """An implementation of `common.host.Random`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        return b"\x10" + self._random.randbytes(15)


class Model:
    """An image, and the controller's decisions on it."""

    def __init__(self, seed: int) -> None:
        self._config = BrokerConfig.from_properties(_PROPERTIES)
        self._chance = Chance(seed)
        self.image = EMPTY_IMAGE
        for records, _ in bootstrap_batches(self.view(), [], in_transaction=False):
            self.replay(records)

    def view(self) -> ControllerView:
        return ControllerView(self.image, self._config, self._chance)

    def replay(self, records: Sequence[Versioned]) -> None:
        delta = MetadataDelta(self.image)
        for record, _ in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + len(records), 1, _WALL_MS)

    def add_brokers(self, count: int) -> None:
        records: list[Versioned] = [
            (
                RegisterBrokerRecord(
                    broker_id=broker_id,
                    broker_epoch=broker_id,
                    incarnation_id=self._chance.uuid(),
                    fenced=False,
                    log_dirs=[self._chance.uuid()],
                ),
                3,
            )
            for broker_id in range(count)
        ]
        self.replay(records)

    def add_topic(self, name: str, partitions: int) -> list[Versioned]:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=REPLICATION_FACTOR
        )
        records = create_topics(self.view(), CreateTopicsRequest(topics=[topic]), "bench").records
        assert len(records) > partitions, "the topic was created"
        self.replay(records)
        return records


def resident_mb() -> float:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Clock:
    """The CPU time of this process since the last call."""

    def __init__(self) -> None:
        self._at = time.process_time()

    def lap(self) -> float:
        before, self._at = self._at, time.process_time()
        return self._at - before


def measure_snapshot(image: MetadataImage, measured: dict[str, float]) -> bytes:
    """Measures writing a snapshot and reading it again; the image from the snapshot is equal."""
    clock = Clock()
    data = encode_snapshot(
        image_records(image),
        epoch=1,
        wall_ms=_WALL_MS,
        last_contained_log_timestamp_ms=_WALL_MS,
        kraft_version=0,
        voters=None,
    )
    measured["snapshot_write_s"] = clock.lap()
    measured["snapshot_mb"] = len(data) / 1e6
    before_mb = resident_mb()
    clock.lap()
    snapshot = decode_snapshot(data)
    delta = MetadataDelta(EMPTY_IMAGE)
    for record, _ in snapshot.records:
        delta.replay(record)
    count = len(snapshot.records)
    loaded = delta.apply(image.offset, 1, _WALL_MS)
    measured["snapshot_load_s"] = clock.lap()
    measured["load_us_per_record"] = measured["snapshot_load_s"] * 1e6 / count
    assert loaded.topics_by_id == image.topics_by_id, "the snapshot has all topics"
    del snapshot, delta
    measured["image_mb"] = resident_mb() - before_mb
    return bytes(data)


def measure_failover(model: Model, broker_id: int, measured: dict[str, float]) -> None:
    """Measures the CPU time to decide the records, encode them and build the next image, and to replay them on a
    broker.
    """
    before = model.image
    led = sum(p.leader == broker_id for topic in before.topics() for p in topic.partitions)
    clock = Clock()
    records: list[Versioned] = []
    decided_s = replayed_s = 0.0
    is_last = False
    while not is_last:
        portion, is_last = fence(model.view(), before.brokers[broker_id])
        decided_s += clock.lap()
        model.replay(portion)
        replayed_s += clock.lap()
        records += portion
    values = [encode_record(record, version) for record, version in records]
    encoded_s = clock.lap()
    delta = MetadataDelta(before)
    for value in values:
        delta.replay(decode_record(value)[0])
    after = delta.apply(model.image.offset, 1, _WALL_MS)
    followed_s = clock.lap()
    assert after.topics_by_id == model.image.topics_by_id, "all replay the same"
    assert not any(p.leader == broker_id for topic in after.topics() for p in topic.partitions), "all have new leaders"
    measured["leaderships"] = led
    measured["failover_records"] = len(records)
    measured["failover_decide_s"] = decided_s + replayed_s + encoded_s
    measured["failover_follow_s"] = followed_s
    measured["decide_us_per_record"] = measured["failover_decide_s"] * 1e6 / len(records)
    measured["follow_us_per_record"] = followed_s * 1e6 / len(records)


def run(options: dict[str, Any]) -> dict[str, float]:
    model = Model(options["seed"])
    model.add_brokers(options["brokers"])
    measured: dict[str, float] = {}
    for index in range(options["topics"] - 1):
        model.add_topic(f"topic-{index}", options["partitions_per_topic"])
    clock = Clock()
    records = model.add_topic("last", options["partitions_per_topic"])
    whole(encode_in_portions(records))
    measured["create_us_per_partition"] = clock.lap() * 1e6 / options["partitions_per_topic"]
    measure_snapshot(model.image, measured)
    measure_failover(model, options["brokers"] // 2, measured)
    return measured


def main() -> int:
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
