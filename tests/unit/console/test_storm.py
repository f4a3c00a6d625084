"""More elections in a second than polls can see: those of one poll are one event, and the others are counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

TOPICS, PARTITIONS = 30, 4
#: Elections of each partition in one part of a second. An even number has the same leader before and after.
PARTS = (8, 6) * 6
ELECTIONS = sum(PARTS) * TOPICS * PARTITIONS
#: Requests that a cluster without DescribeTopicPartitions does not offer.
DESCRIBE_TOPIC_PARTITIONS = 75


@pytest.fixture(params=["journal", "partitions", "metadata"])
def cluster(request: pytest.FixtureRequest) -> Iterator[PhantomCluster]:
    """Provides a cluster with a journal, and two of which only polls tell something."""
    without = (DESCRIBE_TOPIC_PARTITIONS,) if request.param == "metadata" else ()
    with PhantomCluster(
        topics=TOPICS, partitions=PARTITIONS, journal=request.param == "journal", without=without
    ) as running:
        yield running


@pytest.fixture
def watching(cluster: PhantomCluster) -> Iterator[RunningConsole]:
    options = ConsoleOptions(interval_s=0.1, timeout_s=5.0, budget_share=1.0)
    with RunningConsole([target_of(cluster)], options) as running:
        running.filled()
        yield running


def _elect(state: PhantomState, times: int) -> None:
    """Lets each partition's first two replicas lead by turns."""
    for topic, partition, row in state.every():
        one, other = row.replicas[:2]
        order = cycle((other, one) if row.leader == one else (one, other))
        for _ in range(times):
            state.elect(topic.name, partition, next(order))


def _epochs(table: ClusterTable) -> dict[tuple[str, int], int]:
    return {
        (each.topic, each.partition): each.leader_epoch for each in table.values() if not each.topic.startswith("__")
    }


@pytest.mark.sampled(1)
def test_each_of_ten_thousand_elections_in_a_second_is_shown_or_counted(
    watching: RunningConsole, cluster: PhantomCluster
) -> None:
    assert ELECTIONS == 10_080
    assert watching.console is not None
    watched = next(iter(watching.console.screens.values())).cluster
    table, known = watched.table, watched.occurrences
    for times in PARTS:
        cluster.change(lambda state, times=times: _elect(state, times))  # type: ignore[misc]
        time.sleep(1 / len(PARTS))
    truth = {(topic.name, index): row.leader_epoch for topic, index, row in cluster.state.every()}
    watching.until(lambda: _epochs(table) == truth, "the console does not catch up", within_s=60)

    def shown() -> int:
        return sum(each.shown["count"] for each in known.events if each.kind == "leader-change")

    missed = int(table.missed_elections[table.rows].sum())
    watching.until(lambda: shown() + missed >= ELECTIONS, "elections are neither shown nor counted", within_s=30)
    assert shown() + missed == ELECTIONS
    assert len(known.events) < ELECTIONS / 2, "those of one decision are one event"
