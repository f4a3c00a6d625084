"""The work of a run, which its settings choose: the clients, and the check of their history.

records         producers that send, a consumer group that reads, and topics that change (`RecordsWork`)
transactions    transactional producers and chains that consume, transform and produce (`transactional_work`)
groups          members of groups of both protocols that join, leave and commit (`group_work`)
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from barnabas.simulation.checkers import Checker
from barnabas.simulation.history import History, Leniency, Problem, Spot, judge
from barnabas.simulation.operator import SETTINGS, AdminOperation
from barnabas.simulation.reading import read_everything
from barnabas.simulation.run_topics import Topic, topics_of_a_run
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.workload import TIMEOUT_MS, WorkloadConsumer, WorkloadProducer
from barnabas.simulation.world import MILLISECOND_US, Note

_DRAIN_S = 15
#: Changes by an operator of a run without features of work.
CHANGES = tuple(kind for kind in AdminOperation if kind is not AdminOperation.CANCEL_ADDITION)
#: Changes by operators that keep the partitions of topics, and the settings on which their promises depend.
MOVES = (AdminOperation.REASSIGN, AdminOperation.CANCEL, AdminOperation.ELECT, *SETTINGS)


class WorkKind(Enum):
    RECORDS = "records"
    TRANSACTIONS = "transactions"
    GROUPS = "groups"


class Size(NamedTuple):
    """The size of the clients' work. `consumers` is the number of readers: members, chains."""

    producers: int
    consumers: int
    records_per_s: float


class Worker(Protocol):
    """A client's program. After `stopping` it completes what is in flight. `acked` counts completed operations."""

    client: Client
    stopping: bool
    acked: int

    async def run(self) -> None:
        """Runs the program; called again after the end of its process."""


class Counts(NamedTuple):
    """The numbers of records that clients sent, acked and read; for groups, of commits."""

    sent: int
    acked: int
    polled: int


class Verdicts(NamedTuple):
    """The facts of the run that a check depends on: topics that had unclean elections, and when all was settled."""

    lossy: Collection[str]
    settled_us: int


class Work(Protocol):
    """The work of a run: clients and the check of their history. `topics` are created before it starts; `internal` are
    others that can be reassigned.
    """

    topics: list[Topic]
    internal: list[Topic]

    @property
    def operations(self) -> Collection[AdminOperation]:
        """Returns the changes that an operator can make to the topics."""

    @property
    def workers(self) -> Sequence[Worker]: ...
    @property
    def must_make_progress(self) -> Sequence[Worker]:
        """Returns the workers that must make progress once a majority has healed."""

    @property
    def acked(self) -> Mapping[bytes, Spot]:
        """Returns the records that clients count as acknowledged, as far as the work records their offsets."""

    @property
    def checkers(self) -> Sequence[Checker]:
        """Returns checkers in addition to those of every run."""

    async def settle(self) -> None:
        """Stops all workers, in an order that completes everything. Runs on the auditor's loop."""

    async def read(self) -> Any:
        """Returns every record that exists at the end. Runs on the auditor's loop."""

    def judge(self, found: Any, verdicts: Verdicts) -> list[Problem]:
        """Returns all violations."""

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        """Returns what the clients know of the record at an offset."""

    def counts(self) -> Counts: ...


def client_names(kind: WorkKind, size: Size) -> list[str]:
    """Returns the clients that can be killed or paused."""
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
#: Properties of nodes: sessions of groups that can expire within a run.
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
        self.operations: Collection[AdminOperation] = CHANGES
        self.checkers: Sequence[Checker] = ()
        self.acked: Mapping[bytes, Spot] = self.history.acked
        shared = (self.history, self.topics)
        self.must_make_progress = [
            WorkloadProducer(cluster, cluster.add_client(name), *shared, records_per_s=size.records_per_s)
            for name in _names("producer", size.producers)
        ]
        self.consumers = [
            WorkloadConsumer(cluster, cluster.add_client(name), *shared, group="readers")
            for name in _names("consumer", size.consumers)
        ]

    @property
    def workers(self) -> Sequence[Worker]:
        return [*self.must_make_progress, *self.consumers]

    async def settle(self) -> None:
        for worker in self.workers:
            worker.stopping = True
        await asyncio.sleep(_DRAIN_S)

    async def read(self) -> Any:
        return await read_everything(self._cluster, self._auditor, self.topics)

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        return self.history.notes_at(spot)

    def judge(self, found: Any, verdicts: Verdicts) -> list[Problem]:
        incarnations = {topic.name: topic.incarnation for topic in self.topics if topic.is_replaced}
        retried_us = TIMEOUT_MS * MILLISECOND_US
        return judge(self.history, found, Leniency(verdicts.lossy, incarnations, verdicts.settled_us, retried_us))

    def counts(self) -> Counts:
        polled = sum(consumer.acked for consumer in self.consumers)
        return Counts(len(self.history.sent), len(self.history.acked), polled)
