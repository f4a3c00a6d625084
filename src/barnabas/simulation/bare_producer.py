"""Producers of version 2 of the transactional protocol (KIP-890), which aiokafka does not support, with duplicates: a
sent request, above all an EndTxn, arrives a second time, soon or much later. In this version that does no harm.

A transaction is some records and an offset of a group with the same name as its transactional id. These offsets grow
with every transaction: at the end the group must be at the offset of the last committed one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from random import Random

from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.bare_transactions import BareTransactions, Failed
from barnabas.simulation.history import Place
from barnabas.simulation.recording import Recording
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.simulated_cluster import Client, Cluster

_TRANSACTION_TIMEOUT_MS = 15_000
_PAUSE_S = 0.1
_TRANSACTIONS_OF_A_SESSION = 20
#: The partition of these offsets; no consumer of the group reads it.
COUNTED: Place = ("payments", 0)


class Ledger:
    """The offsets that the transactions of each transactional id sent, each with a record of its transaction."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self.offsets: dict[str, list[tuple[int, str]]] = {}

    def next_number(self, transactional_id: str) -> int:
        self._numbers[transactional_id] += 1
        return self._numbers[transactional_id]

    def expected(self, transactional_id: str, there: Collection[str]) -> int | None:
        """Returns the group's offset if exactly these records are committed."""
        sent = self.offsets.get(transactional_id, [])
        return max((number for number, value in sent if value in there), default=None)


class BareProducer(SessionWorker):
    """Runs transactional producers, whose sessions alternate with those of other workers with the same `ids`."""

    def __init__(
        self, cluster: Cluster, client: Client, recording: Recording, ledger: Ledger, topic: Topic, ids: Sequence[str]
    ) -> None:
        super().__init__(cluster, client)
        self._recording = recording
        self._ledger = ledger
        self._topic = topic
        self._ids = ids

    async def run(self) -> None:
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            name = self._begin_session()
            transactional_id = self._random.choice(self._ids)
            transactions = BareTransactions(self._cluster.world, bare, transactional_id, _TRANSACTION_TIMEOUT_MS)
            session = _Session(transactions, self._recording, self._ledger, name, transactional_id)
            try:
                await transactions.begin()
                for _ in range(self._random.randint(1, _TRANSACTIONS_OF_A_SESSION)):
                    if self.stopping:
                        break
                    self.acked += await session.transaction(self._topic.places, self._random)
                    await asyncio.sleep(self._random.expovariate(1))
            except Failed as error:
                self._cluster.world.note(self.client.name, f"{name} starts over: {error}")
                await asyncio.sleep(_PAUSE_S)


class _Session:
    """A series of transactions, with the records and ends of each in the recording."""

    def __init__(self, bare: BareTransactions, recording: Recording, ledger: Ledger, name: str, own_id: str) -> None:
        self._bare = bare
        self._recording = recording
        self._ledger = ledger
        self._name = name
        self._id = own_id

    async def transaction(self, places: Sequence[Place], random: Random) -> bool:
        """Returns whether the transaction was committed. Raises Failed if that is unknown or impossible."""
        recording, name = self._recording, self._name
        number = self._ledger.next_number(self._id)
        recording.note(name, "ok", "begin")
        for index in range(random.randint(1, 4)):
            place, value = random.choice(places), f"{name}:{number}.{index}"
            recording.sends(name, place, value)
            offset = await self._bare.produce(place, value.encode(), random)
            recording.sent(name, place, value, offset)
        if random.random() < 0.5:
            self._ledger.offsets.setdefault(self._id, []).append((number, f"{name}:{number}.0"))
            await self._bare.send_offset(number, COUNTED, random)
        commit = random.random() < 0.8
        f = "commit" if commit else "abort"
        recording.note(name, "invoke", f)
        try:
            await self._bare.end(commit, random)
        except Failed:
            recording.note(name, "info", f)
            raise
        recording.note(name, "ok", f)
        return commit
