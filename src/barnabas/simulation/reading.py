"""Readers outside the simulated work, which faults do not stop: after each client error a new consumer begins again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from barnabas.simulation.history import Found, Violation
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.workload import CLIENT_ERRORS, METADATA_AGE_MS, RETRY_S, TIMEOUT_MS, closed
from barnabas.simulation.world import SECOND_US

T = TypeVar("T")


def open_reader(cluster: Cluster, name: str, group: str | None) -> AIOKafkaConsumer:
    """Returns a reader of committed records, not yet started."""
    return AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        client_id=name,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        request_timeout_ms=TIMEOUT_MS,
        metadata_max_age_ms=METADATA_AGE_MS,
    )


async def read_with_retries(
    client: Client,
    cluster: Cluster,
    opened: Callable[[], AIOKafkaConsumer],
    read: Callable[[AIOKafkaConsumer], Awaitable[T]],
    problem: str,
    limit_s: float = math.inf,
) -> T:
    """Returns the result of `read` with a consumer that is started. Raises Violation with `problem` after an error of
    the client beyond `limit_s`.
    """
    world = cluster.world
    limit_us = world.now_us + limit_s * SECOND_US
    while True:
        consumer = opened()
        try:
            await consumer.start()
            found = await read(consumer)
            await closed(consumer.stop)
            return found
        except CLIENT_ERRORS as error:
            world.note(client.name, f"{problem} yet: {error!r}")
            if world.now_us > limit_us:
                raise Violation(f"{problem} for {limit_s:.0f} s: {error!r}") from error
        await closed(consumer.stop)
        await asyncio.sleep(RETRY_S)


async def read_to_ends(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[Any]]:
    """Returns all records of these partitions, up to their ends at the time of the call."""
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    ends = await consumer.end_offsets(partitions)
    found: dict[TopicPartition, list[Any]] = {at: [] for at in partitions}
    while any([await consumer.position(at) < ends[at] for at in partitions]):
        for at, records in (await consumer.getmany(timeout_ms=1_000)).items():
            found[at] += records
    return found


async def read_everything(cluster: Cluster, client: Client, topics: list[Topic]) -> Found:
    """Returns the whole log of every partition, read by a separate reader that retries until it has everything."""
    partitions = [TopicPartition(*place) for topic in topics for place in topic.places]

    def opened() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap,
            client_id="auditor",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=TIMEOUT_MS,
        )

    async def read(consumer: AIOKafkaConsumer) -> Found:
        found = await read_to_ends(consumer, partitions)
        return {
            (at.topic, at.partition): [(record.offset, record.value) for record in records]
            for at, records in found.items()
        }

    return await read_with_retries(client, cluster, opened, read, "cannot read everything")
