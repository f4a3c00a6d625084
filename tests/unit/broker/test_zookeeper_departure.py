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
    host = MemoryHost()
    requests: list[ControlledShutdownRequest] = []

    def send(request: Any, reply: Callable[[Message | None], None], *, timeout_ms: int) -> None:
        requests.append(request)
        answer = answers[len(requests) - 1]
        host.time.call_soon(lambda: reply(answer))

    access: Any = SimpleNamespace(send=send)
    done: list[int] = []
    config = BrokerConfig.from_properties(PROPERTIES)
    Departure(host, config, access, 77, lambda: done.append(host.clock.now_ms())).start()
    host.time.run_for(60_000)
    assert [(request.broker_id, request.broker_epoch) for request in requests] == [(1, 77)] * asked
    assert done == [after_ms]
