"""One broker (or Apache Kafka, with BARNABAS_TARGET=kafka) and one Spark session, which takes 5 to 10 s to start, for
all tests of the Spark source."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.servers import Server

from barnabas.spark.workers import worker_python


@pytest.fixture(scope="session")
def cluster(shared_server: Server) -> Server:
    return shared_server


@pytest.fixture(scope="session")
def admin(cluster: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


@pytest.fixture(scope="session")
def new_topic(admin: AdminClient) -> Callable[..., str]:
    """A topic of its own for each test: `new_topic(partitions=3)`."""
    numbers = itertools.count()

    def make(partitions: int = 1, name: str | None = None, **config: str) -> str:
        name = name or f"spark-{next(numbers)}"
        made = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin.create_topics([made])[name].result(timeout=120)
        return name

    return make


@pytest.fixture
def produce(cluster: Server) -> Callable[..., None]:
    """`produce(topic, values, partition=0, **producer configuration)`."""

    def send(topic: str, values: list[Any], partition: int = -1, **config: Any) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "linger.ms": 5} | named)
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(120) == 0

    return send


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2]; workers find the source as an installed module."""
    directory = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = worker_python(directory)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
