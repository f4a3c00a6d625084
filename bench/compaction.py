"""Compaction beside Apache Kafka's: how fast it is, and what a producer notices of it.

    python bench/compaction.py [--mb 400] [--rounds 3] [--only kafka|barnabas]

A compacted topic gets records of 1 kB over a number of keys while its settings keep it from being cleaned. Then one
record after the other is sent to another topic (acks=1, each waited for): for a while as things are, and again while
the log is being cleaned, from the change of its settings until `cleaner-offset-checkpoint` names it.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import targets

VALUE_BYTES = 1000
SEGMENT_BYTES = 64 << 20
WAIT_S = 300.0


class Outcome(NamedTuple):
    """Of one broker in one round. Latencies are (p50, p99, largest) in ms."""

    mb_per_s: float
    without: tuple[float, float, float]
    during: tuple[float, float, float]
    left_mb: float


def measure(name: str, size_mb: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="barnabas-compaction-") as folder:
        target = targets.TARGETS[name](Path(folder) / "node")
        target.prepare()
        target.launch()
        try:
            target.wait()
            return _run(target.bootstrap, Path(folder) / "node" / "data", size_mb)
        finally:
            target.stop()


def _run(bootstrap: str, data_dir: Path, size_mb: int) -> Outcome:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1.0",
        "segment.bytes": str(SEGMENT_BYTES),
        "max.message.bytes": "1048588",
    }
    for future in admin.create_topics([NewTopic("table", 1, 1, config=config), NewTopic("quiet", 1, 1)]).values():
        future.result(30)
    _fill(bootstrap, size_mb)
    os.sync()
    segments = sorted((data_dir / "table-0").glob("*.log"))[:-1]
    cleaned_mb = sum(path.stat().st_size for path in segments) / 1e6
    latency = _Latency(bootstrap)
    until = time.monotonic() + 1
    latency.measure(lambda: time.monotonic() > until)
    until = time.monotonic() + 4
    without = latency.measure(lambda: time.monotonic() > until)
    checkpoint = data_dir / "cleaner-offset-checkpoint"
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "table", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    begun = time.monotonic()
    during = latency.measure(lambda: "table 0" in checkpoint.read_text() or time.monotonic() - begun > WAIT_S)
    elapsed_s = time.monotonic() - begun
    left = sum(path.stat().st_size for path in (data_dir / "table-0").glob("*.log")) / 1e6
    return Outcome(cleaned_mb / elapsed_s, without, during, left)


def _fill(bootstrap: str, size_mb: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "1", "log_level": 2})
    chance = random.Random(1)
    value = chance.randbytes(VALUE_BYTES)
    count = size_mb * 1_000_000 // VALUE_BYTES
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


class _Latency:
    """One record in flight at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})

    def measure(self, is_over: Callable[[], bool]) -> tuple[float, float, float]:
        times: list[float] = []
        while not is_over() or len(times) < 100:
            begun = time.perf_counter()
            self._producer.produce("quiet", b"x" * 100)
            self._producer.flush(30)
            times.append((time.perf_counter() - begun) * 1000)
        times.sort()
        return times[len(times) // 2], times[len(times) * 99 // 100], times[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(targets.TARGETS))
    options = parser.parse_args()
    targets.PROPERTIES["log.cleaner.backoff.ms"] = "50"
    names = [options.only] if options.only else ["kafka", "barnabas"]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            outcome = measure(name, options.mb)
            rates[name].append(outcome.mb_per_s)
            shown = ["/".join(f"{value:.2f}" for value in times) for times in (outcome.without, outcome.during)]
            print(
                f"{name:9} {outcome.mb_per_s:6.0f} MB/s, {outcome.left_mb:.0f} MB left; produce p50/p99/max ms: "
                f"{shown[0]} without, {shown[1]} during",
                flush=True,
            )
        names.reverse()
    for name, values in sorted(rates.items()):
        print(f"{name:9} median {statistics.median(values):.0f} MB/s")


if __name__ == "__main__":
    main()
