"""The world of one classic group in memory: its promises hold, and each of some mistakes is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.classic_explorer import ClassicExplorer

from barnabas.coordinators.groups.classic.group import ClassicGroup, Member
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 61):
        ClassicExplorer(seed).run()


def _heartbeats_do_not_extend_sessions(patch: pytest.MonkeyPatch) -> None:
    real = Rebalancer.extend_session

    def mistaken(self: Rebalancer, group: ClassicGroup, member: Member) -> None:
        if not member.session.is_scheduled or member.is_static:
            real(self, group, member)

    patch.setattr(Rebalancer, "extend_session", mistaken)


def _new_members_need_not_be_waited_for(patch: pytest.MonkeyPatch) -> None:
    real = Rebalancer._on_initial_delay

    def mistaken(self: Rebalancer, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        real(self, group, delay_ms, 0)

    patch.setattr(Rebalancer, "_on_initial_delay", mistaken)


def _the_first_protocol_is_chosen(patch: pytest.MonkeyPatch) -> None:
    def mistaken(self: ClassicGroup) -> str:
        return next(name for name, count in self._supported.items() if count == len(self.members))

    patch.setattr(ClassicGroup, "select_protocol", mistaken)


def _late_members_of_the_sync_phase_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rebalancer, "_on_sync_expired", lambda self, group, generation: None)


def _replaced_members_are_not_told(patch: pytest.MonkeyPatch) -> None:
    real = Rebalancer.dismiss

    def mistaken(self: Rebalancer, group: ClassicGroup, member: Member, *more: Any) -> None:
        real(self, group, member, more[0], "")

    patch.setattr(Rebalancer, "dismiss", mistaken)


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (_heartbeats_do_not_extend_sessions, "is described as|is not answered"),
        (_new_members_need_not_be_waited_for, "is described as|should wait"),
        (_the_first_protocol_is_chosen, "decided otherwise|answered with"),
        (_late_members_of_the_sync_phase_stay, "is described as"),
        (_replaced_members_are_not_told, "is answered with"),
    ],
)
def test_mistakes_are_found(mistake: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError), match=found):
        for seed in range(1, 61):
            ClassicExplorer(seed).run()
