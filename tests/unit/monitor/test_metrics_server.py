"""The exporter of the monitor: its text, what it keeps, and its HTTP."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.phantom_feeds import clock_ms, feeds_of, run, running, until
from tests.support.watched import T0, details, look, partition

from barnabas.monitor.broker_connection import Security
from barnabas.monitor.changes import changes_of
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.delta import VolumesSeen
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.metric_blocks import FAMILIES, TOPICS_PER_BLOCK
from barnabas.monitor.metrics_server import MetricsServer
from barnabas.testing.phantom import PhantomCluster

OFFSET_FETCH = 9
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def server_of(*partitions: Any, now_ms: int = T0, **more: Any) -> MetricsServer:
    feeds = ClusterFeeds([], Security(), FeedOptions(), clock_ms=lambda: now_ms)
    server = MetricsServer(feeds, lambda: now_ms)
    feeds.table.apply(look(*partitions, **more))
    return server


def parsed(text: str) -> Samples:
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(names)) == len(names), "the lines of a family are together"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(server: MetricsServer, *, is_gzip: bool = False) -> Samples:
    body = asyncio.run(server.body(is_gzip=is_gzip))
    return parsed((gzip.decompress(body) if is_gzip else body).decode())


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_a_partition_has_the_metrics_of_kafka_exporter() -> None:
    server = server_of(partition("orders-0", leader=2, isr=(2,)), partition("orders-1", leader=-1, isr=()))
    table = server._feeds.table
    key = ("orders", 0)
    table.apply_volumes(VolumesSeen(T0, 2, sizes={key: 900}, high_watermarks={key: 42}, start_offsets={key: 7}))
    samples = scraped(server)
    expected = {
        "current_offset": 42,
        "oldest_offset": 7,
        "in_sync_replica": 1,
        "leader": 2,
        "leader_is_preferred": 0,
        "replicas": 3,
        "under_replicated_partition": 1,
    }
    labels = {"topic": "orders", "partition": "0"}
    assert {name: of(samples, f"kafka_topic_partition_{name}", **labels) for name in expected} == expected
    assert of(samples, "barnabas_partition_severity", **labels) == 3
    assert of(samples, "barnabas_partition_size_bytes", **labels) == 900
    assert of(samples, "kafka_brokers") == 3
    assert of(samples, "kafka_topic_partitions", topic="orders") == 2
    assert of(samples, "barnabas_partitions", state="offline") == 1
    other = labels | {"partition": "1"}
    assert of(samples, "kafka_topic_partition_leader", **other) == -1
    assert ("kafka_topic_partition_current_offset", frozenset(other.items())) not in samples, "unknown"


def test_both_encodings_say_the_same_and_only_changed_blocks_are_rendered() -> None:
    count = 2 * TOPICS_PER_BLOCK + 1
    states = [partition(f"t{number:03}-0", details=details(b1=5)) for number in range(count)]
    server = server_of(*states)
    table = server._feeds.table
    plain, packed = scraped(server), scraped(server, is_gzip=True)
    changing = ("barnabas_exporter_scrape", "barnabas_exporter_scrapes")
    assert {key: value for key, value in plain.items() if not key[0].startswith(changing)} == {
        key: value for key, value in packed.items() if not key[0].startswith(changing)
    }
    before = server.blocks.rendered
    assert before == 2 * 3 * len(FAMILIES)
    scraped(server, is_gzip=True)
    assert server.blocks.rendered == before
    table.apply(look(partition("t000-0", isr=(1,)), *states[1:]))
    assert of(scraped(server, is_gzip=True), "barnabas_partition_severity", topic="t000", partition="0") == 3
    assert server.blocks.rendered == before + len(FAMILIES)
    table.apply_volumes(VolumesSeen(T0, 1, high_watermarks={("t100", 0): 9}))
    assert of(scraped(server, is_gzip=True), "kafka_topic_partition_current_offset", topic="t100", partition="0") == 9
    assert server.blocks.rendered == before + len(FAMILIES) + sum(family.is_volume for family in FAMILIES)


def test_topics_that_come_and_go_and_brokers_that_fall_silent() -> None:
    server = server_of(partition("a-0"), partition("b-0"))
    table = server._feeds.table
    scraped(server)
    table.apply(look(partition("a-0"), partition("c-0"), partition("c-1")))
    samples = scraped(server)
    assert {dict(labels)["topic"] for name, labels in samples if name == "kafka_topic_partition_leader"} == {"a", "c"}
    table.apply(look(partition("a-0"), problems={1: "connection refused"}))
    samples = scraped(server)
    assert of(samples, "barnabas_partition_severity", topic="a", partition="0") == 4
    assert of(samples, "barnabas_broker_up", broker="1") == 0
    assert of(samples, "barnabas_exporter_partial_failures") == 1


def test_each_election_is_shown_or_missed() -> None:
    server = server_of(partition("a-0", epoch=0))
    table = server._feeds.table
    for leader, epoch in ((2, 1), (2, 5), (1, 8), (1, 10), (3, 11)):
        change = table.apply(look(partition("a-0", leader=leader, epoch=epoch)))
        assert change is not None
        server.count(changes_of(change, table))
    samples = scraped(server)
    shown = of(samples, "barnabas_elections_total", cause="unknown")
    missed = of(samples, "barnabas_missed_elections")
    assert (shown, missed) == (3, 8), "the epochs have advanced by 11"


def test_unavailable_seconds_and_elections_by_cause() -> None:
    server = server_of(partition("a-0"), now_ms=T0 + 9_000)
    table = server._feeds.table
    for change_set in (
        table.apply(look(partition("a-0", leader=-1, epoch=1, isr=(1,)), at_ms=T0 + 1_000)),
        table.apply(look(partition("a-0", leader=2, epoch=2, isr=(2,)), at_ms=T0 + 3_500)),
    ):
        assert change_set is not None
        server.count(changes_of(change_set, table))
    samples = scraped(server)
    assert of(samples, "barnabas_partition_unavailable_seconds_total", topic="a", partition="0") == 2.5
    assert of(samples, "barnabas_elections_total", cause="unknown") == 2
    table.apply(look(partition("a-0", leader=-1, epoch=3, isr=(2,)), at_ms=T0 + 8_000))
    assert of(scraped(server), "barnabas_partition_unavailable_seconds_total", topic="a", partition="0") == 3.5


async def get(port: int, head: str) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.startswith(b"Content-Length"))
    body = b"" if head.startswith("HEAD") else await reader.readexactly(length)
    writer.close()
    return answer.decode(), body


def test_http() -> None:
    async def main() -> None:
        server = server_of(partition("a-0"))
        port = await server.start("127.0.0.1", 0)
        head, body = await get(port, "GET /metrics HTTP/1.1\r\nAccept-Encoding: deflate, gzip\r\n\r\n")
        assert "200 OK" in head
        assert "Content-Encoding: gzip" in head
        assert b"kafka_topic_partition_leader" in gzip.decompress(body)
        head, body = await get(port, "GET /metrics?x=1 HTTP/1.1\r\n\r\n")
        assert "gzip" not in head
        assert b"kafka_topic_partition_leader" in body
        assert "200 OK" in (await get(port, "HEAD /metrics HTTP/1.1\r\n\r\n"))[0]
        assert "404" in (await get(port, "GET /other HTTP/1.1\r\n\r\n"))[0]
        assert "405" in (await get(port, "POST /metrics HTTP/1.1\r\n\r\n"))[0]
        server.close()

    run(main())


@pytest.mark.parametrize("versions_max", [{}, {OFFSET_FETCH: 7}], ids=["many groups", "one group at a time"])
def test_groups_of_a_cluster(versions_max: dict[int, int]) -> None:
    async def main() -> None:
        with PhantomCluster(topics=3, versions_max=versions_max) as phantom:
            phantom.change(lambda state: state.produce("topic-00001", 2, 70))
            phantom.change(lambda state: state.commit("readers", "topic-00001", 2, 50))
            phantom.change(lambda state: state.commit("readers", "topic-00001", 0, 0))
            feeds = feeds_of(phantom, wants_offsets=True)
            server = MetricsServer(feeds, clock_ms)
            async with running(feeds):
                await until(lambda: "readers" in feeds.groups, "the group")
                samples = parsed((await server.body(is_gzip=False)).decode())
                labels = {"consumergroup": "readers", "topic": "topic-00001"}
                assert of(samples, "kafka_consumergroup_current_offset", **labels, partition="2") == 50
                assert of(samples, "kafka_consumergroup_lag", **labels, partition="2") == 20
                assert of(samples, "kafka_consumergroup_lag_sum", **labels) == 20
                assert of(samples, "kafka_consumergroup_members", consumergroup="readers") == 1

    run(main())
