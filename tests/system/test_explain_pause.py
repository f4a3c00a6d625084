"""A real broker that stands still: `explain` names the pause once the process runs again."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.app import run
from barnabas.testing import Cluster

_WITHIN_S = 40.0
_TIMES = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.mark.full
def test_a_broker_that_was_stopped_by_a_signal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster", brokers=3, properties=_TIMES) as cluster:

        def explained(*arguments: str) -> Any:
            assert run(["explain", *arguments, "--json", "--bootstrap", cluster.bootstrap]) == 0
            return json.loads(capsys.readouterr().out)

        def until(condition: Any, *arguments: str) -> Any:
            deadline = time.monotonic() + _WITHIN_S
            while not condition(found := explained(*arguments)):
                assert time.monotonic() < deadline, found
                time.sleep(0.3)
            return found

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[2, 1, 3]])])["orders"].result(timeout=20)
        os.kill(cluster.pids[2], signal.SIGSTOP)
        try:
            now = until(lambda found: len(found) >= 2, "--now")
        finally:
            os.kill(cluster.pids[2], signal.SIGCONT)
        assert {each["root_cause"]["code"] for each in now} == {"unknown"}
        assert any("orders-0" in each["partitions"] for each in now)
        history = until(lambda found: any(event["kind"] == "stalled" for event in found), "--broker", "2")
        stall = next(event for event in history if event["kind"] == "stalled")
        assert (stall["how"], stall["node"]) == ("paused", 2)
        assert stall["duration_ms"] >= 2_000
        back = until(lambda found: not found["out_of_sync"], "orders-0")
        cause = back["root_causes"][back["leader_because"]["id"]]
        assert (cause["code"], cause["certainty"], cause["evidence"]) == ("paused", "certain", [stall["id"]])
