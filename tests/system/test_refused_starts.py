"""Nodes that must not join a cluster, as processes: one clear line, an exit code, and nothing damaged."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import kafka_jars
from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.raft.snapshots import encode_snapshot
from barnabas.testing import Cluster

OTHER_CLUSTER = "Z29sZGVuLWNsdXN0ZXItMQ"
CRITICAL, WRONG, REFUSED = 70, 2, 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, of which the third has been stopped."""
    with Cluster(tmp_path_factory.mktemp("refused"), brokers=3) as cluster:
        cluster.stop_broker(3)
        yield cluster


def settings_of(cluster: Cluster, broker_id: int) -> dict[str, str]:
    lines = (cluster.data_directory_of(broker_id).parent / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def joining(cluster: Cluster, folder: Path, node_id: int = 9) -> dict[str, str]:
    """Returns the properties of a broker without a controller, with a separate directory."""
    (port,) = kafka_jars.free_ports(1)
    return {
        "process.roles": "broker",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": settings_of(cluster, 1)["controller.quorum.voters"],
        "log.dirs": str(folder / f"data-{port}"),
    }


def cluster_id_of(cluster: Cluster) -> str:
    found = re.search(r"cluster.id=(\S+)", (cluster.data_directory / "meta.properties").read_text())
    assert found is not None
    return found[1]


def start(folder: Path, settings: Mapping[str, str], cluster_id: str | None = None) -> subprocess.Popen[str]:
    file = folder / f"server-{time.monotonic_ns()}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "barnabas.server.main", "broker", str(file)]
    command += [] if cluster_id is None else ["--cluster-id", cluster_id]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def refused(folder: Path, settings: Mapping[str, str], code: int, cluster_id: str | None = None) -> str:
    """Returns the one line by which the node refuses to start."""
    process = start(folder, settings, cluster_id)
    try:
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == code, out
    (line,) = [line for line in out.splitlines() if "CRITICAL" in line or line.startswith("barnabas: ")]
    assert "Traceback" not in out
    assert "started: " not in out
    return line


def content_of(directory: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}


def seen(cluster: Cluster) -> set[int]:
    addresses = ",".join(cluster.bootstrap.split(",")[:2])
    return set(AdminClient({"bootstrap.servers": addresses}).list_topics(timeout=60).brokers)


def await_seen(cluster: Cluster, broker_ids: set[int]) -> None:
    deadline = time.monotonic() + 120
    while (found := seen(cluster)) != broker_ids:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_voter_and_a_broker_of_another_cluster(cluster: Cluster, tmp_path: Path) -> None:
    voter = {**settings_of(cluster, 3), "log.dirs": str(tmp_path / "empty")}
    for settings in (voter, joining(cluster, tmp_path)):
        line = refused(tmp_path, settings, CRITICAL, OTHER_CLUSTER)
        assert f"belongs to another cluster than this node ({OTHER_CLUSTER})" in line
        assert "format this node for that cluster" in line
    await_seen(cluster, {1, 2})


def test_voters_that_are_not_those_of_the_directory(cluster: Cluster, tmp_path: Path) -> None:
    settings = settings_of(cluster, 3)
    voters = settings["controller.quorum.voters"].split(",")
    before = content_of(settings["log.dirs"])
    line = refused(tmp_path, {**settings, "controller.quorum.voters": ",".join(voters[1:])}, REFUSED)
    assert "belongs to a quorum with the voters 1, 2, 3, but controller.quorum.voters names 2, 3" in line
    after = content_of(settings["log.dirs"])
    kept = [name for name in before if name.endswith((".log", ".checkpoint", "quorum-state", "meta.properties"))]
    assert len(kept) >= 3
    assert [name for name in kept if after.get(name) != before[name]] == []
    line = refused(tmp_path, {**settings, "controller.quorum.voters": ",".join(voters[:2])}, WRONG)
    assert "node.id=3 must be among controller.quorum.voters" in line


def test_a_directory_of_another_node(cluster: Cluster, tmp_path: Path) -> None:
    other = str(cluster.data_directory_of(3))
    before = content_of(other)
    line = refused(tmp_path, {**joining(cluster, tmp_path), "log.dirs": other}, REFUSED)
    assert "belongs to node 3, but node.id=9: use the directory of this node" in line
    assert content_of(other) == before


def test_a_log_from_a_newer_release(tmp_path: Path) -> None:
    port, controller_port = kafka_jars.free_ports(2)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(tmp_path / "data"),
    }
    newer = encode_snapshot(
        [(FeatureLevelRecord(name=METADATA_VERSION, feature_level=99), 0)],
        epoch=1,
        wall_ms=1_700_000_000_000,
        last_contained_log_timestamp_ms=1_700_000_000_000,
        kraft_version=0,
        voters=None,
    )
    log = tmp_path / "data" / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (log / "00000000000000000010-0000000001.checkpoint").write_bytes(newer)
    meta = f"version=1\nnode.id=1\ncluster.id={OTHER_CLUSTER}\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    (tmp_path / "data" / "meta.properties").write_text(meta)
    line = refused(tmp_path, settings, REFUSED)
    assert "metadata.version" in line
    assert "99" in line
    assert (log / "00000000000000000010-0000000001.checkpoint").read_bytes() == newer


@pytest.mark.full
def test_a_second_node_with_the_same_id(cluster: Cluster, tmp_path: Path) -> None:
    """The second node is refused again and again while the first one lives, and ends when its time is over."""
    first = start(tmp_path, joining(cluster, tmp_path), cluster_id_of(cluster))
    try:
        assert first.stdout is not None
        assert any(line.startswith("started: ") for line in first.stdout)
        settings = joining(cluster, tmp_path) | {"initial.broker.registration.timeout.ms": "8000"}
        second = start(tmp_path, settings, cluster_id_of(cluster))
        out, _ = second.communicate(timeout=120)
        assert second.returncode == CRITICAL, out
        told = [line for line in out.splitlines() if "DUPLICATE_BROKER_REGISTRATION" in line]
        assert "another process with this node.id is running" in told[0]
        (last,) = [line for line in out.splitlines() if "CRITICAL" in line]
        assert "giving up after initial.broker.registration.timeout.ms" in last
        await_seen(cluster, {1, 2, 9})
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=120)
    assert first.returncode == 0


def test_a_quorum_that_cannot_be_reached(cluster: Cluster, tmp_path: Path) -> None:
    """The node continues to try, logs that, and can be stopped."""
    ports = kafka_jars.free_ports(2)
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports, start=1))
    settings = joining(cluster, tmp_path) | {"controller.quorum.voters": voters}
    process = start(tmp_path, settings, OTHER_CLUSTER)
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if "no leader of the metadata quorum is known for" in line:
            break
    assert f"still trying 1@127.0.0.1:{ports[0]}, 2@127.0.0.1:{ports[1]}" in said[-1]
    assert len(said) < 20, "it says so once in a while"
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert "Traceback" not in "".join(said) + out
    assert process.returncode == 0


def test_the_third_comes_back_when_it_is_itself(cluster: Cluster) -> None:
    """The third broker starts normally after all refusals."""
    cluster.start_broker(3)
    await_seen(cluster, {1, 2, 3})
