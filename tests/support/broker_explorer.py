"""One broker in memory, its clients' requests, and a plain model of what it must answer.

The broker is real, from bytes to files; a seed takes some tens of milliseconds. Clients produce with and without
sequences, fetch with and without sessions, wait for records, look up offsets, delete records, and describe the cluster
in all versions. The model keeps each partition as a list of batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.broker_parts import explore_fenced, explore_memory, explore_muting, explore_sessions
from tests.support.wired import WiredBroker

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch, iter_headers
from barnabas.simulation.history import Violation
from barnabas.simulation.host import EPOCH_WALL_MS
from barnabas.simulation.second_decision_table import second_decisions

_STEPS = 60
_NODE = 1
_ANY = 1 << 25
_BATCH_MAX = 900
_TOPICS = {"a": 2, "b": 1, "c": 1}
#: Each step asks the broker this; names are of methods.
_Row = tuple[str, int]
NOT_THERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class Batch:
    base: int
    #: The timestamps of its records.
    times: list[int]
    size: int

    @property
    def end(self) -> int:
        return self.base + len(self.times)


@dataclass
class Producer:
    """The state of an idempotent producer: its last batches, as (first sequence, last sequence, base offset, time)."""

    epoch: int
    recent: list[tuple[int, int, int, int]]
    last_time: int


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)


@dataclass
class SessionItem:
    offset: int
    #: The HW and log start offset of the last answer.
    answered: tuple[int, int] = (-1, -1)
    failed: bool = False


class BrokerExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"broker {seed}")
        self._world = WiredBroker(
            message_max_bytes=str(_BATCH_MAX),
            auto_create_topics_enable="false",
            max_incremental_fetch_session_cache_slots=str(self._random.choice((1, 5))),
        )
        self._logs: dict[_Row, Log] = {}
        self._client = self._world.connect()
        self._other = self._world.connect()
        self._reader = self._world.connect()
        self._session: dict[_Row, SessionItem] = {}
        self._session_id, self._session_epoch = 0, 0
        self._session_version = 0
        #: Whether other consumers have begun sessions.
        self._has_others = False
        self._cluster_id: str | None = None

    def run(self) -> None:
        with second_decisions().judging():
            self._run()
            for explore in (explore_memory, explore_muting, explore_fenced, explore_sessions):
                explore(self._random)

    def _run(self) -> None:
        for name, count in _TOPICS.items():
            configs = {"cleanup_policy": "compact"} if name == "c" else {}
            self._world.create_topic(name, count, **configs)
            for index in range(count):
                self._logs[name, index] = Log()
        steps = [self._produce] * 4 + [self._fetch] * 2 + [self._read_on] * 4 + [self._wait] * 2
        steps += [self._stream, self._stream, self._follow, self._follow]
        steps += [self._look_up, self._delete, self._metadata, self._pages, self._producers, self._epochs]
        steps += [self._cluster, self._directories, self._more_partitions, self._pass_time]
        for _ in range(_STEPS):
            self._random.choice(steps)()
        if self._random.random() < 0.5:
            is_clean = self._random.random() < 0.5
            self._world.host.time.run_for(130_000)  # The log start offsets are in their checkpoint.
            self._world.restart(clean=is_clean)
            self._client, self._other, self._reader = (self._world.connect() for _ in range(3))
            self._session, self._session_id = {}, 0
            for _ in range(_STEPS // 4):
                self._random.choice([self._fetch, self._look_up, self._metadata, *([self._producers] if is_clean else [])])()
        self._world.stop()
        self._check("closed connections", [text for text in self._world.closes.causes if "shut" not in text], [])

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"one broker: {what} is {found!r}, it should be {expected!r}")

    def _topic_id(self, name: str) -> bytes:
        topic = self._world.broker.metadata.image.topics_by_name.get(name)
        return bytes(16) if topic is None else topic.topic_id

    def _row(self) -> _Row:
        """Returns a partition, sometimes one that does not exist."""
        if self._random.random() < 0.1:
            return self._random.choice([("none", 0), ("a", 9), ("b", 1)])
        return self._random.choice(list(self._logs))

    def _pass_time(self) -> None:
        self._world.host.time.run_for(self._random.choice((1, 10, 999, 1_500, 130_000)))

    # -- produce

    def _batch(self, row: _Row, count: int, **options: int) -> tuple[bytes, list[int]]:
        now = EPOCH_WALL_MS + self._world.host.clock.now_ms()
        times = [now + self._random.randint(-50, 50) for _ in range(count)]
        value = b"v" * self._random.choice((1, 30, 150))
        records = [Record(place, at, b"k%d" % place, value, []) for place, at in enumerate(times)]
        return bytes(encode_batch(records, **options)), times

    def _produce(self) -> None:
        """Produces one batch for each of some partitions."""
        version = self._random.choice((3, 7, 8, 9, 11, 12, 13))
        acks = self._random.choice((-1, -1, 1, 0))
        rows = list(dict.fromkeys(self._row() for _ in range(self._random.choice((1, 1, 1, 2, 3)))))
        topics: dict[str, Any] = {}
        expected: dict[_Row, tuple[int, ...]] = {}
        for row in rows:
            data, outcome = self._data(row)
            name, index = row
            if version >= 13 and outcome[0] == NOT_THERE and name == "none":
                outcome = (ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, -1)
            expected[row] = outcome
            topic = topics.setdefault(name, ProduceRequest.TopicProduceData(partition_data=[]))
            topic.partition_data.append(ProduceRequest.PartitionProduceData(index=index, records=data))
            if version >= 13:
                topic.topic_id = self._topic_id(name)
            else:
                topic.name = name
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=list(topics.values()))
        if acks == 0:
            client = self._world.connect()
            client.send(request, version)
            self._world.host.time.run_for(20)
            self._check("answers without acks", client.received_frames(), [])
            failed = any(code for code, *_ in expected.values())
            self._check("whether a failure without acks closes the connection", client.core.is_closed, failed)
            self._world.closes.causes.clear()
            return
        client = self._client
        response = client.call(request, version, ProduceResponse)
        names = {self._topic_id(name): name for name in (*topics, "none")}
        found = {}
        for topic in response.responses:
            name = topic.name if version < 13 else names[topic.topic_id]
            for each in topic.partition_responses:
                start = each.log_start_offset if version >= 5 else expected[name, each.index][2]
                found[name, each.index] = (each.error_code, each.base_offset, start, each.log_append_time_ms)
        self._check(f"the answer to Produce {version}", found, expected)

    def _data(self, row: _Row) -> tuple[bytes, tuple[int, ...]]:
        """Returns a batch, and its error, base offset and log start offset."""
        log = self._logs.get(row)
        kind = self._random.random()
        if kind < 0.45 or log is None:
            data, times = self._batch(row, self._random.randint(1, 3))
            if log is None:
                return data, (NOT_THERE, -1, -1, -1)
            return data, (0, self._appended(log, data, times), log.start, -1)
        if kind < 0.5:
            data = bytearray(self._batch(row, 1)[0])
            data[-1] ^= 1
            return bytes(data), (ErrorCode.CORRUPT_MESSAGE, -1, -1, -1)
        if kind < 0.58:
            limit = self._random.choice((_BATCH_MAX, _BATCH_MAX + 1))
            record = Record(0, EPOCH_WALL_MS, b"k", b"x" * 700, [])
            spare = limit - len(encode_batch([record]))
            data = bytes(encode_batch([Record(0, EPOCH_WALL_MS, b"k", b"x" * (700 + spare), [])]))
            if len(data) > _BATCH_MAX:
                return data, (ErrorCode.MESSAGE_TOO_LARGE, -1, -1, -1)
            return data, (0, self._appended(log, data, [EPOCH_WALL_MS]), log.start, -1)
        return self._sequenced(row, log)

    def _appended(self, log: Log, data: bytes, times: list[int]) -> int:
        log.batches.append(Batch(log.end, times, len(data)))
        log.end += len(times)
        return log.batches[-1].base

    def _sequenced(self, row: _Row, log: Log) -> tuple[bytes, tuple[int, ...]]:
        """A batch of an idempotent producer: the next one, a repeated one, or one after a gap."""
        producer_id = self._random.choice((1001, 1002))
        known = log.producers.get(producer_id)
        count = self._random.randint(1, 3)
        epoch, first = (0, 0) if known is None else (known.epoch, known.recent[-1][1] + 1)
        kind = self._random.random()
        refusal = None
        if known is not None and kind < 0.3:
            low, high, base, at = self._random.choice(known.recent)
            data, _ = self._batch(row, high - low + 1, producer_id=producer_id, producer_epoch=epoch, base_sequence=low)
            return data, (0, base, log.start, at)
        if known is not None and kind < 0.45:
            first, refusal = first + self._random.choice((1, 5)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif known is not None and kind < 0.6:
            epoch, first = epoch + 1, self._random.choice((0, 0, 1))
            refusal = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if first else None
        elif known is not None and known.epoch > 0 and kind < 0.7:
            epoch, refusal = epoch - 1, ErrorCode.INVALID_PRODUCER_EPOCH
        data, times = self._batch(row, count, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)
        if refusal is not None:
            return data, (refusal, -1, log.start, -1)
        base = self._appended(log, data, times)
        recent = [] if known is None or known.epoch != epoch else known.recent
        recent = [*recent, (first, first + count - 1, base, max(times))][-5:]
        log.producers[producer_id] = Producer(epoch, recent, max(times))
        return data, (0, base, log.start, -1)

    # -- fetches

    def _readable(self, log: Log, offset: int, limit: int, *, one: bool) -> tuple[int, list[tuple[int, int]]]:
        """Returns the size of what is read from the batch with this offset on, and (base offset, size) of its whole
        batches. The last batch is cut at the limit, but never the first one: with `one` it is read in
        any case, otherwise nothing is read.
        """
        left = [batch for batch in log.batches if batch.end > offset]
        if one and left:
            limit = max(limit, left[0].size)
        elif left and left[0].size > limit:
            return 0, []
        taken, size = [], 0
        for batch in left:
            size += batch.size
            if size <= limit:
                taken.append((batch.base, batch.size))
        return min(size, limit), taken

    def _epoch_of(self, row: _Row) -> int:
        partition = self._world.broker.metadata.image.partition(*row)
        return 0 if partition is None else partition.leader_epoch

    def _requested(self, version: int, offsets: dict[_Row, int], **limits: int) -> list[FetchRequest.FetchTopic]:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchRequest.FetchTopic(partitions=[])
                if version >= 13:
                    topic.topic_id = self._topic_id(name)
                else:
                    topic.topic = name
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=limits.get("partition_bytes", _ANY),
                    current_leader_epoch=limits.get("epoch", -1),
                )
            )
        return list(topics.values())

    def _rows_of(self, version: int, response: FetchResponse) -> dict[_Row, FetchResponse.PartitionData]:
        names = {self._topic_id(name): name for name in (*_TOPICS, "none")}
        rows = {}
        for topic in response.responses:
            name = topic.topic if version < 13 else names[topic.topic_id]
            for row in topic.partitions:
                rows[name, row.partition_index] = row
        return rows

    def _fetch(self) -> None:
        """Reads some partitions without a session, with limits of sizes."""
        version = self._random.choice((4, 5, 7, 9, 11, 12, 13, 16))
        rows = list(dict.fromkeys(self._row() for _ in range(self._random.choice((1, 2, 3)))))
        rows.sort(key=lambda row: row[0])
        offsets = {row: self._offset(row) for row in rows}
        partition_bytes = self._random.choice((0, 1, 200, 600, _ANY))
        max_bytes = self._random.choice((1, 300, 1_000, _ANY, _ANY))
        known = {self._epoch_of(row) for row in rows}
        epoch = self._random.choice((-1, -1, *known, max(known) + 1)) if version >= 9 else -1
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=self._random.choice((0, 1)),
            max_bytes=max_bytes,
            isolation_level=self._random.randrange(2),
            session_epoch=-1,
            topics=self._requested(version, offsets, partition_bytes=partition_bytes, epoch=epoch),
        )
        response = self._client.call(request, version, FetchResponse)
        self._check("the error of a fetch", (response.error_code, response.session_id), (0, 0))
        found = self._rows_of(version, response)
        self._check("the fetched partitions", list(found), rows)
        left, one = max_bytes, True
        for row in rows:
            data = self._expect_row(version, row, offsets[row], found[row], min(partition_bytes, left), one, epoch)
            left, one = max(0, left - data), one and not data

    def _offset(self, row: _Row) -> int:
        log = self._logs.get(row, Log())
        around = [log.start, log.start - 1, log.end, log.end + 1, self._random.randint(log.start, log.end)]
        return max(0, self._random.choice(around))

    def _expect_row(
        self, version: int, row: _Row, offset: int, found: FetchResponse.PartitionData, limit: int, one: bool, epoch: int
    ) -> int:
        """Compares a row of a fetch; returns the size of its records."""
        log = self._logs.get(row)
        code = 0
        if log is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 and row[0] == "none" else NOT_THERE
        elif epoch > self._epoch_of(row):
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif -1 < epoch < self._epoch_of(row):
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif not log.start <= offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        self._check(f"the error of {row} at {offset}", found.error_code, code)
        data = bytes(found.records or b"")
        if code or log is None:
            self._check("the HW with an error", (found.high_watermark, data), (-1, b""))
            return 0
        self._check("HW and LSO", (found.high_watermark, found.last_stable_offset), (log.end, log.end))
        if version >= 5:
            self._check("the log start offset", found.log_start_offset, log.start)
        self._check("aborted transactions", list(found.aborted_transactions or ()), [])
        headers = [(header.base_offset, header.size_bytes) for _, header in iter_headers(data)]
        size, expected = self._readable(log, offset, limit, one=one)
        self._check(f"the batches of {row} from {offset}", headers, expected)
        self._check("the size", len(data), size)
        return len(data)

    def _read_on(self) -> None:
        """The next fetch of a session: it reads on, adds partitions and drops others."""
        version = self._random.choice((7, 11, 12)) if not self._session_id else self._session_version
        reader = self._reader
        changes: dict[_Row, int] = {}
        forgotten: list[_Row] = []
        if not self._session_id:
            changes = {row: self._offset(row) for row in {self._row() for _ in range(3)}}
            self._session, self._session_version, self._session_epoch = {}, version, 0
        else:
            for row, item in list(self._session.items()):
                kind = self._random.random()
                if kind < 0.3:
                    changes[row] = min(self._logs[row].end, item.offset + 3) if row in self._logs else 0
                elif kind < 0.35 and len(self._session) > 1 and len(forgotten) < len(self._session) - 1:
                    forgotten.append(row)
            if self._random.random() < 0.2:
                row = self._row()
                changes[row] = self._offset(row)
                forgotten = [each for each in forgotten if each != row]
        epoch = self._session_epoch
        is_wrong = self._session_id and self._random.random() < 0.06
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=_ANY,
            session_id=self._session_id,
            session_epoch=epoch + 1 if is_wrong else epoch,
            topics=self._requested(version, dict(sorted(changes.items()))),
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=name, partitions=[index]) for name, index in forgotten
            ],
        )
        if is_wrong and self._random.random() < 0.5:
            request.session_id, request.session_epoch = self._session_id + 1, epoch
            response = reader.call(request, version, FetchResponse)
            self._check("an unknown session", response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        response = reader.call(request, version, FetchResponse)
        if is_wrong:
            self._check("a wrong epoch", response.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            return
        if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and self._has_others:
            self._session_id = 0  # A session of the other consumers has replaced it.
            return
        self._check("the error of a session", response.error_code, 0)
        is_new = not self._session_id
        for row, offset in changes.items():
            item = self._session.setdefault(row, SessionItem(offset))
            if offset < item.offset:
                item.answered = (-1, -1)
            item.offset = offset
        for row in forgotten:
            del self._session[row]
        self._compare_session(version, response, is_new)
        self._session_epoch += 1
        if is_new:
            self._session_id = response.session_id
        else:
            self._check("the session's id", response.session_id, self._session_id)

    def _compare_session(self, version: int, response: FetchResponse, is_new: bool) -> None:
        found = self._rows_of(version, response)
        expected = set()
        for row, item in self._session.items():
            log = self._logs.get(row)
            is_wrong = log is None or not log.start <= item.offset <= log.end
            has_data = log is not None and not is_wrong and item.offset < log.end
            now = (-1, -1) if log is None or is_wrong else (log.end, log.start)
            if is_new or is_wrong or has_data or now != item.answered or item.failed:
                expected.add(row)
            item.answered, item.failed = now, is_wrong
        self._check("the partitions in a session's answer", set(found), expected)
        for row in expected:
            self._expect_row(version, row, self._session[row].offset, found[row], _ANY, True, -1)

    def _wait(self) -> None:
        """A fetch waits until enough bytes are there, or until its deadline."""
        row = self._random.choice(list(self._logs))
        log = self._logs[row]
        offset = max(log.start, log.end - self._random.choice((0, 0, 1)))
        there, _ = self._readable(log, offset, _ANY, one=True)
        missing = self._random.choice((1, 100, 400))
        version = self._random.choice((4, 11, 12, 13))
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=there + missing,
            max_bytes=_ANY,
            session_epoch=-1,
            topics=self._requested(version, {row: offset}),
        )
        other = self._other
        other.send(request, version)
        time, waited_ms = self._world.host.time, 0
        while missing > 0 and waited_ms < 500:
            pause_ms = self._random.choice((1, 100, 499, 500))
            pause_ms = min(pause_ms, 499 - waited_ms) if waited_ms < 499 else 1
            time.run_for(pause_ms)
            waited_ms += pause_ms
            if waited_ms >= 500:
                break
            self._check("answers before the deadline", other.link.take(), b"")
            if self._random.random() < 0.6:
                data, times = self._batch(row, 1)
                missing -= len(data)
                self._append_silently(row, data, times)
        time.run_for(0)
        answers = other.received()
        self._check("answers of a fetch that waited", len(answers), 1)
        response = answers[0][1]
        assert isinstance(response, FetchResponse)
        self._expect_row(version, row, offset, self._rows_of(version, response)[row], _ANY, True, -1)

    def _append_silently(self, row: _Row, data: bytes, times: list[int]) -> None:
        """Produces within no virtual time."""
        topic = ProduceRequest.TopicProduceData(
            name=row[0], partition_data=[ProduceRequest.PartitionProduceData(index=row[1], records=data)]
        )
        client = self._client
        client.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
        self._world.host.time.run_for(0)
        ((_, response),) = client.received()
        assert isinstance(response, ProduceResponse)
        answered = response.responses[0].partition_responses[0]
        base = self._appended(self._logs[row], data, times)
        self._check("an append", (answered.error_code, answered.base_offset), (0, base))

    # -- repeated requests of one connection, which the broker serves in a shorter way

    def _stream(self) -> None:
        """The same connection produces several batches in a row, which differ in size; some are wrong."""
        version, acks = self._random.choice((3, 7, 8, 9, 12, 13)), self._random.choice((-1, 1))
        row = self._random.choice(list(self._logs))
        client = self._world.connect()
        for _ in range(self._random.randint(2, 5)):
            kind = self._random.random()
            if kind < 0.1:
                row = self._random.choice(list(self._logs))
            elif kind < 0.2:
                acks = -acks
            elif kind < 0.3:
                self._delete()
            data, outcome = self._data(row)
            topic = ProduceRequest.TopicProduceData(
                partition_data=[ProduceRequest.PartitionProduceData(index=row[1], records=data)]
            )
            if version >= 13:
                topic.topic_id = self._topic_id(row[0])
            else:
                topic.name = row[0]
            response = client.call(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), version, ProduceResponse)
            ((answer,),) = (each.partition_responses for each in response.responses)
            start = answer.log_start_offset if version >= 5 else outcome[2]
            found = (answer.error_code, answer.base_offset, start, answer.log_append_time_ms)
            self._check(f"a produced batch in a row, version {version}", found, outcome)
            self._check("its throttle time", response.throttle_time_ms, 0)

    def _follow(self) -> None:
        """A consumer follows one partition in a session, fetch by fetch, and waits for more in the last one."""
        version = self._random.choice((12, 13, 16))
        row = self._random.choice(list(self._logs))
        log = self._logs[row]
        offset, client = max(log.start, log.end - 2), self._world.connect()
        session_id = epoch = 0
        for _ in range(self._random.randint(3, 6)):
            grows = self._random.random() < 0.5
            if grows:
                data, times = self._batch(row, 1)
                self._append_silently(row, data, times)
            waits = self._random.random() < 0.3
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=100 if waits else 0,
                min_bytes=1,
                max_bytes=_ANY,
                session_id=session_id,
                session_epoch=epoch,
                topics=self._requested(version, {row: offset}),
            )
            client.send(request, version)
            self._world.host.time.run_for(0)
            if waits and epoch and offset == log.end:
                self._check("answers of a session that waits", client.link.take(), b"")
                if self._random.random() < 0.5:
                    data, times = self._batch(row, 1)
                    self._append_silently(row, data, times)
                    grows = True
                else:
                    self._world.host.time.run_for(99)
                    self._check("answers before the deadline of a session", client.link.take(), b"")
                    self._world.host.time.run_for(1)
            else:
                self._world.host.time.run_for(100)
            answers = client.received()
            self._check("answers in a session", len(answers), 1)
            response = answers[0][1]
            assert isinstance(response, FetchResponse)
            self._check("the error in a session", response.error_code, 0)
            if not epoch and not response.session_id:
                return  # There is no room for a session.
            if epoch:
                self._check("the id of a session", response.session_id, session_id)
            self._has_others = True
            session_id, epoch = response.session_id, epoch + 1
            found = self._rows_of(version, response)
            if offset < log.end or epoch == 1:
                self._expect_row(version, row, offset, found[row], _ANY, True, -1)
            else:
                self._check("rows without anything new", list(found), [])
            if offset < log.end and self._random.random() < 0.8:
                offset = log.end

    # -- offsets

    def _look_up(self) -> None:
        version = self._random.choice((1, 2, 4, 5, 7, 8, 9, 10))
        rows = list(dict.fromkeys(self._row() for _ in range(3)))
        asked: list[tuple[_Row, int]] = []
        for row in rows:
            log = self._logs.get(row, Log())
            times = [at for batch in log.batches for at in batch.times]
            some = self._random.choice(times) + self._random.choice((-1, 0, 1)) if times else EPOCH_WALL_MS
            asked.append((row, self._random.choice((-1, -2, -3, -4, -5, some, some, some))))
        if self._random.random() < 0.1:
            asked.append(asked[0])
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)],
            )
            for (name, index), timestamp in asked
        ]
        isolation = self._random.randrange(2) if version >= 2 else 0
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        response = self._client.call(request, version, ListOffsetsResponse)
        found = []
        for topic in response.topics:
            for each in topic.partitions:
                found.append((topic.name, each.partition_index, each.error_code, each.timestamp, each.offset))
                epochs = (0, self._epoch_of((topic.name, each.partition_index)), -1)
                self._check("whether the epoch of an offset can be", each.leader_epoch in epochs, True)
        expected = []
        for row, timestamp in asked:
            result = self._found(row, timestamp, version)
            if timestamp == -3 and row in self._logs and self._logs[row].start:
                result = found[len(expected)][2:]  # A deleted record can have had the largest timestamp.
            if asked.count((row, timestamp)) > 1:
                result = (ErrorCode.INVALID_REQUEST, -1, -1)
            expected.append((*row, *result))
        self._check(f"the answer to ListOffsets {version} of {asked}", found, expected)

    def _found(self, row: _Row, timestamp: int, version: int) -> tuple[int, int, int]:
        since = {-3: 7, -4: 8, -5: 9, -6: 11}
        if timestamp < 0 and version < since.get(timestamp, 1):
            return ErrorCode.UNSUPPORTED_VERSION, -1, -1
        log = self._logs.get(row)
        if log is None:
            return NOT_THERE, -1, -1
        if timestamp == -1:
            return 0, -1, log.end
        if timestamp in (-2, -4):
            return 0, -1, log.start
        if timestamp == -5:
            return 0, -1, -1
        records = [(at, batch.base + place) for batch in log.batches for place, at in enumerate(batch.times)]
        records = [(at, offset) for at, offset in records if offset >= log.start]
        if timestamp == -3:
            if not records:
                return 0, -1, -1
            latest = max(at for at, _ in records)
            return 0, latest, next(offset for at, offset in records if at == latest)
        return next(((0, at, offset) for at, offset in records if at >= timestamp), (0, -1, -1))

    def _delete(self) -> None:
        row = self._row()
        log = self._logs.get(row)
        offset = self._random.choice((-1, -2, self._offset(row), self._offset(row)))
        topic = DeleteRecordsRequest.DeleteRecordsTopic(
            name=row[0],
            partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=row[1], offset=offset)],
        )
        version = self._random.randrange(3)
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        response = self._client.call(request, version, DeleteRecordsResponse)
        answer = response.topics[0].partitions[0]
        expected = (NOT_THERE, -1)
        if log is not None:
            target = log.end if offset == -1 else offset
            if row[0] == "c":
                expected = (ErrorCode.POLICY_VIOLATION, -1)
            elif not 0 <= target <= log.end:
                expected = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            else:
                log.start = max(log.start, target)
                log.batches = [batch for batch in log.batches if batch.end > log.start]
                expected = (0, log.start)
        self._check(f"DeleteRecords of {row} to {offset}", (answer.error_code, answer.low_watermark), expected)

    def _epochs(self) -> None:
        row, version = self._row(), self._random.choice((2, 3, 4))
        known, current = self._random.choice((0, 0, 1, -1)), self._random.choice((-1, 0, 1))
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic=row[0],
            partitions=[
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=row[1], current_leader_epoch=current, leader_epoch=known
                )
            ],
        )
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        response = self._client.call(request, version, OffsetForLeaderEpochResponse)
        answer = response.topics[0].partitions[0]
        log = self._logs.get(row)
        expected = (NOT_THERE, -1, -1)
        if log is not None and current == 1:
            expected = (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        elif log is not None:
            expected = (0, 0, log.end) if known == 0 else (0, -1, -1)
        found = (answer.error_code, answer.leader_epoch, answer.end_offset)
        self._check(f"OffsetForLeaderEpoch {known} in {current} of {row}", found, expected)

    # -- descriptions

    def _producers(self) -> None:
        name = self._random.choice([*_TOPICS, "none"])
        indexes = [0, 1, 0]
        topic = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
        response = self._client.call(DescribeProducersRequest(topics=[topic]), 0, DescribeProducersResponse)
        found = {}
        for row in response.topics[0].partitions:
            states = {
                state.producer_id: (state.producer_epoch, state.last_sequence, state.last_timestamp)
                for state in row.active_producers
                if state.current_txn_start_offset == -1 and state.coordinator_epoch == -1
            }
            found[row.partition_index] = (row.error_code, states)
        expected = {}
        for index in (0, 1):
            log = self._logs.get((name, index))
            states = {} if log is None else {
                producer_id: (each.epoch, each.recent[-1][1], each.last_time)
                for producer_id, each in log.producers.items()
            }
            expected[index] = (NOT_THERE if log is None else 0, states)
            if log is not None and log.start:
                expected[index] = found.get(index, ())  # A restart does not find producers of deleted records.
        self._check(f"the producers of {name}", found, expected)
        self._check("the number of rows", len(response.topics[0].partitions), 2)

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, _ in self._logs:
            counts[name] = counts.get(name, 0) + 1
        return counts

    def _metadata(self) -> None:
        version = self._random.randrange(14)
        counts = self._counts()
        names = self._random.sample([*counts, "none", "no/name"], self._random.randint(0, 4))
        by_id = version >= 12 and self._random.random() < 0.4
        everything = self._random.random() < 0.3
        topics: list[MetadataRequest.MetadataRequestTopic] | None = None
        if everything:
            topics = [] if version == 0 else None
        elif by_id:
            names = [name for name in names if name != "no/name"]
            ids = [bytes(15) + b"\1" if name == "none" else self._topic_id(name) for name in names]
            topics = [MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
        else:
            topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            everything = version == 0 and not names
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)
        request.include_topic_authorized_operations = 8 <= version
        response = self._client.call(request, version, MetadataResponse)
        brokers = [(each.node_id, each.host, each.port, each.rack) for each in response.brokers]
        self._check("the brokers", brokers, [(_NODE, "localhost", 9092, None)])
        if version >= 1:
            self._check("the controller", response.controller_id, _NODE)
        if version >= 2:
            self._check("the cluster", response.cluster_id, self._cluster_id or response.cluster_id)
            self._cluster_id = response.cluster_id
        expected: dict[str | None, tuple[int, int]] = {name: (0, count) for name, count in counts.items()}
        if not everything:
            expected = {name: (0, counts[name]) for name in names if name in counts}
            for name in names:
                if name not in counts:
                    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION if name == "no/name" else NOT_THERE
                    expected[None if by_id else name] = (ErrorCode.UNKNOWN_TOPIC_ID if by_id else invalid, 0)
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics}
        self._check(f"the topics of Metadata {version}", found, expected)
        for topic in response.topics:
            if not topic.error_code:
                self._topic(version, topic)

    def _topic(self, version: int, topic: MetadataResponse.MetadataResponseTopic) -> None:
        name = topic.name or ""
        if version >= 10:
            self._check("the id of a topic", topic.topic_id, self._topic_id(name))
        if version >= 1:
            self._check("whether a topic is internal", topic.is_internal, name.startswith("__"))
        if version >= 8:
            self._check("the operations", topic.topic_authorized_operations, _TOPIC_OPERATIONS)
        for index, row in enumerate(topic.partitions):
            found = (row.error_code, row.partition_index, row.leader_id, list(row.replica_nodes), list(row.isr_nodes))
            self._check("a partition", found, (0, index, _NODE, [_NODE], [_NODE]))
            if version >= 7:
                self._check("the leader epoch", row.leader_epoch, self._epoch_of((name, index)))
            self._check("offline replicas", list(row.offline_replicas), [])

    def _pages(self) -> None:
        """Describes topics page by page: all rows come once, in order."""
        counts = self._counts()
        names = self._random.sample([*counts, "none"], self._random.randint(0, 4))
        wanted = sorted(names) if names else sorted(counts)
        limit = self._random.choice((1, 2, 3, 100))
        cursor = None
        rows: list[tuple[str, int]] = []
        for _ in range(20):
            request = DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
            response = self._client.call(request, 0, DescribeTopicPartitionsResponse)
            page = [(topic.name or "", row.partition_index) for topic in response.topics for row in topic.partitions]
            for topic in response.topics:
                code = 0 if topic.name in counts else NOT_THERE
                self._check("the error of a topic", topic.error_code, code)
                for row in topic.partitions:
                    shown = (row.error_code, row.leader_id, row.leader_epoch, list(row.replica_nodes))
                    self._check("a row", (*shown, list(row.isr_nodes)), (0, _NODE, 0, [_NODE], [_NODE]))
                    others = (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas)
                    self._check("other replicas", [list(each or ()) for each in others], [[], [], []])
            rows += page
            following = response.next_cursor
            if following is None:
                break
            self._check("the size of a page", len(page), limit)
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )
        expected = [(name, index) for name in wanted for index in range(counts.get(name, 0))]
        self._check(f"the pages of {names} by {limit}", rows, expected)

    def _cluster(self) -> None:
        version = self._random.randrange(3)
        request = DescribeClusterRequest(include_cluster_authorized_operations=self._random.random() < 0.5)
        if version >= 1:
            request.endpoint_type = self._random.choice((1, 1, 3))
        response = self._client.call(request, version, DescribeClusterResponse)
        if version >= 1 and request.endpoint_type == 3:
            self._check("an unknown kind of endpoints", response.error_code, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
            return
        brokers = [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers]
        found = (response.error_code, response.controller_id, brokers)
        self._check("the cluster", found, (0, _NODE, [(_NODE, "localhost", 9092, None)]))

    def _directories(self) -> None:
        version = self._random.choice((1, 2, 3, 4))
        response = self._client.call(DescribeLogDirsRequest(topics=None), version, DescribeLogDirsResponse)
        (result,) = response.results
        self._check("a directory", (result.error_code, result.log_dir), (0, "/data"))
        found = {
            (topic.name, row.partition_index): (row.offset_lag, row.is_future_key)
            for topic in result.topics
            for row in topic.partitions
        }
        self._check("the logs in a directory", found, dict.fromkeys(self._logs, (0, False)))

    def _more_partitions(self) -> None:
        name = self._random.choice(["b", "none"])
        count = self._counts().get(name, 0)
        wanted = self._random.choice((count, count + 1, 0))
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=wanted, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=self._random.random() < 0.3)
        response = self._client.call(request, self._random.choice((0, 1, 2, 3)), CreatePartitionsResponse)
        code = NOT_THERE if not count else 0 if wanted > count else ErrorCode.INVALID_PARTITIONS
        self._check("CreatePartitions", response.results[0].error_code, code)
        if not code and not request.validate_only:
            self._logs[name, count] = Log()
            self._world.host.time.run_for(50)


#: Read, write, create, delete, alter, describe, describe-configs and alter-configs, as bits of their codes.
_TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
