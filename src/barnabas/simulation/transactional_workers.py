"""Unmodified aiokafka clients with transactions: producers of a few records at a time, and chains that consume,
transform and produce, with the offsets in the same transaction.

aiokafka supports version 1 of the protocol. A chain is not a member of a group: a chain that begins with a partition's
transactional id fences the previous one, and reads the group's offset after that. Two chains constantly take partitions
from each other, so every run has zombies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from barnabas.simulation.history import Place
from barnabas.simulation.reading import open_reader, read_with_retries
from barnabas.simulation.recording import Recording
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.workload import CLIENT_ERRORS, LINGERS_MS, METADATA_AGE_MS, RETRY_S, TIMEOUT_MS, closed
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US

CHAIN_GROUP = "chain"
#: A client that pauses during a transaction exceeds the shorter timeout.
_TRANSACTION_TIMEOUTS_MS = (4_000, 20_000)
_REST_S = 6.0
#: A client that has not finished by then is abandoned, and another one begins.
_PATIENCE_S = 60.0
_TRANSACTIONS_OF_A_SESSION = 30
_RECORDS_MAX = 4
_POLLED_MAX = 8


class TransactionalSession:
    """A producer with a transactional id, and its records in the recording. CLIENT_ERRORS ends it."""

    def __init__(
        self, cluster: Cluster, recording: Recording, name: str, transactional_id: str, random: Random
    ) -> None:
        self.name = name
        self._world = cluster.world
        self._recording = recording
        self.producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            client_id=name,
            transactional_id=transactional_id,
            transaction_timeout_ms=random.choice(_TRANSACTION_TIMEOUTS_MS),
            linger_ms=random.choice(LINGERS_MS),
            request_timeout_ms=TIMEOUT_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
        )

    async def begin(self) -> None:
        await self.producer.begin_transaction()
        self._recording.note(self.name, "ok", "begin")

    async def send(self, records: Sequence[tuple[Place, str]]) -> None:
        """Sends records, and returns when all are acked."""
        await asyncio.gather(*[self._send_one(place, value) for place, value in records])

    async def _send_one(self, place: Place, value: str) -> None:
        self._recording.sends(self.name, place, value)
        wall_ms = (EPOCH_WALL_US + self._world.now_us) // MILLISECOND_US
        future = await self.producer.send(place[0], value.encode(), partition=place[1], timestamp_ms=wall_ms)
        found = await asyncio.wait_for(future, _PATIENCE_S)
        self._recording.sent(self.name, place, value, found.offset)

    async def send_offsets(self, offsets: dict[TopicPartition, int]) -> None:
        await asyncio.wait_for(self.producer.send_offsets_to_transaction(offsets, CHAIN_GROUP), _PATIENCE_S)

    async def end(self, *, commit: bool) -> None:
        """Ends the transaction. A commit that fails can have succeeded: its response can be lost."""
        f = "commit" if commit else "abort"
        self._recording.note(self.name, "invoke", f)
        try:
            end = self.producer.commit_transaction() if commit else self.producer.abort_transaction()
            await asyncio.wait_for(end, _PATIENCE_S)
        except CLIENT_ERRORS:
            self._recording.note(self.name, "info", f)
            raise
        self._recording.note(self.name, "ok", f)


class TransactionalWorker(SessionWorker):
    """An endless series of sessions, each with another transactional id; `_session` runs one."""

    def __init__(self, cluster: Cluster, client: Client, recording: Recording) -> None:
        super().__init__(cluster, client)
        self._recording = recording

    async def run(self) -> None:
        while not self.stopping:
            name = self._begin_session()
            try:
                await self._session(name)
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"{name} gives up: {error!r}")
                await asyncio.sleep(RETRY_S)

    async def _session(self, name: str) -> None:
        raise NotImplementedError

    async def _in_session(self, session: TransactionalSession) -> None:
        """Runs one session with the producer of this session."""
        raise NotImplementedError

    async def _with_producer(self, session: TransactionalSession) -> None:
        """Starts the producer, runs the session, and closes the producer in any case."""
        try:
            await asyncio.wait_for(session.producer.start(), _PATIENCE_S)
            await self._in_session(session)
        except CLIENT_ERRORS:
            await closed(session.producer.stop)
            raise
        await closed(session.producer.stop)


class TransactionalProducer(TransactionalWorker):
    """A producer of a few records for several partitions at a time, committed or aborted."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        recording: Recording,
        topic: Topic,
        ids: Sequence[str],
        records_per_s: float,
    ) -> None:
        super().__init__(cluster, client, recording)
        self._topic = topic
        self._ids = ids
        self._gap_s = _RECORDS_MAX / records_per_s

    async def _session(self, name: str) -> None:
        transactional_id = self._random.choice(self._ids)
        await self._with_producer(
            TransactionalSession(self._cluster, self._recording, name, transactional_id, self._random)
        )

    async def _in_session(self, session: TransactionalSession) -> None:
        random = self._random
        for number in range(1, random.randint(1, _TRANSACTIONS_OF_A_SESSION) + 1):
            if self.stopping:
                return
            await session.begin()
            for part in range(random.randint(1, 2)):
                places = [random.choice(self._topic.places) for _ in range(random.randint(1, _RECORDS_MAX))]
                await session.send(
                    [(place, f"{session.name}:{number}.{part}.{index}") for index, place in enumerate(places)]
                )
                if random.random() < 0.03:
                    await asyncio.sleep(_REST_S)
            commit = random.random() < 0.8
            await session.end(commit=commit)
            self.acked += commit
            await asyncio.sleep(random.expovariate(1 / self._gap_s))


class Chain(TransactionalWorker):
    """A chain: it takes a partition of `source`, continues at the group's offset, and writes each record to `target`
    once. The next chain that takes the partition continues there.
    """

    def __init__(self, cluster: Cluster, client: Client, recording: Recording, source: Topic, target: Topic) -> None:
        super().__init__(cluster, client, recording)
        self._source, self._target = source, target

    async def _session(self, name: str) -> None:
        index = self._random.randrange(self._source.partitions)
        self._at = TopicPartition(self._source.name, index)
        await self._with_producer(
            TransactionalSession(self._cluster, self._recording, name, f"chain-{index}", self._random)
        )

    async def _in_session(self, session: TransactionalSession) -> None:
        """Runs a session. It reads the offset only after fencing, when no other chain can move it any more."""
        consumer = open_reader(self._cluster, session.name, CHAIN_GROUP)
        try:
            await consumer.start()
            consumer.assign([self._at])
            committed = await asyncio.wait_for(consumer.committed(self._at), _PATIENCE_S)
            consumer.seek(self._at, committed or 0)
            for number in range(1, self._random.randint(1, _TRANSACTIONS_OF_A_SESSION) + 1):
                if self.stopping or not await self._transaction(session, consumer, number):
                    break
        except CLIENT_ERRORS:
            await closed(consumer.stop)
            raise
        await closed(consumer.stop)

    async def _transaction(self, session: TransactionalSession, consumer: AIOKafkaConsumer, number: int) -> bool:
        """Runs one transaction of the chain. Returns False if it was aborted: its records must be read again."""
        polled = await consumer.getmany(timeout_ms=500, max_records=_POLLED_MAX)
        records = polled.get(self._at, [])
        place = (self._at.topic, self._at.partition)
        if not records:
            return True
        self._recording.polled(session.name, {place: [(record.offset, record.value.decode()) for record in records]})
        await session.begin()
        targets = [self._random.choice(self._target.places) for _ in records]
        made = [f"{record.value.decode()}|{session.name}:{number}" for record in records]
        await session.send(list(zip(targets, made, strict=True)))
        await session.send_offsets({self._at: records[-1].offset + 1})
        if self._random.random() < 0.03:
            await asyncio.sleep(_REST_S)
        commit = self._random.random() < 0.9
        await session.end(commit=commit)
        self.acked += commit
        return commit


async def committed_offsets(
    cluster: Cluster,
    client: Client,
    group: str,
    places: Iterable[Place],
    saw: Callable[[Place, int, int], None] | None = None,
) -> dict[Place, int]:
    """Returns the offsets of a group, -1 if it has none; retries until it has them all.

    `saw` gets each offset, with the time (us) of its request.
    """
    requested = [TopicPartition(*place) for place in places]

    async def read(consumer: AIOKafkaConsumer) -> dict[Place, int]:
        found: dict[Place, int] = {}
        consumer.assign(requested)
        for at in requested:
            requested_us, offset = cluster.world.now_us, await consumer.committed(at)
            found[at.topic, at.partition] = -1 if offset is None else offset
            if saw is not None:
                saw((at.topic, at.partition), requested_us, found[at.topic, at.partition])
        return found

    def opened() -> AIOKafkaConsumer:
        return open_reader(cluster, client.name, group)

    return await read_with_retries(client, cluster, opened, read, f"cannot ask for the offsets of {group}")
