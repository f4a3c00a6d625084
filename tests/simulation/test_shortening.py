"""The reduction of failing runs, and the commands that repeat them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.mistakes import first_failure, forget_syncs

from barnabas.cli import entry, simulate_runs
from barnabas.embedded.failures import Failure
from barnabas.replication.partition import Partition
from barnabas.simulation.faults import THERE, Fault, FaultEvent, FaultKind, Trigger, fault_of, fault_spec
from barnabas.simulation.operator import AdminOperation
from barnabas.simulation.scenario import Settings, run, schedule_of
from barnabas.simulation.shortening import kind_of, shorten, shorten_outcome
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work_features import WorkFeature

Output = pytest.CaptureFixture[str]
POWER = Settings(seed=0, faults_s=20, kinds=(FaultKind.POWER,), producers=1, consumers=1)


def test_shortening_keeps_what_matters() -> None:
    tries = 0

    def fails(items: Sequence[int]) -> bool:
        nonlocal tries
        tries += 1
        return {3, 17} <= set(items)

    assert shorten(range(40), fails) == [3, 17]
    assert tries < 60
    assert shorten([1, 2, 3], lambda items: True) == []


def test_a_failing_seed_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the power failure remains, soon after the beginning, with one producer of few records. It needs no event."""
    forget_syncs(monkeypatch)
    power = Fault(8_900, FaultKind.POWER, "broker1", duration_ms=500, amount=2, trigger=Trigger(FaultEvent.APPEND))
    slow = [Fault(at_ms, FaultKind.SLOW_LINK, "broker1", "producer1", 800, 20) for at_ms in (4_000, 6_000, 8_000)]
    outcome = run(replace(POWER, seed=1, faults_s=10, producers=2, schedule=(*slow, power)))
    assert outcome.failed
    shortened = shorten_outcome(outcome)
    found = [(fault.kind, fault.amount, fault.trigger) for fault in shortened.schedule]
    assert found == [(FaultKind.POWER, 2, None)]
    assert shortened.schedule[0].duration_ms < 500
    settings = shortened.settings
    assert (settings.producers, settings.consumers, settings.records_per_s, settings.operations) == (1, 0, 1.0, ())
    assert settings.faults_s == 2
    assert kind_of(shortened.problems[0]) == kind_of(outcome.problems[0]) == "lost"
    assert shortened.virtual_s < outcome.virtual_s
    assert run(settings).trace_hash == shortened.trace_hash


def test_nodes_that_do_not_matter_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every broker has the mistake, in its fortieth append, whatever the faults are."""
    real = Partition.append

    def append(partition: Partition, *arguments: object) -> object:
        if partition.log.log_end_offset >= 10 and partition.topic_partition.topic == "orders":
            raise KeyError("a mistake")
        return real(partition, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "append", append)
    pause = Fault(4_000, FaultKind.PAUSE, "broker3", duration_ms=900)
    layout = Layout(brokers=3, controllers=1)
    outcome = run(Settings(seed=1, layout=layout, faults_s=10, schedule=(pause,), draws_properties=True))
    assert kind_of(outcome.problems[0]) == "unexpected KeyError"
    settings = shorten_outcome(outcome).settings
    assert settings.schedule == ()
    assert (settings.layout.brokers, settings.layout.controllers, settings.faults_s) == (1, 0, 1)
    assert not settings.draws_properties


@pytest.mark.full
def test_exploring_reports_and_shortens_what_fails_and_its_command_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    forget_syncs(monkeypatch)
    failing = first_failure(POWER, range(1, 10)).settings
    assert simulate_runs.explore(failing, 1, 1, as_json=True)
    text = capsys.readouterr().out
    told = json.loads(text[text.index("{") :])
    assert told["seeds"] == 1
    (found,) = told["failed"]
    assert found["seed"] == failing.seed
    assert found["problems"][0].startswith("lost: ")
    assert any("power failure" in line for line in found["lives"][found["problems"][0]])
    assert 0 < len(found["faults"]) <= len(schedule_of(failing))
    assert entry.run([*found["again"].split()[1:], "--json"]) == 1
    again = json.loads(capsys.readouterr().out)
    assert (again["trace"], again["problems"]) == (found["trace"], found["problems"])
    assert again["again"] == found["again"]
    whole = ["simulate", "--seed", str(failing.seed), "--hours", "0.0056", "--kafka-defaults", "--faults", "power"]
    whole += ["--features", "none", "--producers", "1", "--consumers", "1", "--rate", "10"]
    assert entry.run([*whole, "--shorten", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["again"] == found["again"]


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({}, ""),
        ({"kinds": ()}, "--faults none"),
        ({"ties_faults": False}, "--untied"),
        ({"kinds": (FaultKind.KILL, FaultKind.PAUSE)}, "--faults kill,pause"),
        ({"schedule": ()}, "--faults none"),
        ({"schedule": "first"}, "--only 1"),
        ({"schedule": "all"}, ""),
        (
            {"schedule": (Fault(4_500, FaultKind.ONE_WAY, "broker1", "broker3", 20),)},
            "--fault 4500:one-way:broker1-broker3:20",
        ),
        ({"operations": (AdminOperation.ELECT,)}, "--changes elect"),
        ({"operations": (), "edits": ()}, "--changes none"),
        ({"features": ()}, "--features none"),
        ({"features": (WorkFeature.BULK, WorkFeature.IDLE)}, "--features bulk,idle"),
        ({"producers": 1, "consumers": 0, "records_per_s": 2.5}, "--producers 1 --consumers 0 --rate 2.5"),
    ],
)
def test_a_command_says_what_is_special(changed: dict[str, object], options: str) -> None:
    settings = Settings(seed=3, layout=Layout(brokers=3), draws_properties=True, records_per_s=None)
    settings = replace(settings, features=changed.get("features", tuple(WorkFeature)))  # type: ignore[arg-type]
    whole = schedule_of(settings)
    chosen = {"first": whole[:1], "all": whole}.get(str(changed.get("schedule")))
    settings = replace(settings, **{**changed, **({} if chosen is None else {"schedule": chosen})})  # type: ignore[arg-type]
    assert simulate_runs.command_for(settings, schedule_of(settings)) == " ".join(
        filter(None, ["barnabas simulate --seed 3 --brokers 3", options])
    )


def test_a_fault_can_be_written_down() -> None:
    for fault in (
        Fault(6_000, FaultKind.POWER, "broker2", duration_ms=2_000, amount=1),
        Fault(7_000, FaultKind.SLOW_LINK, "broker1", "producer1", 800, 20),
        Fault(8_000, FaultKind.CLOCK, "broker1", duration_ms=5, amount=-1_800_000),
        Fault(9_000, FaultKind.PARTITION, "broker1", "broker2", 30),
        Fault(9_000, FaultKind.KILL, THERE, duration_ms=30, trigger=Trigger(FaultEvent.APPEND, "broker2", 3, 700)),
    ):
        assert fault_of(fault_spec(fault)) == fault


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("now:kill:broker1:5", "not AT_MS"),
        ("1:kil:broker1:5", "not AT_MS"),
        ("1:kill:broker1", "not AT_MS"),
        ("1:kill:broker1:5:6:7", "not AT_MS"),
        ("1:kill:broker2:5", "there is no broker2"),
        ("1:partition:broker1-producer3:5", "there is no producer3"),
        ("1:kill:there:5", "not AT_MS"),
        ("1:kill:broker1:5@nothing", "not AT_MS"),
        ("1:kill:broker1:5@append:any:0", "not AT_MS"),
        ("1:kill:broker1:5@append:broker2", "there is no broker2"),
    ],
)
def test_a_fault_that_cannot_be(spec: str, problem: str) -> None:
    with pytest.raises(Failure, match=problem):
        simulate_runs.with_faults(Settings(seed=1), None, [spec])
