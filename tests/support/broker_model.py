"""The model of one broker's partitions, and produced batches with the answers that they must get."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.wired import WiredBroker

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.history import Violation
from barnabas.simulation.host import EPOCH_WALL_MS

_BATCH_MAX = 900
#: The topics, with their numbers of partitions.
TOPICS = {"a": 2, "b": 1, "c": 1}
#: (topic, index)
Place = tuple[str, int]
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


class BrokerModel:
    """A broker with its model. Steps raise Violation."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"broker {seed}")
        self._world = WiredBroker(
            message_max_bytes=str(_BATCH_MAX),
            auto_create_topics_enable="false",
            max_incremental_fetch_session_cache_slots=str(self._random.choice((1, 5))),
        )
        self._logs: dict[Place, Log] = {}
        self._client = self._world.connect()
        self._other = self._world.connect()
        self._reader = self._world.connect()
        self._session: dict[Place, SessionItem] = {}
        self._session_id, self._session_epoch = 0, 0
        self._session_version = 0
        #: Whether other consumers have begun sessions.
        self._has_others = False
        self._cluster_id: str | None = None
        #: The leader epochs after the broker registered again.
        self._epochs_since: set[int] = set()

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"one broker: {what} is {found!r}, it should be {expected!r}")

    def _topic_id(self, name: str) -> bytes:
        topic = self._world.broker.metadata.image.topics_by_name.get(name)
        return bytes(16) if topic is None else topic.topic_id

    def _row(self) -> Place:
        """Returns a partition, sometimes one that does not exist."""
        if self._random.random() < 0.1:
            return self._random.choice([("none", 0), ("a", 9), ("b", 1)])
        return self._random.choice(list(self._logs))

    def _pass_time(self) -> None:
        self._world.host.time.run_for(self._random.choice((1, 10, 999, 1_500, 130_000)))

    def _epoch_of(self, row: Place) -> int:
        partition = self._world.broker.metadata.image.partition(*row)
        return 0 if partition is None else partition.leader_epoch

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, _ in self._logs:
            counts[name] = counts.get(name, 0) + 1
        return counts

    # -- produce

    def _batch(self, row: Place, count: int, **options: Any) -> tuple[bytes, list[int]]:
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
        expected: dict[Place, tuple[int, ...]] = {}
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

    def _data(self, row: Place) -> tuple[bytes, tuple[int, ...]]:
        """Returns a batch, and its error, base offset and log start offset."""
        log = self._logs.get(row)
        kind = self._random.random()
        if kind < 0.45 or log is None:
            data, times = self._batch(row, self._random.randint(1, 3))
            if log is None:
                return data, (NOT_THERE, -1, -1, -1)
            return data, (0, self._appended(log, data, times), log.start, -1)
        if kind < 0.5:
            damaged = bytearray(self._batch(row, 1)[0])
            damaged[-1] ^= 1
            return bytes(damaged), (ErrorCode.CORRUPT_MESSAGE, -1, -1, -1)
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

    def _sequenced(self, row: Place, log: Log) -> tuple[bytes, tuple[int, ...]]:
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
