"""A cluster with ZooKeeper: the options of `barnabas up`, the ports, and what the state file records."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli import entry, local_cluster
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node, Recorded, ZookeeperServer
from barnabas.embedded.ports import ZOOKEEPER_PORT, choose_zookeeper_port

GONE = 1 << 30


def node(directory: Path) -> Node:
    return Node(1, GONE, 1, "127.0.0.1", 1, 0, ("broker",), str(directory / "broker-1"))


def server(directory: Path, port: int = 2) -> ZookeeperServer:
    return ZookeeperServer(GONE, 1, "127.0.0.1", port, str(directory / "zookeeper"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--zookeeper", "--brokers", "3"], ""),
        (["--brokers", "3", "--zookeeper"], ""),
        (["--zookeeper", "host:2181/root", "--brokers", "3"], "host:2181/root"),
        (["--zookeeper=host:2181", "--brokers", "3"], "host:2181"),
        (["--brokers", "3"], None),
    ],
)
def test_the_address_of_zookeeper_can_be_left_out(
    arguments: list[str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def start(_self: EmbeddedCluster, **given: Any) -> list[Node]:
        seen.update(given)
        raise Failure("far enough")

    monkeypatch.setattr(EmbeddedCluster, "start", start)
    assert entry.run(["up", "--dir", str(tmp_path), *arguments]) == 1
    assert (seen["zookeeper"], seen["brokers"], seen["zookeeper_port"]) == (expected, 3, None)


def test_the_state_file_keeps_server_and_address(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    recorded = Recorded((node(tmp_path),), None, "127.0.0.1:2", server(tmp_path))
    recorded.store(path)
    assert Recorded.load(path) == recorded
    without = Recorded((node(tmp_path),), "id")
    without.store(path)
    assert Recorded.load(path) == without
    assert sorted(json.loads(path.read_text())) == ["cluster_id", "nodes", "version"]


def test_a_cluster_does_not_change_the_place_of_its_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Recorded((node(tmp_path),), "id").store(tmp_path / "cluster.json")
    assert entry.run(["up", "--dir", str(tmp_path), "--zookeeper"]) == 1
    assert "has its metadata in a quorum, not in ZooKeeper" in capsys.readouterr().err


def test_the_next_start_takes_the_same_zookeeper(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path)
    own = Recorded((node(tmp_path),), None, "127.0.0.1:2", server(tmp_path))
    other = Recorded((node(tmp_path),), None, "host:2181/root")
    assert cluster._zookeeper_of(own, None) == ""
    assert cluster._zookeeper_of(other, None) == "host:2181/root"
    assert cluster._zookeeper_of(other, "moved:2181/root") == "moved:2181/root"
    assert cluster._zookeeper_of(Recorded(), None) is None
    assert cluster._zookeeper_of(Recorded(), "") == ""


def test_the_port_of_the_server(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port} on 127.0.0.1, for the ZooKeeper server, is in use"):
            choose_zookeeper_port(port, None, ())
        with pytest.raises(Failure, match=f"port {port} "):
            choose_zookeeper_port(None, server(tmp_path, port), ())
        assert choose_zookeeper_port(0, server(tmp_path, port), ()) != port
    assert choose_zookeeper_port(None, server(tmp_path, port), ()) == port
    assert choose_zookeeper_port(0, server(tmp_path, port), ()) == port
    with pytest.raises(Failure, match=f"port {ZOOKEEPER_PORT} "):
        choose_zookeeper_port(None, None, (ZOOKEEPER_PORT,))


def test_options_that_a_running_cluster_cannot_take_are_refused(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(tmp_path)
    Recorded((node(tmp_path),), None, "host:2181").store(cluster.state_path)
    for override, racks, zookeeper, named in (
        (["a=b"], None, None, "--override"),
        (None, "a", None, "--racks"),
        (None, None, "", "--zookeeper"),
    ):
        with pytest.raises(Failure, match=f"{named} cannot be applied"):
            local_cluster._complete(cluster, None, override, racks, zookeeper)
