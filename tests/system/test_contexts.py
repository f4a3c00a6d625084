"""Contexts with real clusters: a dead broker on the first address, and many commands that start at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.embedded.cluster import EmbeddedCluster


class Shell:
    """Runs `barnabas` as a person does: in a directory, with a configuration of this test."""

    def __init__(self, configuration: Path) -> None:
        self._environment = {**os.environ, "XDG_CONFIG_HOME": str(configuration)}

    def begin(self, directory: Path, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "barnabas.cli", *arguments],
            cwd=directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, directory: Path, *arguments: str) -> str:
        process = self.begin(directory, *arguments)
        out, err = process.communicate(timeout=180)
        assert process.returncode == 0, out + err
        return out


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "configuration")


@pytest.mark.full
def test_any_broker_that_lives_is_used(tmp_path: Path, shell: Shell) -> None:
    """The first address of the cluster is that of a dead broker: commands go to the others."""
    (tmp_path / "elsewhere").mkdir()
    cluster = EmbeddedCluster(tmp_path / "three")
    try:
        shell.run(tmp_path, "up", "--brokers", "3", "--dir", "three", "--port", "0", "--detach")
        shell.run(tmp_path, "topics", "create", "t", "--partitions", "3")
        shell.run(tmp_path, "down", "--context", "three", "--broker", "1", "--kill")
        for directory in (tmp_path, tmp_path / "elsewhere"):
            assert json.loads(shell.run(directory, "topics", "list", "--json"))[0]["topic"] == "t"
        assert "partition 2" in shell.run(tmp_path, "explain", "t")
        assert "t-0" in shell.run(tmp_path, "monitor", "--once")
        shell.run(tmp_path, "up", "--context", "three")
        assert all(node.running for node in cluster.nodes)
        shown = json.loads(shell.run(tmp_path, "context", "show", "--json"))
        assert shown["bootstrap"] == [node.bootstrap for node in cluster.nodes]
        assert shown["in_use_because"] == "its cluster belongs to this directory"
    finally:
        cluster.stop()
    assert [each["context"] for each in json.loads(shell.run(tmp_path, "context", "list", "--json"))] == ["three"]


def test_clusters_that_start_at_once_all_get_a_context(tmp_path: Path, shell: Shell) -> None:
    names = ["a", "b", "c"]
    try:
        starts = [shell.begin(tmp_path, "up", "--dir", name, "--port", "0", "--detach") for name in names]
        for process in starts:
            out, err = process.communicate(timeout=180)
            assert process.returncode == 0, out + err
        listed = json.loads(shell.run(tmp_path, "context", "list", "--json"))
        assert [each["context"] for each in listed] == names
        assert [each["bootstrap"] for each in listed] == [
            [EmbeddedCluster(tmp_path / name).bootstrap] for name in names
        ]
    finally:
        for name in names:
            EmbeddedCluster(tmp_path / name).stop()
