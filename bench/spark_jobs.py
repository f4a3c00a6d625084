"""The Spark rows' work, in a process of its own: `python spark_jobs.py OPTIONS`, options and result as JSON.

One session, local[2]. A job is run once to warm up JVM and workers and then measured `rounds` times; our source and the
one on confluent-kafka take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.spark.workers import worker_python

_HERE = Path(__file__).resolve().parent
_PARTITIONS = 4
_LATENCY_WARM_UP = 5

Found = dict[str, dict[str, list[float]]]


class Jobs:
    """`found`: metric -> side -> values."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.bootstrap: str = options["bootstrap"]
        self.directory = Path(options["directory"])
        self.found: Found = {}
        self.spark = _session(self.directory)
        self._number = 0

    def fill(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        names = ("small", "large", "latency", "target")
        topics = [NewTopic(name, 1 if name == "latency" else _PARTITIONS, 1) for name in names]
        for made in admin.create_topics(topics).values():
            made.result(60)
        for topic, size, count in (("small", 100, self.options["small"]), ("large", 1000, self.options["large"])):
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "linger.ms": 50,
                    "batch.size": 262_144,
                    "queue.buffering.max.messages": 500_000,
                }
            )
            value = os.urandom(size)
            for number in range(count):
                while True:
                    try:
                        producer.produce(topic, value, b"%08d" % number, number * _PARTITIONS // count)
                        break
                    except BufferError:
                        producer.poll(0.1)
                if number % 1000 == 0:
                    producer.poll(0)
            if producer.flush(120):
                raise SystemExit("spark: the topics could not be filled")

    def batch(self, side: str, topic: str) -> Any:
        if side == "confluent":
            given = {"bootstrap": self.bootstrap, "topic": topic}
            return self.spark.read.format("confluent_consume").options(**given).load()
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return self.spark.read.format("barnabas").options(**given).load()

    def in_turns(self, metric: str, job: Callable[[str], float]) -> None:
        for side in ("barnabas", "confluent"):
            job(side)
        for _ in range(self.options["rounds"]):
            for side in ("barnabas", "confluent"):
                self.found.setdefault(metric, {}).setdefault(side, []).append(job(side))

    def count(self, topic: str, count: int, unit: float) -> Callable[[str], float]:
        """A job: all columns of all records into the JVM, in units per second."""

        def job(side: str) -> float:
            frame = self.batch(side, topic)
            begun = time.monotonic()
            got = frame.count()
            taken = time.monotonic() - begun
            if got != count:
                raise SystemExit(f"spark: {side} read {got} of {count} records of {topic}")
            return count * unit / taken

        return job

    def backlog(self, side: str) -> float:
        """Records per second of the micro-batch that drains the topic into Parquet."""
        self._number += 1
        place = self.directory / f"backlog-{self._number}"
        if side == "confluent":
            stream = self.spark.readStream.format("confluent_consume").option("bootstrap", self.bootstrap)
            stream = stream.option("topic", "small")
        else:
            stream = self.spark.readStream.format("barnabas").option("kafka.bootstrap.servers", self.bootstrap)
            stream = stream.option("subscribe", "small").option("startingOffsets", "earliest")
        written = stream.load().writeStream.format("parquet").option("path", str(place / "table"))
        query = written.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        taken_ms = sum(progress["durationMs"].get("addBatch", 0) for progress in query.recentProgress)
        if rows != self.options["small"]:
            raise SystemExit(f"spark: {side} put {rows} of {self.options['small']} records into the table")
        return float(rows * 1000 / taken_ms)

    def latency(self) -> None:
        """From produce() to the commit of the micro-batch that holds the record, one record after the other."""
        place = self.directory / "latency"
        stream = self.spark.readStream.format("barnabas").option("kafka.bootstrap.servers", self.bootstrap)
        written = stream.option("subscribe", "latency").load().writeStream.format("parquet")
        written = written.option("path", str(place / "table")).option("checkpointLocation", str(place / "checkpoint"))
        query = written.trigger(processingTime="0 seconds").start()
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        waited = []
        try:
            for number in range(_LATENCY_WARM_UP + self.options["latencies"]):
                begun = time.monotonic()
                producer.produce("latency", b"x" * 100)
                producer.flush(30)
                while _committed(place / "checkpoint") <= number:
                    if not query.isActive or time.monotonic() - begun > 120:
                        raise SystemExit(f"spark: the stream does not go on: {query.exception()}")
                    time.sleep(0.002)
                waited.append((time.monotonic() - begun) * 1000)
                time.sleep(0.05 + number % 7 * 0.01)
        finally:
            query.stop()
        waited = sorted(waited[_LATENCY_WARM_UP:])
        self.found["spark_latency_p50"] = {"barnabas": [statistics.median(waited)]}
        self.found["spark_latency_p90"] = {"barnabas": [waited[len(waited) * 9 // 10]]}

    def sink(self) -> None:
        for measured in (False, True):
            frame = self.batch("barnabas", "small").select("key", "value")
            begun = time.monotonic()
            where = {"kafka.bootstrap.servers": self.bootstrap, "topic": "target"}
            frame.write.format("barnabas").options(**where).mode("append").save()
            if measured:
                rate = self.options["small"] / (time.monotonic() - begun)
                self.found["spark_sink"] = {"barnabas": [rate]}

    def run(self) -> Found:
        self.fill()
        self.in_turns("spark_batch_100b", self.count("small", self.options["small"], 1))
        self.in_turns("spark_batch_1kb", self.count("large", self.options["large"], 1008 / 1e6))
        self.in_turns("spark_backlog", self.backlog)
        self.latency()
        self.sink()
        for metric in ("spark_batch_100b", "spark_batch_1kb", "spark_backlog"):
            sides = self.found[metric]
            ratio = statistics.median(sides["barnabas"]) / statistics.median(sides["confluent"])
            self.found[f"{metric}_ratio"] = {"barnabas": [ratio]}
        self.spark.stop()
        return self.found


def _committed(checkpoint: Path) -> int:
    """How far the last finished micro-batch went in the one partition of the latency topic."""
    try:
        done = {int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit()}
        if not done:
            return 0
        source = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
        return int(json.loads(source)["topics"]["latency"]["partitions"]["0"]["offset"])
    except FileNotFoundError:
        return 0


def _session(directory: Path) -> Any:
    os.environ["PYSPARK_PYTHON"] = worker_python(directory)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")])
    from pyspark.sql import SparkSession

    from confluent_source import ConfluentSource

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(ConfluentSource)
    return session


if __name__ == "__main__":
    print(json.dumps(Jobs(json.loads(sys.argv[1])).run()))
