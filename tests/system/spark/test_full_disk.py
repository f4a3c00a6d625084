"""A full disk under tables and checkpoint, with Spark: the stream ends with advice, and the next start continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.order_batches import order
from tests.support.small_disk import MEGABYTE, PAGE, mounted

from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.failures import causes, pipeline_error
from barnabas.pipelines.orders import OrdersPipeline, release
from barnabas.pipelines.query import table_counts
from barnabas.testing import Cluster

pytestmark = pytest.mark.full

ORDERS = 60


def _run(spark: Any, cluster: Cluster, made: OrdersPipeline) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "maxOffsetsPerTrigger": "40"}
    query = made.start(spark, options)
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
        release(query)


@pytest.mark.full
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_after_room_is_made_the_same_start_goes_on(
    spark: Any, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path, sink: str
) -> None:
    topic = new_topic(partitions=2, retention_ms="-1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(ORDERS):
        for _ in range(1 + (number % 10 == 0)):
            producer.produce(
                topic,
                order(number, f"2017-01-0{number % 3 + 1}T12:00:00Z"),
                partition=number % 2,
                timestamp=1_483_444_800_000,
            )
    assert producer.flush(60) == 0
    with mounted("ext4", tmp_path, 4 * MEGABYTE) as disk:
        made = OrdersPipeline(topic, disk.root / "tables", disk.root / "checkpoint", sink)
        for pages in (2, 12):
            disk.leave(pages * PAGE)
            with pytest.raises(causes()) as ended:
                _run(spark, cluster, made)
            failure = pipeline_error(ended.value, made.tables)
            assert "the disk is full under" in failure.message, ended.value
            assert "it continues where it stopped" in (failure.hint or "")
        disk.leave(None)
        _run(spark, cluster, made)
        last = CommitLog(made.tables).last()
        assert last is not None
        assert last.total.balanced
        assert (last.total.read, last.total.orders, last.total.duplicates) == (ORDERS + 6, ORDERS, 6)
        counts = table_counts(made.tables)
        assert set(counts.order_rows) == set(range(ORDERS))
        assert set(counts.order_rows.values()) == {1}
