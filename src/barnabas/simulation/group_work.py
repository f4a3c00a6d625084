"""Groups at work: members of both protocols join, leave, crash and commit, in a group of each kind or all in one.

`group_history` has the rules. In addition, every partition has one owner again after all faults have ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.common.types import GROUP_METADATA_TOPIC
from barnabas.simulation.checkers import Checker
from barnabas.simulation.group_history import GroupHistory
from barnabas.simulation.group_members import ClassicMember, ModernMember
from barnabas.simulation.history import History, Place, Problem, Spot
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.transactional_workers import committed_offsets
from barnabas.simulation.work import MOVES, Counts, Size, Verdicts, Worker
from barnabas.simulation.workload import WorkloadProducer
from barnabas.simulation.world import SECOND_US, Note

_PARTITIONS = 6
_SESSION_S = 10
_DRAIN_S = 15
_MODERN = ("modern1", "modern2", "modern3")


class GroupWork:
    """A producer, classic members and members of the consumer protocol."""

    def __init__(self, cluster: Cluster, auditor: Client, size: Size) -> None:
        self._cluster = cluster
        self._auditor = auditor
        self.history = History(lambda: cluster.world.now_us)
        enough = {"flush.messages": "1", "min.insync.replicas": str(cluster.layout.min_in_sync)}
        self.topic = Topic("orders", _PARTITIONS, enough)
        self.topics = [self.topic]
        self.internal = [
            Topic(GROUP_METADATA_TOPIC, int(cluster.layout.shared_property("offsets.topic.num.partitions")), {})
        ]
        self.operations = MOVES
        self.checkers: Sequence[Checker] = ()
        self.acked: Mapping[bytes, Spot] = {}
        is_mixed = cluster.world.stream("groups").random() < 0.3
        classic, modern = ("mixed", "mixed") if is_mixed else ("classic", "modern")
        self.group_histories = {
            name: GroupHistory(lambda: cluster.world.now_us, _SESSION_S * SECOND_US) for name in {classic: 0, modern: 0}
        }
        self.producers = [
            WorkloadProducer(
                cluster,
                cluster.add_client(f"producer{number}"),
                self.history,
                self.topics,
                records_per_s=size.records_per_s,
            )
            for number in range(1, size.producers + 1)
        ]
        self.members: dict[str, list[ClassicMember | ModernMember]] = {name: [] for name in self.group_histories}
        for number in range(1, size.consumers + 1):
            client = cluster.add_client(f"member{number}")
            self.members[classic].append(
                ClassicMember(cluster, client, classic, self.group_histories[classic], self.topic, counts=is_mixed)
            )
        for name in _MODERN:
            client = cluster.add_client(name)
            self.members[modern].append(ModernMember(cluster, client, modern, self.group_histories[modern], self.topic))

    @property
    def workers(self) -> Sequence[Worker]:
        return [*self.producers, *[member for members in self.members.values() for member in members]]

    @property
    def must_make_progress(self) -> Sequence[Worker]:
        return self.workers

    async def settle(self) -> None:
        """Waits until every partition has one owner in each group."""
        while not all(self._is_shared_out(members) for members in self.members.values()):
            await asyncio.sleep(0.1)
        for worker in self.workers:
            worker.stopping = True
        await asyncio.sleep(_DRAIN_S)

    def _is_shared_out(self, members: Sequence[ClassicMember | ModernMember]) -> bool:
        owners = Counter(place for member in members for place in member.owned)
        # The operator does not know of a partition that was added by a request without an answer.
        return set(owners) >= set(self.topic.places) and set(owners.values()) == {1}

    async def read(self) -> dict[str, dict[Place, int]]:
        return {
            name: await committed_offsets(self._cluster, self._auditor, name, self.topic.places, history.saw)
            for name, history in self.group_histories.items()
        }

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        return self.history.notes_at(spot)

    def judge(self, found: Any, verdicts: Verdicts) -> list[Problem]:
        """Checks the histories of the groups. Nothing is required of a group that lost its records."""
        if {self.topic.name, GROUP_METADATA_TOPIC} & set(verdicts.lossy):
            return []
        return [
            problem._replace(text=f"{problem.text} (group {name})")
            for name, history in self.group_histories.items()
            for problem in history.problems()
        ]

    def counts(self) -> Counts:
        commits = sum(history.commits for history in self.group_histories.values())
        return Counts(len(self.history.sent), len(self.history.acked), commits)
