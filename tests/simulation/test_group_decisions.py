"""Second decisions of groups: each of some mistakes is found by their probes in a few seeds of small worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.classic_explorer import ClassicExplorer
from tests.support.group_explorer import GroupExplorer
from tests.support.offset_explorer import OffsetExplorer

from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.committers import Committers
from barnabas.coordinators.groups.consumer import assignors, fencing, heartbeat, planning, reconcile, requests
from barnabas.coordinators.groups.consumer.member import MemberState
from barnabas.coordinators.groups.consumer.planning import Planner
from barnabas.simulation import group_decisions
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decisions import SecondDecision, SecondDecisions

Plant = Callable[[pytest.MonkeyPatch], None]


def _the_last_partition_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = assignors.assign

    def mistaken(assignor: str, subscribers: Any, counts: Any) -> Any:
        return (yield from real(assignor, subscribers, {key: max(count - 1, 1) for key, count in counts.items()}))

    patch.setattr(assignors, "assign", mistaken)
    patch.setattr(planning, "assign", mistaken)


def _nothing_stays(patch: pytest.MonkeyPatch) -> None:
    real = assignors._all_kept

    def mistaken(in_order: Any, counts: Any, taken: Any) -> Any:
        return (yield from real([one._replace(target={}) for one in in_order], counts, taken))

    patch.setattr(assignors, "_all_kept", mistaken)


def _nothing_is_evened_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assignors._Balance, "_ROUNDS_MAX", 0)


def _static_members_are_not_first(patch: pytest.MonkeyPatch) -> None:
    real = assignors.assign_range

    def mistaken(subscribers: Any, counts: Any) -> Any:
        return (yield from real([one._replace(instance_id=None) for one in subscribers], counts))

    patch.setattr(assignors, "ASSIGNORS", {**assignors.ASSIGNORS, "range": mistaken})


def _unreleased_members_are_stable(patch: pytest.MonkeyPatch) -> None:
    real = reconcile._step

    def mistaken(member: Any, epoch: int, state: MemberState, *more: Any) -> Any:
        return real(member, epoch, MemberState.STABLE if state == MemberState.UNRELEASED_PARTITIONS else state, *more)

    patch.setattr(reconcile, "_step", mistaken)


def _old_epochs_are_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heartbeat, "is_within", lambda owned, allowed: True)


def _racks_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = heartbeat._updated
    patch.setattr(heartbeat, "_updated", lambda member, beat: replace(real(member, beat), rack_id=None))


def _joins_may_own_partitions(patch: pytest.MonkeyPatch) -> None:
    real = requests._refuse_if
    patch.setattr(requests, "_refuse_if", lambda problem, text: real(problem and "re-" not in text, text))


def _the_last_configured_assignor_wins(patch: pytest.MonkeyPatch) -> None:
    real = Planner.assignor_of

    def mistaken(self: Planner, group: Any) -> str:
        members = group.members.values()
        return "range" if not any(each.server_assignor for each in members) else real(self, group)

    patch.setattr(Planner, "assignor_of", mistaken)


def _every_epoch_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fencing, "_check_epoch", lambda member, epoch: None)


def _large_metadata_is_accepted(patch: pytest.MonkeyPatch) -> None:
    real = Committers.accept

    def mistaken(self: Committers, metadata: str | None, *more: Any) -> Any:
        return real(self, None if metadata is None else metadata[:4_096], *more)

    patch.setattr(Committers, "accept", mistaken)


def _any_protocol_is_supported(patch: pytest.MonkeyPatch) -> None:
    real = ClassicGroup.supports

    def mistaken(self: ClassicGroup, *more: Any) -> bool:
        return real(self, *more) or not self.is_in(GroupState.EMPTY)

    patch.setattr(ClassicGroup, "supports", mistaken)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "mistake",
    [
        _the_last_partition_is_forgotten,
        _nothing_stays,
        _nothing_is_evened_out,
        _static_members_are_not_first,
        _unreleased_members_are_stable,
        _old_epochs_are_accepted,
        _racks_are_forgotten,
        _joins_may_own_partitions,
        _the_last_configured_assignor_wins,
        _every_epoch_commits,
        _large_metadata_is_accepted,
        _any_protocol_is_supported,
    ],
)
def test_mistakes_are_found(mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(
        Violation, match=r"decided otherwise|is (not )?answered|are shared|the answer|ConsumerGroupDescribe says"
    ):
        for seed in (2, 4, 8):
            GroupExplorer(seed).run()
            OffsetExplorer(seed).run()
            ClassicExplorer(seed).run()


def test_what_a_generator_returns_is_judged() -> None:
    table = [
        SecondDecision("coordinators.groups.consumer.assignors:assign", lambda *_: "", group_decisions._near_targets)
    ]
    judge = SecondDecisions(table)
    subscribers = [assignors.Subscriber("a", None, frozenset({b"t"}), {})]
    with pytest.raises(Violation, match="decided otherwise"), judge.judging():
        assert len(list(assignors.assign("range", subscribers, {b"t": 3}))) == 0
    assert judge.compared > 10
