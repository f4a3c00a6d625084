"""The world of the controllers of ZooKeeper mode: its promises hold, and each of some mistakes is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.zookeeper_controller_explorer import ZookeeperControllerExplorer

from barnabas.common.errors import ErrorCode
from barnabas.controller.zookeeper.broker_processes import BrokerProcesses
from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.controller.zookeeper.succession import Succession
from barnabas.controller.zookeeper.topic_watch import TopicWatch
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownResponse
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 21):
        ZookeeperControllerExplorer(seed).execute()


@pytest.mark.full
def test_every_promise_holds_in_many_runs() -> None:
    for seed in range(21, 300):
        ZookeeperControllerExplorer(seed).execute()


def _nobody_deposes_a_controller_again(patch: pytest.MonkeyPatch) -> None:
    real = Succession._depose

    def mistaken(self: Succession) -> None:
        real(self)
        self._is_due = False

    patch.setattr(Succession, "_depose", mistaken)


def _topics_of_tools_stay_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TopicWatch, "_decide", lambda self, name, changed: None)


def _no_broker_stops_in_order(patch: pytest.MonkeyPatch) -> None:
    def mistaken(self: ZookeeperController, request: Any, reply: Callable[[Any], None]) -> None:
        reply(ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER))

    patch.setattr(ZookeeperController, "controlled_shutdown", mistaken)


def _processes_are_watched_anew(patch: pytest.MonkeyPatch) -> None:
    real = BrokerProcesses.watch

    def mistaken(self: BrokerProcesses, broker: Any, *, is_known: bool) -> None:
        self.end(broker.broker_id)
        real(self, broker, is_known=is_known)

    patch.setattr(BrokerProcesses, "watch", mistaken)


@pytest.mark.parametrize(
    "mistake",
    [
        _nobody_deposes_a_controller_again,
        _topics_of_tools_stay_as_they_are,
        _no_broker_stops_in_order,
        _processes_are_watched_anew,
    ],
)
def test_a_mistake_is_found(mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        for seed in range(1, 21):
            ZookeeperControllerExplorer(seed).execute()
