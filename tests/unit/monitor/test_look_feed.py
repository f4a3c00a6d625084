"""The rolling look on a phantom cluster: real sockets, a synthetic table, and brokers of several kinds."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.support.phantom_feeds import contents, feeds_of, run, running, truth, until

from barnabas.monitor import cluster_feeds
from barnabas.monitor.connections import Unreachable
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_QUORUM, LIST_OFFSETS = 75, 55, 2
#: More than one page has.
MANY = {"topics": 520, "partitions": 4}
KINDS = pytest.mark.parametrize(
    ("size", "without"),
    [
        ({"topics": 5}, ()),
        (MANY, ()),
        ({"topics": 2, "partitions": 2_100}, ()),
        ({"topics": 5}, (DESCRIBE_TOPIC_PARTITIONS,)),
        (MANY, (DESCRIBE_TOPIC_PARTITIONS,)),
    ],
    ids=["one page", "two pages", "a page within a topic", "metadata", "metadata by names"],
)


@KINDS
def test_the_table_is_the_cluster_through_all_its_changes(size: dict[str, int], without: tuple[int, ...]) -> None:
    async def main() -> None:
        with PhantomCluster(**size, without=without) as phantom:  # type: ignore[arg-type]
            async with running(feeds_of(phantom, interval_s=0.2)) as feeds:
                assert contents(feeds.table) == truth(phantom.state)
                for change in (
                    lambda state: state.kill(2),
                    lambda state: state.delete_topic("topic-00001"),
                    lambda state: state.start(2),
                    lambda state: (state.delete_topic("topic-00000"), state.create_topic("topic-00000", 7)),
                    lambda state: state.elect_preferred(),
                ):
                    phantom.change(change)
                    await until(lambda: contents(feeds.table) == truth(phantom.state), "the change")
                assert feeds.table.controller == 1
                await until(lambda: {state.min_isr for state in feeds.table.values()} == {2}, "min ISRs")

    run(main())


def test_a_page_whose_bytes_are_the_same_is_not_decoded_and_changes_nothing() -> None:
    async def main() -> None:
        with PhantomCluster(topics=5) as phantom:
            async with running(feeds_of(phantom)) as feeds:
                before = feeds.table.version
                asked = phantom.requests["DescribeTopicPartitionsRequest"]
                await until(
                    lambda: phantom.requests["DescribeTopicPartitionsRequest"] > asked + 3, "some pages are asked"
                )
                assert feeds.table.version == before

    run(main())


def test_one_broker_that_is_silent_delays_nothing_and_is_reported_with_the_age_of_its_last_answer() -> None:
    async def main() -> None:
        with PhantomCluster(topics=5) as phantom:
            async with running(feeds_of(phantom, timeout_s=3.0)) as feeds:
                phantom.silence(3)
                answered_ms = feeds.table.brokers[3].answered_ms
                phantom.change(lambda state: state.shrink_isr("topic-00003", 1, 1))
                await until(lambda: contents(feeds.table) == truth(phantom.state), "the change", within_s=2.5)
                await until(lambda: feeds.table.brokers[3].problem is not None, "its silence")
                assert feeds.table.brokers[3].problem == "no response in time"
                assert feeds.table.silent == {3}
                assert feeds.table.brokers[3].answered_ms - answered_ms < 1_000
                assert feeds.table.brokers[1].answered_ms > feeds.table.brokers[3].answered_ms
                phantom.silence(3, is_silent=False)
                await until(lambda: not feeds.table.silent, "it answers again")

    run(main())


def test_sizes_and_offsets_of_every_replica() -> None:
    async def main() -> None:
        with PhantomCluster(topics=3) as phantom:
            phantom.change(lambda state: state.produce("topic-00001", 2, 70))
            async with running(feeds_of(phantom, wants_offsets=True)) as feeds:
                row = feeds.table.row_of("topic-00001", 2)
                assert row is not None
                state = feeds.table.state(row)
                assert (state.size_bytes, [state.lag_of(each) for each in state.replicas]) == (7_000, [0, 0, 0])
                assert feeds.table.volumes.high_watermark[row] == 70
                assert feeds.table.volumes.start_offset[row] == 0
                phantom.change(lambda state: state.produce("topic-00001", 2, 5))
                await until(lambda: int(feeds.table.volumes.high_watermark[row]) == 75, "the new offset")

    run(main())


def test_pages_that_are_always_due_do_not_keep_sizes_from_being_asked() -> None:
    async def main() -> None:
        with PhantomCluster(topics=3) as phantom:
            phantom.change(lambda state: state.produce("topic-00001", 2, 70))
            feeds = feeds_of(phantom, interval_s=0.0)
            async with asyncio.timeout(20):
                await feeds.first_look()
            row = feeds.table.row_of("topic-00001", 2)
            assert row is not None
            assert feeds.table.state(row).size_bytes == 7_000

    run(main())


def test_a_topic_made_again_has_its_sizes_although_the_answers_have_the_same_bytes() -> None:
    async def main() -> None:
        with PhantomCluster(topics=3) as phantom:
            async with running(feeds_of(phantom)) as feeds:
                old = feeds.table.topics.by_name["topic-00001"].identity

                def again(state: PhantomState) -> None:
                    placed = [row.replicas for row in state.topics["topic-00001"].partitions]
                    state.delete_topic("topic-00001")
                    state.create_topic("topic-00001", 4)
                    for row, replicas in zip(state.topics["topic-00001"].partitions, placed, strict=True):
                        row.replicas, row.isr, row.leader = replicas, list(replicas), replicas[0]

                phantom.change(again)
                await until(lambda: feeds.table.topics.by_name["topic-00001"].identity != old, "the new topic")
                row = feeds.table.row_of("topic-00001", 2)
                assert row is not None
                await until(lambda: feeds.table.state(row).size_bytes == 0, "its size")

    run(main())


def test_only_one_topic() -> None:
    async def main() -> None:
        with PhantomCluster(topics=9, journal=True) as phantom:
            feeds = feeds_of(phantom, topic="topic-00004")
            await feeds.first_look()
            assert {state.topic for state in feeds.table.values()} == {"topic-00004"}
            assert feeds.has_journal
            nothing = feeds_of(phantom, topic="absent")
            await nothing.first_look()
            assert len(nothing.table) == 0

    run(main())


def test_what_brokers_do_not_offer_is_unknown_and_no_fault() -> None:
    async def main() -> None:
        with PhantomCluster(topics=2, without=(LIST_OFFSETS, DESCRIBE_QUORUM)) as phantom:
            feeds = feeds_of(phantom)
            await feeds.first_look()
            state = next(feeds.table.values())
            assert (state.lag_of(state.followers[0]), state.size_bytes) == (0, 0)
            assert feeds.table.controller == 1, "as Metadata names it"
            assert not feeds.table.silent

    run(main())


def test_nobody_answers_then_somebody() -> None:
    async def main() -> None:
        with PhantomCluster(topics=2) as phantom:
            async with running(feeds_of(phantom)) as feeds:
                for broker in (1, 2, 3):
                    phantom.change(lambda state, broker=broker: state.is_up.update({broker: False}))  # type: ignore[misc]
                await until(lambda: feeds.problem is not None, "nobody answers")
                assert str(feeds.problem).count("connection refused") == 3
                phantom.change(lambda state: state.start(2))
                await until(lambda: feeds.problem is None, "one answers")
        with pytest.raises(Unreachable, match="connection refused"):
            await feeds_of(phantom).first_look()

    run(main())


def test_a_min_isr_that_changes_and_changes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_feeds, "_MIN_ISR_AGE_S", 0.1)

    def configure(state: PhantomState, min_isr: int) -> None:
        state.min_isr = min_isr
        # Answers are kept until the version of the state changes.
        state.produce("topic-00000", 0, 1)

    async def main() -> None:
        with PhantomCluster(topics=5) as phantom:
            async with running(feeds_of(phantom)) as feeds:

                def known() -> set[int | None]:
                    return {each.min_isr for each in feeds.table.values()}

                for wanted in (1, 2, 1):
                    phantom.change(partial(configure, min_isr=wanted))
                    await until(lambda wanted=wanted: known() == {wanted}, "the change")  # type: ignore[misc]
                answered = phantom.requests["DescribeConfigsRequest"]
                await until(lambda: phantom.requests["DescribeConfigsRequest"] > answered + 3, "it is asked again")
                assert known() == {1}

    run(main())
