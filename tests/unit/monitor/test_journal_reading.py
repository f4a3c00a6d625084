"""The journal over sockets: which replica is read, and what happens to the position, while brokers do not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.phantom_feeds import clock_ms, feeds_of, run, running, until

from barnabas.common.errors import ErrorCode
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.connections import Unreachable
from barnabas.monitor.journal_feed import JournalFeed
from barnabas.monitor.journal_reading import JournalReading, Unreadable
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.testing.phantom import PhantomCluster

Event = dict[str, Any]
_TOPIC = "topic-00001"


def reading_of(phantom: PhantomCluster) -> JournalReading:
    return JournalReading(list(phantom.addresses.values()), Security())


def test_the_feed_reads_a_follower_while_the_leader_is_silent_and_each_event_once() -> None:
    async def main() -> None:
        with PhantomCluster(topics=4, journal=True) as phantom:
            async with running(feeds_of(phantom, interval_s=60.0)) as feeds:
                told: list[str] = []

                async def change(number: int) -> None:
                    phantom.change(lambda state: state.create_topic(f"new-{number}", 1))

                    def is_told() -> bool:
                        told.extend(event["topic"] for event in feeds.events())
                        return f"new-{number}" in told

                    await until(is_told, f"change {number}", within_s=5.0)

                await change(1)
                phantom.silence(1)
                await change(2)
                await change(3)
                phantom.silence(1, is_silent=False)
                await change(4)
                assert told == ["new-1", "new-2", "new-3", "new-4"]

    run(main())


def test_a_follower_that_is_behind_does_not_move_the_position() -> None:
    class Behind:
        """A replica whose log ends before the position."""

        async def call(self, *_: object, **__: object) -> FetchResponse:
            row = FetchResponse.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[row])])

    async def main() -> None:
        with PhantomCluster(topics=1, journal=True) as phantom:
            feeds = feeds_of(phantom)
            look: Any = feeds._look
            feed = JournalFeed(feeds.table, feeds._connections, look, clock_ms, topic=None, on_event=lambda: None)
            feed._offset = 7
            connection: Any = Behind()
            assert not await feed._read(connection, False, 1.0)
            assert feed._offset == 7
            assert not await feed._read(connection, True, 1.0)
            assert feed._offset is None, "the leader knows that the journal was created again"

    run(main())


def test_a_reading_goes_on_at_a_follower() -> None:
    async def main() -> None:
        with PhantomCluster(topics=4, journal=True) as phantom:
            reading = reading_of(phantom)
            found: list[Event] = []
            await reading.look()
            assert (reading.has_journal, reading.silent, reading.waiting) == (True, {}, [])
            phantom.change(lambda state: state.create_topic("one", 1))
            await asyncio.sleep(0.2)
            position = await reading.read(None, None, found.append)
            phantom.silence(1)
            phantom.change(lambda state: state.create_topic("two", 1))
            await asyncio.sleep(0.2)
            begun_s = asyncio.get_running_loop().time()
            assert await reading.read(position, None, found.append) == position + 1
            assert asyncio.get_running_loop().time() - begun_s < 2.5
            assert [event["topic"] for event in found] == ["one", "two"]
            await reading.look()
            assert reading.silent == {1: "no response in time"}
            found.clear()
            assert await reading.read(0, position, found.append) == position, "only what is before the end"
            assert [event["topic"] for event in found] == ["one"]
            reading.close()

    run(main())


def test_nobody_answers() -> None:
    async def main() -> None:
        with PhantomCluster(topics=1, journal=True) as phantom:
            reading = reading_of(phantom)
            await reading.look()
            for broker in phantom.addresses:
                phantom.change(lambda state, broker=broker: state.kill(broker))  # type: ignore[misc]
            with pytest.raises(Unreadable, match="refused"):
                await reading.read(None, None, lambda event: None)
            with pytest.raises(Unreachable, match="refused"):
                await reading.look()
            reading.close()

    run(main())
