"""The source's readers against a real broker, driven as Spark drives them but without it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as Placed
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.clients.servers import Server
from tests.support.spark_streams import Stream, batch, options, texts

from barnabas.common.errors import ConfigError
from barnabas.spark import sink_options, source_options
from barnabas.spark.batch_reader import BatchReader
from barnabas.spark.errors import ClusterUnreachable
from barnabas.spark.origin import prefix
from barnabas.spark.sink import RecordWriter
from barnabas.testing import Cluster

Produce = Callable[..., None]
NewTopic = Callable[..., str]


def _values(count: int, mark: str = "v") -> list[str]:
    return [f"{mark}{number}" for number in range(count)]


def test_a_batch_holds_every_record_as_it_was_sent(cluster: Server, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(200):
            key = None if number % 7 == 0 else f"{codec}-{number}".encode()
            value = None if number % 11 == 0 else b"x" * (number * 13 % 700)
            headers = [(f"h{each}", None if each == 2 else b"%d" % number) for each in range(number % 4)]
            at = 1_700_000_000_000 + number
            producer.produce(topic, value, key, number % 2, timestamp=at, headers=headers)  # type: ignore[arg-type]
            sent.append((number % 2, key, value, at, headers))
        assert producer.flush(120) == 0
    table = batch(cluster.bootstrap, topic, includeHeaders="true")
    got = [
        (
            row["partition"],
            row["key"],
            row["value"],
            int(row["timestamp"].timestamp() * 1000 + 0.5),
            [(each["key"], each["value"]) for each in row["headers"] or []],
        )
        for row in table.to_pylist()
    ]
    assert sorted(map(repr, got)) == sorted(map(repr, sent))
    assert set(table["topic"].to_pylist()) == {topic}
    for partition in (0, 1):
        chosen = [row["offset"] for row in table.to_pylist() if row["partition"] == partition]
        assert chosen == list(range(500))
    assert set(table["timestampType"].to_pylist()) == {0}


def test_bounds_by_offset_and_time(cluster: Server, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(20):
        producer.produce(topic, f"v{number}", partition=number % 2, timestamp=1_000 + number)
    producer.flush(120)

    def read(**more: str) -> list[str]:
        return sorted(texts(batch(cluster.bootstrap, topic, **more)), key=lambda text: int(text[1:]))

    assert read() == _values(20)
    start, end = f'{{"{topic}": {{"0": 8, "1": -2}}}}', f'{{"{topic}": {{"0": -1, "1": 1}}}}'
    assert read(startingOffsets=start, endingOffsets=end) == ["v1", "v16", "v18"]
    assert read(startingTimestamp="1015", endingTimestamp="1018") == ["v15", "v16", "v17"]
    by_partition = f'{{"{topic}": {{"0": 1018, "1": 1019}}}}'
    assert read(startingOffsetsByTimestamp=by_partition) == ["v18", "v19"]
    assert read(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(ConfigError, match="no record at or after 5000 ms"):
        read(startingTimestamp="5000")
    with pytest.raises(ConfigError, match=f"{topic}-1 is missing"):
        read(startingOffsets=f'{{"{topic}": {{"0": 8}}}}')
    with pytest.raises(ConfigError, match="log ends at 10"):
        read(startingOffsets=f'{{"{topic}": {{"0": 11, "1": 0}}}}')


def test_patterns_and_assignments(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    first, second = new_topic(2, "spark-pattern-a"), new_topic(1, "spark-pattern-b")
    produce(first, ["a0"], 0)
    produce(first, ["a1"], 1)
    produce(second, ["b0"], 0)
    assert sorted(texts(batch(cluster.bootstrap, None, subscribePattern="spark-pattern-."))) == ["a0", "a1", "b0"]
    assert texts(batch(cluster.bootstrap, None, subscribePattern="spark-pattern")) == []
    assigned = batch(cluster.bootstrap, None, assign=f'{{"{first}": [1], "{second}": [0]}}')
    assert sorted(texts(assigned)) == ["a1", "b0"]
    with pytest.raises(ConfigError, match="has partitions 0, 1"):
        batch(cluster.bootstrap, None, assign=f'{{"{first}": [2]}}')


def test_tasks_are_cut_as_asked(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(2)
    produce(topic, _values(100), 0)
    produce(topic, _values(20), 1)

    def sizes(**more: str) -> list[int]:
        reader = BatchReader(source_options.parse(options(cluster.bootstrap, topic, **more), is_stream=False))
        return [each.value.size for each in reader.partitions()]

    assert sizes() == [100, 20]
    assert sizes(minPartitions="6") == [20, 20, 20, 20, 20, 20]
    assert sizes(maxRecordsPerPartition="30") == [25, 25, 25, 25, 20]
    assert sorted(texts(batch(cluster.bootstrap, topic, minPartitions="7"))) == sorted(_values(100) + _values(20))


def test_read_committed_leaves_out_what_was_aborted(cluster: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for name, commit in (("kept", True), ("dropped", False), ("kept-too", True)):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{name}-{number}")
        producer.flush(120)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(120)
    committed = batch(cluster.bootstrap, topic, kafka_isolation_level="read_committed")
    assert texts(committed) == ["kept-0", "kept-1", "kept-2", "kept-too-0", "kept-too-1", "kept-too-2"]
    assert committed["offset"].to_pylist() == [0, 1, 2, 8, 9, 10]
    assert len(batch(cluster.bootstrap, topic)) == 10
    producer.abort_transaction(60)


def test_a_stream_gives_each_record_once_and_resumes(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(3)
    produce(topic, _values(10, "early"))
    stream = Stream(cluster.bootstrap, topic)
    assert stream.next() is None
    produce(topic, _values(10))
    table = stream.next()
    assert table is not None
    assert sorted(texts(table)) == sorted(_values(10))
    assert stream.next() is None
    produce(topic, _values(5, "later"))
    stream.restart()
    assert sorted(stream.drain()) == sorted(_values(5, "later"))


def test_limits_hold_and_no_partition_starves(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(3)
    for partition, count in enumerate((1000, 100, 1)):
        produce(topic, _values(count), partition)
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="110")
    seen: list[Any] = []
    while (table := stream.next()) is not None:
        assert 0 < len(table) <= 111
        assert table["partition"].to_pylist().count(1) or sum(seen) >= 1000
        seen.append(len(table))
    assert sum(seen) == 1101
    began = time.monotonic()
    few = Stream(cluster.bootstrap, topic, minOffsetsPerTrigger="50", maxTriggerDelay="700ms")
    assert few.next() is None
    produce(topic, _values(49), 0)
    while (table := few.next()) is None:
        time.sleep(0.05)
    assert len(table) == 49
    assert time.monotonic() - began > 0.6
    produce(topic, _values(60), 0)
    table = few.next()
    assert table is not None
    assert len(table) == 60


def test_available_now_ends_where_the_log_ended(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(2)
    produce(topic, _values(100))
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    stream.reader.prepareForTriggerAvailableNow()
    produce(topic, _values(100, "too-late"))
    seen: list[str] = []
    while (table := stream.next()) is not None:
        seen += texts(table)
    assert sorted(seen) == sorted(_values(100))


def test_new_partitions_and_topics_are_read_from_their_beginning(
    cluster: Server, new_topic: NewTopic, produce: Produce, admin: AdminClient
) -> None:
    new_topic(1, "spark-grows-a")
    stream = Stream(cluster.bootstrap, None, subscribePattern="spark-grows-.*")
    assert stream.drain() == []
    admin.create_partitions([NewPartitions("spark-grows-a", 2)])["spark-grows-a"].result(timeout=120)
    new_topic(1, "spark-grows-b")
    produce("spark-grows-a", ["a"], 1)
    produce("spark-grows-b", ["b"], 0)
    found: list[str] = []
    deadline = time.monotonic() + 120
    while len(found) < 2 and time.monotonic() < deadline:
        found += stream.drain()
        time.sleep(0.1)
    assert sorted(found) == ["a", "b"]


def test_a_group_sees_how_far_the_query_is(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(2)
    produce(topic, _values(10), 0)
    produce(topic, _values(3), 1)
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", groupId=f"group-{topic}")
    stream.drain()
    watcher = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"group-{topic}", "log_level": 0})
    wanted = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    committed: list[int] = []
    deadline = time.monotonic() + 120
    # The first group of a cluster has its coordinator only after a while.
    while committed != [10, 3] and time.monotonic() < deadline:
        # There are no new records; Spark's request for the range after the micro-batch shows that it is done.
        stream.next()
        with suppress(KafkaException):
            committed = [each.offset for each in watcher.committed(wanted, timeout=60)]
    watcher.close()
    assert committed == [10, 3]


def test_the_latest_offsets_are_reported_for_the_lag(cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic()
    produce(topic, _values(10))
    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    stream.next()
    reported = stream.reader.reportLatestOffset()
    assert reported is not None
    assert reported["topics"][topic]["partitions"]["0"]["offset"] == 10
    assert stream.offset is not None
    assert stream.offset["topics"][topic]["partitions"]["0"]["offset"] == 4


def test_wrong_addresses_and_topics_are_reported_soon(cluster: Server, new_topic: NewTopic) -> None:
    with pytest.raises(ConfigError, match="topic nowhere does not exist"):
        batch(cluster.bootstrap, "nowhere")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ClusterUnreachable, match=f"no broker answers at kafka.bootstrap.servers={nobody}"):
            batch(nobody, "t", kafka_default_api_timeout_ms="500")
        assert time.monotonic() - began < 60


def test_a_checkpoint_of_something_else_is_refused(cluster: Server, new_topic: NewTopic) -> None:
    mine, other = new_topic(), new_topic()
    stream = Stream(cluster.bootstrap, mine)
    stream.next()
    stream.restart(subscribe=other)
    with pytest.raises(ConfigError, match=f"the checkpoint belongs to {mine}, but the query reads {other}"):
        stream.next()
    stream.offset = {mine: {"0": 12}}
    with pytest.raises(ConfigError, match="not written by this source"):
        stream.next()


def test_a_restarted_broker_is_waited_for(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as running:
        producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        producer.produce("t", "before")
        producer.flush(120)
        stream = Stream(running.bootstrap, "t", startingOffsets="earliest")
        assert stream.drain() == ["before"]
        running.kill(1)
        running.start_broker(1)
        producer.produce("t", "after")
        assert producer.flush(120) == 0
        table = stream.next(ReadAllAvailable())
        assert table is not None
        assert texts(table) == ["after"]


def test_what_came_twice_is_dropped_across_micro_batches(cluster: Server, new_topic: NewTopic) -> None:
    """Three rows of a micro-batch arrive, its task dies, all five come again; the reader cuts the log anywhere."""
    topic = new_topic()
    options = sink_options.SinkOptions(
        (("bootstrap.servers", cluster.bootstrap), ("log_level", "0")), topic, True, ("value",)
    )

    def write(count: int) -> None:
        rows = pa.RecordBatch.from_pydict({"value": _values(5)[:count]})
        RecordWriter(options, prefix("query", 7, 0)).write(iter([rows]))

    stream = Stream(cluster.bootstrap, topic, startingOffsets="earliest", dropReplays="true", maxOffsetsPerTrigger="2")
    write(3)
    write(5)
    write(5)
    assert len(batch(cluster.bootstrap, topic)) == 13
    assert texts(batch(cluster.bootstrap, topic, dropReplays="true")) == _values(5)
    seen: list[str] = []
    while (table := stream.next()) is not None:
        seen += texts(table)
    assert seen == _values(5)


def test_a_leader_that_dies_while_a_task_reads(tmp_path: Path) -> None:
    """The task continues with the next leader, after the last record that it has returned."""
    with Cluster(tmp_path / "cluster", brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([Placed("t", 1, replica_assignment=[[2, 3, 1]])])["t"].result(timeout=120)
        config = {"bootstrap.servers": running.bootstrap, "log_level": 0, "acks": "all", "batch.size": 5_000}
        producer = Producer(config)
        for number in range(20_000):
            producer.produce("t", f"v{number}")
        assert producer.flush(120) == 0
        given = options(running.bootstrap, "t", kafka_max_partition_fetch_bytes="20000")
        reader = BatchReader(source_options.parse(given, is_stream=False))
        [partition] = reader.partitions()
        reading = reader.read(partition)
        got = [next(reading)]
        running.kill(2)
        got += reading
        assert texts(pa.Table.from_batches(got)) == _values(20_000)
        assert len(got) > 10
