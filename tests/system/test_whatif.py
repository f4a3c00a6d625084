"""`barnabas whatif` asked about real brokers, which are then killed or stopped: Barnabas', and Apache Kafka's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.monitor_lines import await_check
from tests.support.quorum_of_kafka import kafka_voters
from tests.support.survival import wait_until

from barnabas.cli.app import run
from barnabas.testing import Cluster

OK, FAILED, UNDER_MIN_ISR, OFFLINE = 0, 1, 5, 6
#: A partition's leader and ISR.
States = dict[str, tuple[int, frozenset[int]]]


def create(bootstrap: str, topics: Mapping[str, tuple[list[list[int]], int]]) -> None:
    """Creates topics with these replicas, and a min ISR."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics(
        [
            NewTopic(name, len(replicas), replica_assignment=replicas, config={"min.insync.replicas": str(min_isr)})
            for name, (replicas, min_isr) in topics.items()
        ]
    )
    for each in made.values():
        each.result(timeout=120)


def asked(capsys: pytest.CaptureFixture[str], bootstrap: str, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    code = run(["whatif", *words, "--json", "-b", bootstrap])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == found["exit_code"]
    return found


def states(capsys: pytest.CaptureFixture[str], bootstrap: str) -> States:
    capsys.readouterr()
    assert run(["monitor", "--once", "--json", "-b", bootstrap]) == 0
    rows = json.loads(capsys.readouterr().out)["partitions"]
    return {
        f"{row['topic']}-{row['partition']}": (row["leader"], frozenset(row["isr"]))
        for row in rows
        if not row["topic"].startswith("__")
    }


def predicted(before: States, answer: dict[str, Any]) -> States:
    after = {
        f"{row['topic']}-{row['partition']}": (row["after"]["leader"], frozenset(row["after"]["isr"]))
        for row in answer["partitions"]
    }
    return {key: after.get(key, state) for key, state in before.items()}


def await_states(capsys: pytest.CaptureFixture[str], bootstrap: str, wanted: States) -> None:
    wait_until(lambda: states(capsys, bootstrap) == wanted, f"what was predicted: {wanted}", 120)


TOPICS = {
    "orders": ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], 2),
    "pairs": ([[1, 3], [2, 1]], 2),
    "single": ([[1], [2]], 1),
}


def test_a_kill_does_what_was_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, TOPICS)
        await_check(bootstrap, OK)
        before = states(capsys, bootstrap)
        answer = asked(capsys, bootstrap, "kill", "1")
        assert answer["exit_code"] == OFFLINE
        assert answer["summary"]["offline"] == 1
        assert answer["summary"]["under_min_isr"] == 2
        assert answer["notes"] == [note for note in answer["notes"] if "active controller" in note]
        cluster.kill(1)
        survivors = ",".join(bootstrap.split(",")[1:])
        await_states(capsys, survivors, predicted(before, answer))

        dead = asked(capsys, survivors, "kill", "2")
        assert any("1 of 3 voters" in note for note in dead["notes"])
        assert dead["exit_code"] == OFFLINE


@pytest.mark.full
def test_a_rolling_restart_follows_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each broker is stopped in the order of the plan, when what a step waits for is true: nothing is under min ISR."""
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        bootstrap = cluster.bootstrap
        create(bootstrap, {"orders": ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], 2)})
        await_check(bootstrap, OK)
        plan = asked(capsys, bootstrap, "restart-all")["plan"]
        assert plan["is_safe"]
        order = [step["node"] for step in plan["steps"]]
        assert sorted(order) == [1, 2, 3]
        assert [step["is_controller"] for step in plan["steps"]] == [False, False, True]
        for number in order:
            before = states(capsys, bootstrap)
            answer = asked(capsys, bootstrap, "restart", str(number))
            assert answer["exit_code"] == OK
            cluster.stop_broker(number)
            await_states(capsys, bootstrap, predicted(before, answer))
            cluster.start_broker(number)
            await_check(bootstrap, OK)


@pytest.mark.full
def test_apache_kafka_does_what_was_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kafka_voters(tmp_path) as kafkas:
        bootstrap = ",".join(server.bootstrap for server in kafkas)
        create(bootstrap, TOPICS)
        await_check(bootstrap, OK)
        before = states(capsys, bootstrap)
        stopping = asked(capsys, bootstrap, "restart", "2")
        kafkas[1].stop()
        others = ",".join((kafkas[0].bootstrap, kafkas[2].bootstrap))
        await_states(capsys, others, predicted(before, stopping))
        kafkas[1].launch()
        kafkas[1].await_serving()
        await_check(bootstrap, OK)
        before = states(capsys, bootstrap)
        answer = asked(capsys, bootstrap, "kill", "1")
        assert (answer["exit_code"], answer["summary"]["offline"]) == (OFFLINE, 1)
        kafkas[0].kill()
        survivors = ",".join(server.bootstrap for server in kafkas[1:])
        await_states(capsys, survivors, predicted(before, answer))
        eligible = {f"{row['topic']}-{row['partition']}": row["after"]["elr"] for row in answer["partitions"]}
        assert eligible["pairs-0"] == [1]


def test_bad_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", "destroy", "-b", "127.0.0.1:1"]) == FAILED
    assert "destroy is not a question" in capsys.readouterr().err
    assert run(["whatif", "kill", "1", "-b", "127.0.0.1:1"]) == FAILED
    assert "cannot reach a broker" in capsys.readouterr().err
    assert run(["whatif"]) == 2
