"""The orders pipeline as real processes that are killed: driver, Java, Python workers, a cluster's worker.

Each test sends orders with duplicates and invalid ones, restarts a driver until it ends, and then counts: every order
is one row, every record is accounted for once.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions
from tests.support.order_batches import order

from barnabas.orders.dataset import OrderData
from barnabas.pipelines import steps
from barnabas.pipelines.commits import CommitLog
from barnabas.pipelines.java import find_java
from barnabas.pipelines.query import table_counts
from barnabas.pipelines.rules import classified
from barnabas.testing import Cluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

NewTopic = Callable[..., str]
REPOSITORY = Path(__file__).resolve().parents[3]
PARTITIONS = 4
WAIT_S = 600.0


class Orders:
    """The orders that were sent: good ones, a copy of every tenth, and an invalid one for every twentieth."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.bootstrap, self.topic = cluster.bootstrap, topic
        self.ids: set[int] = set()
        self.copies = 0
        self.broken = 0
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def send(self, count: int) -> None:
        for number in range(len(self.ids), len(self.ids) + count):
            value = order(number, f"2017-01-{number // 100 + 1:02}T{number % 24:02}:00:00Z")
            times = 2 if number % 10 == 0 else 1
            for _ in range(times):
                self._produce(number, value)
            self.copies += times - 1
            if number % 20 == 0:
                self._produce(number, value[:50])
                self.broken += 1
            self.ids.add(number)
        assert self._producer.flush(120) == 0

    def _produce(self, number: int, value: bytes) -> None:
        self._producer.produce(self.topic, value, partition=number % PARTITIONS, timestamp=1_485_600_000_000 + number)
        self._producer.poll(0)

    def check(self, tables: Path) -> None:
        last = CommitLog(tables).last()
        assert last is not None
        counts = table_counts(tables)
        assert set(counts.order_rows) == self.ids
        assert set(counts.order_rows.values()) == {1}
        assert counts.lines == len(self.ids)
        assert counts.quarantined == {"not_json": self.broken}
        assert last.total.balanced
        assert (last.total.orders, last.total.duplicates) == (len(self.ids), self.copies)
        assert last.total.read == len(self.ids) + self.copies + self.broken


class Driver:
    """`barnabas pipeline orders` in a process of its own; ended with all it has started."""

    def __init__(self, orders: Orders, directory: Path, *arguments: str, kill_at: str = "", **more: str) -> None:
        self.tables = directory / "tables"
        self._errors = (directory / "driver.err").open("a+")
        command = [sys.executable, "-m", "tests.support.pipeline_driver", "pipeline", "orders"]
        command += ["-b", orders.bootstrap, "--topic", orders.topic, "--tables", str(self.tables), *arguments]
        environment = os.environ | {"KILL_AT": kill_at, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"} | more
        self.process = subprocess.Popen(
            command, stdout=self._errors, stderr=self._errors, env=environment, cwd=REPOSITORY, start_new_session=True
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in descendants(self.process.pid):
            kill(pid)
        kill(self.process.pid)
        self.process.wait()
        self._errors.close()

    def wait(self) -> int:
        return self.process.wait(WAIT_S)

    def wait_for_commits(self, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while (last := CommitLog(self.tables).last()) is None or last.number < count:
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < deadline, self.errors()
            time.sleep(0.05)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Returns the descendants of a process in /proc, the youngest generation last."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parents.setdefault(int(text[text.rindex(")") + 2 :].split()[1]), []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def named(pids: list[int], name: str) -> list[int]:
    def matches(pid: int) -> bool:
        try:
            return name in Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            return False

    return [pid for pid in pids if matches(pid)]


@pytest.fixture
def orders(cluster: Cluster, new_topic: NewTopic) -> Orders:
    return Orders(cluster, new_topic(partitions=PARTITIONS, retention_ms="-1"))


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_a_driver_killed_between_every_two_steps(orders: Orders, tmp_path: Path, sink: str) -> None:
    orders.send(1000)
    arguments = ("--sink", sink, "--batch-records", "150")
    moments = [step for step in steps.STEPS if sink == "delta" or step != "published"] + ["moved:7"]
    for moment in moments:
        with Driver(orders, tmp_path, *arguments, kill_at=moment) as driver:
            assert driver.wait() == -signal.SIGKILL, f"{moment}: {driver.errors()}"
    with Driver(orders, tmp_path, *arguments) as driver:
        assert driver.wait() == 0, driver.errors()
    orders.check(tmp_path / "tables")


def test_kills_at_any_moment(orders: Orders, tmp_path: Path) -> None:
    """The driver, its Java, and a Python worker of its tasks, while orders come in."""
    chance = random.Random(7)
    arguments = ("--trigger", "100 milliseconds", "--batch-records", "200")
    commits = 0
    for victim in ("driver", "java", "worker", "driver", "java"):
        orders.send(400)
        with Driver(orders, tmp_path, *arguments) as driver:
            driver.wait_for_commits(commits + 1)
            time.sleep(chance.uniform(0.0, 1.0))
            below = descendants(driver.process.pid)
            victims = {
                "driver": [driver.process.pid],
                "java": named(below, "java")[:1],
                "worker": named(below, "pyspark.daemon")[-1:],
            }[victim]
            assert victims, victim
            for pid in victims:
                kill(pid)
            if victim == "worker":
                driver.wait_for_commits(commits + 2)
            else:
                assert driver.wait() != 0
        last = CommitLog(tmp_path / "tables").last()
        commits = 0 if last is None else last.number
    with Driver(orders, tmp_path) as driver:
        assert driver.wait() == 0, driver.errors()
    orders.check(tmp_path / "tables")


def test_a_source_that_starts_too_slowly_for_spark_is_started_again(orders: Orders, tmp_path: Path) -> None:
    """Spark gives it 10 s, and no setting changes that."""
    orders.send(100)
    with Driver(orders, tmp_path, SLOW_START=str(tmp_path / "slow")) as driver:
        assert driver.wait() == 0, driver.errors()
        assert (tmp_path / "slow").exists()
        assert (
            "Python did not start within Spark's limit of 10 s, because the machine is busy; retrying"
            in driver.errors()
        )
    orders.check(tmp_path / "tables")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def spark_process(directory: Path, name: str, *arguments: str, program: str = "spark-class") -> Iterator[int]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(directory / name),
    }
    with (directory / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [str(home / "bin" / program), *arguments], stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            yield process.pid
        finally:
            for pid in [*descendants(process.pid), process.pid]:
                kill(pid)
            process.wait()


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on {port}"
            time.sleep(0.2)
        else:
            return


def test_a_cluster_that_loses_one_of_two_workers(orders: Orders, tmp_path: Path) -> None:
    """The cluster has a standalone master and two workers; the stream continues on the other worker."""
    orders.send(600)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    worker = ("org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", master)
    listening = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    with spark_process(tmp_path, "master", "org.apache.spark.deploy.master.Master", *listening):
        wait_for_port(port)
        with spark_process(tmp_path, "worker-1", *worker) as first, spark_process(tmp_path, "worker-2", *worker):
            small = ("--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=4")
            near = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.cores=1")
            arguments = ("--master", master, "--trigger", "100 milliseconds", "--batch-records", "100", *small, *near)
            with Driver(orders, tmp_path, *arguments) as driver:
                driver.wait_for_commits(1)
                for pid in [*descendants(first), first]:
                    kill(pid)
                orders.send(200)
                deadline = time.monotonic() + WAIT_S
                wanted = len(orders.ids) + orders.copies + orders.broken
                while (last := CommitLog(driver.tables).last()) is None or last.total.read < wanted:
                    assert driver.process.poll() is None, driver.errors()
                    assert time.monotonic() < deadline, driver.errors()
                    time.sleep(0.1)
                driver.process.send_signal(signal.SIGTERM)
                assert driver.wait() == 0, driver.errors()
    orders.check(tmp_path / "tables")


def test_over_spark_connect(orders: Orders, tmp_path: Path) -> None:
    orders.send(300)
    port = free_port()
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]")
    settings = (
        f"spark.connect.grpc.binding.port={port}",
        "spark.ui.enabled=false",
        "spark.sql.shuffle.partitions=2",
        "spark.driver.host=127.0.0.1",
        "spark.python.authenticate.socketTimeout=120s",
    )
    flags = [item for setting in settings for item in ("--conf", setting)]
    with spark_process(tmp_path, "server", *server, *flags, "spark-internal", program="spark-submit"):
        wait_for_port(port)
        for _ in range(2):
            with Driver(orders, tmp_path, "--master", f"sc://127.0.0.1:{port}") as driver:
                assert driver.wait() == 0, driver.errors()
            orders.check(tmp_path / "tables")
            orders.send(100)


def test_no_order_of_the_published_data_is_refused(spark: Any) -> None:
    data = OrderData()
    rows = [(bytes(each.value), each.timestamp_ms) for each in data.orders()]
    frame = spark.createDataFrame(rows, "value binary, ms bigint").selectExpr(
        "CAST(NULL AS BINARY) AS key",
        "value",
        "'orders' AS topic",
        "0 AS partition",
        "0L AS offset",
        "timestamp_millis(ms) AS timestamp",
    )
    found = (
        classified(frame, 2, None)
        .groupBy("fault")
        .agg(functions.count("*"), functions.sum("total"), functions.sum(functions.size("lines")))
    )
    assert [tuple(row) for row in found.collect()] == [(None, 155_848, Decimal("4596039.58"), 1_469_307)]
