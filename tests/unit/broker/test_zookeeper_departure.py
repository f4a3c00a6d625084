"""The controlled shutdown of a broker in ZooKeeper mode: how often the controller is asked, and when it is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.zookeeper_broker import PROPERTIES

from barnabas.broker.zookeeper.departure import Departure
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.simulation.host import MemoryHost

MOVED = ControlledShutdownResponse()
LEADS = ControlledShutdownResponse(
    remaining_partitions=[ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=0)]
)
STALE = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


class Leaving:
    """A broker that leaves: what it asks the controller for, and when it is done."""

    def __init__(self, answers: Sequence[Message | None], *, alone: bool = False) -> None:
        self.host = MemoryHost()
        self.requests: list[ControlledShutdownRequest] = []
        self.done: list[int] = []
        self.alone = alone
        self._answers = answers
        access: Any = SimpleNamespace(send=self._send)
        config = BrokerConfig.from_properties(PROPERTIES)
        self.departure = Departure(self.host, config, access, 77, lambda: self.alone, self._on_done)
        self.departure.start()

    def _send(self, request: Any, reply: Callable[[Message | None], None], *, timeout_ms: int) -> None:
        self.requests.append(request)
        answer = self._answers[len(self.requests) - 1]
        self.host.time.call_soon(lambda: reply(answer))

    def _on_done(self) -> None:
        self.done.append(self.host.clock.now_ms())


@pytest.mark.parametrize(
    ("answers", "asked", "after_ms"),
    [
        ([MOVED], 1, 0),
        ([LEADS, MOVED], 2, 5_000),
        ([None, STALE, LEADS], 3, 10_000),
    ],
)
def test_the_controller_is_asked_again_as_often_as_configured(
    answers: Sequence[Message | None], asked: int, after_ms: int
) -> None:
    leaving = Leaving(answers)
    leaving.host.time.run_for(60_000)
    assert [(request.broker_id, request.broker_epoch) for request in leaving.requests] == [(1, 77)] * asked
    assert leaving.done == [after_ms]


def test_the_last_broker_does_not_wait_for_others() -> None:
    leaving = Leaving([LEADS], alone=True)
    leaving.host.time.run_for(60_000)
    assert leaving.done == [0]


def test_a_broker_that_becomes_the_last_one_stops_waiting() -> None:
    leaving = Leaving([LEADS])
    leaving.host.time.run_for(1_000)
    leaving.departure.check()
    assert leaving.done == []
    leaving.alone = True
    leaving.departure.check()
    leaving.departure.check()
    leaving.host.time.run_for(60_000)
    assert (leaving.done, len(leaving.requests)) == ([1_000], 1)


def test_the_last_broker_asks_again_while_no_controller_answers() -> None:
    """The last broker becomes the controller itself a moment later."""
    leaving = Leaving([None, LEADS], alone=True)
    leaving.host.time.run_for(1_000)
    leaving.departure.check()
    assert leaving.done == []
    leaving.host.time.run_for(60_000)
    assert leaving.done == [5_000]
