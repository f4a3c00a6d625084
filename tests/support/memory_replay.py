"""A replay without brokers: the topic is a list in memory, and the producer is a fake that can end as after `kill -9`.

Afterwards the state is that of a kill: the ledger as it was at that moment, its last line perhaps cut, and a log that
can contain records whose acknowledgement did not arrive.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from confluent_kafka import KafkaError, KafkaException

from barnabas.orders import replay as replays
from barnabas.orders import topic as topics
from barnabas.orders import topic_reader
from barnabas.orders.books import Order
from barnabas.orders.faults import Faults
from barnabas.orders.topic import TopicFacts
from barnabas.orders.topic_reader import Record

PARTITIONS = 3


class Killed(BaseException):
    """The end of the process; no code catches it."""


class Delivered:
    def __init__(self, partition: int, offset: int) -> None:
        self._place = partition, offset

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]


class MemoryProducer:
    """The part of confluent-kafka's producer that a replay uses. One poll acknowledges at most `per_poll` records."""

    def __init__(self, cluster: MemoryCluster, per_poll: int = 7) -> None:
        self._cluster = cluster
        self._per_poll = per_poll
        self._queue: list[tuple[bytes, bytes, int, Callable[..., None]]] = []
        self._polls = 0
        self._is_dead = False

    def produce(
        self, _topic: str, value: bytes, key: bytes, *, timestamp: int, on_delivery: Callable[..., None]
    ) -> None:
        if len(value) > self._cluster.max_message_bytes:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if len(self._queue) >= 20:
            raise BufferError
        self._queue.append((value, key, timestamp, on_delivery))

    def poll(self, _timeout_s: float) -> int:
        if self._is_dead:
            raise Killed  # A killed process does not run the replay's clean-up either.
        self._polls += 1
        if self._cluster.dies_at_poll == self._polls:
            self._die()
        batch, self._queue = self._queue[: self._per_poll], self._queue[self._per_poll :]
        for value, key, timestamp_ms, on_delivery in batch:
            on_delivery(None, Delivered(*self._cluster.append(key, value, timestamp_ms)))
        return len(batch)

    def purge(self) -> None:
        self._queue.clear()

    def flush(self, _timeout_s: float) -> int:
        return 0

    def _die(self) -> None:
        for value, key, timestamp_ms, _ in self._queue[: self._cluster.unheard]:
            self._cluster.append(key, value, timestamp_ms)
        self._is_dead = True
        self._cluster.ledger_at_death = self._cluster.ledger.read_bytes()
        raise Killed


class MemoryCluster:
    """The topic, the ledger's file, and a list of orders instead of the data set."""

    def __init__(self, orders: list[Order], *, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self.dies_at_poll = 0
        self.unheard = 0
        self.ledger_at_death = b""
        self._orders = orders
        self._log: list[list[Record]] = [[] for _ in range(PARTITIONS)]
        self._directory = tempfile.TemporaryDirectory()
        self.ledger = Path(self._directory.name) / "ledger"

    def __enter__(self) -> MemoryCluster:
        facts = TopicFacts("orders", "id", tuple(range(PARTITIONS)), 1, self.max_message_bytes, {"retention.ms": "-1"})
        self._patches = [
            mock.patch.object(replays, "Producer", side_effect=lambda _settings: MemoryProducer(self)),
            mock.patch.object(replays, "OrderData", return_value=self),
            mock.patch.object(replays, "Consumer"),
            mock.patch.object(topics, "admin_client"),
            mock.patch.object(topics, "describe", return_value=facts),
            mock.patch.object(topics, "end_offsets", return_value=dict.fromkeys(range(PARTITIONS), 0)),
            mock.patch.object(topic_reader, "read", side_effect=self._read),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for patch in self._patches:
            patch.stop()
        self._directory.cleanup()

    def __len__(self) -> int:
        return len(self._orders)

    def orders(self) -> Iterator[Order]:
        return iter(self._orders)

    def append(self, key: bytes, value: bytes, timestamp_ms: int) -> tuple[int, int]:
        number = sum(key) % PARTITIONS
        offset = len(self._log[number])
        self._log[number].append(Record(number, offset, timestamp_ms, key, value))
        return number, offset

    def records(self) -> list[Record]:
        return [record for partition in self._log for record in partition]

    def run(self, faults: Faults) -> replays.Progress:
        self.dies_at_poll = 0
        options: dict[str, Any] = {"faults": faults, "give_up_after_s": 5.0}
        return replays.replay(replays.ReplayOptions("memory:1", self.ledger, **options))

    def run_and_kill(self, faults: Faults, polls: int, unheard: int, cut_bytes: int) -> None:
        """Runs a replay that ends as after a kill at its poll number `polls`, if it reaches it."""
        self.unheard = unheard
        options: dict[str, Any] = {"faults": faults, "give_up_after_s": 5.0}
        self.dies_at_poll = polls
        try:
            replays.replay(replays.ReplayOptions("memory:1", self.ledger, **options))
        except Killed:
            # The first line is on the disk before anything is sent.
            first, *lines = self.ledger_at_death.splitlines(keepends=True)
            rest = b"".join(lines)
            self.ledger.write_bytes(first + rest[: len(rest) - min(cut_bytes, len(lines[-1]) - 1 if lines else 0)])

    def _read(self, _bootstrap: str, _topic: str, starts: Mapping[int, int], _settings: Any) -> list[Record]:
        return [record for number, offset in starts.items() for record in self._log[number][offset:]]
