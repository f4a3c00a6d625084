"""Signals that wait until what was started is written down; and an embedded cluster whose start is broken off."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from barnabas.cli.embedded import EmbeddedCluster
from barnabas.cli.signals import held


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


def test_a_start_that_is_broken_off_leaves_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even before it is written down which there are."""
    cluster = EmbeddedCluster(tmp_path)
    spawned: list[int] = []
    spawn = EmbeddedCluster._spawn

    def interrupted(self: EmbeddedCluster, file: Path, cluster_id: str) -> dict[str, object]:
        if spawned:
            raise KeyboardInterrupt
        started = spawn(self, file, cluster_id)
        spawned.append(started["pid"])
        return started

    monkeypatch.setattr(EmbeddedCluster, "_spawn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cluster.start(brokers=2)
    assert spawned
    assert not Path(f"/proc/{spawned[0]}").exists()
