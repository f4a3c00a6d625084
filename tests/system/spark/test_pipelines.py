"""The pipelines inside Spark: native verdicts equal those of Python, and the streams fill the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from tests.support.order_batches import Record, judged_rows, order, pipeline, record

from barnabas.orders.event import problem
from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.failures import pipeline_error
from barnabas.pipelines.health import health_tables
from barnabas.pipelines.orders import Batches, OrdersPipeline, release
from barnabas.pipelines.query import table_counts
from barnabas.pipelines.rules import BROKEN, classified
from barnabas.testing import Cluster
from barnabas.testing.packed_events import packed

NOON = "2017-01-01T12:00:00Z"
GOOD = order(1, NOON, [(1, 2, 1.5), (2, 0, 0.0)])
#: Orders that Python can read exactly and Spark cannot; they go into quarantine as `unreadable`.
UNREADABLE = [
    order(2, NOON).replace(b'"amount": 1.5', b'"amount": 1.501'),
    order(4, NOON, [(1, 1, 1e13)]),
]
VALUES = [
    GOOD,
    order(5, NOON, unknown={"a": [1, {"b": 2}]}),
    order(6, NOON, note="\\u00e9\\ud83d\\ude00 [{"),
    order(7, "2016-12-31T23:59:59Z"),
    order(2**63 - 1, NOON, [(-5, 2**62, 12345678.91)]),
    b" \n" + GOOD + b"\n ",
    GOOD.replace(b'"total": 1.5', b'"total": 15e-1'),
    GOOD.replace(b'"quantity": 2', b'"quantity": 2, "quantity": 3'),
    GOOD.replace(b'"amount": 0.0', b'"amount": 1.776357e-15'),
    GOOD.replace(b'"amount": 0.0', b'"amount": -1.776357e-15'),
    None,
    b"",
    b"  ",
    b"null",
    b"7",
    b'"text"',
    b"[]",
    b"[" + GOOD + b"]",
    b"{}",
    GOOD[:40],
    GOOD[:-1],
    GOOD + b"}",
    GOOD + b" trailing",
    GOOD + GOOD,
    GOOD + b"," + GOOD,
    GOOD.replace(b'"', b"'"),
    b"\xff\xfe" + GOOD,
    GOOD.replace(b"2017", b"20\xff7"),
    GOOD.replace(b'"order_id": 1', b'"order_id": "1"'),
    GOOD.replace(b'"order_id": 1', b'"order_id": 1.5'),
    GOOD.replace(b'"order_id": 1', b'"order_id": true'),
    GOOD.replace(b'"order_id": 1', b'"order_id": null'),
    GOOD.replace(b'"order_id": 1', b'"order_id": 9223372036854775808'),
    GOOD.replace(b'"order_id": 1', b'"order_id": 01'),
    GOOD.replace(b'"order_id"', b'"ORDER_ID"'),
    GOOD.replace(b'"total": 1.5', b'"total": NaN'),
    GOOD.replace(b'"total": 1.5', b'"total": "1.5"'),
    GOOD.replace(b'"total": 1.5', b'"total": 1.51'),
    GOOD.replace(b'"amount": 1.5', b'"amount": -1.5'),
    GOOD.replace(b'"amount": 1.5', b'"amount": "1.5"'),
    GOOD.replace(b'"amount": 1.5', b'"amount": null'),
    GOOD.replace(b'"quantity": 2', b'"quantity": -2'),
    GOOD.replace(b'"quantity": 2', b'"quantity": 2.0'),
    GOOD.replace(b'"quantity": 2, ', b""),
    GOOD.replace(NOON.encode(), b"2017-01-01"),
    GOOD.replace(NOON.encode(), b"2017-1-1T12:00:00Z"),
    GOOD.replace(NOON.encode(), b"2017-13-01T12:00:00Z"),
    GOOD.replace(NOON.encode(), b"2017-02-30T12:00:00Z"),
    GOOD.replace(NOON.encode(), b"2017-01-01T12:00:00+01:00"),
    GOOD.replace(b'"' + NOON.encode() + b'"', b"1483272000"),
    order(8, NOON, lines=[]),
    order(8, NOON, lines={}),
    order(8, NOON, lines=[None]),
    order(8, NOON, lines=[7]),
    order(8, NOON, lines=None),
]


def _frame(spark: Any, records: list[Record]) -> Any:
    rows = [(b"k", each.value, "orders", each.partition, each.offset, each.timestamp_ms) for each in records]
    frame = spark.createDataFrame(
        rows, "key binary, value binary, topic string, partition int, offset bigint, ms bigint"
    )
    return frame.selectExpr("key", "value", "topic", "partition", "offset", "timestamp_millis(ms) AS timestamp")


def test_spark_and_python_judge_alike(spark: Any) -> None:
    """`classified` and `event.problem`, and the columns of what is good."""
    records = [record(0, offset, value, NOON) for offset, value in enumerate(VALUES)]
    found = classified(_frame(spark, records), 2, None).toArrow().sort_by("offset")
    wanted = judged_rows(records)
    faults = dict(zip(VALUES, found["fault"].to_pylist(), strict=True))
    assert faults == dict(zip(VALUES, wanted["fault"].to_pylist(), strict=True))
    good = pa.compute.is_null(found["fault"])
    for name in ("order_id", "customer_id", "store_id", "event_us", "day", "total", "lines"):
        assert found.filter(good)[name].to_pylist() == wanted.filter(good)[name].to_pylist(), name


def test_what_spark_would_round_is_not_taken(spark: Any) -> None:
    assert [problem(value) for value in UNREADABLE] == [None] * len(UNREADABLE)
    records = [record(0, offset, value, NOON) for offset, value in enumerate(UNREADABLE)]
    rows = classified(_frame(spark, records), 2, None).collect()
    assert [row.fault for row in rows] == [BROKEN] * len(UNREADABLE)


def _send(cluster: Cluster, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2, timestamp=1_483_272_000_000)
    assert producer.flush(120) == 0


def _run(spark: Any, cluster: Cluster, made: OrdersPipeline, **options: str) -> None:
    query = made.start(spark, {"kafka.bootstrap.servers": cluster.bootstrap, **options})
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
        release(query)


@pytest.mark.parametrize("sink", ["parquet", pytest.param("delta", marks=pytest.mark.full)])
def test_orders_from_a_topic_into_tables(
    spark: Any, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, sink: str
) -> None:
    """The pipeline starts twice: the second run continues where the first ended, and knows its orders."""
    made = OrdersPipeline(
        new_topic(partitions=2, retention_ms="-1"), tmp_path / "tables", tmp_path / "checkpoint", sink
    )
    first = [order(number, f"2017-01-01T{number % 24:02}:00:00Z") for number in range(40)]
    _send(cluster, made.topic, [*first, *first[:3], b"{"])
    _run(spark, cluster, made)
    _send(cluster, made.topic, [*first[-2:], *(order(number, NOON) for number in range(100, 110)), None])
    _run(spark, cluster, made)
    last = CommitLog(made.tables).last()
    assert last is not None
    assert last.total.balanced
    assert (last.total.read, last.total.orders, last.total.duplicates) == (57, 50, 5)
    assert {partition: each.next_offset for partition, each in last.progress.items()} == {0: 29, 1: 28}
    counts = table_counts(made.tables)
    assert set(counts.order_rows) == {*range(40), *range(100, 110)}
    assert set(counts.order_rows.values()) == {1}
    assert counts.quarantined == {"not_json": 1, "no_value": 1}


def test_why_a_stream_ended_is_one_line(
    spark: Any, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    made = OrdersPipeline(new_topic(retention_ms="-1"), tmp_path / "tables", tmp_path / "checkpoint")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(made.topic, order(1, NOON))
    assert producer.flush(120) == 0
    made.tables.mkdir()
    (made.tables / "orders").write_text("in the way")
    query = made.start(spark, {"kafka.bootstrap.servers": cluster.bootstrap})
    with pytest.raises(PySparkException) as ended:
        assert not query.awaitTermination(240)
    release(query)
    failure = pipeline_error(ended.value, made.tables)
    assert "\n" not in failure.message
    assert "Not a directory" in failure.message or "File exists" in failure.message
    assert str(made.tables / "orders") in failure.message


def test_batches_travel_to_another_process() -> None:
    """Spark Connect pickles the batches."""
    import pickle

    made = Batches(pipeline(Path("/somewhere")))
    assert pickle.loads(pickle.dumps(made)) == made


def _event(offset: int, **fields: Any) -> tuple[int, bytes]:
    return offset, json.dumps({"v": 1, "metadata_offset": offset * 10, **fields}).encode()


def _change(offset: int, ms: int, kind: str, cause: str, before: Any, after: Any, partition: int = 0) -> Any:
    def state(leader: int, epoch: int, isr: list[int]) -> dict[str, Any]:
        return {"leader": leader, "leader_epoch": epoch, "isr": isr, "replicas": [1, 2, 3], "partition_epoch": offset}

    return _event(
        offset,
        id=f"{offset * 10}:orders-{partition}",
        time_ms=ms,
        kind=kind,
        changes=[kind],
        cause=cause,
        text=f"because of {cause}",
        topic="orders",
        topic_id="A",
        partition=partition,
        min_isr=2,
        before=state(*before),
        after=state(*after),
    )


@pytest.mark.full
def test_health_of_a_journal(spark: Any) -> None:
    both = [1, 2, 3]
    events = [
        _event(
            1,
            id="10:orders",
            time_ms=1000,
            kind="topic-created",
            topic="orders",
            topic_id="A",
            first_partition=0,
            partitions=2,
            replicas=[both, both],
            leaders=[1, 2],
            isrs=[both, both],
        ),
        _change(2, 3000, "leader-change", "broker-gone", (1, 0, both), (2, 1, [2, 3])),
        _change(2, 3000, "leader-change", "broker-gone", (1, 0, both), (2, 1, [2, 3])),
        _change(3, 4000, "isr-shrink", "follower-lagged", (2, 1, [2, 3]), (2, 1, [2])),
        _change(4, 6000, "leader-change", "broker-gone", (2, 1, [2]), (-1, 2, [2])),
        (5, b"not JSON"),
        (5, b'{"v": 1, "kind": "partitions-changed", "topics": [["orders", "A", 2, 1]]}'),
        _change(6, 9000, "leader-change", "broker-unfenced", (-1, 2, [2]), (2, 3, [2])),
        _change(7, 11000, "isr-expand", "caught-up", (2, 3, [2]), (2, 3, both)),
        _change(8, 11000, "isr-shrink", "follower-lagged", (2, 0, both), (2, 0, [2, 3]), 1),
    ]
    # A large decision arrives in bulk, and means the same.
    single = json.loads(events.pop(1)[1])
    for state, epoch in ((single["before"], 4), (single["after"], 5)):
        state["partition_epoch"] = epoch
    (in_bulk,) = packed([single])
    events.append((2, json.dumps(in_bulk).encode()))
    frame = spark.createDataFrame([(o, v) for o, v in events], "offset bigint, value binary")
    tables = {name: table.toArrow().to_pylist() for name, table in health_tables(frame, 21000).items()}
    shares = {row["broker"]: (row["ms"], round(row["share"], 3)) for row in tables["leader_share"]}
    assert shares == {-1: (3000, 0.075), 1: (2000, 0.05), 2: (35000, 0.875)}
    elections = {(row["broker"], row["cause"]): row["count"] for row in tables["elections"]}
    assert elections == {(2, "broker-gone"): 1, (2, "broker-unfenced"): 1}
    recovery = {row["trouble"]: row for row in tables["recovery"]}
    columns = ("recovered", "mean_ms", "longest_ms", "lasting")
    assert {name: tuple(row[column] for column in columns) for name, row in recovery.items()} == {
        "unavailable": (1, 3000.0, 3000, 0),
        "under_min_isr": (1, 7000.0, 7000, 0),
        "under_replicated": (1, 8000.0, 10000, 1),
    }
    lengths = ("longest_unavailable_ms", "under_min_isr_ms", "under_replicated_ms")
    found = [tuple(row[column] for column in lengths) for row in tables["partitions"]]
    assert found == [(3000, 7000, 8000), (0, 0, 10000)]
    spans = [(row["partition"], row["leader"], row["ms"], row["cause"]) for row in tables["leader_spans"]]
    assert spans == [
        (0, 1, 2000, None),
        (0, 2, 3000, "broker-gone"),
        (0, -1, 3000, "broker-gone"),
        (0, 2, 12000, "broker-unfenced"),
        (1, 2, 20000, None),
    ]
