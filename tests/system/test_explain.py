"""`barnabas explain` on three brokers: the leader is killed, returns, and leads again."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.process_nodes import call

from barnabas.cli.app import run
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.testing import Cluster

_WITHIN_S = 30.0


class Explained:
    """The command, as a person calls it."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._capsys = capsys

    def text(self, *arguments: str) -> str:
        assert run(["explain", *arguments, "--bootstrap", self._cluster.bootstrap]) == 0
        return self._capsys.readouterr().out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def until(self, condition: Callable[[Any], bool], *arguments: str) -> Any:
        deadline = time.monotonic() + _WITHIN_S
        while True:
            found = self.json(*arguments)
            if condition(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


def test_a_killed_leader_and_its_return(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        placed = NewTopic("orders", 1, replica_assignment=[[2, 1, 3]])
        admin.create_topics([placed])["orders"].result(timeout=20)
        explained = Explained(cluster, capsys)
        quiet = explained.json("orders-0")
        assert (quiet["leader"], quiet["journal"], quiet["leader_because"]) == (2, False, None)
        assert "no recorded event says why" in explained.text("orders-0")
        assert "__cluster_events" not in admin.list_topics(timeout=20).topics

        cluster.kill(2)
        killed = explained.until(lambda found: found["leader_because"] and found["leader"] != 2, "orders-0")
        why = killed["leader_because"]
        assert (why["kind"], why["cause"]) == ("leader-change", "broker-gone")
        assert (why["before"]["leader"], why["after"]["leader"]) == (2, killed["leader"])
        assert killed["out_of_sync"] == [2]
        assert killed["isr_because"]["2"]["event"]["cause"] == "broker-gone"
        assert killed["isr_because"]["3"]["event"]["kind"] == "topic-created"
        text = explained.text("orders-0")
        assert f"Broker {killed['leader']} leads since" in text
        assert "(before: leader 2), because broker 2 was fenced" in text
        assert "Replica 2 is out of sync since" in text

        now = explained.json("--now")
        assert {each["root_cause"]["code"] for each in now} == {"crashed"}
        assert "To end it, start broker 2 again" in explained.text("--now")
        around = explained.text("--pause", "orders", "--at", str(why["time_ms"] - 2_000), "--for", "4s")
        assert "orders-0: its leader, broker 2, did not serve from" in around

        cluster.start_broker(2)
        back = explained.until(lambda found: not found["out_of_sync"] and found["is_current"], "orders-0")
        joined = back["isr_because"]["2"]["event"]
        assert (joined["kind"], joined["cause"]) == ("isr-expand", "follower-caught-up")
        assert joined["seen"]["members"][0]["broker_id"] == 2
        assert "Broker 2 is preferred and in sync" in explained.text("orders-0")

        assert run(["elect", "--type", "preferred", "--all-topic-partitions", "--bootstrap", cluster.bootstrap]) == 0
        capsys.readouterr()
        again = explained.until(lambda found: found["leader"] == 2 and found["leader_because"], "orders-0")
        assert (again["leader_because"]["kind"], again["leader_because"]["cause"]) == (
            "preferred-election",
            "election-asked",
        )
        kinds = [event["kind"] for event in again["history"]]
        for kind in ("topic-created", "broker-fenced", "leader-change", "broker-registered", "isr-expand"):
            assert kind in kinds
        assert len({event["id"] for event in again["history"]}) == len(kinds)
        assert "broker-fenced" in explained.text("--broker", "2")
        recent = explained.json("orders-0", "--since", str(again["leader_because"]["time_ms"]))
        assert recent["leader_because"] == again["leader_because"]
        assert recent["isr_because"]["3"]["event"] is None, "it is older than what was read"
        internal = admin.list_topics(timeout=20).topics["__cluster_events"]
        assert len(internal.partitions[0].replicas) == 3


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        assert run(["explain", "orders-0", "--bootstrap", cluster.bootstrap]) == 1
        assert "there is no topic orders" in capsys.readouterr().err
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(timeout=20)
        assert run(["explain", "orders-7", "--bootstrap", cluster.bootstrap]) == 1
        assert "orders has no partition 7" in capsys.readouterr().err
        assert run(["explain", "--bootstrap", cluster.bootstrap]) == 1
        assert "name a partition" in capsys.readouterr().err
        assert run(["explain", "orders", "--bootstrap", cluster.bootstrap]) == 0
        captured = capsys.readouterr()
        assert "Broker 1 leads; no recorded event says why." in captured.out
        assert "has no journal" in captured.err


def produced(cluster: Cluster, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    failed: list[object] = []
    for value in values:
        producer.produce("orders", value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed == [None] * len(values)


def read(cluster: Cluster) -> list[str]:
    settings = {"group.id": "reader", "enable.partition.eof": True, "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    found: list[str] = []
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        for message in consumer.consume(100, timeout=0.5):
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return found
    raise AssertionError(f"no end after {found}")


def await_checkpoint(checkpoint: Path, line: str) -> None:
    """Waits for a line in the file, which is created only after the first interval."""
    deadline = time.monotonic() + _WITHIN_S
    while True:
        written = checkpoint.read_text() if checkpoint.exists() else ""
        if line in written.splitlines():
            return
        assert time.monotonic() < deadline, written
        time.sleep(0.1)


def allow_unclean_leaders(cluster: Cluster, topic: str) -> None:
    """Sends the request to the first live broker over a bare socket: librdkafka would use the controller of its last
    metadata, and continue to dial it when it is dead.
    """
    host, port = next(address for address in addresses(cluster) if listens(address))
    requested = IncrementalAlterConfigsRequest
    change = requested.AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    resource = requested.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    request = requested(resources=[resource])
    answer = call((host, port), request, 1, IncrementalAlterConfigsResponse, timeout_s=2 * _WITHIN_S)
    assert [row.error_code for row in answer.responses] == [0]


def addresses(cluster: Cluster) -> list[tuple[str, int]]:
    pairs = (address.rsplit(":", 1) for address in cluster.bootstrap.split(","))
    return [(host, int(port)) for host, port in pairs]


def listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=_WITHIN_S).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.full
def test_an_unclean_election_and_what_it_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A leader alone in its ISR acknowledged five records and died. Then the topic is allowed to continue without them:
    the controller reports the election, the new leader its log end offset, the former one the truncation.
    """
    often = {"replica.high.watermark.checkpoint.interval.ms": "200"}
    with Cluster(tmp_path / "cluster", brokers=3, properties=often) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        placed = NewTopic("orders", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"})
        admin.create_topics([placed])["orders"].result(timeout=20)
        del admin
        produced(cluster, [f"kept {number}" for number in range(10)])
        explained = Explained(cluster, capsys)
        cluster.kill(2)
        explained.until(lambda found: found["out_of_sync"] == [2], "orders-0")
        produced(cluster, [f"lost {number}" for number in range(5)])
        # The checkpoint says what was committed when the broker is back.
        await_checkpoint(cluster.data_directory_of(1) / "replication-offset-checkpoint", "orders 0 15")
        cluster.kill(1)
        cluster.start_broker(2)
        explained.until(lambda found: found["leader"] == -1, "orders-0")
        allow_unclean_leaders(cluster, "orders")
        led = explained.until(lambda found: found["leader"] == 2 and found["leader_because"], "orders-0")
        why = led["leader_because"]
        assert (why["kind"], why["cause"]) == ("unclean-election", "unclean-allowed")
        assert (why["before"]["leader"], why["after"]["leader"], why["after"]["isr"]) == (-1, 2, [2])
        produced(cluster, ["new 0", "new 1"])

        cluster.start_broker(1)
        kinds = ("unclean-election", "unclean-leader", "replica-truncated")
        back = explained.until(
            lambda found: not found["out_of_sync"] and {event["kind"] for event in found["history"]} >= set(kinds),
            "orders-0",
        )
        told = {event["kind"]: event for event in back["history"]}
        assert (told["unclean-leader"]["node"], told["unclean-leader"]["log_end_offset"]) == (2, 10)
        cut = told["replica-truncated"]
        assert (cut["node"], cut["log_end_offset"], cut["truncated_to"], cut["committed_lost"]) == (1, 15, 10, 5)
        text = explained.text("orders-0")
        assert "no eligible replica could lead, and the topic allows unclean elections" in text
        assert "replica 2 leads without having been in sync: what others had from offset 10 on is lost" in text
        assert "offsets 10 to 14 had been committed and are lost" in text
        assert read(cluster) == [f"kept {number}" for number in range(10)] + ["new 0", "new 1"]
