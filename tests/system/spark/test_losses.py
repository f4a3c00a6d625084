"""A stream whose log has lost records: it reports which and why, and neither skips nor repeats others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as NewAdminTopic
from tests.clients.servers import Server
from tests.support.spark_streams import Stream, texts

from barnabas.common.types import uuid_to_text
from barnabas.spark import cluster_client as clusters
from barnabas.spark.errors import DataLost
from barnabas.spark.losses import LossCause
from barnabas.testing import Cluster

Produce = Callable[..., None]
NewTopic = Callable[..., str]


def _values(count: int, mark: str = "v") -> list[str]:
    return [f"{mark}{number}" for number in range(count)]


def _lost(stream: Stream) -> list[tuple[int, int | None, LossCause, bool]]:
    """Returns the error of failOnDataLoss=true, as (first, end, cause, was read)."""
    stream.restart(failOnDataLoss="true")
    with pytest.raises(DataLost) as raised:
        stream.next()
    return [(each.first_offset, each.end_offset, each.cause, each.was_read) for each in raised.value.ranges]


def _table(path: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(path).drop_columns(["found_at"]).to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["first_offset"]))


def test_records_that_retention_took(
    cluster: Server, new_topic: NewTopic, produce: Produce, admin: AdminClient, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(topic, _values(10), 0)
    produce(topic, _values(10), 1)
    stream = Stream(
        cluster.bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="8", lostRangesPath=str(tmp_path)
    )
    assert stream.next() is not None
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    deleted.result(timeout=120)
    assert _lost(stream) == [(4, 7, LossCause.AGED, False)]
    stream.restart(failOnDataLoss="false", maxOffsetsPerTrigger="1000")
    table = stream.next()
    assert table is not None
    got = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert got == [(0, 7), (0, 8), (0, 9), (1, 4), (1, 5), (1, 6), (1, 7), (1, 8), (1, 9)]
    [row] = _table(tmp_path)
    assert (row["topic"], row["partition"], row["first_offset"], row["end_offset"]) == (topic, 0, 4, 7)
    assert (row["cause"], row["was_read"]) == ("aged", False)
    assert stream.next() is None


def test_a_micro_batch_planned_again_says_the_same(
    cluster: Server, new_topic: NewTopic, produce: Produce, admin: AdminClient, tmp_path: Path
) -> None:
    """The driver dies after a loss was planned and before it was processed."""
    topic = new_topic()
    produce(topic, _values(10))
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", failOnDataLoss="false")
    stream.restart(lostRangesPath=str(tmp_path))
    start = stream.offset = stream.reader.initialOffset()
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    deleted.result(timeout=120)
    first = stream.next()
    stream.restart()
    end, stream.offset = stream.offset, start
    stream.end = end
    again = stream.again()
    assert first is not None
    assert again.equals(first)
    assert texts(again) == _values(10)[6:]
    assert len(_table(tmp_path)) == 1


def test_records_that_go_while_the_task_reads(
    cluster: Server, new_topic: NewTopic, produce: Produce, admin: AdminClient
) -> None:
    topic = new_topic()
    produce(topic, _values(10))
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest")
    start = stream.offset = stream.reader.initialOffset()
    stream.end = stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    deleted.result(timeout=120)
    with pytest.raises(DataLost, match=r"\[0, 6\) aged"):
        stream.again()
    stream.restart(failOnDataLoss="false")
    assert texts(stream.again()) == _values(10)[6:]


def _await_topic_id(cluster: Server, topic: str, other_than: bytes | None) -> bytes | None:
    """Waits until the topic's id changes, and returns it; None for a deleted topic."""
    view = clusters.ClusterClient(Stream(cluster.bootstrap, topic).parsed.client)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = view.topics([topic], fresh=True).get(topic)
        if (found.topic_id if found is not None else None) != other_than:
            break
        time.sleep(0.05)
    view.close()
    return found.topic_id if found is not None else None


def test_a_topic_made_again_is_not_taken_for_the_old_one(
    cluster: Server, new_topic: NewTopic, produce: Produce, admin: AdminClient, tmp_path: Path
) -> None:
    topic = new_topic()
    produce(topic, _values(5, "old"))
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", lostRangesPath=str(tmp_path))
    assert len(stream.drain()) == 5
    before = _await_topic_id(cluster, topic, None)
    assert before is not None
    admin.delete_topics([topic])[topic].result(timeout=120)
    _await_topic_id(cluster, topic, before)
    new_topic(1, topic)
    _await_topic_id(cluster, topic, None)
    # The new log is longer than the part of the old one that the query has read, so the offsets alone show no loss.
    produce(topic, _values(8, "new"))
    assert _lost(stream) == [(5, None, LossCause.RECREATED, False)]
    stream.restart(failOnDataLoss="false")
    assert stream.drain() == _values(8, "new")
    [row] = _table(tmp_path)
    assert (row["first_offset"], row["end_offset"], row["cause"]) == (5, None, "recreated")
    assert row["topic_id"] == uuid_to_text(before)


def test_a_topic_that_is_gone(
    cluster: Server, new_topic: NewTopic, produce: Produce, admin: AdminClient, tmp_path: Path
) -> None:
    stays, goes = new_topic(1, "spark-gone-stays"), new_topic(1, "spark-gone-goes")
    produce(stays, ["a"])
    produce(goes, ["b"])
    stream = Stream(cluster.bootstrap, None, subscribePattern="spark-gone-.*", startingOffsets="earliest")
    assert sorted(stream.drain()) == ["a", "b"]
    before = _await_topic_id(cluster, goes, None)
    admin.delete_topics([goes])[goes].result(timeout=120)
    _await_topic_id(cluster, goes, before)
    assert _lost(stream) == [(1, None, LossCause.DELETED, False)]
    stream.restart(failOnDataLoss="false")
    produce(stays, ["c"])
    assert stream.drain() == ["c"]


def test_an_unclean_election_is_reported_with_the_rewritten_range(tmp_path: Path) -> None:
    """The query has read 0 to 14; the new leader has 0 to 9 of them and continues at 10 with other records."""
    with Cluster(tmp_path / "cluster", brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        placed = NewAdminTopic("orders", 1, replica_assignment=[[1, 2]], config=config)
        admin.create_topics([placed])["orders"].result(timeout=120)

        def produce(values: list[str]) -> None:
            producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0, "acks": "all"})
            for value in values:
                producer.produce("orders", value)
            assert producer.flush(120) == 0

        produce(_values(10, "kept"))
        lost = tmp_path / "lost"
        stream = Stream(running.bootstrap, "orders", startingOffsets="earliest", lostRangesPath=str(lost))
        assert stream.drain() == _values(10, "kept")
        running.kill(2)
        produce(_values(5, "lost"))
        planned = Stream(running.bootstrap, "orders", startingOffsets="earliest")
        planned.offset = planned.reader.initialOffset()
        planned.end = planned.reader.latestOffset(planned.offset, planned.reader.getDefaultReadLimit())
        assert stream.drain() == _values(5, "lost")
        running.kill(1)
        running.start_broker(2)
        produce(_values(8, "new"))

        with pytest.raises(DataLost, match=r"\[10, 15\) truncated"):
            planned.again()
        planned.restart(failOnDataLoss="false")
        assert texts(planned.again()) == _values(10, "kept")
        assert _lost(stream) == [(10, 15, LossCause.TRUNCATED, True)]
        stream.restart(failOnDataLoss="false")
        assert stream.drain() == _values(8, "new")
        [row] = _table(lost)
        assert (row["first_offset"], row["end_offset"]) == (10, 15)
        assert (row["cause"], row["was_read"]) == ("truncated", True)
        running.start_broker(1)
        produce(["last"])
        assert stream.drain() == ["last"]
