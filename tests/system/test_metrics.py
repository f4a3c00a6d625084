"""/metrics of real brokers: the values that Prometheus reads, and the verdict of its promtool on them and on the
rules.
"""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.metrics import Metrics

import promtool
from barnabas.cli.app import run
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.testing import Cluster

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
TRAFFIC = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"


class Scraped:
    """The brokers of a cluster, by id."""

    def __init__(self, directory: Path) -> None:
        self._urls = {node.node_id: node.metrics_url for node in EmbeddedCluster(directory).nodes}

    def text(self, broker: int) -> str:
        url = self._urls[broker]
        assert url is not None
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text: str = answer.read().decode()
            return text

    def __getitem__(self, broker: int) -> Metrics:
        return Metrics(self.text(broker))

    def total(self, name: str, *brokers: int, **labels: str) -> float:
        return sum(self[broker](name, **labels) for broker in brokers or tuple(self._urls))

    def await_total(self, value: float, name: str, *brokers: int, **labels: str) -> None:
        deadline = time.monotonic() + 120
        while (found := self.total(name, *brokers, **labels)) != value:
            assert time.monotonic() < deadline, f"{name} {labels} is {found}, not {value}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("metrics") / "cluster", brokers=3) as started:
        yield started


@pytest.fixture(scope="module")
def scraped(cluster: Cluster) -> Scraped:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    placed = NewTopic("orders", 1, replica_assignment=[[2, 1, 3]], config={"min.insync.replicas": "2"})
    admin.create_topics([placed])["orders"].result(timeout=120)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(500):
        producer.produce("orders", b"x" * 100)
    assert producer.flush(120) == 0
    settings = {"group.id": "metrics", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe(["orders"])
    read = 0
    deadline = time.monotonic() + 120
    while read < 500:
        assert time.monotonic() < deadline
        read += len(consumer.consume(500, timeout=1))
    consumer.commit(asynchronous=False)
    consumer.close()
    return Scraped(cluster.directory)


def test_what_clients_did_is_counted(scraped: Scraped) -> None:
    leader = scraped[2]
    assert leader(f"{TRAFFIC}messagesin_total", topic="orders") == 500
    in_bytes = leader(f"{TRAFFIC}bytesin_total", topic="orders")
    assert in_bytes > 50_000
    assert leader(f"{TRAFFIC}bytesout_total", topic="orders") == in_bytes
    assert leader("kafka_log_log_size", topic="orders", partition="0") == in_bytes
    assert scraped.total("kafka_log_log_logendoffset", topic="orders", partition="0") == 1500
    # Both followers fetched all of it from the leader.
    assert leader(f"{TRAFFIC}replicationbytesout_total") >= 2 * in_bytes
    assert scraped[1](f"{TRAFFIC}replicationbytesin_total") >= in_bytes
    assert scraped.total("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert scraped.total("kafka_coordinator_group_groupmetadatamanager_numoffsets") >= 1
    assert leader("barnabas_request_seconds_count", request="Produce") >= 1


def test_the_cluster_is_described(scraped: Scraped) -> None:
    scraped.await_total(1, f"{CONTROLLER}activecontrollercount")
    scraped.await_total(0, f"{REPLICAS}underreplicatedpartitions")
    for broker in (1, 2, 3):
        scraped.await_total(3, f"{CONTROLLER}activebrokercount", broker)
    leaders = {scraped[broker]("kafka_server_raft_metrics_current_leader") for broker in (1, 2, 3)}
    assert len(leaders) == 1
    assert scraped.total("kafka_server_raft_metrics_current_state", *map(int, leaders), state="leader") == 1


def test_a_killed_broker_and_its_return(cluster: Cluster, scraped: Scraped) -> None:
    """G30: metrics are right while a broker is gone and when it is back."""
    cluster.kill(3)
    scraped.await_total(1, "kafka_cluster_partition_atminisr", 1, 2, topic="orders", partition="0")
    assert scraped.total(f"{REPLICAS}underreplicatedpartitions", 1, 2) > 0
    for broker in (1, 2):
        scraped.await_total(1, f"{CONTROLLER}fencedbrokercount", broker)
    cluster.start_broker(3)
    scraped.await_total(0, f"{REPLICAS}underreplicatedpartitions")
    assert scraped.total(f"{REPLICAS}isrexpands_total") > 0
    scraped.await_total(0, "barnabas_partition_replica_lag", 2, topic="orders", partition="0", replica="3")
    scraped.await_total(0, f"{CONTROLLER}fencedbrokercount")


def test_status_says_where_the_metrics_are(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--dir", str(cluster.directory), "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", node["metrics"]) for node in nodes)


def test_a_port_in_use_does_not_stop_a_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"127.0.0.1:{taken.getsockname()[1]}"
        with Cluster(tmp_path / "cluster", properties={"barnabas.metrics.listener": listener}) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            assert len(admin.list_topics(timeout=60).brokers) == 1
            assert cluster.log.count(f"no metrics: cannot listen on {listener}") == 1


def test_without_the_key_nothing_listens(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", properties={"barnabas.metrics.listener": ""}) as cluster:
        assert [node.metrics_url for node in EmbeddedCluster(cluster.directory).nodes] == [None]
        assert "metrics" not in cluster.log


@pytest.mark.full
def test_promtool_takes_the_rules_and_what_a_broker_serves(scraped: Scraped, tmp_path: Path) -> None:
    for arguments in (
        ("check", "config", DEPLOY / "prometheus.yml"),
        ("check", "rules", DEPLOY / "barnabas.rules.yml"),
        ("test", "rules", DEPLOY / "barnabas.rules.test.yml"),
        ("check", "rules", DEPLOY / "monitor.rules.yml"),
        ("test", "rules", DEPLOY / "monitor.rules.test.yml"),
    ):
        done = promtool.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    done = promtool.run("check", "metrics", stdin=scraped.text(1))
    problems = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("barnabas_", "process_"))]
    assert not problems
    assert "error" not in done.stderr.lower().replace("errors_total", ""), done.stderr
