"""Static members (KIP-345) of both protocols: they end and come back under the same instance id, soon or too late.

The rules of `group_history` hold for instances: no other one is assigned a partition before the session of its owner
can have expired, although the owner has ended. In addition, an instance of a classic group that comes back in the same
generation gets the same partitions again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from barnabas.common.types import GROUP_METADATA_TOPIC
from barnabas.simulation.group_history import GroupHistory
from barnabas.simulation.group_members import ClassicMember, ModernMember
from barnabas.simulation.history import Place, Problem
from barnabas.simulation.side_work import PlainSideWork, ReadRecords, side_topic
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.work import Verdicts

_SESSION_US: Final = 10_000_000
_CLASSIC, _MODERN = ("fixed1", "fixed2"), ("settled1", "settled2")


class StaticWork(PlainSideWork):
    """Two groups of static members of one topic, which has no records: the members commit counters."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._topic = side_topic(cluster, "posts", 4, {})
        self.topics = [self._topic]
        self._histories = {
            name: GroupHistory(lambda: cluster.world.now_us, _SESSION_US) for name in ("fixed", "settled")
        }
        self.classic = [
            ClassicMember(
                cluster,
                cluster.add_client(name),
                "fixed",
                self._histories["fixed"],
                self._topic,
                counts=True,
                instance=name,
            )
            for name in _CLASSIC
        ]
        self.modern = [
            ModernMember(cluster, cluster.add_client(name), "settled", self._histories["settled"], self._topic, name)
            for name in _MODERN
        ]
        self.workers = self.must_make_progress = [*self.classic, *self.modern]

    async def settle(self) -> None:
        """Waits until every partition has one owner in each group."""
        while not (self._is_shared_out(self.classic) and self._is_shared_out(self.modern)):
            await asyncio.sleep(0.1)

    def _is_shared_out(self, members: Sequence[ClassicMember | ModernMember]) -> bool:
        owners = Counter(place for member in members for place in member.owned)
        # The operator does not know of a partition that was added by a request without an answer.
        return set(owners) >= set(self._topic.places) and set(owners.values()) == {1}

    def judge(self, found: ReadRecords, verdicts: Verdicts) -> list[Problem]:
        """Checks the histories. Nothing is required of groups that lost their records."""
        if GROUP_METADATA_TOPIC in verdicts.lossy:
            return []
        problems = [
            problem._replace(text=f"{problem.text} (static group {name})")
            for name, history in self._histories.items()
            for problem in history.problems()
        ]
        return problems + [problem for member in self.classic for problem in moved(member)]


def moved(member: ClassicMember) -> list[Problem]:
    """Returns the generations in which a static member got different partitions."""
    first: dict[int, frozenset[Place]] = {}
    problems = []
    for generation, places in member.assignments:
        before = first.setdefault(generation, places)
        if before != places:
            text = f"a static member was moved: {member.client.name} in generation {generation}: "
            problems.append(Problem(f"{text}{sorted(places)} after {sorted(before)}"))
    return problems
