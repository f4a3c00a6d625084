"""The situation in a table of the monitor, at present and in a history, and the answer of the command about it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support.histories import MINUTE, incident
from tests.support.watched import T0, look, partition, table_of

from barnabas.cli.app import run
from barnabas.cli.reassign_plan import Target, read_plan
from barnabas.decisions.partition import LOST_DIRECTORY
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.delta import Delta, VolumesSeen
from barnabas.whatif import ask, parse_question
from barnabas.whatif.from_table import ClusterFacts, situation_of
from barnabas.whatif.past import facts_in, facts_of_today
from barnabas.whatif.situation import BrokerFacts, TopicFacts


def test_brokers_topics_and_partitions_are_taken_over() -> None:
    table = table_of(partition("b-0"), partition("a-1", leader=2, isr=(2, 3)), partition("a-0"))
    table.apply(Delta(T0 + 1, problems={2: "no response in time"}))
    table.apply_volumes(VolumesSeen(T0 + 2, 3, sizes={("a", 1): 7, ("b", 0): 5}))
    table.apply_volumes(VolumesSeen(T0 + 3, 1, sizes={("a", 1): 9}))
    found = situation_of(table, ClusterFacts(voters=(1, 2, 3), unclean_topics=frozenset({"b"})))
    assert list(found.partitions) == [("a", 0), ("a", 1), ("b", 0)]
    assert (found.partitions["a", 1].leader, found.partitions["a", 1].isr) == (2, (2, 3))
    assert found.topics == {"a": TopicFacts(2, False), "b": TopicFacts(2, True)}
    assert found.brokers[2] == BrokerFacts(2, None, "no response in time")
    assert (found.silent, found.controller, found.voters) == ([2], 1, (1, 2, 3))
    assert found.sizes == {("a", 1): 9, ("b", 0): 5}
    assert found.gaps == ()


def test_an_offline_replica_of_a_live_broker_has_lost_its_directory() -> None:
    table = table_of(partition("a-0", isr=(1, 3), offline_replicas=(2, 4), replicas=(1, 2, 3, 4)))
    found = situation_of(table, ClusterFacts()).partitions["a", 0]
    assert [directory == LOST_DIRECTORY for directory in found.directories] == [False, True, False, False]


def test_an_unknown_min_isr_is_a_gap() -> None:
    table = table_of(partition("a-0", min_isr=None))
    found = situation_of(table, ClusterFacts())
    assert found.facts_of("a").min_isr == 1
    assert found.gaps == ("min.insync.replicas of 1 topics is not known, and counts as 1",)


def test_a_table_without_partitions_has_an_answer() -> None:
    answer = ask(situation_of(table_of(), ClusterFacts()), parse_question(["kill", "1"]))
    assert (answer.total, answer.exit_code) == (0, 0)


def test_the_past_shows_whether_there_was_an_elr() -> None:
    table = table_of(partition("a-0"))
    assert facts_in(table).elr_enabled is False
    table.states.elr[table.rows[0]] = [3, -1, -1]
    assert facts_in(table).elr_enabled is True


def test_without_the_cluster_the_facts_are_those_of_the_past() -> None:
    table = table_of(partition("a-0"))
    facts = asyncio.run(facts_of_today(table, [("127.0.0.1", 1)], Security(), timeout_s=0.5))
    assert (facts.voters, facts.has_quorum) == ((), True)
    assert facts.gaps == facts_in(table).gaps


def asked_at(capsys: pytest.CaptureFixture[str], file: Path, at_ms: int, *words: str) -> dict[str, object]:
    when = f"{at_ms // 1_000 % 86_400 // 3_600:02}:{at_ms // 60_000 % 60:02}:{at_ms // 1_000 % 60:02}"
    code = run(["whatif", *words, "--json", "--at", when, "--history", str(file), "-b", "127.0.0.1:1"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == code
    return found


def test_the_command_answers_about_a_moment_of_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.db"
    incident(file).close()
    # All three brokers were there: broker 3 is one of three in sync, and min ISR is 2.
    assert asked_at(capsys, file, T0 + 1_000, "kill", "3")["exit_code"] == 0
    # Broker 2 was dead a minute later: the same loss puts a-0 under its min ISR.
    later = asked_at(capsys, file, T0 + MINUTE + 1_000, "kill", "3")
    assert later["exit_code"] == 5
    assert later["summary"]["already"]["offline"] == 1  # type: ignore[index]


def test_options_of_the_past_need_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["whatif", "kill", "1", "--at", "12:03"]) == 1
    assert "--at needs --history FILE" in capsys.readouterr().err
    assert run(["whatif", "kill", "1", "--at", "12:03", "--history", str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err


def test_brokers_that_are_not_registered_are_absent() -> None:
    table = table_of(partition("a-0"))
    table.apply(look(partition("a-0"), at_ms=T0 + 1, brokers=()))
    assert situation_of(table, ClusterFacts()).absent == [1, 2, 3]


def test_the_moves_of_a_drain_are_saved_for_reassign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, plan = tmp_path / "history.db", tmp_path / "moves.json"
    incident(file).close()
    words = ["whatif", "drain", "2", "--save", str(plan), "--at", "22:13:21", "--history", str(file)]
    # a-0 has a replica on each broker, so that it stays; b-0 goes to the one that is preferred for nothing.
    assert run([*words, "-b", "127.0.0.1:1"]) == 3
    assert read_plan(plan) == {("b", 0): Target((3,), ("any",))}
    assert "a-0 stays: no broker is left for a replica of 3" in capsys.readouterr().out
