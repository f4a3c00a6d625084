"""`barnabas explain --incident` on three brokers while the leader of the journal itself is paused (SIGSTOP)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.survival import wait_until

from barnabas.cli.app import run
from barnabas.common.types import EVENTS_TOPIC
from barnabas.testing import Cluster


def test_why_the_leader_of_the_journal_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[2, 1, 3]])])["orders"].result(timeout=20)
        cluster.kill(2)
        cluster.start_broker(2)

        def in_sync() -> list[int]:
            topic = admin.list_topics(timeout=20).topics.get(EVENTS_TOPIC)
            return [] if topic is None else sorted(topic.partitions[0].isrs)

        wait_until(lambda: in_sync() == [1, 2, 3], "the journal has three replicas in sync")
        leader = admin.list_topics(timeout=20).topics[EVENTS_TOPIC].partitions[0].leader
        asked = ["explain", "--incident", "--since", "1m", "--json", "--bootstrap", cluster.bootstrap]
        cluster.pause(leader)
        try:
            time.sleep(5)
            begun_s = time.monotonic()
            assert run(asked) == 0
            took_s = time.monotonic() - begun_s
        finally:
            cluster.resume(leader)
        shown = capsys.readouterr()
        causes = [cause for cause in json.loads(shown.out) if cause["component"] == f"broker {leader}"]
        assert ("paused", "likely") in {(cause["code"], cause["certainty"]) for cause in causes}, shown.out
        assert f"Broker {leader} did not answer (no response in time)" in shown.err
        assert took_s < 10, "a session lasts 9 s more"
        assert all(cause["evidence"] for cause in causes)
