"""`barnabas status` of a cluster in ZooKeeper mode: what it reads from the znodes."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.zookeeper_process import OurZooKeeper, client_of

from barnabas.cli import entry, zookeeper_view
from barnabas.embedded.nodes import Node, Recorded, ZookeeperServer
from barnabas.embedded.processes import start_ticks
from barnabas.znodes.cluster_znodes import ControllerRegistration, encode_controller, encode_controller_epoch


def test_sessions_and_the_controller_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The process of the test stands for broker 1, which is registered; broker 2 has ended."""
    server = OurZooKeeper(tmp_path / "zookeeper").start()
    connect = f"127.0.0.1:{server.port}/root"
    assert server.process is not None
    pid, ticks = os.getpid(), start_ticks(os.getpid())
    nodes = (
        Node(1, pid, ticks, "127.0.0.1", server.port, 0, ("broker",), str(tmp_path / "broker-1")),
        Node(2, 1 << 30, 1, "127.0.0.1", 1, 0, ("broker",), str(tmp_path / "broker-2")),
    )
    own = ZookeeperServer(
        server.process.pid, start_ticks(server.process.pid), "127.0.0.1", server.port, str(tmp_path / "zookeeper")
    )
    Recorded(nodes, None, connect, own).store(tmp_path / "cluster.json")
    client = KazooClient(connect, timeout=8.0)
    client.start(timeout=20)
    client.ensure_path("/")
    client.create("/brokers/ids/1", b"{}", ephemeral=True, makepath=True)
    client.create("/controller", encode_controller(ControllerRegistration(1, 5)), ephemeral=True)
    client.create("/controller_epoch", encode_controller_epoch(7))
    try:
        assert entry.run(["status", "--dir", str(tmp_path), "--json"]) == 1
        shown = json.loads(capsys.readouterr().out)
        assert (shown["controller"], shown["controller_epoch"]) == (1, 7)
        assert shown["zookeeper"]["connect"] == connect
        assert shown["zookeeper"]["server"]["running"]
        assert [node["running"] for node in shown["nodes"]] == [True, False]
        assert [node["session"] for node in shown["nodes"]] == [f"{client.client_id[0]:#x}", None]
        assert shown["nodes"][0]["broker_epoch"] > 0

        assert entry.run(["status", "--dir", str(tmp_path)]) == 1
        text = capsys.readouterr().out
        assert "controller: 1, controller epoch: 7" in text
        assert f"zookeeper: {connect}, pid {server.process.pid}" in text

        client.delete("/brokers/ids/1")
        assert entry.run(["status", "--dir", str(tmp_path)]) == 1
        assert "unregistered" in capsys.readouterr().out

        client.set("/controller", b"no JSON")
        view = zookeeper_view.view_of(connect)
        assert view.controller == -1
        assert "/controller" in view.problem
    finally:
        client.stop()
        client.close()
        server.stop()

    assert entry.run(["status", "--dir", str(tmp_path)]) == 1
    assert f"cannot reach ZooKeeper at 127.0.0.1:{server.port}" in capsys.readouterr().err


def test_invalid_znodes_of_topics_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status shows each such topic until its znode is mended."""
    with OurZooKeeper(tmp_path / "zookeeper") as server, client_of(server.port) as client:
        connect = f"127.0.0.1:{server.port}"
        node = Node(1, os.getpid(), start_ticks(os.getpid()), "127.0.0.1", server.port, 0, ("broker",), str(tmp_path))
        Recorded((node,), None, connect, None).store(tmp_path / "cluster.json")
        assignment = (
            b'{"partitions":{"0":[1]},"topic_id":"mXlaWKrERa-ZxMUJhTZPXw","adding_replicas":{},'
            b'"removing_replicas":{},"version":3}'
        )
        state = b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":0,"isr":[1]}'
        for name, leader in (("good", 1), ("stranger", 7)):
            client.create(f"/brokers/topics/{name}", assignment, makepath=True)
            client.create(f"/brokers/topics/{name}/partitions/0/state", state % leader, makepath=True)
        client.create("/brokers/topics/nonsense", b"{")
        client.create("/brokers/topics/holes", assignment.replace(b'"0"', b'"1"'))
        view = zookeeper_view.view_of(connect)
        assert [line.partition(":")[0] for line in view.invalid] == [
            "znode /brokers/topics/holes",
            "znode /brokers/topics/nonsense",
            "znode /brokers/topics/stranger/partitions/0/state",
        ]
        entry.run(["status", "--dir", str(tmp_path)])
        assert "invalid znode /brokers/topics/stranger/partitions/0/state: names brokers [7]" in capsys.readouterr().out
        client.set("/brokers/topics/holes", assignment)
        assert len(zookeeper_view.view_of(connect).invalid) == 2


class RoundTrips:
    """A relay to a server, for one client. It counts how often the client sends after it has received."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_answered = True

    @contextmanager
    def relayed(self) -> Iterator[RoundTrips]:
        relay = threading.Thread(target=self._relay)
        relay.start()
        try:
            yield self
        finally:
            relay.join(20)
            self._listener.close()

    def _relay(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection(("127.0.0.1", self._server)) as server:
            back = threading.Thread(target=self._answer, args=(server, client))
            back.start()
            while data := client.recv(1 << 20):
                if self._is_answered:
                    self.count += 1
                self._is_answered = False
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            back.join(20)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(1 << 20):
            self._is_answered = True
            client.sendall(data)


def test_many_topics_are_read_in_few_round_trips(tmp_path: Path) -> None:
    """ZooKeeper can be far away: one request after the other is 1,500 round trips for these 300 topics."""
    with OurZooKeeper(tmp_path / "zookeeper") as server, client_of(server.port) as client:
        assignment, state = (
            b'{"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"version":3}',
            b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}',
        )
        client.ensure_path("/brokers/topics")
        for number in range(300):
            topic = f"/brokers/topics/topic-{number}"
            created = {topic: assignment, f"{topic}/partitions": b"", f"{topic}/partitions/0": b""}
            for path, data in created.items():
                client.create_async(path, data)
            client.create_async(f"{topic}/partitions/0/state", state)
        client.create("/brokers/topics/nonsense", b"{")
        with RoundTrips(server.port).relayed() as trips:
            view = zookeeper_view.view_of(f"127.0.0.1:{trips.port}")
        assert [line.partition(":")[0] for line in view.invalid] == ["znode /brokers/topics/nonsense"]
        # A window can arrive in several pieces.
        assert trips.count < 100


def test_invalid_znodes_of_other_entities_are_shown(tmp_path: Path) -> None:
    with OurZooKeeper(tmp_path / "zookeeper") as server, client_of(server.port) as client:
        quota = b'{"version":1,"config":{"producer_byte_rate":"7"}}'
        for path, data in {
            "/config/brokers/x": b"{}",
            "/config/clients/%zz": quota,
            "/config/users/good": quota,
            "/config/users/good/clients/c": quota.replace(b"7", b"much"),
            "/config/users/bad": b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}',
            "/config/ips/10.0.0.1": b"{",
            "/latest_producer_id_block": b"{}",
        }.items():
            client.create(path, data, makepath=True)
        view = zookeeper_view.view_of(f"127.0.0.1:{server.port}")
        assert [line.split(":")[0].removeprefix("znode ") for line in view.invalid] == [
            "/config/brokers/x",
            "/config/users/bad",
            "/config/clients/%zz",
            "/config/users/good/clients/c",
            "/config/ips/10.0.0.1",
            "/latest_producer_id_block",
        ]
