"""The watch itself: its steps when a cluster changes, stops answering, and reports causes late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from tests.support.phantom_feeds import clock_ms, feeds_of, run

from barnabas.monitor.changes import Change
from barnabas.monitor.watch import Step, watch
from barnabas.testing.phantom import PhantomCluster


async def steps_until(
    phantom: PhantomCluster, actions: list[tuple[Callable[[Step], bool], Callable[[], object]]]
) -> list[Step]:
    """Returns the steps up to the last condition; after each condition is met, its action is taken."""
    found: list[Step] = []
    async with aclosing(watch(feeds_of(phantom), interval_s=0.05, clock_ms=clock_ms)) as steps:
        async for step in steps:
            found.append(step)
            while actions and actions[0][0](step):
                actions.pop(0)[1]()
                if actions:
                    break
            if not actions:
                return found
    return found


def told(steps: list[Step]) -> list[Change]:
    return [change for step in steps for change in step.changes]


def has(kind: str) -> Callable[[Step], bool]:
    return lambda step: any(change.kind == kind for change in step.changes)


def nothing() -> None:
    pass


def test_it_continues_when_nobody_answers_and_when_somebody_does_again() -> None:
    async def main() -> None:
        with PhantomCluster(topics=2) as phantom:

            def stop() -> None:
                phantom.change(lambda state: state.is_up.update({1: False, 2: False, 3: False}))

            def start() -> None:
                phantom.change(lambda state: state.start(1))

            stop()
            steps = await steps_until(
                phantom,
                [
                    (lambda step: step.problem is not None, start),
                    (has("reachable"), nothing),
                    (lambda step: step.table is not None, stop),
                    (has("unreachable"), start),
                    (has("reachable"), nothing),
                ],
            )
            assert steps[0].table is None, "nothing was seen yet"
            assert "connection refused" in str(steps[0].problem)
            kinds = [change.kind for change in told(steps) if change.kind in ("unreachable", "reachable")]
            assert kinds == ["unreachable", "reachable", "unreachable", "reachable"]
            lost = next(step for step in reversed(steps) if step.problem is not None)
            assert lost.table is not None, "as it was seen last"

    run(main())


def test_a_change_of_the_journal_is_reported_once_with_its_cause() -> None:
    async def main() -> None:
        with PhantomCluster(topics=30, journal=True) as phantom:
            steps = await steps_until(
                phantom,
                [
                    (
                        lambda step: step.table is not None,
                        lambda: phantom.change(lambda state: state.shrink_isr("topic-00003", 1, 2)),
                    ),
                    (has("isr-shrink"), lambda: phantom.change(lambda state: state.kill(2))),
                    (has("broker-gone"), nothing),
                ],
            )
            shrinks = [change for change in told(steps) if change.cause == "broker 2 fell behind"]
            assert [change.subject for change in shrinks] == ["topic-00003-1"]
            gone = next(change for change in told(steps) if change.kind == "broker-gone")
            assert gone.cause == "broker 2 was fenced: no process listens at its address"

    run(main())


def test_a_watch_that_is_closed_leaves_no_task() -> None:
    async def main() -> None:
        with PhantomCluster(topics=1) as phantom:
            before = len(asyncio.all_tasks())
            await steps_until(phantom, [(lambda step: step.table is not None, nothing)])
            assert len(asyncio.all_tasks()) == before

    run(main())
