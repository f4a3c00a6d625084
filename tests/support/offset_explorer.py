"""The offsets of a coordinator in memory under random requests: a small world of which a seed takes milliseconds.

Two groups have no members; one has a member of the classic protocol, one a member of the consumer protocol. They
commit, with right and wrong epochs and also in transactions, fetch, and delete offsets and groups. Records are held
back and lost, topics are deleted, the coordinator moves, time passes. Every answer is predicted from a dict of offsets.
After every step the coordinator is compared with that dict and with the simple replay of its log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.consumer_members import Consumer
from tests.support.group_world import Answer, Context, GroupWorld, commit_errors, delete_errors

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.protocol.messages.offset_fetch import OffsetFetchResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.batch import encode_end_txn_marker
from barnabas.simulation.coordinator_dict import CoordinatorDict
from barnabas.simulation.coordinator_replay import wrong_groups
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions

_SIMPLE, _CLASSIC, _CONSUMER = ("s1", "s2"), "classic", "consumer"
_GROUPS = (*_SIMPLE, *_SIMPLE, _CLASSIC, _CONSUMER)
_STEPS = 60
_RETENTION_MS, _CHECK_MS, _METADATA_MAX = 60_000, 10_000, 6
_PRODUCERS = (1, 2, 3)
_NONE = -1

Place = tuple[str, int]
#: Offset, leader epoch, metadata, commit time and expiry time.
Value = tuple[int, int, str, int, int]
Row = tuple[int, int, str, int]
_ABSENT: Row = (_NONE, _NONE, "", 0)


@dataclass
class _Flight:
    """A request that waits for records which are held back; called when they are committed, or have failed."""

    committed: Callable[[], None]
    failed: Callable[[], None]


class OffsetExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"offsets {seed}")
        config = GroupConfig(
            offsets_retention_ms=_RETENTION_MS,
            offsets_retention_check_interval_ms=_CHECK_MS,
            offset_metadata_size_max=_METADATA_MAX,
        )
        self._world = GroupWorld(config)
        if self._random.random() < 0.5:
            # Deletions take several batches of few records.
            self._world.log.bytes_max = self._random.choice((2_400, 3_000))
        self._offsets: dict[tuple[str, str, int], Value] = {}
        #: The offsets in open transactions by producer and place, each with its number among all writes.
        self._open: dict[int, dict[tuple[str, str, int], tuple[int, Value]]] = {each: {} for each in _PRODUCERS}
        self._number = 0
        self._flights: list[_Flight] = []
        #: The time since which nothing but time has passed.
        self._quiet_ms = self._now_ms

    def run(self) -> None:
        with second_decisions().judging():
            self._member = self._world.stable(_CLASSIC, session_ms=30_000)[0]
            self._consumer = Consumer(self._world, "m", ("orders",), group_id=_CONSUMER)
            for _ in range(3):
                self._beat()
            steps = [self._commit, self._commit, self._commit, self._commit_in_transaction, self._end, self._fetch]
            steps += [
                self._commit_in_transaction,
                self._fetch,
                self._delete,
                self._delete_group,
                self._time,
                self._time,
            ]
            steps += [self._move, self._hold, self._hold, self._topic]
            for _ in range(_STEPS):
                self._random.choice(steps)()
                self._compare()
            self._end_of_group()

    def _end_of_group(self) -> None:
        """The consumer leaves, and its group is deleted with all its offsets, however many batches that takes."""
        if self._world.log.holding:
            self._hold()
        for producer_id in _PRODUCERS:
            self._abort(producer_id)
        _same("the end of the consumer", self._consumer.leave(), ErrorCode.NONE)
        self._world.topics["many"] = 120
        for first in range(0, 120, 20):
            self._world.commit(_CONSUMER, {("many", first + more): 1 for more in range(20)}, version=9)
        self._world.pass_ms(0)
        answer = self._world.delete(_CONSUMER)
        self._world.pass_ms(100)
        _same("the answer to DeleteGroups", delete_errors(answer), {_CONSUMER: ErrorCode.NONE})
        shard = self._world.coordinator.shard(0)
        assert shard is not None
        _same("the offsets of a group that is deleted", dict(shard.offsets.of(_CONSUMER)), {})
        replayed, partition = CoordinatorDict(), self._world.partition()
        replayed.add(bytes(self._world.log.logs[partition]), self._world.log.high_watermark(partition))
        problem = wrong_groups(shard, replayed, is_loaded=False)
        if problem:
            raise Violation(f"a coordinator's state differs from its log: {problem}")

    def _abort(self, producer_id: int) -> None:
        marker = encode_end_txn_marker(
            commit=False, coordinator_epoch=0, timestamp=self._now_ms, producer_id=producer_id, producer_epoch=0
        )
        self._world.coordinator.end_transaction(0, producer_id, False, marker, lambda code: None)
        self._world.pass_ms(0)

    @property
    def _now_ms(self) -> int:
        return self._world.host.clock.wall_ms()

    def _beat(self) -> None:
        _same("the heartbeat of a consumer", self._consumer.beat(), ErrorCode.NONE)
        generation = self._world.group(_CLASSIC).generation
        _same("the heartbeat", self._world.heartbeat(_CLASSIC, generation, self._member), ErrorCode.NONE)

    def _places(self) -> list[Place]:
        """Returns some partitions, of which the last one may not exist."""
        known = [(name, index) for name, count in self._world.topics.items() for index in range(count)]
        found = self._random.sample(known, min(len(known), self._random.choice((1, 1, 2, 3))))
        if self._random.random() < 0.2:
            found.append(self._random.choice((("orders", 99), ("nothing", 0))))
        return found

    def _exists(self, place: Place) -> bool:
        return 0 <= place[1] < self._world.topics.get(place[0], 0)

    # -- commits

    def _committer(self, group_id: str) -> tuple[str, int]:
        """Returns a member id and an epoch, which are mostly right."""
        own = {_CLASSIC: (self._member, self._world.group(_CLASSIC).generation), _CONSUMER: ("m", self._consumer.epoch)}
        member_id, epoch = own.get(group_id, ("", _NONE))
        if self._random.random() < 0.7:
            return member_id, epoch
        return self._random.choice((("", _NONE), (member_id, epoch + 1), ("unknown", epoch), (member_id, epoch - 1)))

    def _refusal(self, group_id: str, member_id: str, epoch: int, version: int) -> ErrorCode:
        """Returns why this member must not commit."""
        if group_id in _SIMPLE:
            if self._world.find(group_id) is None and epoch >= 0:
                return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.UNKNOWN_MEMBER_ID if epoch >= 0 else ErrorCode.NONE
        if member_id != (self._member if group_id == _CLASSIC else "m"):
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group_id == _CLASSIC:
            current = self._world.group(_CLASSIC).generation
            return ErrorCode.NONE if epoch == current else ErrorCode.ILLEGAL_GENERATION
        if version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if epoch == self._consumer.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def _commit(self) -> None:
        group_id, version = self._random.choice(_GROUPS), self._random.choice((2, 4, 6, 8, 9, 9, 9))
        member_id, epoch = self._committer(group_id)
        places, text = self._places(), self._random.choice(("", "", "text", "x" * _METADATA_MAX, "x" * 7, None))
        retention_ms = self._random.choice((-1, 0, 20_000)) if version <= 4 else -1
        refusal, now_ms = self._refusal(group_id, member_id, epoch, version), self._now_ms
        leader_epoch = self._random.choice((-1, 3)) if version >= 6 else -1
        offsets = {place: self._random.randrange(1_000) for place in places}
        codes = {}
        for place in places:
            codes[place] = refusal if self._exists(place) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if codes[place] is ErrorCode.NONE and text is not None and len(text) > _METADATA_MAX:
                codes[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        expiry_ms = _NONE if retention_ms < 0 else now_ms + retention_ms
        values: dict[Place, Value] = {
            place: (offsets[place], leader_epoch, text or "", now_ms, expiry_ms)
            for place in places
            if codes[place] is ErrorCode.NONE
        }
        answer = self._world.commit(
            group_id,
            offsets,
            generation=epoch,
            member_id=member_id,
            metadata=text,
            leader_epoch=leader_epoch,
            retention_ms=retention_ms,
            version=version,
        )

        def committed() -> None:
            _same(f"the answer to OffsetCommit of {group_id}", commit_errors(answer), codes)
            for place, value in values.items():
                self._offsets[group_id, *place] = value
                self._supersede((group_id, *place), self._number + 1)

        def failed() -> None:
            told = {place: code or ErrorCode.COORDINATOR_NOT_AVAILABLE for place, code in codes.items()}
            _same(f"the answer to OffsetCommit of {group_id}", commit_errors(answer), told)

        self._settle(answer, committed, failed, writes=bool(values))

    def _supersede(self, key: tuple[str, str, int], number: int) -> None:
        for written in self._open.values():
            if key in written and written[key][0] < number:
                del written[key]

    def _settle(
        self, answer: Answer[Any], committed: Callable[[], None], failed: Callable[[], None], *, writes: bool
    ) -> None:
        self._world.pass_ms(0)
        if writes and self._world.log.holding:
            _same("an answer before the commit", answer.is_parked, True)
            self._flights.append(_Flight(committed, failed))
        else:
            committed()

    # -- transactions

    def _commit_in_transaction(self) -> None:
        group_id, producer_id = self._random.choice(_GROUPS), self._random.choice(_PRODUCERS)
        member_id, epoch = self._committer(group_id)
        if group_id in _SIMPLE and self._world.find(group_id) is None:
            refusal = ErrorCode.ILLEGAL_GENERATION if epoch >= 0 else ErrorCode.NONE
        elif epoch < 0 and (not member_id or group_id in _SIMPLE):
            refusal = ErrorCode.NONE
        else:
            refusal = self._refusal(group_id, member_id, epoch, 9)
        places, now_ms, number = self._places(), self._now_ms, self._random.randrange(1_000)
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=None,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=number, committed_metadata="t"
                        )
                    ],
                )
                for name, index in places
            ],
        )
        answer: Answer[TxnOffsetCommitResponse] = Answer(3)
        self._world.coordinator.commit_offsets_in_transaction(Context(3), request, answer)
        codes = {
            place: refusal or (ErrorCode.NONE if self._exists(place) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for place in places
        }

        def told() -> dict[Place, ErrorCode]:
            rows = [(topic.name, row) for topic in answer.response.topics for row in topic.partitions]
            return {(name, row.partition_index): ErrorCode(row.error_code) for name, row in rows}

        def committed() -> None:
            _same(f"the answer to TxnOffsetCommit of {group_id}", told(), codes)
            for place, code in codes.items():
                if code is ErrorCode.NONE:
                    self._number += 1
                    self._open[producer_id][group_id, *place] = (self._number, (number, _NONE, "t", now_ms, _NONE))

        def failed() -> None:
            away = {place: code or ErrorCode.COORDINATOR_NOT_AVAILABLE for place, code in codes.items()}
            _same(f"the answer to TxnOffsetCommit of {group_id}", told(), away)

        self._settle(answer, committed, failed, writes=ErrorCode.NONE in codes.values())

    def _end(self) -> None:
        if self._world.log.holding:
            return
        self._quiet_ms = self._now_ms
        producer_id, commit = self._random.choice(_PRODUCERS), self._random.random() < 0.6
        marker = encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, timestamp=self._now_ms, producer_id=producer_id, producer_epoch=0
        )
        codes: list[ErrorCode] = []
        self._world.coordinator.end_transaction(0, producer_id, commit, marker, codes.append)
        _same("the answer to a marker", codes, [ErrorCode.NONE])
        for key, (number, value) in list(self._open[producer_id].items()):
            del self._open[producer_id][key]
            if commit:
                self._offsets[key] = value
                self._supersede(key, number)

    def _unstable(self) -> set[tuple[str, str, int]]:
        return {key for written in self._open.values() for key in written}

    # -- reading

    def _fetch(self) -> None:
        version, stable = self._random.choice((1, 5, 7, 8, 9, 9)), self._random.random() < 0.5
        stable = stable and version >= 7
        groups = self._random.sample(sorted(set(_GROUPS)), 1 if version < 8 else self._random.choice((1, 2)))
        places = self._places() if version < 2 or self._random.random() < 0.6 else None
        topics: dict[str, list[int]] = {}
        for name, index in places or ():
            topics.setdefault(name, []).append(index)
        answer = self._world.fetch(groups, None if places is None else topics, require_stable=stable, version=version)
        if stable and self._flights:
            _same("an answer before the commits", answer.is_parked, True)

            def failed() -> None:
                _same("the error of OffsetFetch", _errors_of(answer), [ErrorCode.NOT_COORDINATOR] * len(groups))

            self._flights.append(_Flight(lambda: self._is_fetched(answer, groups, places, stable=stable), failed))
        else:
            self._world.pass_ms(0)
            self._is_fetched(answer, groups, places, stable=stable)

    def _is_fetched(
        self,
        answer: Answer[OffsetFetchResponse],
        groups: Sequence[str],
        places: Sequence[Place] | None,
        *,
        stable: bool,
    ) -> None:
        self._world.pass_ms(0)
        unstable = self._unstable() if stable else set()
        expected: dict[str, dict[Place, Row]] = {}
        for group_id in groups:
            asked = [key[1:] for key in self._offsets if key[0] == group_id] if places is None else places
            rows: dict[Place, Row] = {}
            for place in asked:
                value = self._offsets.get((group_id, *place))
                rows[place] = _ABSENT if value is None else (value[0], value[1], value[2], 0)
                if (group_id, *place) in unstable:
                    rows[place] = (*_ABSENT[:3], ErrorCode.UNSTABLE_OFFSET_COMMIT)
            expected[group_id] = rows
        _same("OffsetFetch", _rows_of(answer, groups), expected)
        _same("the errors of OffsetFetch", set(_errors_of(answer)), {ErrorCode.NONE})

    # -- deletion

    def _delete(self) -> None:
        if self._world.log.holding:
            return
        group_id, places = self._random.choice(_GROUPS), self._places()
        answer = self._world.delete_offsets(group_id, places)
        self._world.pass_ms(0)
        if group_id in _SIMPLE and not self._is_known(group_id):
            _same("the error of OffsetDelete", answer.error, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        found = {
            (topic.name, row.partition_index): ErrorCode(row.error_code)
            for topic in answer.response.topics
            for row in topic.partitions
        }
        expected = {}
        for place in places:
            expected[place] = ErrorCode.NONE if self._exists(place) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if self._exists(place) and place[0] == "orders" and group_id not in _SIMPLE:
                expected[place] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if expected[place] is ErrorCode.NONE and (group_id, *place) in self._offsets:
                del self._offsets[group_id, *place]
                self._supersede((group_id, *place), self._number + 1)
        _same(f"the answer to OffsetDelete of {group_id}", found, expected)

    def _is_known(self, group_id: str) -> bool:
        return any(row.group_id == group_id for row in self._world.list().response.groups)

    def _delete_group(self) -> None:
        if self._world.log.holding:
            return
        group_id = self._random.choice((*_GROUPS, "unknown"))
        expected = ErrorCode.NONE if self._is_known(group_id) else ErrorCode.GROUP_ID_NOT_FOUND
        if group_id not in (*_SIMPLE, "unknown"):
            expected = ErrorCode.NON_EMPTY_GROUP
        answer = self._world.delete(group_id)
        self._world.pass_ms(0)
        _same(f"the answer to DeleteGroups of {group_id}", delete_errors(answer), {group_id: expected})
        if expected is ErrorCode.NONE:
            self._forget(lambda key: key[0] == group_id)
            _same(f"whether {group_id} is there", self._is_known(group_id), False)

    def _forget(self, is_gone: Callable[[tuple[str, str, int]], bool]) -> None:
        everything: list[dict[tuple[str, str, int], Any]] = [self._offsets, *self._open.values()]
        for written in everything:
            for key in [key for key in written if is_gone(key)]:
                del written[key]

    def _topic(self) -> None:
        """The partitions of a topic that nobody reads are deleted, and exist again."""
        if self._world.log.holding:
            return
        count = self._world.topics["bills"]
        gone = [TopicPartition("bills", index) for index in range(self._random.choice((1, count)))]
        self._world.coordinator.on_partitions_deleted(gone)
        self._world.pass_ms(0)
        for place in gone:
            for key in [key for key in self._offsets if key[1:] == tuple(place)]:
                del self._offsets[key]
                self._supersede(key, self._number + 1)

    # -- what happens

    def _hold(self) -> None:
        """Holds records back; lets go those that are held back, or lets them fail."""
        log = self._world.log
        if not log.holding:
            log.holding = True
            return
        fails = self._random.random() < 0.3
        log.holding = False
        if fails:
            log.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            log.lose_uncommitted()
        else:
            log.commit()
        self._world.pass_ms(0)
        flights, self._flights = self._flights, []
        for flight in flights:
            (flight.failed if fails else flight.committed)()

    def _time(self) -> None:
        if self._world.log.holding:
            return
        self._quiet_ms = self._now_ms
        for _ in range(self._random.choice((1, 4, 12, 25))):
            self._world.pass_ms(3_000)
            self._beat()
            self._compare()

    def _move(self) -> None:
        if self._world.log.holding:
            return
        self._world = self._world.restart()
        self._world.until_active(1)
        self._consumer.world = self._world
        self._quiet_ms = self._now_ms

    # -- promises

    def _compare(self) -> None:
        self._world.pass_ms(0)
        shard = self._world.coordinator.shard(0)
        assert shard is not None
        found: dict[tuple[str, str, int], Value] = {
            (group_id, *place): tuple(committed)  # type: ignore[misc]
            for group_id in set(_GROUPS)
            for place, committed in shard.offsets.of(group_id).items()
        }
        for key, value in list(self._offsets.items()):
            if key not in found and self._may_expire(key, value, self._now_ms):
                del self._offsets[key]
            elif self._must_expire(key, value):
                raise Violation(f"the offset of {key} never expires: {value}")
        _same("all offsets", found, self._offsets)
        if self._world.log.holding:
            return
        unstable = {(group_id, *place) for group_id in set(_GROUPS) for place in shard.offsets.unstable_of(group_id)}
        _same("the offsets in open transactions", unstable, self._unstable())
        log, replayed = self._world.log, CoordinatorDict()
        partition = self._world.partition()
        replayed.add(bytes(log.logs.get(partition, b"")), log.high_watermark(partition))
        problem = wrong_groups(shard, replayed, is_loaded=False)
        if problem:
            raise Violation(f"a coordinator's state differs from its log: {problem}")

    def _may_expire(self, key: tuple[str, str, int], value: Value, now_ms: int) -> bool:
        expires_ms = value[3] + _RETENTION_MS if value[4] == _NONE else value[4]
        is_read = key[0] not in _SIMPLE and key[1] == "orders"
        return expires_ms <= now_ms and not is_read and key not in self._unstable()

    def _must_expire(self, key: tuple[str, str, int], value: Value) -> bool:
        at_ms = self._now_ms - _CHECK_MS - 1
        return self._may_expire(key, value, at_ms) and self._quiet_ms < at_ms and not self._world.log.holding


def _groups_of(answer: Answer[OffsetFetchResponse]) -> list[Any]:
    response = answer.response
    return list(response.groups) or [response]


def _rows_of(answer: Answer[OffsetFetchResponse], groups: Sequence[str]) -> dict[str, dict[Place, Row]]:
    return {
        group_id: {
            (topic.name, row.partition_index): (
                row.committed_offset,
                row.committed_leader_epoch,
                row.metadata,
                row.error_code,
            )
            for topic in part.topics
            for row in topic.partitions
        }
        for group_id, part in zip(groups, _groups_of(answer), strict=True)
    }


def _errors_of(answer: Answer[OffsetFetchResponse]) -> list[ErrorCode]:
    return [ErrorCode(part.error_code) for part in _groups_of(answer)]


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        if isinstance(found, Mapping) and isinstance(expected, Mapping):
            keys = [key for key in {*found, *expected} if found.get(key) != expected.get(key)]
            raise Violation(f"{what}: {[(key, found.get(key), expected.get(key)) for key in keys]}")
        raise Violation(f"{what} is {found}, it should be {expected}")
