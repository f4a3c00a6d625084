"""Embedded clusters as real processes: they start, report correctly, survive crashes, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.testing import Cluster

pytest_plugins = ["barnabas.testing.fixtures"]
BARNABAS = [sys.executable, "-m", "barnabas.cli"]


def command(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*BARNABAS, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: object, what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def pid_in(directory: Path) -> int:
    pid: int = json.loads((directory / "cluster.json").read_text())["nodes"][0]["pid"]
    return pid


def lines_of(bootstrap: str, topic: str) -> list[str]:
    done = command("consume", topic, "--from-beginning", "--exit", "--bootstrap", bootstrap)
    return done.stdout.splitlines()


def produce(bootstrap: str, topic: str, *values: str) -> None:
    client = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        client.produce(topic, value.encode())
    assert client.flush(120) == 0


def test_up_status_down(tmp_path: Path) -> None:
    directory = ("--dir", str(tmp_path))
    done = command("up", *directory, "--port", "0", "--detach")
    assert done.stdout.startswith("bootstrap: 127.0.0.1:")
    assert len(done.stdout.splitlines()) == 1
    bootstrap = done.stdout.removeprefix("bootstrap: ").strip()
    try:
        assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers.keys() == {1}
        status = json.loads(command("status", *directory, "--json").stdout)
        assert status["bootstrap"] == bootstrap
        [node] = status["nodes"]
        assert node["running"] is True
        assert node["serving"] is True
        assert node["roles"] == ["broker", "controller"]
        assert is_alive(node["pid"])
        assert "is already running" in command("up", *directory, "--port", "0", "--detach", code=1).stderr
        produce(bootstrap, "kept", "one")
        assert ": no faults" in command("log", "verify", str(tmp_path)).stdout
    finally:
        down = command("down", *directory)
    assert down.stdout == f"stopped: broker 1 (pid {node['pid']})\n"
    assert not is_alive(node["pid"])
    assert json.loads(command("status", *directory, "--json", code=1).stdout)["nodes"][0]["running"] is False
    assert command("down", *directory).stdout == "no broker was running\n"


@pytest.mark.full
def test_one_broker_of_three_is_stopped_or_killed_and_started_again(tmp_path: Path) -> None:
    directory = ("--dir", str(tmp_path))
    bootstrap = command("up", *directory, "--port", "0", "--brokers", "3", "--detach").stdout
    try:
        for broker, how, told in (("1", ("--kill",), "killed"), ("3", (), "stopped")):
            before = {node.node_id: node.pid for node in EmbeddedCluster(tmp_path).nodes}
            gone = command("down", *directory, "--broker", broker, *how)
            assert gone.stdout == f"{told}: broker {broker} (pid {before[int(broker)]})\n"
            assert command("down", *directory, "--broker", broker).stdout == "no broker was running\n"
            assert [node.running for node in EmbeddedCluster(tmp_path).nodes].count(True) == 2
            assert f"barnabas up --dir {tmp_path}" in command("status", *directory, code=1).stderr
            assert "has 3 broker(s), not 2" in command("up", *directory, "--brokers", "2", code=1).stderr
            assert "--override cannot be applied" in command("up", *directory, "--override", "a=b", code=1).stderr
            again = command("up", *directory)
            assert again.stdout == bootstrap
            assert f"started again: broker {broker} (pid " in again.stderr
            after = {node.node_id: node.pid for node in EmbeddedCluster(tmp_path).nodes if node.running}
            assert {node_id for node_id in before if before[node_id] != after[node_id]} == {int(broker)}
        assert "no broker 7" in command("down", *directory, "--broker", "7", code=1).stderr
    finally:
        down = command("down", *directory)
    assert down.stdout.count("stopped: broker ") == 3


def test_a_cluster_in_the_foreground_ends_with_ctrl_c(tmp_path: Path) -> None:
    up = subprocess.Popen([*BARNABAS, "up", "--dir", str(tmp_path), "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert up.stdout is not None
    assert up.stdout.readline().startswith("bootstrap: ")
    pid = pid_in(tmp_path)
    assert is_alive(pid)
    up.send_signal(signal.SIGINT)
    assert up.wait(120) == 0
    up.stdout.close()
    assert not is_alive(pid)


def test_a_broker_that_ends_by_itself_is_reported(tmp_path: Path) -> None:
    up = subprocess.Popen(
        [*BARNABAS, "up", "--dir", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    assert up.stdout.readline().startswith("bootstrap: ")
    os.kill(pid_in(tmp_path), signal.SIGKILL)
    _, errors = up.communicate(timeout=120)
    assert up.returncode == 1
    assert "broker 1 ended unexpectedly" in errors


def test_racks_are_kept_and_replicas_spread_over_them(tmp_path: Path) -> None:
    directory = ("--dir", str(tmp_path))
    assert "2 rack(s) for 3 broker(s)" in command("up", *directory, "--brokers", "3", "--racks", "a,b", code=1).stderr
    bootstrap = command("up", *directory, "--port", "0", "--racks", "a, b,a", "--detach").stdout
    try:
        command("down", *directory)
        assert command("up", *directory, "--port", "0", "--detach").stdout == bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap.removeprefix("bootstrap: ").strip()})

        def racks() -> dict[int, str]:
            return {node.id: node.rack for node in admin.describe_cluster(request_timeout=60).result(60).nodes}

        wait_for(lambda: len(racks()) == 3, "each broker knows of all")
        assert racks() == {1: "a", 2: "b", 3: "a"}
        (created,) = admin.create_topics([NewTopic("spread", 6, 2)]).values()
        created.result(60)

        def partitions() -> list[PartitionMetadata]:
            return list(admin.list_topics("spread", timeout=60).topics["spread"].partitions.values())

        # The broker that is asked may apply the creation later than the one that created the topic.
        wait_for(lambda: len(partitions()) == 6, "the topic is known")
        assert all(2 in each.replicas for each in partitions()), "one in each rack"
        assert [line.split()[0] for line in command("status", *directory).stdout.splitlines()] == [
            "RACK",
            "a",
            "b",
            "a",
        ]
    finally:
        command("down", *directory)


@pytest.mark.full
def test_in_the_foreground_the_others_go_on_without_one_that_ended(tmp_path: Path) -> None:
    with (tmp_path / "told").open("w+") as told:
        up = subprocess.Popen(
            [*BARNABAS, "up", "--dir", str(tmp_path), "--port", "0", "--brokers", "3"],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
        assert up.stdout is not None
        bootstrap = up.stdout.readline().removeprefix("bootstrap: ").strip()

        def said() -> str:
            return (tmp_path / "told").read_text()

        try:
            for broker in ("2", "3"):
                command("down", "--dir", str(tmp_path), "--broker", broker, "--kill")
                wait_for(lambda: f"broker {broker} ended; the others continue" in said(), "it is told")  # noqa: B023
                produce(bootstrap, f"without-{broker}", "one")
                command("up", "--dir", str(tmp_path))
            pids = [node.pid for node in EmbeddedCluster(tmp_path).nodes]
            assert all(map(is_alive, pids))
            assert up.poll() is None
        finally:
            up.send_signal(signal.SIGINT)
            assert up.wait(120) == 0
            up.stdout.close()
    assert not any(map(is_alive, pids))


def test_a_wrong_property_is_reported_in_the_brokers_words(tmp_path: Path) -> None:
    done = command("up", "--dir", str(tmp_path), "--port", "0", "--override", "num.partitions=many", "--detach", code=1)
    assert "num.partitions" in done.stderr
    assert "many" in done.stderr


def test_data_survives_an_orderly_stop_and_a_crash(fresh_barnabas_cluster: Cluster) -> None:
    cluster = fresh_barnabas_cluster
    bootstrap, first_pid = cluster.bootstrap, cluster.pid
    produce(bootstrap, "kept", "one")
    cluster.restart()
    assert cluster.bootstrap == bootstrap
    assert cluster.pid != first_pid
    produce(bootstrap, "kept", "two")
    cluster.kill()
    assert not cluster.running
    cluster.start()
    produce(bootstrap, "kept", "three")
    assert lines_of(bootstrap, "kept") == ["one", "two", "three"]
    assert (cluster.data_directory / "kept-0").is_dir()


def test_properties_reach_the_broker() -> None:
    with Cluster(properties={"num.partitions": "5"}) as cluster:
        produce(cluster.bootstrap, "wide", "x")
        [topic] = json.loads(command("topics", "list", "wide", "--json", "--bootstrap", cluster.bootstrap).stdout)
        directory = cluster.directory
    assert topic["partitions"] == 5
    assert not cluster.running
    assert not directory.exists()
