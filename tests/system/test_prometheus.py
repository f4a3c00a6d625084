"""A real Prometheus with the files of deploy/ on three brokers: it has the series, and its alerts fire and end.

Only addresses and times are changed: scrapes every half second, and alerts that wait for at most a second.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kafka_jars
import promtool
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.testing import Cluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
WAIT_S = 240.0
#: Dashboards, and the job whose metrics each shows.
DASHBOARDS = {"barnabas.json": "barnabas", "monitor.json": "barnabas-monitor"}
VARIABLES = {"$__rate_interval": "10s", "$topic": ".+"}
#: Metrics that exist only after something has failed.
OF_FAILURES = ("barnabas_elections_total", "barnabas_partition_unavailable_seconds_total")


class Prometheus:
    """The HTTP API of Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
            document = json.loads(answer.read())
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.get("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        return {each["labels"]["alertname"] for each in self.get("alerts")["alerts"] if each["state"] == "firing"}


def until(is_done: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", brokers=3) as started:
        yield started


@pytest.fixture
def monitor(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """Runs the monitor's exporter, and yields its address."""
    (port,) = kafka_jars.free_ports(1)
    command = [sys.executable, "-m", "barnabas.cli", "monitor", "--json", "-b", cluster.bootstrap]
    with (tmp_path / "monitor.log").open("w") as log:
        process = subprocess.Popen([*command, "--metrics", f"127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def prometheus(cluster: Cluster, monitor: str, tmp_path: Path) -> Iterator[Prometheus]:
    urls = [node.metrics_url for node in EmbeddedCluster(cluster.directory).nodes]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms", "scrape_timeout": "500ms"}
    targets = [urllib.parse.urlsplit(url or "").netloc for url in urls]
    of_brokers, of_monitor = config["scrape_configs"]
    of_brokers["static_configs"] = [{"targets": targets}]
    of_monitor["static_configs"] = [{"targets": [monitor]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    for name in config["rule_files"]:
        rules = (DEPLOY / "prometheus" / name).read_text()
        (tmp_path / name).write_text(re.sub(r"for: \d+[sm]$", "for: 1s", rules, flags=re.MULTILINE))
    (port,) = kafka_jars.free_ports(1)
    command = [str(promtool.program("prometheus")), f"--config.file={tmp_path / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait()


def expressions() -> Iterator[tuple[str, str]]:
    """Yields (panel, PromQL) of the dashboards."""
    for name, job in DASHBOARDS.items():
        dashboard = json.loads((DEPLOY / "grafana" / name).read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                expression = target["expr"]
                for variable, value in {**VARIABLES, "$job": job}.items():
                    expression = expression.replace(variable, value)
                yield f"{name}: {panel['title']}", expression


def ups(prometheus: Prometheus) -> int:
    try:
        return len(prometheus.query("up == 1"))
    except OSError:
        return 0  # Prometheus is starting


def test_panels_have_series_and_alerts_fire_and_end(cluster: Cluster, prometheus: Prometheus) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    placed = {"orders": ([2, 1, 3], "2"), "strict": ([1, 2, 3], "3"), "single": ([2], "1"), "pair": ([1, 2], "1")}
    for name, (replicas, min_isr) in placed.items():
        topic = NewTopic(name, 1, replica_assignment=[replicas], config={"min.insync.replicas": min_isr})
        admin.create_topics([topic])[name].result(timeout=60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce("orders", b"first")
    producer.flush(30)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["orders"])
    until(lambda: ups(prometheus) == 4, lambda: "not all brokers and the monitor are scraped")

    def empty_panels() -> list[str]:
        producer.produce("orders", b"x" * 100)
        producer.flush(30)
        return [f"{title}: {expression}" for title, expression in expressions() if not prometheus.query(expression)]

    def unexpectedly_empty() -> list[str]:
        return [each for each in empty_panels() if not any(name in each for name in OF_FAILURES)]

    consumer.consume(1, timeout=60)
    consumer.commit(asynchronous=False)
    until(lambda: not unexpectedly_empty(), unexpectedly_empty)
    until(lambda: not prometheus.firing(), prometheus.firing)

    cluster.kill(2)
    wanted = {
        "KafkaPartitionOffline",
        "KafkaPartitionUnderMinIsr",
        "KafkaPartitionAtMinIsr",
        "KafkaPartitionUnderReplicated",
        "KafkaBrokerFenced",
        "KafkaExporterDown",
        # The monitor's metrics.
        "KafkaPartitionIsrBelowTwo",
        "KafkaPartitionUnavailable",
        "KafkaPartitionWritesRefused",
    }
    until(lambda: wanted <= prometheus.firing(), lambda: wanted - prometheus.firing())
    until(lambda: not empty_panels(), empty_panels)
    assert not prometheus.firing() & {"KafkaUncleanLeaderElection", "KafkaLogDirectoryOffline", "KafkaLogDirectoryFull"}

    cluster.start_broker(2)
    until(lambda: not wanted & prometheus.firing(), prometheus.firing)
    consumer.close()
