"""`barnabas monitor` on three brokers that are killed and restarted, and on Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.apache_clusters import KRAFT, LAST_WITH_ZOOKEEPER, OLD, ApacheCluster, apache_cluster
from tests.support.monitor_lines import MonitorProcess, await_check, check
from tests.support.survival import wait_until

import kafka_jars
from barnabas.cli.app import run
from barnabas.testing import Cluster

OK, NO_ANSWER, NOTICE, WARNING, ERROR, CRITICAL = 0, 1, 3, 4, 5, 6


def create(bootstrap: str, name: str, assignments: list[list[int]], min_isr: int = 1) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {"min.insync.replicas": str(min_isr)}
    topic = NewTopic(name, len(assignments), replica_assignment=assignments, config=config)
    admin.create_topics([topic])[name].result(timeout=120)
    return admin


def topics_known_by(broker: str) -> set[str]:
    """Returns the topics that this broker reports to a client that does not know the others yet."""
    return set(AdminClient({"bootstrap.servers": broker, "log_level": 0}).list_topics(timeout=60).topics)


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(count):
        producer.produce(topic, b"x" * 100, partition=0)
    assert producer.flush(120) == 0


def once(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()  # drops the output of earlier checks
    assert run(["monitor", "--once", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.full
def test_replicas_sizes_and_lags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A broker without answers is not reported as missing before it has been polled.
    patient = {"broker.session.timeout.ms": "300000", "replica.lag.time.max.ms": "300000"}
    with Cluster(tmp_path / "cluster", brokers=3, properties=patient) as cluster:
        create(cluster.bootstrap, "orders", [[2, 1, 3]], min_isr=2)
        write(cluster.bootstrap, "orders", 50)
        cluster.pause(3)  # broker 3 is still in the ISR, and does not fetch
        write_some = subprocess.Popen(
            [sys.executable, "-c", _WRITER, cluster.bootstrap], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert write_some.wait(120) == 0
            paused = once(capsys, "orders", "-b", cluster.bootstrap.rsplit(",", 1)[0])
        finally:
            cluster.resume(3)
        (partition,) = paused["partitions"]
        details = {detail["broker"]: detail for detail in partition["replica_details"]}
        assert (partition["leader"], partition["replicas"], partition["followers"]) == (2, [2, 1, 3], [1, 3])
        assert (details[2]["log_end_offset"], details[2]["lag"]) == (70, 0)
        assert details[3]["log_end_offset"] is None, "it does not answer"
        assert partition["silent"] == [3]
        assert partition["state"] == "at min ISR"
        assert 5_000 < partition["size_bytes"] < 20_000

        cluster.kill(1)
        await_check(cluster.bootstrap, WARNING, "orders")
        write(cluster.bootstrap, "orders", 30)
        cluster.start_broker(1)
        await_check(cluster.bootstrap, OK)
        (partition,) = once(capsys, "orders", "-b", cluster.bootstrap)["partitions"]
        assert [detail["log_end_offset"] for detail in partition["replica_details"]] == [100, 100, 100]
        assert [detail["lag"] for detail in partition["replica_details"]] == [0, 0, 0]


#: acks=1, for a follower does not answer.
_WRITER = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "1"})
for _ in range(20):
    producer.produce("orders", b"x" * 100, partition=0)
sys.exit(producer.flush(100))
"""


@pytest.mark.full
def test_brokers_are_killed_and_come_back(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, "orders", [[2, 1, 3]], min_isr=2)
        create(bootstrap, "strict", [[1, 2, 3]], min_isr=3)
        create(bootstrap, "loose", [[1, 2, 3]], min_isr=1)
        admin = create(bootstrap, "single", [[2]])
        await_check(bootstrap, OK)
        with (
            MonitorProcess(bootstrap, "--interval", "0.2", errors=tmp_path / "errors.txt") as monitor,
            MonitorProcess(bootstrap, "orders", "--interval", "3", errors=tmp_path / "errors-2.txt") as of_one_topic,
        ):
            for each in (monitor, of_one_topic):
                first = each.until(lambda line: line["type"] == "snapshot", "a snapshot")
                assert first["severity"] == "ok"
            cluster.kill(2)
            assert of_one_topic.change("orders-0", "leader-change")["causes"][-1] == "broker-gone"
            gone = monitor.change("broker 2", "broker-gone")
            lost = monitor.change("single-0", "offline")
            moved = monitor.change("orders-0", "leader-change")
            assert "no process listens at its address" in gone["cause"]
            assert "no process listens at its address" in lost["cause"]
            assert (lost["severity"], lost["after"]["leader"]) == ("critical", -1)
            assert moved["causes"][-1] == "broker-gone"
            assert (moved["before"]["leader"], moved["before"]["isr"]) == (2, [2, 1, 3])
            assert moved["after"]["leader"] in (1, 3)
            assert moved["after"]["osr"] == [2]
            assert moved["severity"] == "warning"
            assert monitor.change("strict-0", "isr-shrink")["severity"] == "error"
            assert monitor.change("loose-0", "isr-shrink")["severity"] == "notice"
            severities = {"single": CRITICAL, "strict": ERROR, "orders": WARNING, "loose": NOTICE}
            for topic, severity in severities.items():
                await_check(bootstrap, severity, topic)
            assert check(bootstrap) == CRITICAL

            cluster.start_broker(2)
            back = monitor.change("orders-0", "isr-expand", after=moved)
            assert "caught up with leader" in back["cause"]
            assert monitor.change("single-0", "online")["after"]["leader"] == 2
            await_check(bootstrap, OK)

            create(bootstrap, "fresh", [[1, 2], [2, 3]])
            created = monitor.change("fresh", "topic-created")
            assert [state["replicas"] for state in created["partitions"]] == [[1, 2], [2, 3]]
            assert created["cause"] == "User:ANONYMOUS created fresh"
            admin.delete_topics(["fresh"])["fresh"].result(timeout=120)
            assert monitor.change("fresh", "topic-deleted")["cause"] == "User:ANONYMOUS deleted fresh"
        assert monitor.exit_code == 130
        assert (tmp_path / "errors.txt").read_text() == ""


@pytest.mark.full
def test_all_brokers_gone_and_back(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, "orders", [[1, 2, 3]], min_isr=2)
        with MonitorProcess(bootstrap, "--interval", "0.2", errors=tmp_path / "errors.txt") as monitor:
            monitor.until(lambda line: line["type"] == "snapshot", "a snapshot")
            cluster.kill()
            lost = monitor.change("cluster", "unreachable")
            assert lost["severity"] == "critical"
            assert lost["text"].count("connection refused") == 3
            assert check(bootstrap) == NO_ANSWER
            cluster.restart()
            monitor.change("cluster", "reachable", after=lost)
            await_check(bootstrap, OK)
            assert sum(line.get("kind") == "unreachable" for line in monitor.lines) == 1


@pytest.mark.full
def test_without_a_majority_what_the_metadata_says_is_not_believed(tmp_path: Path) -> None:
    """G30: no majority can remove the dead leader from the metadata; it is reported as clients see it."""
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        create(cluster.bootstrap, "orders", [[1, 2, 3]], min_isr=2)
        third = cluster.bootstrap.split(",")[2]
        wait_until(lambda: "orders" in topics_known_by(third), "the third knows of it", 120)
        cluster.kill(1, 2)
        await_check(cluster.bootstrap, CRITICAL)


def test_bad_command_lines(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = kafka_jars.free_ports(1)
    assert run(["monitor", "--once", "-b", f"127.0.0.1:{port}"]) == NO_ANSWER
    assert "Connection refused" in capsys.readouterr().err
    assert run(["monitor", "--once", "-b", "nowhere"]) == 1
    assert "expected HOST:PORT" in capsys.readouterr().err
    assert run(["monitor", "--once", "-X", "security.protocol=magic"]) == 1
    assert "security.protocol=magic" in capsys.readouterr().err
    assert run(["monitor", "--interval", "0"]) == 2


# Apache Kafka.


@pytest.fixture(params=[KRAFT, LAST_WITH_ZOOKEEPER, OLD])
def apache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApacheCluster]:
    with apache_cluster(request.param, tmp_path) as cluster:
        yield cluster


@pytest.mark.full
def test_apache_kafka(apache: ApacheCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same, without causes: it keeps no journal."""
    bootstrap = apache.bootstrap
    create(bootstrap, "orders", [[2, 1, 3]], min_isr=2)
    create(bootstrap, "single", [[2]])
    write(bootstrap, "orders", 40)
    await_check(bootstrap, OK)
    (partition,) = once(capsys, "orders", "-b", bootstrap)["partitions"]
    assert [detail["log_end_offset"] for detail in partition["replica_details"]] == [40, 40, 40]
    assert all(detail["size_bytes"] > 4_000 for detail in partition["replica_details"])
    assert [detail["lag"] for detail in partition["replica_details"]] == [0, 0, 0]
    with MonitorProcess(bootstrap, "--interval", "0.5", errors=tmp_path / "errors.txt") as monitor:
        assert monitor.until(lambda line: line["type"] == "snapshot", "a snapshot")["controller"] in (1, 2, 3)
        apache.kill(2)
        assert monitor.change("single-0", "offline")["cause"] is None
        moved = monitor.change("orders-0", "leader-change")
        assert (moved["before"]["leader"], moved["cause"]) == (2, None)
        await_check(bootstrap, WARNING, "orders")
        await_check(bootstrap, CRITICAL)
        apache.start_again(2)
        monitor.change("orders-0", "isr-expand", after=moved)
        monitor.change("single-0", "online")
        # The monitor knows by now that there is no journal to wait for.
        begin_s = time.monotonic()
        admin = create(bootstrap, "fresh", [[1]])
        monitor.change("fresh", "topic-created")
        admin.delete_topics(["fresh"])["fresh"].result(timeout=120)
        assert monitor.change("fresh", "topic-deleted")["cause"] is None
        assert time.monotonic() - begin_s < 35
    assert (tmp_path / "errors.txt").read_text() == ""


@pytest.mark.full
def test_apache_kafka_with_sasl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port, controller_port = kafka_jars.free_ports(2)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required username="admin" password="secret" '
        'user_admin="secret" user_alice="open sesame";',
    }
    alice = ["-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice"]
    with kafka_jars.KafkaServer(tmp_path / "kafka", port=port, properties=properties) as kafka:
        found = once(capsys, "-b", kafka.bootstrap, *alice, "-X", "sasl.password=open sesame")
        assert [broker["broker"] for broker in found["brokers"]] == [1]
        assert found["controller"] == 1
        assert run(["monitor", "--once", "-b", kafka.bootstrap, *alice, "-X", "sasl.password=guess"]) == NO_ANSWER
        assert "it refuses the login of alice with PLAIN: Authentication failed" in capsys.readouterr().err
        assert run(["monitor", "--once", "-b", kafka.bootstrap]) == NO_ANSWER
