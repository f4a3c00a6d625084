"""The world of one controller's decisions in memory: they are right, and some mistakes are found in a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from tests.support.controller_explorer import ControllerExplorer

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft import broker_registrations, directories, features
from barnabas.controller.requests import brokers, client_quotas, configs, elections, partitions, producer_ids, topics
from barnabas.controller.requests import reassignments as moves
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions import broker_events, partition_change, proposals
from barnabas.decisions.partition_change import PartitionChange
from barnabas.decisions.placement import StripedPlacement, UsableBroker
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_decision_is_right() -> None:
    for seed in range(1, 16):
        ControllerExplorer(seed).run()


def _elrs_are_one_too_small(patch: pytest.MonkeyPatch) -> None:
    real = PartitionChange._settle_elr

    def mistaken(self: PartitionChange) -> None:
        real(self)
        if self._rules.elr_enabled and len(self.target_isr) == self._rules.min_isr - 1:
            self.target_elr = self.target_elr[1:]

    patch.setattr(PartitionChange, "_settle_elr", mistaken)


def _removed_replicas_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionChange, "_bump_epoch_for_reassignment", lambda self, record: None)


def _min_isr_is_not_limited(patch: pytest.MonkeyPatch) -> None:
    real = ControllerView.min_isr
    patch.setattr(ControllerView, "min_isr", lambda self, topic, factor: real(self, topic, factor + 1))


def _full_brokers_stay(patch: pytest.MonkeyPatch) -> None:
    def mistaken(brokers: Any, partition: Any, isr: tuple[int, ...], may_lead: Any) -> tuple[int, ...]:
        return isr

    patch.setattr(broker_events, "without_unwritable", mistaken)
    patch.setattr(partitions, "without_unwritable", mistaken)


def _epochs_of_leaders_are_ignored(patch: pytest.MonkeyPatch) -> None:
    real = partitions._problem

    def mistaken(*arguments: Any) -> ErrorCode:
        code = real(*arguments)
        return ErrorCode.NONE if code is ErrorCode.FENCED_LEADER_EPOCH else code

    patch.setattr(partitions, "_problem", mistaken)


def _the_last_rack_is_left_out(patch: pytest.MonkeyPatch) -> None:
    real = StripedPlacement.__init__

    def mistaken(self: StripedPlacement, usable: Collection[UsableBroker], random: Any) -> None:
        real(self, sorted(usable)[: max(len(usable) - 1, 1)], random)

    patch.setattr(StripedPlacement, "__init__", mistaken)


def _proposals_shift_twice(patch: pytest.MonkeyPatch) -> None:
    real = proposals.propose

    def mistaken(racks: Any, count: int, factor: int, pick: Any) -> list[list[int]]:
        return [[each[0], *each[:-1]] for each in real(racks, count, factor, pick)]

    patch.setattr(proposals, "propose", mistaken)


def _stale_brokers_get_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_ids, "registration", lambda *_: None)


def _an_older_incarnation_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(brokers, "is_current", lambda view, broker: broker.broker_id in view.image.brokers)


def _a_lost_election_is_an_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "needs_election", lambda partition, election: True)


def _cancelled_moves_keep_what_was_added(patch: pytest.MonkeyPatch) -> None:
    real = moves._revert
    patch.setattr(moves, "_revert", lambda partition: real(partition)._replace(replicas=partition.replicas))


def _removals_are_not_listed(patch: pytest.MonkeyPatch) -> None:
    real = moves._ongoing

    def mistaken(index: int, partition: Any) -> ListPartitionReassignmentsResponse.OngoingPartitionReassignment:
        return real(index, partition._replace(removing_replicas=()))

    patch.setattr(moves, "_ongoing", mistaken)


def _large_quotas_are_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client_quotas, "_FRACTION_MAX", 1.0)


def _elrs_survive_another_min_isr(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(configs, "_min_isr_records", lambda *_: [])


def _names_may_look_alike(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topics, "_unified", lambda name: name)


def _a_broker_that_is_behind_is_unfenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(broker_registrations, "read_unwritable", lambda tags: None)


def _lost_directories_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(directories, "leader_and_isr_records", lambda *_: [])


def _dependencies_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(features, "DEPENDENCIES", {})


def _the_last_members_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_change, "_is_empty", lambda record: record.isr is None)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "mistake",
    [
        _elrs_are_one_too_small,
        _removed_replicas_are_not_fenced,
        _min_isr_is_not_limited,
        _full_brokers_stay,
        _epochs_of_leaders_are_ignored,
        _the_last_rack_is_left_out,
        _proposals_shift_twice,
        _stale_brokers_get_ids,
        _an_older_incarnation_is_fenced,
        _a_lost_election_is_an_answer,
        _cancelled_moves_keep_what_was_added,
        _removals_are_not_listed,
        _large_quotas_are_set,
        _elrs_survive_another_min_isr,
        _names_may_look_alike,
        _a_broker_that_is_behind_is_unfenced,
        _lost_directories_are_kept,
        _dependencies_are_ignored,
        _the_last_members_leave,
    ],
)
def test_a_mistake_is_found(mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        for seed in range(1, 31):
            ControllerExplorer(seed).run()
