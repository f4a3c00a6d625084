"""Signals that wait until a started process is recorded, and an embedded cluster whose start is interrupted."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.cli import local_cluster
from barnabas.cli.contexts import started
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.signals import held, until_signalled


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_heeded_at_the_end_and_not_before(number: signal.Signals) -> None:
    seen: list[str] = []
    before = signal.signal(number, lambda *_: seen.append("signal"))
    try:
        with held():
            os.kill(os.getpid(), number)
            seen.append("inside")
        seen.append("after")
        assert seen == ["inside", "signal", "after"]
        os.kill(os.getpid(), number)
        assert seen[3:] == ["signal"]
    finally:
        signal.signal(number, before)


def test_other_threads_pass_through() -> None:
    passed = threading.Event()

    def run() -> None:
        with held():
            passed.set()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert passed.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_open_on_a_loop_is_closed_though_signals_go_on(number: signal.Signals) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            seen.append("closed")

    before = signal.signal(number, lambda *_: seen.append("signal"))
    try:
        assert asyncio.run(until_signalled(work()))
        assert seen == ["closed"]
        os.kill(os.getpid(), number)
        assert seen == ["closed", "signal"], "afterwards it is as it was"
    finally:
        signal.signal(number, before)


def test_without_a_signal_work_is_done_to_its_end() -> None:
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        seen.append("done")

    assert not asyncio.run(until_signalled(work()))
    assert seen == ["done"]


def test_a_start_that_is_broken_off_leaves_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives before the file of the brokers' process ids is written."""
    cluster = EmbeddedCluster(tmp_path)
    spawned: list[int] = []
    spawn = EmbeddedCluster._spawn

    def interrupted(self: EmbeddedCluster, file: Path, formatting: Sequence[str]) -> tuple[int, int | None]:
        if spawned:
            raise KeyboardInterrupt
        started = spawn(self, file, formatting)
        spawned.append(started[0])
        return started

    monkeypatch.setattr(EmbeddedCluster, "_spawn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cluster.start(brokers=2)
    assert spawned
    assert not Path(f"/proc/{spawned[0]}").exists()


def test_ctrl_c_right_after_the_start_stops_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads `bootstrap: ` sends SIGINT before the command continues."""
    stopped: list[bool] = []

    def announced(directory: Path, bootstrap: list[str], settings: dict[str, str] | None) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(EmbeddedCluster, "start", lambda cluster, **options: [])
    monkeypatch.setattr(EmbeddedCluster, "stop", lambda cluster: stopped.append(True))
    monkeypatch.setattr(started, "record", announced)
    local_cluster.up(directory=tmp_path)
    assert stopped == [True]
