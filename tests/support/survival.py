"""A cluster under load with a full history: producers, a group of consumers, one consumer without a group, and a
verdict.

The clients are unmodified: confluent-kafka in threads, aiokafka in a loop in its own thread, and Kafka's Java client in
a separate process if one is given.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.client_faults import is_of_the_client

from barnabas.cli.cluster_view import view_of
from barnabas.testing import History

QUIET = {"log_level": 0}
PRODUCER = {
    **QUIET,
    "enable.idempotence": True,
    "acks": "all",
    "delivery.timeout.ms": 120_000,
    "request.timeout.ms": 3_000,
    "socket.timeout.ms": 5_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 2_000,
}
_RECORD_GAP_S = 0.004
#: A limit for short operations: machines can be slow and busy.
WAIT_S = 120.0


class Brokers(Protocol):
    """A cluster as clients see it."""

    @property
    def bootstrap(self) -> str: ...


class Load:
    """A load: `with Load(cluster, directory, {"orders": 3}) as load:` works on these topics until its end; `judge` then
    reads everything and asserts that nothing was lost, duplicated or reordered.
    """

    def __init__(
        self,
        cluster: Brokers,
        directory: Path,
        topics: Mapping[str, int],
        *,
        producers: int = 2,
        aio: bool = False,
        java: Any = None,
    ) -> None:
        self.cluster = cluster
        #: The partitions that are written to, by topic.
        self.topics = dict(topics)
        self.history = History(directory / "history.jsonl")
        #: The times of acknowledgements (monotonic, seconds).
        self.acked_at: list[float] = []
        #: The times of acknowledgements by process and partition.
        self._acked_at: dict[tuple[str, str, int], list[float]] = {}
        self.errors: list[str] = []
        #: Errors of the client itself, before anything was sent.
        self.refused: list[str] = []
        self._bootstrap = cluster.bootstrap
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._reading: set[str] = set()
        self._threads = [
            threading.Thread(daemon=True, target=self._produce, args=(f"p{n}",)) for n in range(1, producers + 1)
        ]
        if aio:
            self._threads.append(threading.Thread(daemon=True, target=lambda: asyncio.run(self._produce_aio("aio1"))))
        if java is not None:
            self._threads.append(threading.Thread(daemon=True, target=self._produce_java, args=("java", java)))
        self._readers = [
            threading.Thread(daemon=True, target=self._consume, args=(f"g{n}", "group")) for n in (1, 2)
        ] + [threading.Thread(daemon=True, target=self._consume, args=("a1", ""))]

    def __enter__(self) -> Load:
        for thread in (*self._threads, *self._readers):
            thread.start()
        self.go_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producing.set()
        for thread in self._threads:
            thread.join()
        self._consuming.set()
        for thread in self._readers:
            # librdkafka 2.16 can hang in close, with all its requests answered, when brokers restarted often.
            thread.join(15)
        wait_until(lambda: not self._reading, "all consumers return from their polls")

    def judge(self, *, drain_s: float = WAIT_S, errors_allowed: bool = False) -> None:
        """Checks the history. `errors_allowed`: a client is allowed to get errors that a record was not written, or
        that its outcome is unknown.
        """
        self.history.drain(self._bootstrap, self.topics, timeout_s=drain_s)
        verdict = self.history.verdict()
        self.history.close()
        told = [f"{finding.kind.value}: {finding.text} {finding.lines}" for finding in verdict.findings]
        found = [finding for finding in verdict.findings if not finding.note]
        assert verdict.valid or (
            sum(verdict.anomalies.values()) == len(found)
            and all(is_of_the_client(self._bootstrap, finding, self.history.path) for finding in found)
        ), "\n".join([str(self.history.path), *told[:20]])
        for line in told:
            print(f"allowed: {line}")
        assert verdict.counts["acked"] == len(self.acked_at) > 0
        if not errors_allowed:
            assert not self.errors, self.errors[:5]
            assert verdict.counts["acked"] == verdict.counts["sent"] - len(self.refused)
            assert set(self.refused) <= {"_UNKNOWN_PARTITION"}

    def go_on(self, records: int = 100, timeout_s: float = WAIT_S) -> float:
        """Waits until this many more records are acknowledged, and returns the seconds until the first of them."""
        begin, before = time.monotonic(), len(self.acked_at)
        wait_until(lambda: len(self.acked_at) >= before + records, "no records are acknowledged", timeout_s)
        return self.acked_at[before] - begin

    def acked_by(self, process: str) -> int:
        return sum(len(times) for (name, _, _), times in list(self._acked_at.items()) if name == process)

    def longest_pause_s(self, begin: float, end: float, process: str = "p") -> float:
        """Returns the longest time between two acknowledgements of one partition to one of these processes, as far as
        it lies in this range.
        """
        return max(
            after - before
            for (name, _, _), times in self._acked_at.items()
            if name.startswith(process)
            for before, after in itertools.pairwise(times)
            if after >= begin and before <= end
        )

    def _produce(self, process: str) -> None:
        raw = Producer({**PRODUCER, "bootstrap.servers": self._bootstrap, "error_cb": lambda error: None})
        producer = self.history.producer(raw, process)
        delivered = partial(self._delivered, process)
        for number in itertools.count(1):
            if self._producing.is_set():
                break
            for topic, partitions in list(self.topics.items()):
                value = f"{process}:{number}".encode()
                try:
                    producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
                except KafkaException as refused:
                    # The client does not know the topic or the partition yet.
                    self.refused.append(refused.args[0].name())
            producer.poll(_RECORD_GAP_S)
        if producer.flush(WAIT_S):
            self.errors.append(f"{process}: not everything was answered")

    def _acked(self, process: str, topic: str, partition: int) -> None:
        now = time.monotonic()
        self.acked_at.append(now)
        self._acked_at.setdefault((process, topic, partition), []).append(now)

    def _delivered(self, process: str, error: Any, message: Any) -> None:
        if error is None:
            self._acked(process, message.topic(), message.partition())
        else:
            self.errors.append(str(error))

    async def _produce_aio(self, process: str) -> None:
        from aiokafka import AIOKafkaProducer

        raw = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            # This is more than the time limit of one answer: the client abandons a record that has had no leader for
            # this long, and then leaves a gap in its sequence numbers. Connections of killed brokers end without it.
            request_timeout_ms=120_000,
            retry_backoff_ms=20,
            metadata_max_age_ms=5_000,
        )
        await raw.start()
        producer = self.history.aio_producer(raw, process)
        pending: set[asyncio.Future[Any]] = set()
        for number in itertools.count(1):
            if self._producing.is_set():
                break
            for topic, partitions in list(self.topics.items()):
                future = await producer.send(topic, f"{process}:{number}".encode(), partition=number % partitions)
                pending.add(future)
                future.add_done_callback(pending.discard)
                future.add_done_callback(partial(self._settled, process))
            await asyncio.sleep(_RECORD_GAP_S)
        if pending:
            await asyncio.wait(pending, timeout=WAIT_S)
        await raw.stop()

    def _produce_java(self, process: str, java: Any) -> None:
        """Produces with Java: `java` sends a few records with each producer that it creates
        (tests/clients/drivers.py).
        """
        from tests.clients.drivers import Record

        for batch in itertools.count(1):
            if self._producing.is_set():
                break
            for topic, partitions in list(self.topics.items()):
                partition = batch % partitions
                values = [f"{process}:{batch}:{number}".encode() for number in range(20)]
                for value in values:
                    self.history.sent(process, topic, value, partition)
                try:
                    offsets = java.produce(
                        topic, "none", [Record(None, value, partition=partition) for value in values]
                    )
                except AssertionError as error:
                    self.errors.append(str(error))
                    for value in values:
                        self.history.unknown(process, topic, value, error)
                    continue
                for value, offset in zip(values, offsets, strict=True):
                    self.history.acked(process, topic, value, partition, offset)
                    self._acked(process, topic, partition)

    def _settled(self, process: str, done: asyncio.Future[Any]) -> None:
        if done.exception() is None:
            self._acked(process, done.result().topic, done.result().partition)
        else:
            self.errors.append(repr(done.exception()))

    def _consume(self, process: str, group: str) -> None:
        """Consumes: with a group as one of its members, without one all partitions that exist at the beginning."""
        raw = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": group or process,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "error_cb": lambda error: None,
            }
        )
        consumer = self.history.consumer(raw, process)
        if group:
            consumer.subscribe(list(self.topics))
        else:
            consumer.assign([TopicPartition(topic, index, 0) for topic, n in self.topics.items() for index in range(n)])
        self._reading.add(process)
        while not self._consuming.is_set():
            consumer.consume(200, 0.2)
        self._reading.discard(process)
        consumer.close()


def create_topic(cluster: Brokers, name: str, partitions: int = 3, **config: str) -> None:
    """Creates a topic with three replicas, and min.insync.replicas 2 unless given; all are in sync when it returns."""
    configs = {"min.insync.replicas": "2", **{key.replace("_", "."): value for key, value in config.items()}}
    create(cluster, NewTopic(name, partitions, 3, config=configs))
    wait_until(lambda: in_sync(cluster, name) == {1, 2, 3}, f"{name} is in sync")


def create(cluster: Brokers, new: NewTopic) -> None:
    """Creates a topic, and repeats the request while brokers restart."""

    def created() -> bool:
        # The program keeps a reference to the client: without one it is collected, and its requests get no answer.
        client = admin(cluster)
        (future,) = client.create_topics([new], request_timeout=10).values()
        try:
            future.result(15)
        except TimeoutError:
            return False
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                return False
        return True

    wait_until(created, f"{new.topic} is created")


def admin(cluster: Brokers) -> AdminClient:
    return AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})


def partitions_of(cluster: Brokers, topic: str) -> Mapping[int, Any]:
    """Returns the partitions as a new client sees them: a client that knows a paused broker can wait for it. Empty
    without an answer.
    """
    try:
        found = admin(cluster).list_topics(topic, timeout=10).topics[topic]
    except KafkaException:
        return {}
    return found.partitions


def in_sync(cluster: Brokers, topic: str) -> set[int]:
    """Returns the brokers that are in all of the topic's ISRs."""
    found = [set(partition.isrs) for partition in partitions_of(cluster, topic).values()]
    return set.intersection(*found) if found else set()


def leader_of(cluster: Brokers, topic: str, partition: int = 0) -> int:
    found = partitions_of(cluster, topic).get(partition)
    return -1 if found is None else int(found.leader)


def known_leader_of(cluster: Brokers, topic: str, partition: int = 0) -> int:
    """Returns the leader, once there is one."""
    found = -1

    def look() -> bool:
        nonlocal found
        found = leader_of(cluster, topic, partition)
        return found >= 0

    wait_until(look, f"{topic}-{partition} is led")
    return found


def controller_of(cluster: Brokers) -> int:
    """Returns the active controller."""
    addresses = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in cluster.bootstrap.split(","))]
    found = -1

    def look() -> bool:
        nonlocal found
        found = view_of(addresses).controller
        return found > 0

    wait_until(look, "there is an active controller")
    return found


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not: {what}"
        time.sleep(0.05)
