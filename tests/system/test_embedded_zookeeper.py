"""`barnabas up --zookeeper` and `testing.Cluster(zookeeper=True)`: a cluster with a ZooKeeper server of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.process_nodes import call, until

from barnabas.cli import entry
from barnabas.common.errors import ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.embedded.zookeeper_session import ZookeeperSession
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.testing import Cluster

WAIT_S = 60.0


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 2)]).values():
        future.result(WAIT_S)


def produce(cluster: Cluster, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert not errors


def consume(cluster: Cluster, topic: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    values: list[str] = []

    def all_read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
        return len(values) >= count

    until("all records are read", all_read)
    consumer.close()
    return values


def take_producer_id(address: str) -> None:
    host, _, port = address.rpartition(":")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    def taken() -> bool:
        response = call((host, int(port)), request, 4, InitProducerIdResponse)
        return response.error_code == ErrorCode.NONE

    until("the broker has producer ids", taken)


def session_of(cluster: Cluster, broker_id: int) -> int:
    """Returns the session of a broker, 0 if it is not registered."""
    with ZookeeperSession(cluster.zookeeper) as session:
        found = session.read(f"/brokers/ids/{broker_id}")
    return 0 if found is None else found.stat.ephemeral_owner


@pytest.mark.full
def test_sessions_expire_and_the_server_crashes_and_everything_is_kept() -> None:
    with Cluster(brokers=2, zookeeper=True) as cluster:
        create(cluster, "orders")
        expected = [f"before {number}" for number in range(100)]
        produce(cluster, "orders", expected)

        before = session_of(cluster, 1)
        cluster.expire_session(1)
        until("broker 1 is registered again", lambda: session_of(cluster, 1) not in (0, before))
        expected += (expired := [f"expired {number}" for number in range(100)])
        produce(cluster, "orders", expired)

        # A broker that has not handed out a producer id yet would need ZooKeeper for its first block of them.
        for address in cluster.bootstrap.split(","):
            take_producer_id(address)
        sessions = [session_of(cluster, broker) for broker in (1, 2)]
        cluster.kill_zookeeper()
        expected += (alone := [f"alone {number}" for number in range(100)])
        produce(cluster, "orders", alone)
        with pytest.raises(Failure, match="cannot reach ZooKeeper"):
            session_of(cluster, 1)
        cluster.start_zookeeper()
        assert [session_of(cluster, broker) for broker in (1, 2)] == sessions

        cluster.restart()
        produce(cluster, "orders", ["after"])
        assert sorted(consume(cluster, "orders", len(expected) + 1)) == sorted([*expected, "after"])


@pytest.mark.full
def test_the_commands_of_a_cluster_with_zookeeper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started, shown, killed and started again as a whole, from the command line."""
    where = ["--dir", str(tmp_path / "cluster")]
    # A killed broker's znode is in the way of the next start until its session has expired.
    up = ["up", *where, "--override", "zookeeper.session.timeout.ms=6000", "--detach"]
    try:
        assert entry.run([*up, "--zookeeper", "--zookeeper-port", "0", "--port", "0"]) == 0
        assert capsys.readouterr().out.startswith("bootstrap: 127.0.0.1:")
        assert entry.run(["status", *where, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["controller"], shown["controller_epoch"]) == (1, 1)
        connect = shown["zookeeper"]["connect"]
        assert entry.run(["znodes", "/controller", "--zookeeper", connect]) == 0
        assert "broker_id=1" in capsys.readouterr().out
        monkeypatch.chdir(tmp_path / "cluster")  # the cluster that commands use there
        assert entry.run(["znodes", "/controller"]) == 0
        assert "broker_id=1" in capsys.readouterr().out

        assert entry.run(["down", *where, "--kill"]) == 0
        assert "killed: the ZooKeeper server" in capsys.readouterr().out
        assert entry.run(up) == 0
        capsys.readouterr()
        assert entry.run(["status", *where, "--json"]) == 0
        again = json.loads(capsys.readouterr().out)
        assert again["zookeeper"]["connect"] == connect
        assert again["controller_epoch"] == 2
    finally:
        assert entry.run(["down", *where]) == 0
    assert "stopped: the ZooKeeper server" in capsys.readouterr().out
