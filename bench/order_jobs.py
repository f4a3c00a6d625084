"""A run of the orders pipeline, in a separate process: `order_jobs.py OPTIONS`; options and result are JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from barnabas.pipelines import failures
from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.orders import OrdersPipeline, release
from barnabas.pipelines.session import spark_session


def measure(options: dict[str, Any]) -> dict[str, float]:
    """Processes the whole log in micro-batches of `batch` records. The first one starts Python workers and warms Java
    up.
    """
    tables = Path(options["tables"])
    pipeline = OrdersPipeline(options["topic"], tables, tables / "_checkpoint")
    source = {"kafka.bootstrap.servers": options["bootstrap"], "maxOffsetsPerTrigger": str(options["batch"])}
    with spark_session(log_file=tables.with_suffix(".log")) as spark:
        query = _finished(pipeline, spark, source)
        batches = [each for each in query.recentProgress if each["numInputRows"]]
    last = CommitLog(tables).last()
    orders = 0 if last is None else last.total.orders
    if orders != options["orders"]:
        raise SystemExit(f"orders: {orders} of {options['orders']} are in the tables")
    first, *others = batches
    taken_ms = sum(each["durationMs"]["triggerExecution"] for each in others)
    # Spark counts rows again when a job reads them again.
    share = 1 - first["numInputRows"] / sum(each["numInputRows"] for each in batches)
    return {
        "orders_pipeline": orders * share * 1000 / taken_ms,
        "orders_pipeline_first_s": first["durationMs"]["triggerExecution"] / 1000,
    }


def _finished(pipeline: OrdersPipeline, spark: Any, source: dict[str, str]) -> Any:
    """Returns the query at its end. It is started up to three times, as the command does, because on a busy machine its
    Python process can start too late.
    """
    for is_last in (False, False, True):
        query = pipeline.start(spark, source)
        try:
            query.awaitTermination()
            return query
        except failures.causes() as error:
            if is_last or not failures.is_slow_start(error):
                raise
        finally:
            release(query)
    raise AssertionError


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
