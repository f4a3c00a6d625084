"""Transactions that exceed their timeout: their producers stop in the middle, and some come back to commit too late.

all or nothing     the records of a transaction are read together or not at all
abandoned          the records of a transaction that nobody committed are not read
too late           an answer says whether a late commit has succeeded, and the records agree with it
no standstill      committed readers pass all of them: the log can be read to its end
"""

from __future__ import annotations

import asyncio
from enum import Enum
from random import Random
from typing import Final

from barnabas.simulation.bare_client import BareClient
from barnabas.simulation.bare_transactions import BareTransactions, Failed
from barnabas.simulation.history import Problem
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.work import Verdicts

_TIMEOUTS_MS: Final = (1_000, 3_000)
_GAP_S: Final = 1.0


class Fate(Enum):
    """The end of a transaction, as far as its producer knows it."""

    OPEN = "was not committed"
    COMMITTED = "was committed"
    REFUSED = "was refused"
    UNKNOWN = "has an unknown end"


class AbandoningProducer:
    """A producer that begins transactions and does not end them before their timeout."""

    def __init__(self, cluster: Cluster, client: Client, topic: Topic) -> None:
        self._cluster = cluster
        self.client = client
        self._topic = topic
        self._random: Random = cluster.world.stream(f"workload/{client.name}")
        self._number = 0
        #: The fate and the records of each transaction.
        self.fates: dict[str, Fate] = {}
        self.sent: dict[str, list[bytes]] = {}
        self.stopping = False
        self.acked = 0

    async def run(self) -> None:
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            self._number += 1
            # The number of ids is small: the next transaction can begin while the last one is still open.
            transactional_id = f"{self.client.name}-{self._number % 3}"
            timeout_ms = self._random.choice(_TIMEOUTS_MS)
            session = BareTransactions(self._cluster.world, bare, transactional_id, timeout_ms)
            try:
                await self._transaction(session, f"{self.client.name}.{self._number}", timeout_ms)
                self.acked += 1
            except Failed as error:
                self._cluster.world.note(self.client.name, f"transaction {self._number} ends: {error}")
            await asyncio.sleep(self._random.expovariate(1 / _GAP_S))

    async def _transaction(self, session: BareTransactions, name: str, timeout_ms: int) -> None:
        await session.begin()
        self.fates[name], self.sent[name] = Fate.OPEN, []
        for index in range(self._random.randint(1, 3)):
            value = f"{name}:{index}".encode()
            self.sent[name].append(value)
            await session.produce(self._random.choice(self._topic.places), value, self._random)
        if self._random.random() < 0.5:
            return
        await asyncio.sleep(timeout_ms / 1000 * self._random.choice((0.2, 1.0, 2.5)))
        self.fates[name] = Fate.UNKNOWN
        try:
            await session.end(True, self._random)
        except Failed as error:
            self.fates[name] = Fate.REFUSED if error.is_sure else Fate.UNKNOWN
        else:
            self.fates[name] = Fate.COMMITTED


class AbandonedWork(PlainSideWork):
    """Two producers that abandon transactions in one topic."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._topic = side_topic(cluster, "slips", 2, {})
        self.topics = [self._topic]
        self._truants = [
            AbandoningProducer(cluster, cluster.add_client(f"truant{number}"), self._topic) for number in (1, 2)
        ]
        self.workers = self.must_make_progress = self._truants

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        read = [record.value for place in self._topic.places for record in found[place]]
        problems = [Problem(f"twice: {value!r}") for value in set(read) if read.count(value) > 1]
        there = set(read)
        for truant in self._truants:
            for name, fate in truant.fates.items():
                values = truant.sent[name]
                count = sum(value in there for value in values)
                expected = {Fate.OPEN: (0,), Fate.REFUSED: (0,), Fate.COMMITTED: (len(values),)}
                if count not in expected.get(fate, (0, len(values))):
                    text = f"a late transaction: {name} {fate.value}, {count} of its {len(values)} records are read"
                    problems.append(Problem(text))
        return problems
