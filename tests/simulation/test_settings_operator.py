"""The operator of settings: its registers, what it finds, and the moves, quotas and limits of short runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.configs import config_changes
from barnabas.metadata.security import SecurityImage
from barnabas.replication import moves
from barnabas.replication.move import MoveStage
from barnabas.simulation.operator import AdminOperation
from barnabas.simulation.scenario import Run, Settings
from barnabas.simulation.setting_registers import Answer, Registers
from barnabas.simulation.simulated_cluster import Layout

_KEY = ("config", 4, "1", "log.roll.ms")
#: A minute in which nothing fails.
CALM = Settings(
    seed=1,
    layout=Layout(brokers=3, properties={"log.dirs": "/data,/more"}),
    faults_s=12,
    kinds=(),
    producers=1,
    consumers=1,
    operations=(),
)


def _executed(settings: Settings, *kinds: AdminOperation) -> Run:
    one = Run(settings)
    one.settings_operator.kinds = kinds
    outcome = one.execute()
    assert not outcome.failed, outcome.problems
    return one


class TestRegisters:
    def test_what_was_acknowledged_is_in_force(self) -> None:
        registers = Registers()
        registers.send(_KEY, 0)
        assert registers.is_busy(_KEY)
        assert registers.wrong({_KEY: "anything"}) == "", "a change is under way"
        registers.end(_KEY, "1", Answer.DONE, 5_000)
        assert registers.wrong({_KEY: "1"}) == ""
        assert registers.wrong({}) == f"{_KEY} is None, it was set to 1"

    def test_what_was_refused_never_is(self) -> None:
        registers = Registers()
        registers.send(_KEY, 0)
        registers.end(_KEY, "0", Answer.REFUSED, 5_000)
        assert registers.wrong({}) == ""
        assert "is 0" in registers.wrong({_KEY: "0"})

    def test_an_unanswered_change_can_come_late(self) -> None:
        registers = Registers()
        for value, answer in (("1", Answer.UNKNOWN), ("2", Answer.DONE)):
            registers.send(_KEY, 0)
            registers.end(_KEY, value, answer, 5_000)
        assert [registers.wrong({_KEY: value}) == "" for value in ("1", "2", "3")] == [True, True, False]

    def test_a_change_that_was_answered_late_can_be_made_again(self) -> None:
        for took_us, wrong in ((5_000, True), (2_000_000, False)):
            registers = Registers()
            for value, time_us in (("1", took_us), ("2", 5_000)):
                registers.send(_KEY, 0)
                registers.end(_KEY, value, Answer.DONE, time_us)
            assert (registers.wrong({_KEY: "1"}) != "") is wrong


def test_replicas_move_between_log_directories() -> None:
    one = _executed(replace(CALM, records_per_s=5.0), AdminOperation.SHIFT)
    assert one.settings_operator.done[AdminOperation.SHIFT] > 0


def test_quotas_and_limits_are_gone_at_the_end() -> None:
    one = _executed(replace(CALM, seed=2, records_per_s=5.0), AdminOperation.LIMIT, AdminOperation.THROTTLE)
    assert one.settings_operator.done[AdminOperation.LIMIT] > 0
    for node in one.cluster.nodes.values():
        assert node.broker is not None
        image = node.broker.metadata.image
        assert not image.security.quotas
        names = {name for overrides in image.configs.values() for name in overrides}
        assert not [name for name in names if "throttled" in name]


def _without_report(self: Any, move: Any) -> None:
    """Exchanges the logs although the controller does not know the new directory."""
    self._logs.futures.prepare()
    move.stage = MoveStage.EXCHANGING
    self._soon(move)


@pytest.mark.parametrize(
    ("owner", "name", "mistake", "kind", "found"),
    [
        (config_changes, "_check_thread_counts", lambda *_: None, AdminOperation.TUNE, "a property is done: num."),
        (SecurityImage, "replay_quota", lambda self, _: self, AdminOperation.LIMIT, "an image differs from the log"),
        (moves.ReplicaMoves, "_report_target", _without_report, AdminOperation.SHIFT, "not whole"),
    ],
    ids=["thread counts", "quotas", "moves"],
)
def test_mistakes_are_found(
    owner: Any, name: str, mistake: Any, kind: AdminOperation, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    # One broker is never restarted, because a restart would repair much.
    one = Run(replace(CALM, records_per_s=5.0, layout=replace(CALM.layout, brokers=1)))
    one.settings_operator.kinds = (kind,)
    one.settings_operator._gap_ms = 700
    problems = one.execute().problems
    assert problems
    assert problems[0].startswith(found), problems
