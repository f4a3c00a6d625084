"""`barnabas znodes` with a running ZooKeeper: the tree, JSON, a chroot, and changes as they happen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.zookeeper_process import OurZooKeeper, client_of

from kafka_jars import free_ports
from zookeeper_jars import ApacheZooKeeper

_STATE = b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":%d,"isr":[1,2],"leader_recovery_state":0}'
_STATE_PATH = "/kafka/brokers/topics/t/partitions/0/state"
Server = OurZooKeeper | ApacheZooKeeper


def _heed_ctrl_c() -> None:
    """Undoes what a shell does that starts the tests in the background: it makes SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "barnabas.cli.entry", "znodes", *arguments]


def _znodes(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*arguments), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("new_server", [OurZooKeeper, pytest.param(ApacheZooKeeper, marks=pytest.mark.full)])
def test_the_tree_and_its_changes(new_server: Callable[[Path], Server], tmp_path: Path) -> None:
    with new_server(tmp_path) as server, client_of(server.port) as other:
        other.create(_STATE_PATH, _STATE % (1, 0), makepath=True)
        other.create("/kafka/controller", b'{"version":2,"brokerid":1,"timestamp":"5"', ephemeral=True)
        address = f"127.0.0.1:{server.port}/kafka"
        shown = _znodes("--zookeeper", address)
        assert shown.returncode == 0, shown.stderr
        lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
        assert "leader=1" in lines["/brokers/topics/t/partitions/0/state"]
        assert f"{other.client_id[0]:#x}" in lines["/controller"]
        found = [json.loads(line) for line in _znodes("/brokers", "--json", "-z", address).stdout.splitlines()]
        assert [each["path"] for each in found][:2] == ["/brokers", "/brokers/topics"]
        assert found[-1]["content"]["isr"] == [1, 2]
        process = subprocess.Popen(
            _command("-z", address, "--watch"), stdout=subprocess.PIPE, text=True, preexec_fn=_heed_ctrl_c
        )
        try:
            assert process.stdout is not None
            first = [process.stdout.readline() for _ in range(len(shown.stdout.splitlines()))]
            assert "".join(first) == shown.stdout
            other.set(_STATE_PATH, _STATE % (2, 1))
            assert "leader=2" in (line := process.stdout.readline()), line
            assert line.startswith("changed /brokers/topics/t/partitions/0/state version 1 ")
            other.delete("/kafka/controller")
            assert process.stdout.readline() == "deleted /controller\n"
            other.create("/kafka/new", b"x")
            assert process.stdout.readline() == "created /new version 0 x\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
            process.wait()


def test_a_watch_waits_for_a_znode_that_is_not_there(tmp_path: Path) -> None:
    """The requests of tools exist for moments only."""
    path = "/admin/preferred_replica_election"
    with OurZooKeeper(tmp_path) as server, client_of(server.port) as other:
        command = _command(path, "--watch", "-z", f"127.0.0.1:{server.port}")
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_ctrl_c
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stderr.readline() == f"there is no znode {path} yet: waiting for its creation\n"
            other.create(path, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}', makepath=True)
            assert process.stdout.readline().startswith(f"created {path} version 0 ")
            other.delete(path)
            assert process.stdout.readline() == f"deleted {path}\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
            process.wait()


@pytest.mark.full
def test_a_server_that_is_not_there_and_a_znode_that_is_not(tmp_path: Path) -> None:
    begin = time.monotonic()
    shown = _znodes("--zookeeper", f"127.0.0.1:{free_ports(1)[0]}")
    assert shown.returncode == 1
    assert "no ZooKeeper server answers" in shown.stderr
    assert time.monotonic() - begin < 30
    with OurZooKeeper(tmp_path) as server:
        shown = _znodes("/nothing", "--zookeeper", f"127.0.0.1:{server.port}")
        assert (shown.returncode, shown.stdout) == (1, "")
        assert shown.stderr == "error: there is no znode /nothing\n"
