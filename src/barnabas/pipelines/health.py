"""The health pipeline: derives leaders, in-sync replicas and the durations of troubles from the cluster's journal.

The journal (`__cluster_events`, docs/explain.md) has every change of a partition with the state before and after. In
order, each partition's changes are spans of time in one state; all figures are sums over these spans.

    leader_spans    topic, partition, leader (-1: none), leader_epoch, from_time, to_time, cause
    leader_share    topic, broker, share of the partitions' time that it led, ms
    elections       broker that became leader, kind, cause, count
    troubles        topic, partition, trouble, from_time, to_time (null: ongoing), ms
    recovery        trouble, count, mean, longest and sum of ms, number ongoing
    partitions      topic, partition, and by trouble: total ms and the longest span

Troubles: `unavailable` (no leader), `under_min_isr`, `under_replicated`. In the journal, a leader that crashed leads
until the controller has noticed; the producer's own pause is longer by the time that this takes.

A bulk event, of a large decision, is unpacked to the events of its
partitions. An event can be in the journal twice; the first of each id counts. One that is not JSON is ignored.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from barnabas.common.bulk_events import BULK_KIND, unpacked
from barnabas.pipelines.query import HEALTH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_TOPIC = "__cluster_events"


def _single_events(value: bytes | None) -> list[str]:
    """Returns the event of a record as JSON; a bulk event as the events of its partitions. A record that cannot be read
    has none.
    """
    try:
        event = json.loads(value or b"")
        if isinstance(event, dict) and event.get("kind") == BULK_KIND:
            return [json.dumps(each) for each in unpacked(event)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
    return [(value or b"").decode()]


_STATE = "struct<leader: int, leader_epoch: int, isr: array<int>, replicas: array<int>>"
_EVENT = (
    "id string, time_ms bigint, kind string, changes array<string>, metadata_offset bigint, cause string, "
    "topic string, topic_id string, partition int, min_isr int, "
    f"before {_STATE}, after {_STATE}, "
    "first_partition int, replicas array<array<int>>, leaders array<int>, isrs array<array<int>>"
)
#: The state of each partition after each of its changes, in order.
_STATES_SQL = """
WITH created AS (
  SELECT time_ms, metadata_offset, kind, cause, topic, topic_id, first_partition + place.pos AS partition,
    leaders[place.pos] AS leader, 0 AS leader_epoch, size(isrs[place.pos]) AS isr,
    size(replicas[place.pos]) AS replicas, CAST(NULL AS INT) AS min_isr
  FROM {events} LATERAL VIEW posexplode(leaders) place AS pos, leader_there
  WHERE kind IN ('topic-created', 'partitions-added')
), changed AS (
  SELECT time_ms, metadata_offset, kind, cause, topic, topic_id, partition,
    after.leader, after.leader_epoch, size(after.isr) AS isr, size(after.replicas) AS replicas, min_isr
  FROM {events} WHERE partition IS NOT NULL AND after.leader IS NOT NULL
), ends AS (
  SELECT topic_id, min(time_ms) AS deleted_ms FROM {events} WHERE kind = 'topic-deleted' GROUP BY topic_id
), states AS (
  SELECT * FROM created UNION ALL SELECT * FROM changed
)
SELECT s.*, coalesce(
    lead(s.time_ms) OVER (PARTITION BY s.topic_id, s.partition ORDER BY s.metadata_offset),
    ends.deleted_ms
  ) AS next_ms,
  coalesce(s.min_isr, first_value(s.min_isr, true) OVER (
    PARTITION BY s.topic_id, s.partition ORDER BY s.metadata_offset ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
  ), 1) AS min_isr_there
FROM states s LEFT JOIN ends USING (topic_id)
"""
_LEADER_SPANS_SQL = """
SELECT topic, partition, leader, max(leader_epoch) AS leader_epoch, timestamp_millis(min(time_ms)) AS from_time,
  timestamp_millis(CASE WHEN count(next_ms) = count(*) THEN max(next_ms) END) AS to_time,
  max(coalesce(next_ms, {until_ms})) - min(time_ms) AS ms, min_by(cause, time_ms) AS cause
FROM (
  SELECT *, sum(CASE WHEN leader = before_leader THEN 0 ELSE 1 END)
    OVER (PARTITION BY topic_id, partition ORDER BY metadata_offset) AS span
  FROM (SELECT *, lag(leader) OVER (PARTITION BY topic_id, partition ORDER BY metadata_offset) AS before_leader
        FROM {states})
) GROUP BY topic, topic_id, partition, leader, span ORDER BY topic, partition, from_time
"""
_LEADER_SHARE_SQL = """
SELECT topic, leader AS broker, sum(ms) AS ms, sum(ms) / sum(sum(ms)) OVER (PARTITION BY topic) AS share
FROM {leader_spans} GROUP BY topic, leader ORDER BY topic, broker
"""
_ELECTIONS_SQL = """
SELECT after.leader AS broker, kind, coalesce(cause, 'unknown') AS cause, count(*) AS count
FROM {events} WHERE partition IS NOT NULL AND after.leader >= 0 AND before.leader <> after.leader
GROUP BY ALL ORDER BY count DESC, broker, kind, cause
"""
_TROUBLES_SQL = """
WITH flags AS (
  SELECT *, explode(map('unavailable', leader < 0, 'under_min_isr', isr < min_isr_there,
                        'under_replicated', isr < replicas)) AS (trouble, there) FROM {states}
), marked AS (
  SELECT *, sum(CASE WHEN there = there_before THEN 0 ELSE 1 END)
    OVER (PARTITION BY topic_id, partition, trouble ORDER BY metadata_offset) AS span
  FROM (SELECT *, lag(there) OVER (PARTITION BY topic_id, partition, trouble ORDER BY metadata_offset) AS there_before
        FROM flags)
)
SELECT topic, partition, trouble, timestamp_millis(min(time_ms)) AS from_time,
  timestamp_millis(CASE WHEN count(next_ms) = count(*) THEN max(next_ms) END) AS to_time,
  max(coalesce(next_ms, {until_ms})) - min(time_ms) AS ms
FROM marked WHERE there GROUP BY topic, topic_id, partition, trouble, span ORDER BY from_time, topic, partition, trouble
"""
_RECOVERY_SQL = """
SELECT trouble, count(to_time) AS recovered, avg(CASE WHEN to_time IS NOT NULL THEN ms END) AS mean_ms,
  max(ms) AS longest_ms, sum(ms) AS sum_ms, count(*) - count(to_time) AS lasting
FROM {troubles} GROUP BY trouble ORDER BY trouble
"""
_PARTITIONS_SQL = """
SELECT p.topic, p.partition,
  coalesce(sum(ms) FILTER (WHERE trouble = 'unavailable'), 0) AS unavailable_ms,
  coalesce(max(ms) FILTER (WHERE trouble = 'unavailable'), 0) AS longest_unavailable_ms,
  coalesce(sum(ms) FILTER (WHERE trouble = 'under_min_isr'), 0) AS under_min_isr_ms,
  coalesce(sum(ms) FILTER (WHERE trouble = 'under_replicated'), 0) AS under_replicated_ms
FROM (SELECT DISTINCT topic, partition FROM {states}) p LEFT JOIN {troubles} t
  ON p.topic = t.topic AND p.partition = t.partition
GROUP BY p.topic, p.partition ORDER BY p.topic, p.partition
"""


def health_tables(records: DataFrame, until_ms: int) -> dict[str, DataFrame]:
    """Returns the tables of the journal's records (`value`, `offset`). Spans that have not ended count until
    `until_ms`.
    """
    spark = records.sparkSession
    texts = records.select("offset", F.explode(F.udf(_single_events, "array<string>")("value")).alias("text"))
    parsed = texts.select("offset", F.from_json("text", _EVENT).alias("event"))
    first = parsed.where("event.id IS NOT NULL").groupBy("event.id").agg(F.min_by("event", "offset").alias("event"))
    events = first.select("event.*").cache()
    states = spark.sql(_STATES_SQL, events=events).cache()
    leader_spans = spark.sql(_LEADER_SPANS_SQL, states=states, until_ms=until_ms)
    troubles = spark.sql(_TROUBLES_SQL, states=states, until_ms=until_ms)
    return {
        "leader_spans": leader_spans,
        "leader_share": spark.sql(_LEADER_SHARE_SQL, leader_spans=leader_spans),
        "elections": spark.sql(_ELECTIONS_SQL, events=events),
        "troubles": troubles,
        "recovery": spark.sql(_RECOVERY_SQL, troubles=troubles),
        "partitions": spark.sql(_PARTITIONS_SQL, states=states, troubles=troubles),
    }


def run_health(spark: SparkSession, options: Mapping[str, str], tables: Path, until_ms: int) -> dict[str, pa.Table]:
    """Reads the whole journal and replaces its tables, each atomically; returns them too."""
    source = spark.read.format("barnabas").options(**{"subscribe": EVENTS_TOPIC, **options}).load()
    made = {name: table.toArrow() for name, table in health_tables(source, until_ms).items()}
    directory = tables / HEALTH
    directory.mkdir(parents=True, exist_ok=True)
    for name, rows in made.items():
        draft = directory / f".{name}-{uuid.uuid4().hex}"
        pq.write_table(rows, draft, compression="zstd")
        os.replace(draft, directory / f"{name}.parquet")
    return made
