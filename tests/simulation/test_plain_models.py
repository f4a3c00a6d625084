"""Small worlds that plain models judge: promises hold, and each of some mistakes is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.broker_explorer import BrokerExplorer
from tests.support.fetcher_explorer import FetcherExplorer
from tests.support.health_explorer import HealthExplorer
from tests.support.leader_explorer import LeaderExplorer
from tests.support.log_dirs_explorer import LogDirsExplorer
from tests.support.move_explorer import MoveExplorer

from barnabas.broker.fetching.fetch_sessions import Session
from barnabas.broker.handlers import list_offsets, metadata
from barnabas.replication import fetcher, move
from barnabas.replication.fetcher import FollowedPartition
from barnabas.replication.isr_changes import IsrChanges
from barnabas.replication.isr_expiration import IsrExpiration
from barnabas.replication.partition import Partition
from barnabas.replication.purgatory import Purgatory
from barnabas.simulation.history import Violation
from barnabas.storage import health
from barnabas.storage.file_removal import DelayedRemoval
from barnabas.storage.upkeep import LogUpkeep

Plant = Callable[[pytest.MonkeyPatch], None]
Explorer = (
    type[BrokerExplorer]
    | type[FetcherExplorer]
    | type[HealthExplorer]
    | type[LeaderExplorer]
    | type[LogDirsExplorer]
    | type[MoveExplorer]
)
EXPLORERS: list[Explorer] = [
    BrokerExplorer,
    FetcherExplorer,
    HealthExplorer,
    LeaderExplorer,
    LogDirsExplorer,
    MoveExplorer,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_every_promise_holds(explorer: Explorer) -> None:
    for seed in range(1, 16):
        explorer(seed).run()


@pytest.mark.full
@pytest.mark.parametrize("explorer", [HealthExplorer, LogDirsExplorer])
def test_every_promise_holds_in_many_worlds(explorer: Explorer) -> None:
    for seed in range(16, 300):
        explorer(seed).run()


def _pauses_do_not_grow(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(
        fetcher.Fetcher, "_pause", lambda self, followed: setattr(followed, "resume_ms", self._host.clock.now_ms() + 20)
    )


def _forgotten_partitions_stay(plant: pytest.MonkeyPatch) -> None:
    def remove(self: Any, topic_id: bytes, index: int) -> None:
        followed: FollowedPartition | None = self._followed.pop((topic_id, index), None)
        if followed is not None:
            self._leave_session(followed)

    plant.setattr(fetcher.Fetcher, "remove", remove)


def _late_answers_get_no_more_time(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(fetcher.Fetcher, "_timeout_ms", lambda self, wait_ms: wait_ms + 2_000)


def _proposals_are_not_repeated(plant: pytest.MonkeyPatch) -> None:
    real = IsrChanges._settle
    plant.setattr(IsrChanges, "_settle", lambda self, *rest: real(self, *rest) and not self._waiting.clear())


def _waiting_operations_never_end(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Purgatory, "close", lambda self: None)


def _followers_learn_no_hw(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Partition, "wake_followers", lambda self, size_bytes: None)


def _brokers_are_missing(plant: pytest.MonkeyPatch) -> None:
    real = metadata._brokers
    plant.setattr(metadata, "_brokers", lambda found, listener: real(found[1:], listener))


def _every_item_rests(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Session, "_may_rest", lambda self, item, result: True)


def _the_latest_time_is_the_first(plant: pytest.MonkeyPatch) -> None:
    real = list_offsets._find

    def find(partition: Partition, timestamp: int, isolation: Any, after: Any) -> Any:
        return real(partition, -2 if timestamp == -3 else timestamp, isolation, after)

    plant.setattr(list_offsets, "_find", find)


def _copies_keep_deleted_records(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(move.Move, "follow_log_start", lambda self: None)


def _pauses_count_as_a_hanging_disk(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(health, "_STILL_MS", 1 << 40)


def _relapses_do_not_matter(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(health, "_RELAPSE_MS", 0)


def _deleted_files_go_at_once(plant: pytest.MonkeyPatch) -> None:
    real = DelayedRemoval.add
    plant.setattr(DelayedRemoval, "add", lambda self, paths, delay_ms: real(self, paths, delay_ms // 2))


def _recovery_points_of_deleted_logs_stay(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(LogUpkeep, "_deleted", lambda self, paths: {})


def _truncations_stay_out_of_the_checkpoint(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(LogUpkeep, "on_truncating", lambda self, log: None)


def _isrs_have_two_timers(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(IsrExpiration, "check", lambda self: self._check())


@pytest.mark.parametrize(
    ("explorer", "mistake"),
    [
        (FetcherExplorer, _pauses_do_not_grow),
        (FetcherExplorer, _forgotten_partitions_stay),
        (FetcherExplorer, _late_answers_get_no_more_time),
        (LeaderExplorer, _proposals_are_not_repeated),
        (LeaderExplorer, _waiting_operations_never_end),
        (LeaderExplorer, _followers_learn_no_hw),
        (BrokerExplorer, _brokers_are_missing),
        (BrokerExplorer, _every_item_rests),
        (BrokerExplorer, _the_latest_time_is_the_first),
        (MoveExplorer, _copies_keep_deleted_records),
        (HealthExplorer, _pauses_count_as_a_hanging_disk),
        (HealthExplorer, _relapses_do_not_matter),
        (LogDirsExplorer, _deleted_files_go_at_once),
        (LogDirsExplorer, _recovery_points_of_deleted_logs_stay),
        (LogDirsExplorer, _truncations_stay_out_of_the_checkpoint),
        (LeaderExplorer, _isrs_have_two_timers),
    ],
)
def test_mistakes_are_found(explorer: Explorer, mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        for seed in range(1, 31):
            explorer(seed).run()
