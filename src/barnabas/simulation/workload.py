"""Clients at work in the world: unmodified aiokafka producers and consumers that record their history.

Clients meet errors all the time and continue, as a robust application does: a producer with a fatal error is closed and
replaced by a new one (a new session of the history), a consumer with an error is opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

from barnabas.simulation.history import History, Place
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US

RETRY_S = 0.5
TIMEOUT_MS = 10_000
_CLOSE_S = 5.0
#: Topics get more partitions, which clients must notice.
METADATA_AGE_MS = 4_000
#: The values from which each session draws: some send every record immediately and some in batches, some get a response
#: for every record.
LINGERS_MS = (0, 5, 50)
FETCH_MIN_BYTES = (1, 1, 400)
#: Exceptions that a client can raise under faults; any other is a mistake in our code or in the client. No program is
#: cancelled: CancelledError means that the client cancelled a future of its own.
CLIENT_ERRORS = (
    asyncio.CancelledError,
    KafkaError,
    OSError,
    TimeoutError,
    ValueError,
    RuntimeError,
    AssertionError,
    AttributeError,
    KeyError,
)


async def create_topics(cluster: Cluster, client: Client, topics: list[Topic], replication_factor: int) -> None:
    """Creates the topics, retrying until all exist."""
    while True:
        admin = AIOKafkaAdminClient(
            bootstrap_servers=cluster.bootstrap, client_id="admin", request_timeout_ms=TIMEOUT_MS
        )
        try:
            await admin.start()
            for topic in topics:
                new = NewTopic(topic.name, topic.partitions, replication_factor, topic_configs=topic.configs)
                answer = await admin.create_topics([new])
                code = answer.topic_errors[0][1]
                if code not in (0, TopicAlreadyExistsError.errno):
                    raise KafkaError(f"creating {topic.name}: error {code}")
            await closed(admin.close)
            return
        except CLIENT_ERRORS as error:
            cluster.world.note(client.name, f"cannot create topics yet: {error!r}")
        await closed(admin.close)
        await asyncio.sleep(RETRY_S)


async def closed(close: Callable[[], Awaitable[object]]) -> None:
    """Closes a client as far as possible. It must not be called in a `finally`: a task that is destroyed at the end of
    a run cannot close anything.
    """
    with contextlib.suppress(*CLIENT_ERRORS):
        await asyncio.wait_for(close(), _CLOSE_S)


class WorkloadProducer(SessionWorker):
    """A producer of numbered records for random partitions; `stopping` ends it after the records in flight."""

    def __init__(
        self, cluster: Cluster, client: Client, history: History, topics: list[Topic], *, records_per_s: float
    ) -> None:
        super().__init__(cluster, client)
        self._history = history
        self._topics = topics
        self._gap_s = 1 / records_per_s
        self._failed = False
        self._pending: set[asyncio.Future[Any]] = set()

    async def run(self) -> None:
        """Runs sessions; called again after the end of its process, when the result of records in flight is unknown."""
        self._pending = set()
        while not self.stopping:
            self._failed = False
            session = self._begin_session()
            producer = AIOKafkaProducer(
                bootstrap_servers=self._cluster.bootstrap,
                client_id=session,
                enable_idempotence=True,
                acks="all",
                linger_ms=self._random.choice(LINGERS_MS),
                request_timeout_ms=TIMEOUT_MS,
                metadata_max_age_ms=METADATA_AGE_MS,
            )
            try:
                await producer.start()
                await self._send(producer, session)
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"{session} gives up: {error!r}")
                await asyncio.sleep(RETRY_S)
            await closed(producer.stop)

    async def _send(self, producer: AIOKafkaProducer, session: str) -> None:
        number = 0
        while not self.stopping:
            number += 1
            topic, partition = place = self._place(producer)
            value = f"{session}:{number}".encode()
            self._history.on_sent(value, session, number, place)
            wall_ms = (EPOCH_WALL_US + self._cluster.world.now_us) // MILLISECOND_US
            try:
                future = await producer.send(topic, value, partition=partition, timestamp_ms=wall_ms)
            except BaseException as error:
                self._history.on_failed(value, error)
                raise
            future.add_done_callback(partial(self._settled, value, place))
            self._pending.add(future)
            future.add_done_callback(self._pending.discard)
            await asyncio.sleep(self._random.expovariate(1 / self._gap_s))
            if self._failed:
                raise KafkaError("a record failed: a new session")
        if self._pending:
            await asyncio.wait(self._pending, timeout=TIMEOUT_MS / 1000)

    def _place(self, producer: AIOKafkaProducer) -> Place:
        """Returns a random partition that exists, as far as this client knows."""
        places = []
        for topic in self._topics:
            if not topic.incarnation.is_over:
                known = producer.client.cluster.partitions_for_topic(topic.name)
                places += [place for place in topic.places if known is None or place[1] in known]
        return self._random.choice(places)

    def _settled(self, value: bytes, place: Place, done: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            self._failed = True
            self._history.on_failed(value, error)
            return
        self.acked += 1
        self._history.on_acked(value, place, done.result().offset)


class WorkloadConsumer(SessionWorker, ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of a group that reads all records of its partitions."""

    def __init__(self, cluster: Cluster, client: Client, history: History, topics: list[Topic], *, group: str) -> None:
        super().__init__(cluster, client)
        self._history = history
        self._topics = [topic.name for topic in topics if not topic.is_replaced]
        self._group = group
        self._assignments = 0

    async def run(self) -> None:
        while not self.stopping:
            session = self._begin_session()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._cluster.bootstrap,
                client_id=session,
                group_id=self._group,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=1_000,
                request_timeout_ms=TIMEOUT_MS,
                metadata_max_age_ms=METADATA_AGE_MS,
                fetch_min_bytes=self._random.choice(FETCH_MIN_BYTES),
            )
            try:
                consumer.subscribe(self._topics, listener=self)
                await consumer.start()
                while not self.stopping:
                    await self._poll(consumer, session)
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"{session} gives up: {error!r}")
                await asyncio.sleep(RETRY_S)
            await closed(consumer.stop)

    async def _poll(self, consumer: AIOKafkaConsumer, session: str) -> None:
        """Polls once. Order holds within one assignment; the next one can begin at an older committed offset."""
        before = self._assignments
        got: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = await consumer.getmany(timeout_ms=500)
        during = "" if before == self._assignments else f"-{self._assignments}"
        for partition, records in got.items():
            for record in records:
                self.acked += 1
                place = (partition.topic, partition.partition)
                self._history.on_polled(f"{session}/{before}{during}", place, record.offset, record.value)

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._assignments += 1

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._assignments += 1
