"""The rebalance of leaders in ZooKeeper mode: only for brokers that lead too few of the partitions that prefer them.

A broker's share is the part of the partitions preferring it that other brokers lead. Partitions under reassignment stay
as they are, and so do those whose preferred replica cannot lead. `ActiveController.rebalance` calls this periodically
(`leader.imbalance.check.interval.seconds`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from barnabas.controller.requests import elections
from barnabas.controller.requests.partitions import Located, find
from barnabas.controller.requests.reassignments import is_in_progress
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.new_partitions import has_state


def imbalanced(view: ControllerView, percentage: int) -> list[Located]:
    """Returns the partitions that are not led by their preferred leader, for the brokers whose share of such partitions
    is above the percentage.
    """
    preferred: Counter[int] = Counter()
    missed: Counter[int] = Counter()
    elsewhere: list[Located] = []
    for located in find(view, has_state):
        partition = located[2]
        preferred[partition.preferred_leader] += 1
        if partition.leader != partition.preferred_leader:
            missed[partition.preferred_leader] += 1
            elsewhere.append(located)
    above = {broker for broker in missed if missed[broker] * 100 > preferred[broker] * percentage}
    return [located for located in elsewhere if located[2].preferred_leader in above]


def rebalance(view: ControllerView, partitions: Sequence[Located]) -> Result[None]:
    """Moves leadership of these partitions back to the brokers that they prefer, where these can lead."""
    idle = [each for each in partitions if not is_in_progress(each[2])]
    return elections.rebalance(view, partitions=idle, count_max=len(partitions))
