"""A writer that goes on while its leader goes away: confluent-kafka in a process of its own.

    failover.py writer BOOTSTRAP '{"topic": name, "partition": number, "interval_s": seconds}'

It writes one record after the other at an even pace (acks=all) and says "ready" once that goes well. Then it is told

    crashed TIME        it ends with the first acknowledgement of a record that was sent after this time
    stopping TIME       nothing yet
    stopped TIME        it goes on for a second, then tells the longest time without an acknowledgement since `stopping`
    calm TIME           nothing yet
    busy TIME           nothing yet
    over TIME           it ends with the p99 of the time to an acknowledgement, from `calm` to `busy` and after

and prints one JSON object. Times are CLOCK_MONOTONIC, the same in all processes of a machine. Its back-offs are short:
the defaults of librdkafka would hide what the brokers do.
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
    # The fast refresh ends with the first answer, which may still name the old leader; then it looks once a second.
    "topic.metadata.refresh.interval.ms": 50,
}
_TIMEOUT_S = 60.0
_WARM_UP_RECORDS = 200
_AFTER_STOP_S = 1.0


class Acked(NamedTuple):
    sent_at: float
    acked_at: float


def first_after(acked: list[Acked], since: float) -> float | None:
    """When the first record that was sent after this time was acknowledged."""
    return min((each.acked_at for each in acked if each.sent_at > since), default=None)


def longest_pause(acked: list[Acked], begin: float, end: float) -> float:
    """The longest time between two acknowledgements, of which at least one came within."""
    times = sorted(each.acked_at for each in acked)
    return max((late - early for early, late in itertools.pairwise(times) if late > begin and early < end))


def p99_ms(acked: list[Acked], begin: float, end: float) -> float:
    """The 99th percentile of how long the records took that were sent in this time."""
    return percentile([(each.acked_at - each.sent_at) * 1000 for each in acked if begin <= each.sent_at < end], 0.99)


class Writer:
    """One record every `interval_s`, and when each was acknowledged."""

    def __init__(self, bootstrap: str, options: dict[str, Any]) -> None:
        settings = {**SETTINGS, **options.get("settings", {})}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._topic, self._partition = options["topic"], options["partition"]
        self._interval_s = options["interval_s"]
        self.acked: list[Acked] = []

    def write(self) -> None:
        """Send one, and wait for the time of the next."""
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


def _told() -> tuple[str, float] | None:
    """A word and its time, if one has come."""
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
        if (told := _told()) is not None:
            times[told[0]] = told[1]
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
