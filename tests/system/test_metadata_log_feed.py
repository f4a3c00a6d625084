"""The metadata log as a feed of the monitor: of our controllers, and of Apache Kafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.support.phantom_feeds import clock_ms, running, until
from tests.support.quorum_of_kafka import KafkaVoter, kafka_voters

from barnabas.monitor.broker_connection import Address, Security
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import changes_of
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.delta import Source
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.table import ClusterTable
from barnabas.testing import Cluster


def addresses(text: str) -> tuple[Address, ...]:
    return tuple((host, int(port)) for host, port in (each.split(":") for each in text.split(",")))


def by_the_log(bootstrap: str, controllers: str) -> ClusterFeeds:
    """Returns feeds that look only once, so that the metadata log delivers what changes."""
    options = FeedOptions(interval_s=600.0, controllers=addresses(controllers))
    return ClusterFeeds(addresses(bootstrap), Security(), options, clock_ms=clock_ms)


async def looked_at(bootstrap: str) -> ClusterTable:
    feeds = ClusterFeeds(addresses(bootstrap), Security(), FeedOptions(), clock_ms=clock_ms)
    await feeds.first_look()
    return feeds.table


def contents(table: ClusterTable) -> dict[str, tuple[object, ...]]:
    return {
        str(state.key): (state.topic_id, state.leader, state.leader_epoch, state.replicas, frozenset(state.isr))
        for state in table.values()
    }


async def in_thread(work: Callable[[], object]) -> None:
    await asyncio.to_thread(work)


def told_by_the_log(feeds: ClusterFeeds) -> set[tuple[str, str]]:
    """Returns a set that collects (subject, kind) of what the log changes from now on."""
    found: set[tuple[str, str]] = set()

    def note(change: ChangeSet) -> None:
        if change.source is Source.METADATA_LOG:
            found.update((each.subject, each.kind) for each in changes_of(change, feeds.table))

    feeds.table.subscribe(note)
    return found


def test_topics_partitions_and_configurations_by_the_log_alone(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

        def create(name: str) -> None:
            admin.create_topics([NewTopic(name, 2)])[name].result(60)

        def grow() -> None:
            admin.create_partitions([NewPartitions("b", 5)])["b"].result(60)
            entry = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, "b", incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(60)

        async def main() -> None:
            create("a")
            async with running(by_the_log(cluster.bootstrap, cluster.controllers)) as feeds:
                await until(lambda: feeds.follows_log, "the log is read")
                told = told_by_the_log(feeds)
                await in_thread(lambda: create("b"))
                await until(lambda: ("b", "topic-created") in told, "the new topic")
                await in_thread(grow)
                await until(lambda: ("b", "partitions-added") in told, "more partitions")
                await until(lambda: feeds.table.topics.by_name["b"].min_isr == 2, "its min ISR")
                await in_thread(lambda: admin.delete_topics(["a"])["a"].result(60))
                await until(lambda: ("a", "topic-deleted") in told, "the deleted topic")
                assert contents(feeds.table) == contents(await looked_at(cluster.bootstrap))

        asyncio.run(asyncio.wait_for(main(), 120))


async def follow_a_failure(
    bootstrap: str, controllers: str, kill: Callable[[], None], start: Callable[[], None]
) -> None:
    """Broker 2 is killed and comes back; the log alone delivers each change, and ends where a look does."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for name, replicas in {"orders": [2, 1, 3], "single": [2]}.items():
        admin.create_topics([NewTopic(name, 1, replica_assignment=[replicas])])[name].result(120)
    async with running(by_the_log(bootstrap, controllers)) as feeds:
        await until(lambda: feeds.follows_log, "the log is read", within_s=30)
        told = told_by_the_log(feeds)
        await in_thread(kill)
        await until(lambda: ("single-0", "offline") in told, "its loss", within_s=60)
        assert ("orders-0", "leader-change") in told
        await in_thread(start)
        await until(lambda: ("single-0", "online") in told, "its return", within_s=60)
        row = feeds.table.row_of("orders", 0)
        assert row is not None
        await until(lambda: len(feeds.table.state(row).isr) == 3, "the ISR", within_s=60)
        assert not feeds.table.missed_elections.any()

        async def is_same() -> bool:
            return contents(feeds.table) == contents(await looked_at(bootstrap))

        for _ in range(50):
            if await is_same():
                break
            await asyncio.sleep(0.2)
        assert await is_same()


@pytest.mark.full
def test_a_broker_is_lost_and_comes_back(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        steps = follow_a_failure(
            cluster.bootstrap, cluster.controllers, lambda: cluster.kill(2), lambda: cluster.start_broker(2)
        )
        asyncio.run(asyncio.wait_for(steps, 240))


@pytest.mark.full
def test_the_same_with_apache_kafka(tmp_path: Path) -> None:
    with kafka_voters(tmp_path) as servers:
        second: KafkaVoter = servers[1]

        def start() -> None:
            second.launch()
            second.await_serving()

        steps = follow_a_failure(
            ",".join(server.bootstrap for server in servers),
            ",".join(server.controller for server in servers),
            second.kill,
            start,
        )
        asyncio.run(asyncio.wait_for(steps, 400))
