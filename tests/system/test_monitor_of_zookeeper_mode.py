"""The monitor's table on Apache Kafka with Apache ZooKeeper, by polls: it becomes what the znodes have after each fault
and each change, and what such a cluster does not tell is unknown (docs/monitor.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.support.apache_clusters import LAST_WITH_ZOOKEEPER, OLD, ZooKeeperMode, addresses, apache_cluster
from tests.support.phantom_feeds import clock_ms, running, until

from barnabas.common.types import uuid_to_text
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Change, changes_of
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable

pytestmark = pytest.mark.full
ORDERS: Final = "orders"
SINGLE: Final = "single"
WITHIN_S: Final = 90.0
Contents = dict[str, tuple[object, ...]]


@pytest.fixture(params=[LAST_WITH_ZOOKEEPER, OLD])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ZooKeeperMode]:
    with apache_cluster(request.param, tmp_path) as found:
        assert isinstance(found, ZooKeeperMode)
        yield found


def of_table(table: ClusterTable) -> Contents:
    return {
        str(state.key): (
            uuid_to_text(state.topic_id),
            state.leader,
            state.leader_epoch,
            list(state.replicas),
            set(state.isr),
        )
        for state in table.values()
    }


def of_znodes(cluster: ZooKeeperMode, *topics: str) -> Contents:
    """Returns the same from the znodes of the topics."""
    found: Contents = {}
    for topic in topics:
        assignment = cluster.brokers.znode(f"/brokers/topics/{topic}") or {"partitions": {}}
        for number, replicas in assignment["partitions"].items():
            state = cluster.brokers.state(topic, int(number)) or {"leader": -1, "leader_epoch": -1, "isr": []}
            found[f"{topic}-{number}"] = (
                assignment["topic_id"],
                state["leader"],
                state["leader_epoch"],
                replicas,
                set(state["isr"]),
            )
    return found


class Admin:
    """The actions of an operator. Each call returns when the cluster has answered."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str, *replicas: list[int]) -> None:
        new = NewTopic(topic, len(replicas), replica_assignment=list(replicas), config={"min.insync.replicas": "2"})
        self._client.create_topics([new])[topic].result(60)

    def grow(self, topic: str, count: int) -> None:
        self._client.create_partitions([NewPartitions(topic, count)])[topic].result(60)

    def delete(self, topic: str) -> None:
        self._client.delete_topics([topic])[topic].result(60)

    def set_min_isr(self, topic: str, value: int) -> None:
        entry = ConfigEntry("min.insync.replicas", str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._client.incremental_alter_configs([resource])[resource].result(60)

    def elect(self, topic: str) -> None:
        self._client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(60)


def by_polls(cluster: ZooKeeperMode, **options: object) -> ClusterFeeds:
    wanted = FeedOptions(interval_s=0.2, wants_all_volumes=True, **options)  # type: ignore[arg-type]
    return ClusterFeeds(addresses(cluster.bootstrap), Security(), wanted, clock_ms=clock_ms)


def noted(feeds: ClusterFeeds) -> list[Change]:
    """Returns a list that collects the changes of the table from now on."""
    found: list[Change] = []

    def note(change: ChangeSet) -> None:
        found.extend(changes_of(change, feeds.table))

    feeds.table.subscribe(note)
    return found


async def in_thread(work: Callable[[], object]) -> None:
    await asyncio.to_thread(work)


def test_the_table_is_what_zookeeper_has_after_a_kill_and_a_return(cluster: ZooKeeperMode) -> None:
    admin = Admin(cluster.bootstrap)

    async def main() -> None:
        await in_thread(lambda: admin.create(ORDERS, [2, 1, 3], [3, 2, 1]))
        await in_thread(lambda: admin.create(SINGLE, [2]))
        async with running(by_polls(cluster)) as feeds:
            table, changes = feeds.table, noted(feeds)

            def is_same() -> bool:
                return of_table(table) == of_znodes(cluster, ORDERS, SINGLE)

            await until(is_same, "the table before the kill", WITHIN_S)
            assert table.severity is Severity.OK
            await in_thread(lambda: cluster.kill(2))
            await until(lambda: is_same() and table.severity is Severity.CRITICAL, "the loss", WITHIN_S)
            await until(lambda: 2 not in table.brokers, "the broker is not in the cluster", WITHIN_S)
            single = table.row_of(SINGLE, 0)
            orders = table.row_of(ORDERS, 0)
            assert single is not None
            assert orders is not None
            # A silent leader is critical, too: the controller's decision can come later.
            await until(lambda: is_same() and table.state(single).leader == -1, "no leader", WITHIN_S)
            assert table.state(orders).leader in (1, 3)
            assert table.state(orders).severity is Severity.WARNING
            await in_thread(lambda: cluster.start_again(2))
            await until(lambda: is_same() and table.severity is Severity.OK, "the return", WITHIN_S)
            told = {(each.subject, each.kind) for each in changes}
            assert {(f"{ORDERS}-0", "leader-change"), (f"{SINGLE}-0", "offline"), (f"{SINGLE}-0", "online")} <= told
            assert all(each.cause is None for each in changes), "no such cluster tells a cause"
            assert table.controller == cluster.brokers.controller_id
            assert not feeds.has_journal
            assert (table.states.elr[table.rows][:, 0] == UNKNOWN).all(), "Kafka has no ELR before 4.0"
            assert (table.states.partition_epoch[table.rows] == UNKNOWN).all()

    asyncio.run(asyncio.wait_for(main(), 400))


def test_what_an_operator_changes_is_in_the_table(cluster: ZooKeeperMode) -> None:
    admin = Admin(cluster.bootstrap)

    async def main() -> None:
        await in_thread(lambda: admin.create(ORDERS, [2, 1, 3]))
        async with running(by_polls(cluster)) as feeds:
            table, changes = feeds.table, noted(feeds)

            async def same(what: str) -> None:
                await until(lambda: of_table(table) == of_znodes(cluster, ORDERS), what, WITHIN_S)

            await same("the topic")
            first = table.topics.by_name[ORDERS].identity.topic_id
            await in_thread(lambda: admin.grow(ORDERS, 4))
            await until(lambda: len(table) == 4, "more partitions", WITHIN_S)
            await same("more partitions")
            await in_thread(lambda: admin.set_min_isr(ORDERS, 3))
            await until(lambda: table.topics.by_name[ORDERS].min_isr == 3, "min ISR", WITHIN_S)
            # Both between two polls: only the id says that the topic is another one.
            admin.delete(ORDERS)
            cluster.brokers.await_deletion(ORDERS)
            admin.create(ORDERS, [3, 1])
            await until(lambda: len(table) == 1, "the new topic", WITHIN_S)
            await same("the new topic")
            assert table.topics.by_name[ORDERS].identity.topic_id != first
            told = [each.kind for each in changes if each.subject == ORDERS]
            assert told == ["partitions-added", "topic-deleted", "topic-created"]
            assert ("min-isr-changed", f"{ORDERS}-0") in {(each.kind, each.subject) for each in changes}

    asyncio.run(asyncio.wait_for(main(), 400))


def test_elections_between_two_polls_are_counted(cluster: ZooKeeperMode) -> None:
    """The loss: the leader is the same as before, and only the leader epoch says that others led meanwhile."""
    admin = Admin(cluster.bootstrap)

    def unseen() -> None:
        """Kills the leader and lets it lead again, while this thread polls nothing."""
        cluster.kill(2)
        cluster.brokers.await_other_leader(ORDERS, 0, 2)
        cluster.start_again(2)
        cluster.brokers.await_isrs(ORDERS)
        # The controller refuses the election until it knows that the broker is there.
        deadline_s = time.monotonic() + WITHIN_S
        while cluster.brokers.state(ORDERS, 0)["leader"] != 2:
            assert time.monotonic() < deadline_s, "the preferred replica does not lead"
            admin.elect(ORDERS)
            time.sleep(0.5)

    async def main() -> None:
        await in_thread(lambda: admin.create(ORDERS, [2, 1, 3]))
        async with running(by_polls(cluster)) as feeds:

            def is_same() -> bool:
                return of_table(feeds.table) == of_znodes(cluster, ORDERS)

            await until(is_same, "the topic", WITHIN_S)
            row = feeds.table.row_of(ORDERS, 0)
            assert row is not None
            before = feeds.table.state(row)
            unseen()
            await until(is_same, "the table", WITHIN_S)
            after = feeds.table.state(row)
            assert (before.leader, after.leader) == (2, 2)
            missed = int(feeds.table.missed_elections[row])
            assert missed == after.leader_epoch - before.leader_epoch, "the leader is the same again"
            assert missed > 0

    asyncio.run(asyncio.wait_for(main(), 400))


def test_there_is_no_metadata_log_and_the_polls_continue(cluster: ZooKeeperMode) -> None:
    admin = Admin(cluster.bootstrap)

    async def main() -> None:
        await in_thread(lambda: admin.create(ORDERS, [2, 1, 3]))
        feeds = by_polls(cluster, controllers=addresses(cluster.bootstrap))
        async with running(feeds):
            await until(lambda: "it has no metadata log" in (feeds.log_problem or ""), "why it is not read", WITHIN_S)
            assert not feeds.follows_log
            await in_thread(lambda: admin.create(SINGLE, [3]))
            await until(lambda: of_table(feeds.table) == of_znodes(cluster, ORDERS, SINGLE), "the new topic", WITHIN_S)

    asyncio.run(asyncio.wait_for(main(), 200))
