"""`barnabas status` of three brokers: the leaders, the fenced brokers, and what each one lacks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.app import run
from barnabas.testing import Cluster


def shown(directory: Path, capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert run(["status", "--dir", str(directory), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def create_single(cluster: Cluster, broker: int) -> None:
    """Creates a topic with one replica on that broker."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("single", num_partitions=1, replica_assignment=[[broker]])])["single"].result(60)


@pytest.mark.full
def test_three_brokers_then_two_then_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        status = shown(cluster.directory, capsys, 0)
        leader = status["controller"]
        assert leader in (1, 2, 3)
        assert status["metadata_high_watermark"] > 0
        assert [(node["node_id"], node["fenced"], node["serving"]) for node in status["nodes"]] == [
            (number, False, True) for number in (1, 2, 3)
        ]
        assert all(0 <= node["metadata_lag"] < 100 for node in status["nodes"])
        assert run(["status", "--dir", str(cluster.directory)]) == 0
        text = capsys.readouterr().out
        assert text.count("active controller") == 1
        assert text.count("follower") == 2

        assert status["leaderless"] == []
        create_single(cluster, leader)

        cluster.kill(leader)
        deadline = time.monotonic() + 120
        while True:
            status = shown(cluster.directory, capsys, 1)
            states = {node["node_id"]: node["fenced"] for node in status["nodes"]}
            if status["controller"] not in (-1, leader) and states[leader] and status["leaderless"]:
                break
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        assert [node["running"] for node in status["nodes"]].count(False) == 1
        (lost,) = status["leaderless"]
        assert (lost["topic"], lost["partition"], lost["replicas"]) == ("single", 0, [leader])
        assert lost["way_out"].startswith(f"start broker {leader}, in ")
        assert run(["status", "--dir", str(cluster.directory)]) == 1
        assert f"no leader: single-0: {lost['way_out']}" in capsys.readouterr().out

        (other, *_) = [number for number in (1, 2, 3) if number != leader]
        cluster.kill(other)
        status = shown(cluster.directory, capsys, 1)
        assert [node["running"] for node in status["nodes"]].count(True) == 1
        # The last node still reports its knowledge, but there is no controller to decide.
        deadline = time.monotonic() + 120
        while status["controller"] != -1:
            assert time.monotonic() < deadline, status
            status = shown(cluster.directory, capsys, 1)
        assert status["metadata_high_watermark"] == -1
        assert [node["metadata_lag"] for node in status["nodes"]] == [None, None, None]
        (last,) = [node for node in status["nodes"] if node["running"]]
        assert last["serving"]
        assert run(["status", "--dir", str(cluster.directory)]) == 1
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
        states = {int(row[0]): row[1:3] for row in rows if row and row[0].isdecimal()}
        assert states == {
            number: ["serving", "no"] if number == last["node_id"] else ["stopped", "-"] for number in (1, 2, 3)
        }

        cluster.start_broker(other)
        while (status := shown(cluster.directory, capsys, 1))["controller"] not in (other, last["node_id"]):
            assert time.monotonic() < deadline + 120, status
            time.sleep(0.1)
