"""A leader in memory: fetches of followers, ISR proposals, the HW, and all that waits for it, under random steps.

Partitions and logs are real; the controller's answers are drawn. A plain model says after every step what the HW, the
ISR and the proposal are, which requests the controller gets, and which waiting operations have ended with which code.
The queues that the replicas of a broker share run beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.support.log_world import TOPIC_ID, LogWorld, encode_records
from tests.support.replica_queues import ReplicaQueues, Watch

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.replication.isr_changes import IsrChanges
from barnabas.replication.partition import Isolation, Partition, Role
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


@dataclass
class Seen:
    """The leader's knowledge of a follower."""

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
            ReplicaQueues(self._random).run()

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
        steps: list[Callable[[int], None]] = [self._append, self._await, self._shrink]
        steps += [self._fetched] * 4
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
        """Makes this broker leader, with drawn followers in its ISR."""
        partition = self._partitions[index]
        replicas = _REPLICAS[: self._random.choice((1, 3, 4))]
        isr = tuple(each for each in replicas if each == _SELF or self._random.random() < 0.7)
        before = len(self._expected_followers)
        watch, _ = self._watches[index]
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
        self._check("what followers learn of an append", end_watch.sizes[-1:], [size])
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
        is_new = replica not in model.isr and model.proposed is None
        if is_new and offset >= max(before, model.begin) and self.may_join(replica, epoch, b""):
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
                epochs = [(each, _BROKER_EPOCH if each == _SELF else self._epoch_in(model, each)) for each in proposed]
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
        reply = self._asked.pop()[1]
        sent, self._sent = self._sent, {}
        rows, late = [], []
        whole: ErrorCode | None = ErrorCode.NONE
        if not self._is_kind and self._random.random() < 0.3:
            whole = self._random.choice((None, *_FAILED, *_WITHDRAWN))
        again = False
        for index, (model, isr_before) in sent.items():
            is_current = self._models[index] is model and model.proposed is not None
            code: ErrorCode | int | None = whole
            if whole is ErrorCode.NONE:
                code = 0 if self._is_kind else self._random.choice((0, 0, 0, *_WITHDRAWN, *_OVERTAKEN, *_FAILED))
                epoch = model.partition_epoch + self._random.choice((1, 1, 0))
                isr = model.proposed or model.isr
                row = AlterPartitionResponse.PartitionData(partition_index=index, error_code=code or 0)
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


def _swapped(waiters: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(number, offset) for offset, number in waiters]
