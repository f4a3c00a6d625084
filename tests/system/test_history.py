"""`barnabas history record` on three brokers, one of which is killed; the file is then opened elsewhere."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.survival import wait_until
from tests.system.test_monitor import create

from barnabas.cli.app import run
from barnabas.history.errors import HistoryError
from barnabas.history.reader import History
from barnabas.monitor.severity import Severity
from barnabas.testing import Cluster

T = TypeVar("T")


def asked(file: Path, question: Callable[[History], T], none: T) -> T:
    """Returns the answer of a history that is being recorded; `none` while it has no state."""
    try:
        with History.open(file) as history:
            return question(history)
    except HistoryError:
        return none


def test_a_kill_is_in_the_file_and_the_file_opens_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "h.db"
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        create(cluster.bootstrap, "orders", [[3, 1, 2], [1, 2, 3]], min_isr=2)
        command = [sys.executable, "-m", "barnabas.cli", "history", "record", str(file), "-b", cluster.bootstrap]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: asked(file, lambda history: len(history.topics()), 0) >= 1, "the cluster is recorded")
            before_ms = time.time_ns() // 1_000_000 + 1_000
            wait_until(lambda: asked(file, lambda history: history.span()[1], 0) >= before_ms, "a second is recorded")
            cluster.kill(3)
            wait_until(lambda: asked(file, explained, False), "the kill and its cause are recorded")
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        assert process.returncode == 130, said
        capsys.readouterr()
        assert run(["monitor", "orders", "--once", "--json", "-b", cluster.bootstrap]) == 0
        live = json.loads(capsys.readouterr().out)["partitions"]
    (tmp_path / "elsewhere").mkdir()
    copy = Path(shutil.copy(file, tmp_path / "elsewhere" / "incident.db"))
    with History.open(copy) as history:
        assert history.problem is None
        assert history.at(before_ms).severity is Severity.OK
        last = history.at(history.span()[1])
        assert [(each["leader"], each["leader_epoch"], sorted(each["isr"]), each["state"]) for each in live] == [
            (state.leader, state.leader_epoch, sorted(state.isr), state.state)
            for state in last.values()
            if state.topic == "orders"
        ]
    assert run(["explain", "orders-0", "--at", "0s", "--history", str(copy)]) == 0
    assert "because broker 3" in capsys.readouterr().out


def explained(history: History) -> bool:
    """Returns whether the history has both partitions without broker 3, and why."""
    moved = [change for change in history.events(topic="orders") if change.after and 3 not in change.after.isr]
    return {change.subject for change in moved if change.cause} == {"orders-0", "orders-1"}
