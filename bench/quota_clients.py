"""A producer and a consumer whose rate is limited by a quota: how many bytes per second they get through.

    quota_clients.py produce|consume BOOTSTRAP '{"topic": ..., "seconds": ..., "warm_up_s": ..., "size_bytes": ...}'

A client can use the quota of all windows but one at once and then waits, so its bytes over time are a staircase. The
rate is the slope of the line that fits this staircase best: bytes divided by seconds would depend on the step in which
the measurement ends. Prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from client import payload

Options = dict[str, Any]
#: The client ids, which the quotas name.
PRODUCER, CONSUMER = "limited-producer", "limited-consumer"
_SAMPLE_S = 0.05
_QUEUED_MAX = 2_000
_AT_ONCE = 100
_TIMEOUT_S = 60.0


class Progress:
    """The bytes of a client, sampled at equal intervals from the end of the warm-up."""

    def __init__(self, options: Options) -> None:
        self._begin: float = time.monotonic() + options["warm_up_s"]
        self._end: float = self._begin + options["seconds"]
        self._bytes = 0
        self._samples: list[tuple[float, int]] = []

    def add(self, count: int) -> None:
        self._bytes += count

    def goes_on(self) -> bool:
        """Takes a sample if one is due. Returns False at the end."""
        now = time.monotonic()
        if now >= self._begin + len(self._samples) * _SAMPLE_S:
            self._samples.append((now, self._bytes))
        return now < self._end

    def rate(self) -> float:
        return slope(self._samples)


def slope(samples: Sequence[tuple[float, int]]) -> float:
    """Returns the bytes per second of the line that fits the samples best."""
    times, counts = zip(*samples, strict=True)
    return statistics.linear_regression(times, counts).slope


def produce(bootstrap: str, options: Options) -> float:
    """Returns the rate of a producer that always has records to send; only acknowledged ones count."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": PRODUCER,
            "acks": "1",
            "queue.buffering.max.messages": _QUEUED_MAX,
            "log_level": 3,
        }
    )
    value = payload(options["size_bytes"])
    progress = Progress(options)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record failed: {error}")
        progress.add(len(value))

    while progress.goes_on():
        try:
            for _ in range(_AT_ONCE):
                producer.produce(options["topic"], value, partition=0, on_delivery=delivered)
            producer.poll(0)
        except BufferError:
            producer.poll(_SAMPLE_S)
    producer.purge()
    return progress.rate()


def consume(bootstrap: str, options: Options) -> float:
    """Returns the rate of a consumer of a topic that has more records than it can read."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": CONSUMER, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(options["topic"], 0, OFFSET_BEGINNING)])
    progress = Progress(options)
    while progress.goes_on():
        for message in consumer.consume(_AT_ONCE, _SAMPLE_S):
            if message.error() is not None:
                raise RuntimeError(f"consuming failed: {message.error()}")
            value = message.value()
            assert value is not None, "every record has a value"
            progress.add(len(value))
    [position] = consumer.position([TopicPartition(options["topic"], 0)])
    end = consumer.get_watermark_offsets(TopicPartition(options["topic"], 0), timeout=_TIMEOUT_S)[1]
    if position.offset >= end:
        raise RuntimeError("the consumer has read everything: its rate was not limited by the quota")
    consumer.close()
    return progress.rate()


WORKLOADS = {"produce": produce, "consume": consume}


def main() -> int:
    workload, bootstrap, options = sys.argv[1:]
    print(json.dumps({"bytes_per_s": WORKLOADS[workload](bootstrap, json.loads(options))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
