"""The worlds in memory of ZooKeeper's files and of sessions: promises hold, and each of some mistakes is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.session_explorer import SessionExplorer
from tests.support.zookeeper_files_explorer import ZookeeperFilesExplorer

from barnabas.broker.zookeeper.registration import Registrar
from barnabas.controller.zookeeper import claim
from barnabas.controller.zookeeper.claim import Beaten, Claimed, Won
from barnabas.simulation.history import Violation
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import decode_controller
from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.files import txn_recovery

Plant = Callable[[pytest.MonkeyPatch], None]
Explorer = type[SessionExplorer] | type[ZookeeperFilesExplorer]


@pytest.mark.parametrize("explorer", [SessionExplorer, ZookeeperFilesExplorer])
def test_every_promise_holds(explorer: Explorer) -> None:
    for seed in (*range(1, 31), 104):
        explorer(seed).run()


def _epochs_of_claims_are_ignored(plant: pytest.MonkeyPatch) -> None:
    def judge(own_id: int, wanted: Won, controller: ZnodeContent | None, epoch: ZnodeContent | None) -> Claimed | None:
        if controller is None:
            return None
        found = decode_controller(paths.CONTROLLER, controller.data).broker_id
        return wanted if found == own_id else Beaten(found)

    plant.setattr(claim, "judge", judge)


def _ends_of_predecessors_are_missed(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Registrar, "changed", lambda self, path, event: None)


def _what_is_found_is_not_synced(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(txn_recovery._Replay, "sync", lambda self: None)


@pytest.mark.parametrize(
    ("explorer", "mistake"),
    [
        (SessionExplorer, _epochs_of_claims_are_ignored),
        (SessionExplorer, _ends_of_predecessors_are_missed),
        (ZookeeperFilesExplorer, _what_is_found_is_not_synced),
    ],
)
def test_mistakes_are_found(explorer: Explorer, mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        for seed in range(1, 61):
            explorer(seed).run()
