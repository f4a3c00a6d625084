"""A writer that continues while its leader fails: confluent-kafka in a separate process.

    failover.py writer BOOTSTRAP '{"topic": name, "partition": number, "interval_s": seconds}'

It writes one record after the other at a constant rate (acks=all) and prints "ready" once that works. Then it reads
lines:

    crashed TIME        it ends with the first acknowledgement of a record that was sent after this time
    stopping TIME       no action yet
    stopped TIME        it continues for a second; the longest time without an acknowledgement since `stopping`
    calm TIME           no action yet
    busy TIME           no action yet
    over TIME           it ends with the p99 of the time to an acknowledgement, from `calm` to `busy` and after

Then it prints one JSON object. Times are CLOCK_MONOTONIC, the same in all processes of a machine. Its back-offs are
short: the defaults of librdkafka would hide the behaviour of the brokers.
"""

from __future__ import annotations

import itertools
import json
import select
import sys
import time
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from client import percentile

SETTINGS = {
    "log_level": 0,
    "acks": "all",
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 10,
    # The fast refresh ends with the first answer, which can still name the old leader; then it refreshes once a second.
    "topic.metadata.refresh.interval.ms": 50,
}
_TIMEOUT_S = 60.0
_WARM_UP_RECORDS = 200
_AFTER_STOP_S = 1.0


class Acked(NamedTuple):
    sent_at: float
    acked_at: float


def first_after(acked: list[Acked], since: float) -> float | None:
    """Returns the time when the first record that was sent after `since` was acknowledged."""
    return min((each.acked_at for each in acked if each.sent_at > since), default=None)


def longest_pause(acked: list[Acked], begin: float, end: float) -> float:
    """Returns the longest time between two acknowledgements, of which at least one came within the range."""
    times = sorted(each.acked_at for each in acked)
    return max((late - early for early, late in itertools.pairwise(times) if late > begin and early < end))


def p99_ms(acked: list[Acked], begin: float, end: float) -> float:
    """Returns the 99th percentile of the latencies of the records that were sent in this time."""
    return percentile([(each.acked_at - each.sent_at) * 1000 for each in acked if begin <= each.sent_at < end], 0.99)


class Writer:
    """A producer of one record every `interval_s`, with the times of the acknowledgements."""

    def __init__(self, bootstrap: str, options: dict[str, Any]) -> None:
        settings = {**SETTINGS, **options.get("settings", {})}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._topic, self._partition = options["topic"], options["partition"]
        self._interval_s = options["interval_s"]
        self.acked: list[Acked] = []

    def write(self) -> None:
        """Sends one record, and waits for the time of the next."""
        sent_at = time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise RuntimeError(f"a record failed: {error}")
            self.acked.append(Acked(sent_at, time.monotonic()))

        self._producer.produce(self._topic, b"x" * 100, partition=self._partition, on_delivery=delivered)
        while (left_s := sent_at + self._interval_s - time.monotonic()) > 0:
            self._producer.poll(left_s)

    def flush(self) -> None:
        if left := self._producer.flush(_TIMEOUT_S):
            raise RuntimeError(f"{left} records were not acknowledged within {_TIMEOUT_S} s")


def _read_line() -> tuple[str, float] | None:
    """Returns a word and its time, if a line has arrived."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return None
    word, _, at = sys.stdin.readline().strip().partition(" ")
    return (word, float(at)) if word else None


def run(writer: Writer) -> dict[str, float]:
    while len(writer.acked) < _WARM_UP_RECORDS:
        writer.write()
    print("ready", flush=True)
    times: dict[str, float] = {}
    while True:
        writer.write()
        if (line := _read_line()) is not None:
            times[line[0]] = line[1]
        now = time.monotonic()
        if (crashed_at := times.get("crashed")) is not None:
            if (found := first_after(writer.acked, crashed_at)) is not None:
                writer.flush()
                return {"acked_at": found}
            if now > crashed_at + _TIMEOUT_S:
                raise RuntimeError(f"nothing was acknowledged for {_TIMEOUT_S} s")
        if (stopped_at := times.get("stopped")) is not None and now > stopped_at + _AFTER_STOP_S:
            writer.flush()
            return {"pause_s": longest_pause(writer.acked, times["stopping"], stopped_at + _AFTER_STOP_S)}
        if (over_at := times.get("over")) is not None:
            writer.flush()
            calm = p99_ms(writer.acked, times["calm"], times["busy"])
            return {"calm_ms": calm, "busy_ms": p99_ms(writer.acked, times["busy"], over_at)}


def main() -> int:
    _, bootstrap, options = sys.argv[1:]
    print(json.dumps(run(Writer(bootstrap, json.loads(options)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
