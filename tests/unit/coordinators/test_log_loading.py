"""The load of a coordinator's partition whose log start moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.coordinators.loading import Loads, LoadSink, LogLoader
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost

PARTITION = TopicPartition("__consumer_offsets", 7)


def batch(offset: int, key: bytes, value: bytes, *, producer_id: int = -1) -> bytes:
    record = Record(offset, EPOCH_WALL_MS, key, value, [])
    if producer_id < 0:
        return bytes(encode_batch([record], base_offset=offset))
    return bytes(
        encode_batch(
            [record],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


class Reader:
    """A log of one batch per read. `moves`: an offset whose read finds another log start."""

    def __init__(self, batches: list[bytes]) -> None:
        self.batches = batches
        self.start = 0
        self.moves: dict[int, int] = {}

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        self.start = self.moves.pop(offset, self.start)
        if offset < self.start:
            done(RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE))
        else:
            done(self.batches[offset])

    def next_segment(self, partition: TopicPartition, offset: int) -> int | None:
        return None

    def log_start_offset(self, partition: TopicPartition) -> int:
        return self.start

    def log_end_offset(self, partition: TopicPartition) -> int:
        return len(self.batches)

    def high_watermark(self, partition: TopicPartition) -> int:
        return len(self.batches)


class Sink(LoadSink):
    def __init__(self) -> None:
        self.found: dict[bytes, bytes] = {}
        self.open: dict[bytes, bytes] = {}
        self.ended: list[str] = []

    def replay(self, key: bytes, value: bytes) -> None:
        self.found[key] = value

    def replay_open(self, producer_id: int, key: bytes, value: bytes) -> None:
        self.open[key] = value

    def on_loaded(self) -> None:
        self.ended.append("loaded")

    def on_load_failed(self, error: Exception) -> None:
        self.ended.append(str(error))


def load(reader: Reader) -> Sink:
    host, sink = MemoryHost(), Sink()
    LogLoader(host, Loads(host.timers, reader), PARTITION, sink).start()
    host.time.run_for(1_000)
    return sink


def test_what_was_read_before_the_log_start_moved_does_not_count() -> None:
    """Records below the new log start are gone, those of open transactions, too."""
    reader = Reader(
        [
            batch(0, b"a", b"old"),
            batch(1, b"b", b"open", producer_id=7),
            batch(2, b"c", b"lost"),
            batch(3, b"b", b"later"),
        ]
    )
    assert (load(reader).found, load(reader).open) == ({b"a": b"old", b"b": b"later", b"c": b"lost"}, {})
    reader.moves = {2: 3}
    sink = load(reader)
    assert sink.ended == ["loaded"]
    assert (sink.found, sink.open) == ({b"b": b"later"}, {})
