"""Side work: the base of what features of work add to a run, and the composition of a run's work with it.

A side work has topics, clients and promises of its own, so it can be combined with every kind of work. Its topics are
read to their ends when the run is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition

from barnabas.simulation.checkers import Checker
from barnabas.simulation.history import Place, Problem, Spot
from barnabas.simulation.operator import AdminOperation
from barnabas.simulation.reading import open_reader, read_to_ends, read_with_retries
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.work import Counts, Verdicts, Work, Worker
from barnabas.simulation.world import Note

#: The records of each partition, as a reader of committed records got them.
ReadRecords = Mapping[Place, Sequence[Any]]
_DRAIN_S: Final = 15


class SideWork(Protocol):
    """The work of one feature."""

    topics: list[Topic]
    workers: Sequence[Worker]
    #: The workers that must complete operations once everything has healed.
    must_make_progress: Sequence[Worker]
    checkers: Sequence[Checker]

    async def settle(self) -> None:
        """Waits for what the workers must complete before they stop. Runs on the auditor's loop."""

    async def read(self, client: Client) -> None:
        """Reads what the work checks in addition to its topics. Runs on the auditor's loop."""

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        """Returns all violations. `found` has all records of its topics."""


class PlainSideWork:
    """A side work that waits for nothing and reads only its topics."""

    def __init__(self) -> None:
        self.topics: list[Topic] = []
        self.workers: Sequence[Worker] = ()
        self.must_make_progress: Sequence[Worker] = ()
        self.checkers: Sequence[Checker] = ()

    async def settle(self) -> None:
        """Waits for nothing."""

    async def read(self, client: Client) -> None:
        """Reads only the topics of this work."""

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        raise NotImplementedError


class WideWork:
    """A run's work, and the side work of the features that its seed has drawn."""

    def __init__(self, cluster: Cluster, auditor: Client, base: Work, sides: Sequence[SideWork]) -> None:
        self._cluster = cluster
        self._auditor = auditor
        self._base = base
        self._sides = list(sides)
        self.topics: list[Topic] = [*base.topics, *[topic for side in sides for topic in side.topics]]
        self.internal = base.internal
        self.operations: Collection[AdminOperation] = [*base.operations, AdminOperation.CANCEL_ADDITION]
        self.checkers: Sequence[Checker] = [*base.checkers, *[each for side in sides for each in side.checkers]]

    @property
    def workers(self) -> Sequence[Worker]:
        return [*self._base.workers, *[worker for side in self._sides for worker in side.workers]]

    @property
    def must_make_progress(self) -> Sequence[Worker]:
        return [*self._base.must_make_progress, *[each for side in self._sides for each in side.must_make_progress]]

    @property
    def acked(self) -> Mapping[bytes, Spot]:
        return self._base.acked

    async def settle(self) -> None:
        await asyncio.gather(*[side.settle() for side in self._sides])
        for worker in self.workers:
            if worker not in self._base.workers:
                worker.stopping = True
        await self._base.settle()

    async def read(self) -> Any:
        for side in self._sides:
            await side.read(self._auditor)
        topics = [topic for side in self._sides for topic in side.topics]
        return await read_topics(self._cluster, self._auditor, topics), await self._base.read()

    def judge(self, found: Any, verdicts: Verdicts) -> list[Problem]:
        of_sides, of_base = found
        problems = self._base.judge(of_base, verdicts)
        for side in self._sides:
            if not {topic.name for topic in side.topics} & set(verdicts.lossy):
                problems += side.judge(of_sides, verdicts)
        return problems

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        return self._base.notes_at(spot)

    def counts(self) -> Counts:
        return self._base.counts()


async def read_topics(cluster: Cluster, client: Client, topics: Sequence[Topic]) -> ReadRecords:
    """Returns all committed records of these topics."""
    partitions = [TopicPartition(*place) for topic in topics for place in topic.places]
    if not partitions:
        return {}

    def opened() -> AIOKafkaConsumer:
        return open_reader(cluster, client.name, None)

    async def read(consumer: AIOKafkaConsumer) -> ReadRecords:
        found = await read_to_ends(consumer, partitions)
        return {(at.topic, at.partition): records for at, records in found.items()}

    return await read_with_retries(client, cluster, opened, read, "cannot read the topics of the drawn features")


def side_topic(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
    """Returns a topic with enough replicas, whose appends are synced or not, as the seed draws."""
    own = {"min.insync.replicas": str(cluster.layout.min_in_sync), **configs}
    if cluster.world.stream(f"topic/{name}").random() < 0.5:
        own["flush.messages"] = "1"
    return Topic(name, partitions, own)


#: The function that creates a feature's side work for a cluster.
MakeSideWork = Callable[[Cluster], SideWork]
