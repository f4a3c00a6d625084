"""A leader in memory: fetches of followers, ISR proposals, the HW, and all that waits for it, under random steps.

Partitions and logs are real; the controller's answers are drawn. A plain model says after every step what the HW, the
ISR and the proposal are, which requests the controller gets, and which waiting operations have ended with which code.
The queues that a broker's replicas share (deadlines, commit waiters, follower waits, slices of images, unopened
replicas) run beside it, each against a list.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.log_world import TOPIC_ID, LogWorld, encode_records

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.replication.commit_waiters import CommitWaiters
from barnabas.replication.follower_waits import FollowerWaits
from barnabas.replication.image_slices import ImageSlices
from barnabas.replication.isr_changes import IsrChanges
from barnabas.replication.isr_expiration import IsrExpiration
from barnabas.replication.partition import Isolation, Partition, Role
from barnabas.replication.purgatory import DelayedOperation, Purgatory
from barnabas.replication.unopened import UnopenedReplicas
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.storage.log import Origin

_STEPS = 120
_SELF, _REPLICAS = 1, (1, 2, 3, 4)
_MIN_ISR, _LAG_MS = 2, 1_000
_BROKER_EPOCH = 77
_NEVER = -(1 << 62)
_WITHDRAWN = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
_OVERTAKEN = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED, ErrorCode.INVALID_UPDATE_VERSION)
_FAILED = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)


class Watch:
    """A reader that waits; it counts what it is told."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.notes = 0

    def on_progress(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def on_note(self) -> None:
        self.notes += 1


@dataclass
class Seen:
    """What the leader knows of a follower."""

    caught_up_ms: int
    leo: int = -1
    start: int = -1
    epoch: int = -1
    fetched_ms: int = 0
    leader_leo: int = 1 << 62


@dataclass
class Model:
    """A partition as its leader must see it."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    begin: int
    followers: dict[int, Seen]
    proposed: tuple[int, ...] | None = None
    #: The leader's end and (broker, end, lag) of each replica that the proposal moves.
    reason: tuple[int, list[tuple[int, int, int]]] | None = None
    is_told: bool = False
    waiters: list[tuple[int, int]] = field(default_factory=list)
    ended: list[tuple[int, ErrorCode]] = field(default_factory=list)


class LeaderExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    lag_ms_max = _LAG_MS
    followed_ms = 1_000

    def __init__(self, seed: int) -> None:
        self._random = Random(f"leader {seed}")
        self._host = MemoryHost(seed=1)
        self._asked: list[tuple[AlterPartitionRequest, Callable[[Message | None], None]]] = []
        self._changes = IsrChanges(self._host.timers, _SELF, lambda: _BROKER_EPOCH, self._send)
        self.pushes_high_watermark = self._random.random() < 0.5
        self._barred: set[int] = set()
        self._expected_followers: list[Partition] = []
        self._partitions: list[Partition] = []
        self._models: list[Model] = []
        self._hw: list[int] = []
        self._found_ended: list[list[tuple[int, ErrorCode]]] = []
        self._watches: list[tuple[Watch, Watch]] = []
        self._numbers = 0
        self._sent: dict[int, tuple[Model, tuple[int, ...]]] = {}
        self._counts = [0, 0, 0]
        self._events: list[str] = []
        #: Whether the controller accepts everything.
        self._is_kind = False

    def run(self) -> None:
        with second_decisions().judging():
            self._run()
            self._commit_queue()
            self._deadlines()
            self._waiting_followers()
            self._slices()
            self._unopened()
            self._expiration()

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"leader: {what} is {found!r}, it should be {expected!r}")

    # -- the environment of the partitions

    def now_ms(self) -> int:
        return self._host.clock.now_ms()

    def may_join(self, broker_id: int, broker_epoch: int, directory: bytes) -> bool:
        return broker_id not in self._barred and broker_epoch != 13

    def is_alive(self, broker_id: int) -> bool:
        return broker_id not in self._barred

    def expect_followers(self, partition: Partition) -> None:
        self._expected_followers.append(partition)

    def propose(self, partition: Partition) -> None:
        self._changes.submit(partition)

    def wake_followers_soon(self, partition: Partition, size_bytes: int) -> None:
        partition.wake_followers(size_bytes)

    def report_event(self, partition: Partition, what: str, **facts: int) -> None:
        self._events.append(what)

    def _send(self, request: Message, reply: Callable[[Message | None], None]) -> None:
        assert isinstance(request, AlterPartitionRequest)
        self._asked.append((request, reply))

    # -- the run

    def _run(self) -> None:
        for index in range(2):
            config = LogConfig(min_insync_replicas=_MIN_ISR)
            log = LogWorld(config, disk=self._host.disk, root=f"/logs{index}").log
            partition = Partition(TopicPartition("orders", index), TOPIC_ID, log, _SELF, self)
            self._partitions.append(partition)
            self._hw.append(0)
            self._found_ended.append([])
            self._watches.append((Watch(), Watch()))
            partition.watch(self._watches[index][0], Isolation.READ_UNCOMMITTED)
            partition.watch(self._watches[index][1], Isolation.LOG_END)
            self._models.append(self._elected(index, 1, 1))
        steps = [self._append, self._fetched, self._fetched, self._fetched, self._fetched, self._await, self._shrink]
        steps += [self._answer, self._answer, self._pass_time, self._image, self._bar, self._delete]
        for _ in range(_STEPS):
            index = self._random.randrange(2)
            self._random.choice(steps)(index)
            self._settle(index)
        self._is_kind = True
        for _ in range(40):
            self._host.time.run_for(2_001)
            self._requests()
            self._answer(0)
        self._check("proposals without an end", [model.proposed for model in self._models], [None, None])
        for partition, model in zip(self._partitions, self._models, strict=True):
            partition.become_follower(PartitionImage(model.replicas, (2,), 2, 99, 999))
            self._check("the role", (partition.role, partition.leadership), (Role.FOLLOWER, None))
            index = self._partitions.index(partition)
            ended = {ErrorCode.NOT_LEADER_OR_FOLLOWER} if model.waiters else set()
            found = {code for number, code in self._found_ended[index] if number in dict(_swapped(model.waiters))}
            self._check("how waiting writes end", found, ended)
            self._check("fetches of a follower", partition.on_follower_fetch(2, 7, 0, 0), False)

    def _elected(self, index: int, leader_epoch: int, partition_epoch: int) -> Model:
        """This broker becomes leader, with these followers in its ISR."""
        partition = self._partitions[index]
        replicas = _REPLICAS[: self._random.choice((1, 3, 4))]
        isr = tuple(each for each in replicas if each == _SELF or self._random.random() < 0.7)
        before = len(self._expected_followers)
        watch, end_watch = self._watches[index]
        watch.sizes.clear()
        partition.become_leader(PartitionImage(replicas, isr, _SELF, leader_epoch, partition_epoch))
        self._check("wakened readers", watch.sizes[:1], [0])
        is_alone = replicas == (_SELF,)
        self._check("expected followers", len(self._expected_followers) - before, 0 if is_alone else 1)
        self._check("the epoch of the log", partition.log.epochs.latest_epoch, leader_epoch)
        end = partition.log.log_end_offset
        followers = {each: Seen(self.now_ms() if each in isr else _NEVER) for each in replicas if each != _SELF}
        return Model(isr, replicas, leader_epoch, partition_epoch, end, followers)

    # -- the model

    def _is_near(self, seen: Seen, end: int) -> bool:
        return seen.leo == end or self.now_ms() - seen.caught_up_ms <= _LAG_MS

    def _advance(self, index: int) -> None:
        """The HW is the smallest end of the members, proposed members and replicas that are about to join."""
        model, end = self._models[index], self._partitions[index].log.log_end_offset
        if len(model.isr) < min(_MIN_ISR, len(model.replicas)):
            return
        ends = [end]
        for replica, seen in model.followers.items():
            may = seen.leo >= 0 and self._is_near(seen, end) and self.may_join(replica, seen.epoch, b"")
            if replica in (*model.isr, *(model.proposed or ())) or may:
                ends.append(seen.leo)
        if min(ends) > self._hw[index]:
            self._hw[index] = min(ends)
            for offset, number in sorted(model.waiters):
                if offset <= self._hw[index]:
                    model.ended.append((number, ErrorCode.NONE))
            model.waiters = [each for each in model.waiters if each[0] > self._hw[index]]

    def _propose(self, index: int, isr: tuple[int, ...], end: int) -> None:
        model = self._models[index]
        model.proposed, model.is_told = isr, False
        moved = [each for each in model.isr if each not in isr] + [each for each in isr if each not in model.isr]
        rows = []
        for each in moved:
            seen = model.followers[each]
            lag_ms = self.now_ms() - seen.caught_up_ms
            rows.append((each, seen.leo, lag_ms if 0 <= lag_ms < 1 << 60 else -1))
        model.reason = end, rows

    def _settle(self, index: int) -> None:
        """Compares a partition with its model."""
        partition, model = self._partitions[index], self._models[index]
        leadership = partition.leadership
        assert leadership is not None
        found = (leadership.isr, leadership.proposed, leadership.partition_epoch, leadership.epoch)
        self._check("the ISR", found, (model.isr, model.proposed, model.partition_epoch, model.leader_epoch))
        self._check("the HW", partition.high_watermark, self._hw[index])
        self._check("ended writes", self._found_ended[index], model.ended)
        alone = model.replicas == (_SELF,) and model.isr == (_SELF,)
        self._check("whether it is alone", (leadership.is_alone, partition.is_replicated), (alone, not alone))
        self._check("the ISR of the partition", partition.in_sync, model.isr)
        enough = len(model.isr) >= min(_MIN_ISR, len(model.replicas))
        self._check("whether acks=all is possible", partition.enough_in_sync, enough)
        self._check("whether its end is known", partition.is_end_known, self._hw[index] >= model.begin)
        members = {*model.isr, *(model.proposed or ())} - {_SELF}
        seen = [model.followers[each] for each in members if each in model.followers]
        recent = all(each.leo >= 0 and self.now_ms() - each.fetched_ms <= 1_000 for each in seen)
        self._check("whether it is followed", partition.is_followed, recent)
        starts = [each.start for replica, each in model.followers.items() if replica not in self._barred]
        self._check("the low watermark", partition.low_watermark, min([partition.log.log_start_offset, *starts]))
        for offset, isolation in ((self._hw[index], Isolation.READ_UNCOMMITTED), (None, Isolation.LOG_END)):
            end = partition.log.log_end_offset if offset is None else offset
            self._check("the readable end", partition.readable_end(isolation), end)
        for epoch in (-1, model.leader_epoch - 1, model.leader_epoch, model.leader_epoch + 1):
            code = ErrorCode.NONE
            if epoch > model.leader_epoch:
                code = ErrorCode.UNKNOWN_LEADER_EPOCH
            elif -1 < epoch < model.leader_epoch:
                code = ErrorCode.FENCED_LEADER_EPOCH
            self._check(f"the check of epoch {epoch}", partition.check_epoch(epoch), code)
        self._requests()

    # -- steps

    def _append(self, index: int) -> None:
        partition = self._partitions[index]
        watch, end_watch = self._watches[index]
        watch.sizes.clear()
        end_watch.sizes.clear()
        before = self._hw[index]
        batch = encode_records(*range(1000, 1000 + self._random.randint(1, 3)))
        size = len(batch)
        partition.append(memoryview(batch), 1_800_000_000_000, Origin.CLIENT)
        self._advance(index)
        self._check("what followers are told of an append", end_watch.sizes[-1:], [size])
        self._check("what readers are told", watch.sizes, [size] if self._hw[index] > before else [])

    def _fetched(self, index: int) -> None:
        """A follower fetches: a known one, one that is none, or an earlier incarnation."""
        partition, model = self._partitions[index], self._models[index]
        replica = self._random.choice(_REPLICAS)
        seen, end = model.followers.get(replica), partition.log.log_end_offset
        epoch = self._random.choice((-1, 7, 7, 7, 8, 13))
        begin = 0 if seen is None else max(seen.leo, 0)
        offset = self._random.choice((end, end, min(begin, end), max(0, end - 1), self._random.randint(0, end)))
        start = self._random.choice((0, partition.log.log_start_offset))
        is_known = seen is not None and (epoch == -1 or epoch >= seen.epoch)
        end_watch = self._watches[index][1]
        end_watch.sizes.clear()
        notes, before = end_watch.notes, self._hw[index]
        result = partition.on_follower_fetch(replica, epoch, offset, start)
        self._check("whether a fetch counts", result, is_known)
        if not is_known:
            return
        assert seen is not None
        if offset >= end:
            seen.caught_up_ms = self.now_ms()
        elif offset >= seen.leader_leo:
            seen.caught_up_ms = max(seen.caught_up_ms, seen.fetched_ms)
        seen.leo, seen.start, seen.epoch, seen.fetched_ms, seen.leader_leo = offset, start, epoch, self.now_ms(), end
        if replica not in model.isr and model.proposed is None and offset >= max(before, model.begin):
            if self.may_join(replica, epoch, b""):
                self._propose(index, (*model.isr, replica), end)
        self._advance(index)
        if self._hw[index] > before:
            told = (len(end_watch.sizes), end_watch.notes - notes)
            self._check("how followers learn the HW", told, (1, 0) if self.pushes_high_watermark else (0, 1))

    def _await(self, index: int) -> None:
        partition, model = self._partitions[index], self._models[index]
        self._numbers += 1
        number = self._numbers
        end = partition.log.log_end_offset
        offset = self._random.choice((self._hw[index], self._hw[index] + 1, end))
        ended = self._found_ended[index]
        waiter = partition.await_commit(offset, lambda code: ended.append((number, code)))
        if offset <= self._hw[index]:
            enough = len(model.isr) >= min(_MIN_ISR, len(model.replicas))
            code = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            model.ended.append((number, code))
            self._check("a waiter for what is committed", waiter, None)
        elif waiter is not None and self._random.random() < 0.2:
            waiter.cancel()
            waiter.cancel()
        else:
            model.waiters.append((offset, number))

    def _shrink(self, index: int) -> None:
        partition, model = self._partitions[index], self._models[index]
        end = partition.log.log_end_offset
        partition.shrink_isr()
        if model.replicas == (_SELF,) and model.isr == (_SELF,):
            return
        late = {each for each, seen in model.followers.items() if not self._is_near(seen, end)}
        kept = tuple(each for each in model.isr if each not in late)
        if model.proposed is None and kept != model.isr:
            self._propose(index, kept, end)
        else:
            self._advance(index)

    def _bar(self, index: int) -> None:
        self._barred ^= {self._random.choice((2, 3, 4))}

    def _pass_time(self, index: int) -> None:
        latest = [seen.caught_up_ms for seen in self._models[index].followers.values() if seen.caught_up_ms >= 0]
        target = self._random.choice(latest) + _LAG_MS + self._random.choice((0, 1)) if latest else 0
        duration_ms = target - self.now_ms() if self._random.random() < 0.5 else self._random.choice((1, 49, 50, 2_000))
        self._host.time.run_for(max(1, duration_ms))
        self._requests()

    def _delete(self, index: int) -> None:
        partition = self._partitions[index]
        hw, start = self._hw[index], partition.log.log_start_offset
        offset = self._random.choice((-1, -2, hw, hw + 1, start, self._random.randint(0, hw)))
        target = hw if offset == -1 else offset
        expected: object = ErrorCode.OFFSET_OUT_OF_RANGE
        if 0 <= target <= hw:
            expected = target, max(start, target)
        try:
            found: object = partition.delete_records_before(offset), partition.log.log_start_offset
        except RequestFailed as failure:
            found = failure.code
        self._check(f"the deletion before {offset}", found, expected)

    def _image(self, index: int) -> None:
        """The metadata change: another ISR or other replicas in this epoch, or another epoch."""
        partition, model = self._partitions[index], self._models[index]
        if self._random.random() < 0.3:
            waiters, ended = model.waiters, model.ended
            self._models[index] = self._elected(index, model.leader_epoch + 1, model.partition_epoch + 1)
            self._models[index].waiters, self._models[index].ended = waiters, ended
            self._advance(index)
            return
        is_new = self._random.random() < 0.6
        replicas = _REPLICAS[: self._random.choice((1, 3, 4))] if is_new else model.replicas
        isr = tuple(each for each in replicas if each == _SELF or self._random.random() < 0.7)
        partition_epoch = model.partition_epoch + is_new
        partition.become_leader(PartitionImage(replicas, isr, _SELF, model.leader_epoch, partition_epoch))
        if partition_epoch > model.partition_epoch:
            model.isr, model.partition_epoch, model.proposed = isr, partition_epoch, None
        model.replicas = replicas
        known = model.followers
        model.followers = {
            each: known.get(each) or Seen(self.now_ms() if each in model.isr else _NEVER)
            for each in replicas
            if each != _SELF
        }
        self._advance(index)

    # -- requests to the controller

    def _requests(self) -> None:
        """Each request names the proposals that exist, with the epochs of their members."""
        self._host.time.run_for(0)
        self._check("requests at a time", len(self._asked) <= 1, True)
        if not self._asked:
            untold = [model for model in self._models if model.proposed is not None and not model.is_told]
            self._check("proposals that nobody was told", untold, [])
        if not self._asked or self._sent:
            return
        request, _ = self._asked[0]
        self._check("who asks", (request.broker_id, request.broker_epoch), (_SELF, _BROKER_EPOCH))
        for topic in request.topics:
            for row in topic.partitions:
                model = self._models[row.partition_index]
                members = [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
                proposed = model.proposed or ()
                epochs = [
                    (each, _BROKER_EPOCH if each == _SELF else self._epoch_in(model, each)) for each in proposed
                ]
                self._check("a proposal", members, epochs)
                found = (topic.topic_id, row.leader_epoch, row.partition_epoch, row.leader_recovery_state)
                self._check("its epochs", found, (TOPIC_ID, model.leader_epoch, model.partition_epoch, 0))
                ((tag, data),) = row.unknown_tags
                own_end, rest = struct.unpack_from(">q", data)[0], data[8:]
                reason = own_end, list(struct.iter_unpack(">iqq", rest))
                self._check("the reason", (tag, reason), (8_192, model.reason))
                model.is_told = True
                self._sent[row.partition_index] = (model, model.isr)

    def _epoch_in(self, model: Model, replica: int) -> int:
        seen = model.followers.get(replica)
        return -1 if seen is None else seen.epoch

    def _answer(self, _: int) -> None:
        if not self._asked:
            return
        _, reply = self._asked.pop()
        sent, self._sent = self._sent, {}
        rows, late = [], []
        whole: ErrorCode | None = ErrorCode.NONE
        if not self._is_kind and self._random.random() < 0.3:
            whole = self._random.choice((None, *_FAILED, *_WITHDRAWN))
        again = False
        for index, (model, isr_before) in sent.items():
            is_current = self._models[index] is model and model.proposed is not None
            code = whole
            if whole is ErrorCode.NONE:
                code = 0 if self._is_kind else self._random.choice((0, 0, 0, *_WITHDRAWN, *_OVERTAKEN, *_FAILED))
                epoch = model.partition_epoch + self._random.choice((1, 1, 0))
                isr = model.proposed or model.isr
                row = AlterPartitionResponse.PartitionData(partition_index=index, error_code=code)
                row.isr, row.partition_epoch = list(isr), epoch
                rows.append(row)
                if code:
                    self._counts[2] += 1
                else:
                    self._counts[0] += len(isr) < len(isr_before)
                    self._counts[1] += len(isr) > len(isr_before)
                if is_current and not code:
                    model.proposed = None
                    if epoch > model.partition_epoch:
                        model.isr, model.partition_epoch = isr, epoch
                        late.append(index)
            else:
                self._counts[2] += 1
            if is_current and code in _WITHDRAWN:
                model.proposed = None
            again |= is_current and code not in (0, *_WITHDRAWN, *_OVERTAKEN)
        topics = [AlterPartitionResponse.TopicData(topic_id=TOPIC_ID, partitions=rows)] if rows else []
        reply(None if whole is None else AlterPartitionResponse(error_code=whole, topics=topics))
        for index in late:
            self._advance(index)
        found = [self._changes.shrinks, self._changes.expands, self._changes.failures]
        self._check("the counted changes", found, self._counts)
        if again:
            self._check("requests before the pause", len(self._asked), 0)
            self._host.time.run_for(49)
            self._check("requests within the pause", len(self._asked), 0)
            self._host.time.run_for(1)
            self._check("requests after the pause", len(self._asked), 1)
        self._requests()
        for index in range(2):
            self._settle(index)

    # -- the queues beside it

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
        led: Any = [Led(number) for number in range(count)]
        expiration = IsrExpiration(host.timers, self, lambda: iter(led))
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


def _swapped(waiters: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(number, offset) for offset, number in waiters]
