"""The Spark rows' work, in a separate process: `python spark_jobs.py OPTIONS`, options and result as JSON.

There is one session, local[2]. Its very first read is measured separately: it starts Python workers and runs Java code
that is not yet compiled. Every other job is run a few times to warm up and then measured `rounds` times, as in a
session that has run for a while; the two sources, Barnabas's and the one on confluent-kafka, take turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
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
#: Runs of each side that do not count. Java's compiler is active for about ten reads.
_WARM_UP = {"spark_batch_100b": 4, "spark_batch_1kb": 2, "spark_backlog": 3}
_LATENCY_WARM_UP = 30
#: A manager for checkpoints on a local disk, which starts fewer processes (docs/spark.md).
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_QUICK_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

Found = dict[str, dict[str, list[float]]]


class Jobs:
    """The jobs of one session. `found` has the values of each metric and side."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.bootstrap: str = options["bootstrap"]
        self.directory = Path(options["directory"])
        self.found: Found = {}
        self.spark = _session(self.directory)
        self._number = 0

    def fill(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        sizes = {"small": _PARTITIONS, "large": _PARTITIONS, "target": _PARTITIONS, "latency": 1, "latency_tuned": 1}
        topics = [NewTopic(name, partitions, 1) for name, partitions in sizes.items()]
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

    def first_read(self) -> None:
        begun = time.monotonic()
        self.batch("barnabas", "small").count()
        self.found["spark_first_read"] = {"barnabas": [time.monotonic() - begun]}

    def read_of_nothing(self) -> None:
        """Measures the share of planning and of the start of tasks in a read."""
        nowhere = json.dumps({"small": dict.fromkeys(map(str, range(_PARTITIONS)), 0)})
        taken = []
        for _ in range(3 + self.options["rounds"]):
            frame = self.batch("barnabas", "small", endingOffsets=nowhere)
            begun = time.monotonic()
            if frame.count():
                raise SystemExit("spark: there were records in an empty range")
            taken.append((time.monotonic() - begun) * 1000)
        self.found["spark_planning"] = {"barnabas": taken[3:]}

    def batch(self, side: str, topic: str, **more: str) -> Any:
        if side == "confluent":
            given = {"bootstrap": self.bootstrap, "topic": topic}
            return self.spark.read.format("confluent_consume").options(**given).load()
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **more}
        return self.spark.read.format("barnabas").options(**given).load()

    def in_turns(self, metric: str, job: Callable[[str], float]) -> None:
        for _ in range(_WARM_UP[metric]):
            for side in ("barnabas", "confluent"):
                job(side)
        for _ in range(self.options["rounds"]):
            for side in ("barnabas", "confluent"):
                self.found.setdefault(metric, {}).setdefault(side, []).append(job(side))

    def count(self, topic: str, count: int, unit: float) -> Callable[[str], float]:
        """Returns a job that moves all columns of all records into the JVM, and returns units per second."""

        def job(side: str) -> float:
            frame = self.batch(side, topic)
            begun = time.monotonic()
            got = frame.count()
            taken = time.monotonic() - begun
            if got != count:
                raise SystemExit(f"spark: {side} read {got} of {count} records of {topic}")
            return count * unit / taken

        return job

    def backlog(self, side: str, most: int | None = None) -> float:
        """Returns the records per second of the micro-batches that drain the topic into Parquet, each of at most `most`
        records.
        """
        self._number += 1
        place = self.directory / f"backlog-{self._number}"
        if side == "confluent":
            stream = self.spark.readStream.format("confluent_consume").option("bootstrap", self.bootstrap)
            stream = stream.option("topic", "small")
        else:
            stream = self.spark.readStream.format("barnabas").option("kafka.bootstrap.servers", self.bootstrap)
            stream = stream.option("subscribe", "small").option("startingOffsets", "earliest")
            stream = stream if most is None else stream.option("maxOffsetsPerTrigger", str(most))
        written = stream.load().writeStream.format("parquet").option("path", str(place / "table"))
        query = written.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = sum(progress["numInputRows"] for progress in query.recentProgress)
        taken_ms = sum(progress["durationMs"].get("addBatch", 0) for progress in query.recentProgress)
        if rows != self.options["small"]:
            raise SystemExit(f"spark: {side} put {rows} of {self.options['small']} records into the table")
        if most is not None and max(progress["numInputRows"] for progress in query.recentProgress) > most:
            raise SystemExit(f"spark: a micro-batch has more than {most} records")
        shutil.rmtree(place)
        return float(rows * 1000 / taken_ms)

    def memory(self) -> None:
        """Measures the memory of the largest Python worker while the backlog is drained, in one and in several
        micro-batches.
        """
        for metric, most in (("spark_worker", None), ("spark_worker_limited", self.options["most"])):
            workers = _python_workers()
            for pid in workers:
                # This write resets the peak.
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            rate = self.backlog("barnabas", most)
            self.found[f"{metric}_mb"] = {"barnabas": [max(map(_peak_mb, _python_workers() | workers))]}
        self.found["spark_backlog_limited"] = {"barnabas": [rate]}

    def latency(self, topic: str) -> None:
        """Measures from produce() to the commit of the micro-batch that contains the record, one record after the
        other.
        """
        place = self.directory / topic
        stream = self.spark.readStream.format("barnabas").option("kafka.bootstrap.servers", self.bootstrap)
        stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
        written = stream.load().writeStream.format("parquet")
        written = written.option("path", str(place / "table")).option("checkpointLocation", str(place / "checkpoint"))
        query = written.trigger(processingTime="0 seconds").start()
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        waited = []
        try:
            for number in range(_LATENCY_WARM_UP + self.options["latencies"]):
                begun = time.monotonic()
                producer.produce(topic, b"x" * 100)
                producer.flush(30)
                while _committed(place / "checkpoint", topic) <= number:
                    if not query.isActive or time.monotonic() - begun > 120:
                        raise SystemExit(f"spark: the stream does not continue: {query.exception()}")
                    time.sleep(0.002)
                waited.append((time.monotonic() - begun) * 1000)
                time.sleep(0.05 + number % 7 * 0.01)
        finally:
            query.stop()
        waited = sorted(waited[_LATENCY_WARM_UP:])
        self.found[f"spark_{topic}_p50"] = {"barnabas": [statistics.median(waited)]}
        self.found[f"spark_{topic}_p90"] = {"barnabas": [waited[len(waited) * 9 // 10]]}

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
        self.first_read()
        self.in_turns("spark_batch_100b", self.count("small", self.options["small"], 1))
        self.in_turns("spark_batch_1kb", self.count("large", self.options["large"], 1008 / 1e6))
        self.read_of_nothing()
        self.in_turns("spark_backlog", self.backlog)
        self.memory()
        self.latency("latency")
        self.spark.conf.set(_FILE_MANAGER, _QUICK_FILES)
        self.latency("latency_tuned")
        self.spark.conf.unset(_FILE_MANAGER)
        self.sink()
        for metric in ("spark_batch_100b", "spark_batch_1kb", "spark_backlog"):
            sides = self.found[metric]
            ratio = statistics.median(sides["barnabas"]) / statistics.median(sides["confluent"])
            self.found[f"{metric}_ratio"] = {"barnabas": [ratio]}
        self.spark.stop()
        return self.found


def _committed(checkpoint: Path, topic: str) -> int:
    """Returns the end offset of the last finished micro-batch in the one partition of the latency topic."""
    try:
        done = {int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit()}
        if not done:
            return 0
        source = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1]
        return int(json.loads(source)["topics"][topic]["partitions"]["0"]["offset"])
    except FileNotFoundError:
        return 0


def _python_workers() -> set[int]:
    """Returns Spark's workers: the processes below the daemon that this process's Java started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                parents[int(entry.name)] = (int(rest.split()[1]), name.partition("(")[2])
    javas = {pid for pid, (parent, name) in parents.items() if name == "java" and parent == os.getpid()}
    daemons = {pid for pid, (parent, _) in parents.items() if parent in javas}
    return {pid for pid, (parent, _) in parents.items() if parent in daemons}


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


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
