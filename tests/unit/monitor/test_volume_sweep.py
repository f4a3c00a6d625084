"""The sweep over the sizes and offsets of one broker: what it keeps of requests and answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.support.watched import T0, look, partition, table_of

from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer, Repeated
from barnabas.monitor.volume_sweep import VolumeSweep
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse

_RESULT = DescribeLogDirsResponse.DescribeLogDirsResult
_TOPIC = DescribeLogDirsResponse.DescribeLogDirsTopic
_PARTITION = DescribeLogDirsResponse.DescribeLogDirsPartition
_SIZES = DescribeLogDirsResponse(
    results=[_RESULT(topics=[_TOPIC(name="orders", partitions=[_PARTITION(partition_index=0, partition_size=7)])])]
)


class Broker:
    """A connection to a broker that always has the same sizes, and no offsets while it `fails`."""

    def __init__(self) -> None:
        self.fails = False
        self.asked: list[Repeated[Any]] = []

    def knows(self, request: type[Any]) -> bool:
        return True

    async def call_again(self, repeated: Repeated[Any]) -> Any:
        self.asked.append(repeated)
        is_of_offsets = repeated.response is ListOffsetsResponse
        if is_of_offsets and self.fails:
            raise NoAnswer("no response in time")
        if repeated.is_known(b"same"):
            return None
        return ListOffsetsResponse() if is_of_offsets else _SIZES


def ask(sweep: VolumeSweep, broker: Broker) -> Any:
    return asyncio.run(sweep.ask(cast(BrokerConnection, broker), 0.0, T0))[1]


def test_sizes_whose_offsets_were_not_answered_are_news_the_next_time() -> None:
    broker, sweep = Broker(), VolumeSweep(table_of(partition("orders-0")), 1, wants_offsets=False)
    broker.fails = True
    with pytest.raises(NoAnswer):
        ask(sweep, broker)
    broker.fails = False
    assert ask(sweep, broker).sizes == {("orders", 0): 7}


def test_requests_are_kept_until_the_replicas_of_the_broker_change() -> None:
    table = table_of(partition("orders-0"), partition("orders-1", leader=2, replicas=(2, 3), isr=(2, 3)))
    broker, sweep = Broker(), VolumeSweep(table, 1, wants_offsets=False)
    ask(sweep, broker)
    assert not ask(sweep, broker).sizes
    assert broker.asked[:2] == broker.asked[2:]
    table.apply(look(partition("orders-0"), partition("orders-1", replicas=(2, 3, 1), epoch=1)))
    assert ask(sweep, broker).sizes
    assert broker.asked[4] is not broker.asked[0]
