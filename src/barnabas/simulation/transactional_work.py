"""Transactions at work: producers fill `payments`, chains create a receipt for each payment, a reader follows.

The rules are those of `barnabas check` and three more: what is committed in `receipts` is what is committed in
`payments`, each once; an offset that was sent with records is committed if they are; and no transaction hangs, so that
at the end the chains finish and every log can be read to its end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from barnabas.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.simulation.bare_producer import COUNTED, BareProducer, Ledger
from barnabas.simulation.checkers import Checker
from barnabas.simulation.history import Place, Problem, Spot
from barnabas.simulation.reading import open_reader, read_to_ends, read_with_retries
from barnabas.simulation.recording import Recording
from barnabas.simulation.replication_checkers import Replicas
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.transaction_checkers import StableOffsets
from barnabas.simulation.transactional_workers import (
    CHAIN_GROUP,
    Chain,
    TransactionalProducer,
    committed_offsets,
)
from barnabas.simulation.work import MOVES, Counts, Size, Verdicts, Worker
from barnabas.simulation.workload import CLIENT_ERRORS, RETRY_S, closed
from barnabas.simulation.world import Note

#: The keys of the numbers of partitions.
_INTERNAL_PARTITIONS = {
    GROUP_METADATA_TOPIC: "offsets.topic.num.partitions",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
}
_DRAIN_S = 15
BARE_PRODUCERS = ("kiosk1", "kiosk2")
KIOSKS = ("kiosk-1", "kiosk-2")


class TransactionalWork:
    """Runs producers that share transactional ids, and consume-transform-produce chains."""

    def __init__(self, cluster: Cluster, auditor: Client, size: Size) -> None:
        self._cluster = cluster
        self._auditor = auditor
        self.recording, self.ledger = Recording(lambda: cluster.world.now_us), Ledger()
        enough = {"flush.messages": "1", "min.insync.replicas": str(cluster.layout.min_in_sync)}
        self.payments, self.receipts = Topic("payments", 2, enough), Topic("receipts", 2, enough)
        #: Transactional id of a bare producer -> the offset of its group at the end.
        self.ends: dict[str, int | None] = {}
        self.topics = [self.payments, self.receipts]
        self.internal = [
            Topic(name, int(cluster.layout.shared_property(key)), {}) for name, key in _INTERNAL_PARTITIONS.items()
        ]
        self.operations = MOVES
        self.checkers: Sequence[Checker] = (Replicas(None, [StableOffsets()]),)
        self.acked: Mapping[bytes, Spot] = {}
        ids = [f"till-{number}" for number in range(1, size.producers + 1)]
        self.producers: list[Worker] = [
            TransactionalProducer(
                cluster,
                cluster.add_client(f"producer{number}"),
                self.recording,
                self.payments,
                ids,
                size.records_per_s,
            )
            for number in range(1, size.producers + 1)
        ]
        self.producers += [
            BareProducer(cluster, cluster.add_client(name), self.recording, self.ledger, self.payments, KIOSKS)
            for name in BARE_PRODUCERS
        ]
        self.chains: list[Worker] = [
            Chain(cluster, cluster.add_client(f"chain{number}"), self.recording, self.payments, self.receipts)
            for number in range(1, size.consumers + 1)
        ]
        self.reader = CommittedReader(cluster, cluster.add_client("reader"), self.recording, self.receipts)

    @property
    def workers(self) -> Sequence[Worker]:
        return [*self.producers, *self.chains, self.reader]

    @property
    def must_make_progress(self) -> Sequence[Worker]:
        return [*self.producers, *self.chains]

    async def settle(self) -> None:
        """Waits until chains have created receipts for all payments."""
        for producer in self.producers:
            producer.stopping = True
        await asyncio.sleep(_DRAIN_S)
        while not await self._chains_are_through():
            await asyncio.sleep(1)
        for worker in self.workers:
            worker.stopping = True
        await asyncio.sleep(_DRAIN_S)

    async def _chains_are_through(self) -> bool:
        """Returns whether there is nothing more to read after the group's committed offsets."""
        places = [TopicPartition(*place) for place in self.payments.places]
        consumer = open_reader(self._cluster, "auditor", CHAIN_GROUP)
        try:
            await consumer.start()
            consumer.assign(places)
            for place in places:
                consumer.seek(place, await consumer.committed(place) or 0)
            found = any((await consumer.getmany(timeout_ms=2_000)).values())
            ends = await consumer.end_offsets(places)
            found = found or any([await consumer.position(place) < ends[place] for place in places])
        except CLIENT_ERRORS as error:
            self._cluster.world.note(self._auditor.name, f"cannot determine whether the chains are done: {error!r}")
            found = True
        await closed(consumer.stop)
        return not found

    async def read(self) -> dict[Place, list[tuple[int, str]]]:
        for name in KIOSKS:
            offsets = await committed_offsets(self._cluster, self._auditor, name, [COUNTED])
            self.ends[name] = None if offsets[COUNTED] < 0 else offsets[COUNTED]
        places = [place for topic in self.topics for place in topic.places]

        async def read(consumer: AIOKafkaConsumer) -> dict[Place, list[tuple[int, str]]]:
            found = await read_to_ends(consumer, [TopicPartition(*place) for place in places])
            return {
                (at.topic, at.partition): [(each.offset, each.value.decode()) for each in records]
                for at, records in found.items()
            }

        def opened() -> AIOKafkaConsumer:
            return open_reader(self._cluster, "auditor", None)

        return await read_with_retries(self._auditor, self._cluster, opened, read, "cannot read everything")

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        return self.recording.notes_at(spot)

    def judge(self, found: Any, verdicts: Verdicts) -> list[Problem]:
        """Checks the history. Nothing is required if a topic that the chain depends on had an unclean election."""
        if {topic.name for topic in (*self.topics, *self.internal)} & set(verdicts.lossy):
            return []
        self.recording.polled("auditor", found)
        self.recording.drained("auditor", list(found))
        return [*self.recording.problems(), *map(Problem, self._judge_receipts(found) + self._judge_offsets(found))]

    def _judge_offsets(self, found: dict[Place, list[tuple[int, str]]]) -> list[str]:
        there = {value for records in found.values() for _, value in records}
        expected = {name: self.ledger.expected(name, there) for name in KIOSKS}
        return [
            f"offset of a transaction: {name} is at {self.ends[name]}, but its committed records say {expected[name]}"
            for name in KIOSKS
            if self.ends[name] != expected[name]
        ]

    def _judge_receipts(self, found: dict[Place, list[tuple[int, str]]]) -> list[str]:
        paid = [value for place, records in found.items() if place[0] == self.payments.name for _, value in records]
        made = Counter(
            value.partition("|")[0]
            for place, records in found.items()
            if place[0] == self.receipts.name
            for _, value in records
        )
        problems = [f"receipt missing: none for {value}" for value in paid if not made[value]]
        problems += [f"receipt twice: {count} for {value}" for value, count in made.items() if count > 1]
        return problems + [f"receipt invented: {value} was never paid" for value in made.keys() - set(paid)]

    def counts(self) -> Counts:
        counts = self.recording.judge.verdict().counts
        return Counts(counts["sent"], counts["acked"], counts["read"])


class CommittedReader(SessionWorker):
    """A reader that follows all partitions of a topic, repeatedly from the beginning."""

    def __init__(self, cluster: Cluster, client: Client, recording: Recording, topic: Topic) -> None:
        super().__init__(cluster, client)
        self._recording = recording
        self._topic = topic

    async def run(self) -> None:
        while not self.stopping:
            consumer = open_reader(self._cluster, self._begin_session(), None)
            try:
                await consumer.start()
                consumer.assign([TopicPartition(*place) for place in self._topic.places])
                await consumer.seek_to_beginning()
                for _ in range(self._random.randint(20, 100)):
                    if not self.stopping:
                        await self._poll(consumer)
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"gives up: {error!r}")
                await asyncio.sleep(RETRY_S)
            await closed(consumer.stop)

    async def _poll(self, consumer: Any) -> None:
        got = await consumer.getmany(timeout_ms=500)
        given = {
            (at.topic, at.partition): [(each.offset, each.value.decode()) for each in records]
            for at, records in got.items()
        }
        if given:
            self.acked += 1
            self._recording.polled(self._session_name, given)
