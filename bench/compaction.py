"""Compaction next to Apache Kafka's: its speed, and its effect on a producer.

A compacted topic gets records of 1 kB over a number of keys while its settings prevent cleaning. Then one record after
the other is sent to another topic (acks=1, each waited for): first without compaction, and again while the log is being
cleaned, from the change of its settings until `cleaner-offset-checkpoint` contains it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

VALUE_BYTES = 1000
SEGMENT_BYTES = 64 << 20
_WAIT_S = 300.0
_FEWEST_RECORDS = 100


class Outcome(NamedTuple):
    """The result of one broker in one round: megabytes cleaned per second, and latencies of the producer without and
    during cleaning.
    """

    mb_per_s: float
    without_ms: list[float]
    during_ms: list[float]


def run(bootstrap: str, data_dir: Path, options: Mapping[str, Any]) -> Outcome:
    """Compacts `megabytes`, after `calm_s` of producing."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1.0",
        "segment.bytes": str(SEGMENT_BYTES),
        "max.message.bytes": "1048588",
    }
    for future in admin.create_topics([NewTopic("table", 1, 1, config=config), NewTopic("quiet", 1, 1)]).values():
        future.result(30)
    _fill(bootstrap, options["megabytes"])
    os.sync()
    segments = sorted((data_dir / "table-0").glob("*.log"))[:-1]
    before_mb = sum(path.stat().st_size for path in segments) / 1e6
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    _latencies_ms(producer, _after(1.0))
    without_ms = _latencies_ms(producer, _after(options["calm_s"]))
    checkpoint = data_dir / "cleaner-offset-checkpoint"
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "table", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    begun = time.monotonic()
    ended: list[float] = []

    def is_clean() -> bool:
        now = time.monotonic()
        if not ended and "table 0" in checkpoint.read_text():
            ended.append(now)
        if now - begun > _WAIT_S:
            raise RuntimeError(f"the log is not compacted after {_WAIT_S:.0f} s")
        return bool(ended)

    during_ms = _latencies_ms(producer, is_clean)
    left_mb = sum(path.stat().st_size for path in (data_dir / "table-0").glob("*.log")) / 1e6
    if left_mb > before_mb * 0.7:
        raise RuntimeError(f"{left_mb:.0f} MB of {before_mb:.0f} MB are left: the log was not compacted")
    return Outcome(before_mb / (ended[0] - begun), without_ms, during_ms)


def _fill(bootstrap: str, size_mb: float) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "1", "log_level": 2})
    chance = random.Random(1)
    value = chance.randbytes(VALUE_BYTES)
    count = int(size_mb * 1_000_000 // VALUE_BYTES)
    for _ in range(count):
        key = b"key-%08d" % chance.randrange(count // 4)
        while True:
            try:
                producer.produce("table", value, key)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise RuntimeError("the records are not taken")


def _after(duration_s: float) -> Callable[[], bool]:
    until = time.monotonic() + duration_s
    return lambda: time.monotonic() > until


def _latencies_ms(producer: confluent_kafka.Producer, is_over: Callable[[], bool]) -> list[float]:
    """Returns the latencies of records with one in flight at a time."""
    times_ms: list[float] = []
    while not is_over() or len(times_ms) < _FEWEST_RECORDS:
        begun = time.perf_counter()
        producer.produce("quiet", b"x" * 100)
        producer.flush(30)
        times_ms.append((time.perf_counter() - begun) * 1000)
    return times_ms
