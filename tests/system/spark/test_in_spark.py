"""The source and the sink inside Spark: found by name, with the schema that Spark expects, and with streams that
continue after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema
from tests.clients.servers import Server

from barnabas.spark import schema

# `make test` runs Spark by way of the pipelines.
pytestmark = pytest.mark.full

Produce = Callable[..., None]
NewTopic = Callable[..., str]
KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key:string,value:binary>>"


def _values(count: int, mark: str = "v") -> list[str]:
    return [f"{mark}{number}" for number in range(count)]


def _read(spark: Any, cluster: Server, topic: str, **more: str) -> Any:
    named = {key.replace("_", "."): value for key, value in more.items()}
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic} | named
    return spark.read.format("barnabas").options(**given).load()


def _finished(start: Callable[[], Any]) -> Any:
    """Returns a query that ran to its end. Spark gives the Python process of a stream 10 s to start and has no setting
    for that; an overloaded machine can need longer, and then the query is started again.
    """
    while True:
        query = start()
        try:
            query.awaitTermination()
            return query
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error):
                raise


def _texts(frame: Any) -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


def test_arrow_types_are_those_that_spark_compares_with(spark: Any) -> None:
    columns = schema.ALL_COLUMNS
    assert to_arrow_schema(schema.spark_schema(columns), timezone="UTC") == schema.arrow_schema(columns)
    expected = types.StructType.fromDDL(f"{KAFKA_COLUMNS}, {HEADERS}")
    assert schema.spark_schema(columns) == expected


def test_batches(spark: Any, cluster: Server, new_topic: NewTopic, produce: Produce) -> None:
    topic = new_topic(2)
    produce(topic, _values(300), 0, compression_type="zstd")
    produce(topic, [None, "last"], 1)
    frame = _read(spark, cluster, topic, includeHeaders="true")
    assert [field.name for field in frame.schema] == [*schema.ALL_COLUMNS]
    rows = frame.collect()
    assert len(rows) == 302
    assert sorted((row.partition, row.offset) for row in rows) == [*((0, at) for at in range(300)), (1, 0), (1, 1)]
    assert {row.topic for row in rows} == {topic}
    assert {row.headers for row in rows} == {None}
    narrow = _read(spark, cluster, topic, columns="offset,value")
    assert narrow.columns == ["offset", "value"]
    assert narrow.where("value is not null").count() == 301


@pytest.mark.parametrize(
    "given, said",
    [
        ({"subscribe": "nowhere"}, "topic nowhere does not exist"),
        ({"startingoffset": "earliest"}, "option startingoffset is not known; did you mean startingOffsets"),
        ({"kafka.max.partition.fetch.byte": "1"}, "did you mean kafka.max.partition.fetch.bytes"),
        ({"columns": "value,size"}, "size is not one of key, value"),
    ],
)
def test_wrong_options_are_reported_when_the_query_is_planned(
    spark: Any, cluster: Server, given: dict[str, str], said: str
) -> None:
    base = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
    with pytest.raises(PySparkException, match=said):
        spark.read.format("barnabas").options(**(base | given)).load().count()


def test_a_data_frame_keeps_the_offsets_of_its_first_action(
    spark: Any, cluster: Server, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, _values(3), 0)
    frame = _read(spark, cluster, topic)
    produce(topic, _values(2), 0)
    assert frame.count() == 5
    produce(topic, _values(4), 0)
    assert frame.count() == 5
    assert frame.where("offset >= 0").count() == 5
    assert _read(spark, cluster, topic).count() == 9


def test_a_stream_stops_and_goes_on(
    spark: Any, cluster: Server, new_topic: NewTopic, produce: Produce, tmp_path: Path, checkpoint: str
) -> None:
    topic = new_topic(3)
    produce(topic, _values(100))
    table = str(tmp_path / "table")

    def run(**more: str) -> Any:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"} | more
        stream = spark.readStream.format("barnabas").options(**given).load()
        written = stream.writeStream.format("parquet").option("path", table)
        return _finished(written.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)

    query = run(maxOffsetsPerTrigger="60")
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert len(counts) == 2
    assert 55 < counts[0] <= 60
    assert sum(counts) == 100
    source = query.lastProgress["sources"][0]
    assert "epoch" in str(source["endOffset"])
    assert source["latestOffset"] is not None
    produce(topic, _values(30, "more"))
    run()
    assert _texts(spark.read.parquet(table)) == sorted(_values(100) + _values(30, "more"))


def test_a_lost_range_stops_the_query(
    spark: Any, cluster: Server, new_topic: NewTopic, produce: Produce, admin: Any, checkpoint: str
) -> None:
    topic = new_topic()
    produce(topic, _values(10))
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def start() -> Any:
        stream = spark.readStream.format("barnabas").options(**given).load()
        sink = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        return sink.trigger(availableNow=True).start()

    _finished(start)
    produce(topic, _values(10))
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 15)]).values()
    deleted.result(timeout=120)
    with pytest.raises(PySparkException, match=r"records are lost: .*-0 \[10, 15\) aged"):
        _finished(start)


def test_what_the_sink_writes_is_read_again(
    spark: Any, cluster: Server, new_topic: NewTopic, produce: Produce, checkpoint: str
) -> None:
    source, target = new_topic(2), new_topic(3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(50):
        producer.produce(source, f"v{number}", f"k{number}", headers=[("h", b"%d" % number)])
    producer.flush(120)
    frame = _read(spark, cluster, source, includeHeaders="true").drop("topic", "partition")
    where = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": target}
    frame.write.format("barnabas").options(**where).mode("append").save()
    rows = _read(spark, cluster, target, includeHeaders="true").collect()
    assert sorted((row.key, row.value) for row in rows) == sorted(
        (b"k%d" % number, b"v%d" % number) for number in range(50)
    )
    for row in rows:
        own, origin = row.headers
        assert (own.key, own.value) == ("h", row.value[1:])
        assert origin.key == "barnabas.origin"
        assert origin.value.count(b"/") == 4
    # The same keys by a client with Kafka's partitioner lie in the same partitions.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    for number in range(50):
        producer.produce(target, "again", f"k{number}")
    producer.flush(120)
    again = _read(spark, cluster, target).collect()
    by_key: dict[bytes, set[int]] = {}
    for row in again:
        by_key.setdefault(row.key, set()).add(row.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())

    stream = spark.readStream.format("barnabas").options(
        **{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    )
    only = new_topic(1)
    frames = stream.load().selectExpr(
        "cast(null as binary) as key", "cast(value as string) as value", f"'{only}' as topic"
    )
    written = frames.writeStream.format("barnabas").option("kafka.bootstrap.servers", cluster.bootstrap)
    query = _finished(written.option("checkpointLocation", checkpoint).trigger(availableNow=True).start)
    rows = _read(spark, cluster, only, includeHeaders="true").collect()
    assert sorted(row.value.decode() for row in rows) == sorted(_values(50))
    assert {row.headers[0].value.decode().split("/")[0] for row in rows} == {str(query.id)}
    with pytest.raises(PySparkException, match="topic nowhere does not exist"):
        frame.write.format("barnabas").options(**(where | {"topic": "nowhere"})).mode("append").save()
    with pytest.raises(PySparkException, match="the rows have no column value"):
        frame.select("key").write.format("barnabas").options(**where).mode("append").save()
