"""Who is at work in a run, and what is judged of it: the part of a run that its settings choose.

records         producers that send, a consumer group that reads, and topics that change (`RecordsWork`)
transactions    transactional producers and chains that consume, transform and produce (`transactional_work`)
groups          members of groups of both protocols that come, go and commit (`group_work`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from barnabas.simulation.checkers import Checker
from barnabas.simulation.cluster import Client, Cluster
from barnabas.simulation.history import History, Leniency, judge
from barnabas.simulation.operator import Operation
from barnabas.simulation.topics import Topic, topics_of_a_run
from barnabas.simulation.workload import ConsumerAtWork, ProducerAtWork, read_everything

_DRAIN_S = 15
#: What an operator may do to topics whose partitions and settings are to stay.
MOVES = (Operation.REASSIGN, Operation.CANCEL, Operation.ELECT)


class WorkKind(Enum):
    RECORDS = "records"
    TRANSACTIONS = "transactions"
    GROUPS = "groups"


class Size(NamedTuple):
    """How much of it. `consumers` are who reads: members, chains."""

    producers: int
    consumers: int
    records_per_s: float


class Worker(Protocol):
    """A client's program. After `stopping` it ends what is under way. `acked`: what it got done so far."""

    client: Client
    stopping: bool
    acked: int

    async def run(self) -> None:
        """Again after the end of its process."""


class Counts(NamedTuple):
    """Records, or of groups commits."""

    sent: int
    acked: int
    polled: int


class Verdicts(NamedTuple):
    """What the run knows that a judgement depends on: topics that had unclean elections, and when all was settled."""

    lossy: Collection[str]
    settled_us: int


class Work(Protocol):
    """`topics` are created first, then everybody runs. `internal`: topics beside them whose partitions may be moved."""

    topics: list[Topic]
    internal: list[Topic]

    @property
    def operations(self) -> Collection[Operation]:
        """What an operator may do to them."""

    @property
    def workers(self) -> Sequence[Worker]: ...
    @property
    def must_get_on(self) -> Sequence[Worker]:
        """Whoever must have something acked again once a majority is well."""

    @property
    def checkers(self) -> Sequence[Checker]:
        """Beside those of every run."""

    async def settle(self) -> None:
        """Stop everybody, in an order in which nothing is left undone. On the auditor's loop."""

    async def read(self) -> Any:
        """Everything there is in the end. On the auditor's loop."""

    def judge(self, found: Any, verdicts: Verdicts) -> list[str]:
        """All broken promises, each as one line."""

    def counts(self) -> Counts: ...


def client_names(kind: WorkKind, size: Size) -> list[str]:
    """Of all who may be killed or paused."""
    return _names("producer", size.producers) + _names(_READERS[kind], size.consumers) + list(_BARE.get(kind, ()))


def _names(role: str, count: int) -> list[str]:
    return [f"{role}{number}" for number in range(1, count + 1)]


_READERS: Mapping[WorkKind, str] = {
    WorkKind.RECORDS: "consumer",
    WorkKind.TRANSACTIONS: "chain",
    WorkKind.GROUPS: "member",
}
#: Clients of the bare protocol.
_BARE: Mapping[WorkKind, Sequence[str]] = {
    WorkKind.TRANSACTIONS: ("kiosk1", "kiosk2"),
    WorkKind.GROUPS: ("modern1", "modern2", "modern3"),
}
#: Of nodes: sessions of groups that end within a run.
PROPERTIES: Mapping[WorkKind, Mapping[str, str]] = {
    WorkKind.RECORDS: {},
    WorkKind.TRANSACTIONS: {},
    WorkKind.GROUPS: {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "1000",
    },
}


class RecordsWork:
    """Idempotent producers and one group of readers."""

    def __init__(self, cluster: Cluster, auditor: Client, size: Size) -> None:
        self._cluster = cluster
        self._auditor = auditor
        self.history = History(lambda: cluster.world.now_us)
        self.topics = topics_of_a_run(cluster.layout.min_in_sync)
        self.internal: list[Topic] = []
        self.operations: Collection[Operation] = tuple(Operation)
        self.checkers: Sequence[Checker] = ()
        shared = (self.history, self.topics)
        self.must_get_on = [
            ProducerAtWork(cluster, cluster.add_client(name), *shared, records_per_s=size.records_per_s)
            for name in _names("producer", size.producers)
        ]
        self.consumers = [
            ConsumerAtWork(cluster, cluster.add_client(name), *shared, group="readers")
            for name in _names("consumer", size.consumers)
        ]

    @property
    def workers(self) -> Sequence[Worker]:
        return [*self.must_get_on, *self.consumers]

    async def settle(self) -> None:
        for worker in self.workers:
            worker.stopping = True
        await asyncio.sleep(_DRAIN_S)

    async def read(self) -> Any:
        return await read_everything(self._cluster, self._auditor, self.topics)

    def judge(self, found: Any, verdicts: Verdicts) -> list[str]:
        lives = {topic.name: topic.life for topic in self.topics if topic.is_replaced}
        return judge(self.history, found, Leniency(verdicts.lossy, lives, verdicts.settled_us))

    def counts(self) -> Counts:
        polled = sum(consumer.acked for consumer in self.consumers)
        return Counts(len(self.history.sent), len(self.history.acked), polled)
