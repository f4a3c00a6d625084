"""The queues that the replicas of a broker share, each against a list: commit waiters, deadlines, waiting fetches of
followers, slices of images, replicas without a log, and the periodic check of ISRs.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.replication.commit_waiters import CommitWaiters
from barnabas.replication.follower_waits import FollowerWaits
from barnabas.replication.image_slices import ImageSlices
from barnabas.replication.isr_expiration import IsrExpiration
from barnabas.replication.purgatory import DelayedOperation, Purgatory
from barnabas.replication.unopened import UnopenedReplicas
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost

_LAG_MS = 1_000


class Watch:
    """A reader that waits; it counts what it is told."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.notes = 0

    def on_progress(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def on_note(self) -> None:
        self.notes += 1


class ReplicaQueues:
    """The run of one seed. `run` raises Violation."""

    lag_ms_max = _LAG_MS

    def __init__(self, random: Random) -> None:
        self._random = random

    def run(self) -> None:
        self._commit_queue()
        self._deadlines()
        self._waiting_followers()
        self._slices()
        self._unopened()
        self._expiration()
        self._checks_at_any_time()

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"queues of replicas: {what} is {found!r}, it should be {expected!r}")

    def _commit_queue(self) -> None:
        """Waiters in any order of offsets, many of them cancelled."""
        queue, waiting, ended = CommitWaiters(), [], []
        for number in range(300):
            offset = self._random.randrange(50)
            waiter = queue.add(offset, lambda code, number=number: ended.append(number))  # type: ignore[misc]
            waiting.append((offset, number, waiter))
            if self._random.random() < 0.6:
                gone = self._random.choice(waiting)
                gone[2].cancel()
                waiting.remove(gone)
            self._check("the length of the queue", (len(queue), bool(queue)), (len(waiting), bool(queue._heap)))
            self._check("whether cancelled waiters are dropped", len(queue._heap) <= 2 * len(waiting) + 64, True)
            if self._random.random() < 0.05:
                reached = self._random.randrange(50)
                for done in queue.take(reached):
                    done(ErrorCode.NONE)
                due = sorted(each[:2] for each in waiting if each[0] <= reached)
                waiting = [each for each in waiting if each[0] > reached]
                self._check("who is reached", ended, [number for _, number in due])
                ended.clear()
        for done in queue.take():
            done(ErrorCode.NONE)
        self._check("the rest", ended, [number for _, number in sorted(each[:2] for each in waiting)])
        self._check("an empty queue", (len(queue), bool(queue)), (0, False))

    def _deadlines(self) -> None:
        """Operations end at their deadline, 64 in an event, unless they have ended before."""
        host = MemoryHost(seed=1)
        purgatory = Purgatory(host.clock, host.timers)
        ended: list[tuple[int, bool, int]] = []

        class Operation(DelayedOperation):
            def __init__(self, number: int) -> None:
                super().__init__()
                self.number = number

            def on_complete(self, expired: bool) -> None:
                ended.append((self.number, expired, host.clock.now_ms()))

        waiting: dict[int, tuple[int, Operation]] = {}
        for number in range(self._random.choice((20, 700))):
            deadline_ms = host.clock.now_ms() + self._random.choice((0, 1, 5, 100, 100, 100))
            operation = Operation(number)
            purgatory.expire_at(deadline_ms, operation)
            waiting[number] = (deadline_ms, operation)
            if self._random.random() < 0.5:
                gone = self._random.choice(list(waiting))
                _, early = waiting.pop(gone)
                self._check("an early end", (early.complete(), early.complete()), (True, False))
                self._check("what ended early", ended.pop(), (gone, False, host.clock.now_ms()))
            self._check("the number of operations", len(purgatory), len(waiting))
            self._check("whether ended ones are dropped", len(purgatory._heap) <= max(256, 2 * len(waiting) + 2), True)
            if self._random.random() < 0.1:
                host.time.run_for(self._random.choice((1, 7)))
                now_ms = host.clock.now_ms()
                due = sorted((at, number) for number, (at, _) in waiting.items() if at <= now_ms)
                self._check("what has expired", [(each[0], each[1]) for each in ended], [(n, True) for _, n in due])
                for number_ended, _, at_ms in ended:
                    self._check("the time of an end", at_ms >= waiting[number_ended][0], True)
                for _, number_due in due:
                    del waiting[number_due]
                ended.clear()
        left = sorted(purgatory.waiting(), key=id)
        self._check("what waits", len(left), len(waiting))
        purgatory.close()
        order = [number for _, number in sorted((at, number) for number, (at, _) in waiting.items())]
        self._check("what the end completes", [(each[0], each[1]) for each in ended], [(n, True) for n in order])
        ended.clear()
        host.time.run_for(1_000)
        self._check("what follows the end", ended, [])

    def _waiting_followers(self) -> None:
        host = MemoryHost(seed=1)
        waits = FollowerWaits(host.clock, host.timers)
        first, second, third = Watch(), Watch(), Watch()
        self._check("a wait", waits.wait_ms(2, 500), 500)
        waits.enter(2, first)
        waits.enter(2, second)
        waits.enter(3, third)
        waits.leave(2, second)
        waits.leave(9, second)
        waits.expect((2, 4))
        waits.expect((2,))
        self._check("who is wakened at once", (first.sizes, third.sizes), ([], []))
        host.time.run_for(0)
        self._check("who is wakened", (first.sizes, second.sizes, third.sizes), ([0], [], []))
        waits.leave(2, first)
        self._check("who waits", list(waits._waiting), [3])
        for follower, at_ms, expected in ((2, 0, 20), (3, 0, 500), (4, 999, 20), (4, 1_000, 500), (4, 1_001, 500)):
            host.time.run_until(at_ms)
            self._check(f"the wait of {follower} at {at_ms}", waits.wait_ms(follower, 500), expected)
        self._check("a short wait", waits.wait_ms(2, 7), 7)
        waits.expect((3,))
        self._check("a shorter wait", waits.wait_ms(3, 7), 7)
        host.time.run_for(0)
        self._check("who is wakened later", third.sizes, [0])

    def _slices(self) -> None:
        """The first change is applied at once; later ones 100 steps or 8 ms at a time, in order."""
        host = MemoryHost(seed=1)
        done: list[tuple[int, int]] = []
        slow = False

        def steps(change: int, count: int) -> Iterator[None]:
            for place in range(count):
                done.append((change, place))
                if slow:
                    host.time._now_ms += 3
                yield

        counts = iter((250, 100, 101, 5))
        slices = ImageSlices(host.timers, host.clock, lambda delta, image: steps(len(done), next(counts)))
        none: Any = None
        slices.on_image(none, EMPTY_IMAGE)
        self._check("the first change", (len(done), slices.is_behind), (250, False))
        done.clear()
        slices.on_image(none, EMPTY_IMAGE)
        self._check("a change of 100 steps", len(done), 100)
        host.time.run_for(0)
        self._check("what is behind then", slices.is_behind, False)
        done.clear()
        slices.on_image(none, EMPTY_IMAGE)
        slices.on_image(none, EMPTY_IMAGE)
        slices.add(steps(7, 3))
        self._check("a long change", (len(done), slices.is_behind), (100, True))
        host.time.run_for(0)
        self._check("all changes", (len(done), slices.is_behind), (101 + 5 + 3, False))
        done.clear()
        slow = True
        slices.add(steps(8, 7))
        self._check("a slow slice", len(done), 3)
        host.time.run_for(50)
        self._check("slow slices", [place for _, place in done], list(range(7)))
        slow = False
        slices.add(steps(9, 150))
        slices.close()
        done.clear()
        host.time.run_for(10)
        self._check("what follows the end", (done, slices.is_behind), ([], False))

    def _unopened(self) -> None:
        host = MemoryHost(seed=1)
        tried: list[TopicPartition] = []
        replicas = UnopenedReplicas(host.timers, tried.append)
        first, second, third = (TopicPartition("orders", index) for index in range(3))
        replicas.add(first, can_retry=False)
        host.time.run_for(2_000)
        self._check("tries without hope", (tried, len(replicas), first in replicas), ([], 1, True))
        replicas.add(second, can_retry=True)
        replicas.add(third, can_retry=True)
        replicas.discard(third)
        replicas.discard(third)
        host.time.run_for(999)
        self._check("early tries", tried, [])
        host.time.run_for(1)
        self._check("tries", (tried, len(replicas), third in replicas), ([second], 2, False))
        host.time.run_for(5_000)
        self._check("tries that nobody asked for", tried, [second])
        replicas.add(second, can_retry=True)
        replicas.close()
        host.time.run_for(5_000)
        self._check("tries after the end", (tried, len(replicas)), ([second], 0))

    def _expiration(self) -> None:
        """All partitions are checked twice per lag time, 5,000 in an event."""
        host = MemoryHost(seed=1)
        checked: list[int] = []

        class Led:
            def __init__(self, number: int) -> None:
                self.number = number

            def shrink_isr(self) -> None:
                checked.append(self.number)

        count = self._random.choice((1, 5_000, 5_001))
        environment: Any = self
        led: Any = [Led(number) for number in range(count)]
        expiration = IsrExpiration(host.timers, environment, lambda: iter(led))
        expiration.check()
        self._check("checks before the start", checked, [])
        expiration.start()
        host.time.run_for(_LAG_MS // 2 - 1)
        self._check("early checks", checked, [])
        host.time.run_for(1)
        self._check("the first checks", checked, list(range(min(count, 5_000))))
        host.time.run_for(1)
        self._check("all checks", checked, list(range(count)))
        checked.clear()
        expiration.check()
        self._check("checks at once", len(checked), min(count, 5_000))
        host.time.run_for(100)
        checked.clear()
        host.time.run_for(_LAG_MS // 2 - 102)
        self._check("checks within the next period", checked, [])
        host.time.run_for(5)
        self._check("checks of the next period", len(checked), count)
        expiration.close()
        checked.clear()
        host.time.run_for(2_000)
        self._check("checks after the end", checked, [])

    def _checks_at_any_time(self) -> None:
        """Checks that others ask for, at any time: the next one follows half a lag time after each."""
        host = MemoryHost(seed=1)
        begun: list[int] = []
        checked: list[int] = []
        count = self._random.choice((1, 2, 5_001))
        led: Any = SimpleNamespace(shrink_isr=lambda: checked.append(1))

        def partitions() -> Iterator[Any]:
            begun.append(host.clock.now_ms())
            return iter([led] * count)

        environment: Any = self
        expiration = IsrExpiration(host.timers, environment, partitions)
        expiration.start()
        pause_ms = count > 5_000
        expected: list[int] = []
        due_ms = _LAG_MS // 2
        for _ in range(12):
            asked_ms = host.clock.now_ms() + self._random.choice((10, 130, 499, 500, 501, 730, 1_700))
            host.time.run_until(asked_ms)
            while due_ms <= asked_ms:
                expected.append(due_ms)
                due_ms += _LAG_MS // 2 + pause_ms
            expiration.check()
            host.time.run_for(pause_ms)
            expected.append(asked_ms)
            due_ms = asked_ms + _LAG_MS // 2 + pause_ms
            self._check("when ISRs are checked", begun, expected)
        expiration.close()
        host.time.run_for(2 * _LAG_MS)
        self._check("checks after the end", begun, expected)
        self._check("how many ISRs are checked", count <= len(checked) <= len(expected) * count, True)
