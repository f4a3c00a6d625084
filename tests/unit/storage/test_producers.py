"""Producer state: sequences, epochs, duplicated batches, transactions, snapshots."""

from __future__ import annotations

import struct

import pytest

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, EndTxnMarker
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.checkpoints import CheckpointError
from barnabas.storage.producer_snapshots import decode_snapshot, encode_snapshot
from barnabas.storage.producers import CompletedTxn, ProducerStateManager

PARTITION = TopicPartition("orders", 0)
NOW_MS = 1_800_000_000_000
MAX_SEQUENCE = 0x7FFFFFFF
TRANSACTIONAL, CONTROL = 0x10, 0x20


def offsets_of(state: ProducerStateManager) -> tuple[int | None, int | None]:
    return state.first_unstable_offset, state.first_undecided_offset


def batch(
    producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, producer_id, epoch, sequence, count)


class Partition:
    """A log that keeps nothing but its producers."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.disk.make_dirs("/log")
        self.producers = ProducerStateManager(self.disk, "/log", PARTITION)
        self.end = 0

    def send(self, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False) -> int:
        """Returns the first offset of the batch, new or duplicated."""
        header = batch(producer_id, sequence, count, epoch=epoch, attributes=TRANSACTIONAL if txn else 0)
        repeated = self.producers.check(header)
        if repeated is not None:
            return repeated.first_offset
        self.producers.update(header._replace(base_offset=self.end))
        first, self.end = self.end, self.end + count
        self.producers.map_end_offset = self.end
        return first

    def mark(
        self, producer_id: int, *, epoch: int = 0, commit: bool = True, coordinator: int = 0
    ) -> CompletedTxn | None:
        header = batch(producer_id, -1, epoch=epoch, offset=self.end, attributes=TRANSACTIONAL | CONTROL)
        marker = EndTxnMarker(commit, coordinator)
        self.producers.check_marker(header, marker)
        ended = self.producers.apply_marker(header, marker, NOW_MS)
        self.end += 1
        self.producers.map_end_offset = self.end
        return ended

    def refuses(
        self, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False
    ) -> ErrorCode:
        with pytest.raises(RecordsRejected) as caught:
            self.send(producer_id, sequence, count, epoch=epoch, txn=txn)
        return caught.value.code


def test_sequences_go_on_batch_by_batch() -> None:
    log = Partition()
    assert [log.send(1, 0, 3), log.send(1, 3, 2), log.send(2, 0), log.send(1, 5)] == [0, 3, 5, 6]
    assert log.refuses(1, 7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(1, 4, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = Partition()
    assert log.send(1, 500) == 0
    assert log.send(1, 501) == 1


def test_each_of_the_last_five_batches_is_answered_with_its_first_offset() -> None:
    log = Partition()
    first = [log.send(1, sequence * 2, 2) for sequence in range(7)]
    end = log.end
    for place in range(2, 7):
        assert log.send(1, place * 2, 2) == first[place]
    assert log.end == end
    assert log.refuses(1, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth is forgotten"
    assert log.refuses(1, 12, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a part of a batch is no repetition"
    assert log.send(1, 14) == end


def test_sequences_begin_again_after_the_largest() -> None:
    log = Partition()
    log.send(1, MAX_SEQUENCE - 1)
    first = log.send(1, MAX_SEQUENCE, 3)
    assert log.producers.producers[1].last_sequence == 1
    assert log.send(1, MAX_SEQUENCE, 3) == first
    assert log.send(1, 2) == first + 3
    other = Partition()
    other.send(1, MAX_SEQUENCE)
    assert other.send(1, 0) == 1


def test_a_new_epoch_begins_at_sequence_0_and_fences_the_old_one() -> None:
    log = Partition()
    log.send(1, 0, epoch=3)
    assert log.refuses(1, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(1, 0, epoch=4) == 1, "the same sequence in a new epoch is a new write"
    assert log.send(1, 0, epoch=4) == 1, "and its repetition is that one's, not the old epoch's"
    assert log.refuses(1, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuses(1, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.send(1, 1, epoch=4) == 2


def test_the_same_sequence_after_an_abort_is_a_new_write() -> None:
    """Guard G21."""
    log = Partition()
    log.send(1, 0, txn=True)
    log.mark(1, epoch=1, commit=False)  # transaction version 2: the marker carries the next epoch
    assert log.refuses(1, 1, txn=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuses(1, 1, epoch=1, txn=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(1, 0, epoch=1, txn=True) == 2


def test_with_the_old_protocol_sequences_go_on_after_a_marker() -> None:
    log = Partition()
    log.send(1, 0, txn=True)
    log.mark(1, commit=False)
    assert log.refuses(1, 5, txn=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(1, 1, txn=True) == 2


def test_batches_of_coordinators_have_no_sequences() -> None:
    log = Partition()
    log.send(1, 0)
    header = batch(1, -1, attributes=TRANSACTIONAL)
    assert log.producers.check(header, from_client=False) is None
    with pytest.raises(RecordsRejected):
        log.producers.check(header._replace(producer_epoch=-1), from_client=False)


def test_a_plain_write_inside_a_transaction_is_refused() -> None:
    log = Partition()
    log.send(1, 0, txn=True)
    assert log.refuses(1, 1) is ErrorCode.INVALID_TXN_STATE
    log.send(1, 1, txn=True)
    log.mark(1)
    assert log.send(1, 2) == 3


def test_the_first_unstable_offset_waits_for_the_oldest_transaction_and_the_high_watermark() -> None:
    log = Partition()
    state = log.producers
    assert state.first_unstable_offset is None
    log.send(1, 0, txn=True)  # 0
    log.send(2, 0, txn=True)  # 1
    log.send(3, 0, txn=True)  # 2
    assert offsets_of(state) == (0, 0)
    assert log.mark(2, commit=False) == CompletedTxn(2, 1, 3, True, 0)
    assert log.mark(1) == CompletedTxn(1, 0, 4, False, 2)
    assert offsets_of(state) == (0, 2), "not replicated yet"
    state.on_high_watermark(4)
    assert state.first_unstable_offset == 0, "the marker at 4 is at the high watermark, not below"
    state.on_high_watermark(5)
    assert state.first_unstable_offset == 2
    assert log.mark(3) == CompletedTxn(3, 2, 5, False, 6)
    assert offsets_of(state) == (2, None)
    state.on_high_watermark(6)
    assert state.first_unstable_offset is None


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    log = Partition()
    assert log.mark(9, epoch=4) is None
    assert log.producers.first_unstable_offset is None
    assert log.refuses(9, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.send(9, 0, epoch=4) == 1


def test_markers_out_of_date_are_refused() -> None:
    log = Partition()
    log.send(1, 0, epoch=2, txn=True)
    log.mark(1, epoch=2, coordinator=7)
    for epoch, coordinator, code in (
        (1, 7, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 6, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(RecordsRejected) as caught:
            log.mark(1, epoch=epoch, coordinator=coordinator)
        assert caught.value.code is code


def test_idle_producers_are_forgotten_but_not_in_a_transaction() -> None:
    log = Partition()
    log.send(1, 0)
    log.send(2, 0, txn=True)
    day_ms = 86_400_000
    assert log.producers.expire(NOW_MS + day_ms - 1) == 0
    assert log.producers.expire(NOW_MS + day_ms) == 1
    assert list(log.producers.producers) == [2]
    assert log.send(1, 77) == 2, "as if never seen"


def restarted(log: Partition, *, start: int = 0, end: int | None = None, wall_ms: int = NOW_MS) -> ProducerStateManager:
    state = ProducerStateManager(log.disk, "/log", PARTITION)
    state.reload(start, log.end if end is None else end, wall_ms)
    return state


def test_a_snapshot_brings_back_producers_and_open_transactions() -> None:
    log = Partition()
    log.send(1, 0, 3)
    log.send(1, 3, 4)
    log.send(5, 0, txn=True)
    log.send(2, 0, epoch=6, txn=True)
    log.mark(2, epoch=6)
    assert log.producers.take_snapshot() == log.end
    assert log.producers.take_snapshot() is None, "nothing new"
    state = restarted(log)
    assert state.map_end_offset == log.end
    assert state.first_unstable_offset == 7
    repeated = state.check(batch(1, 3, 4))
    assert repeated is not None
    assert repeated.first_offset == 3
    assert state.check(batch(1, 7)) is None
    with pytest.raises(RecordsRejected):
        state.check(batch(1, 9))
    assert [encode_snapshot([e]) for e in state.producers.values()] == [
        encode_snapshot([e]) for e in log.producers.producers.values()
    ]
    assert restarted(log, wall_ms=NOW_MS + 86_400_000).producers.keys() == {5}


def test_truncation_goes_back_to_an_older_snapshot() -> None:
    log = Partition()
    log.send(1, 0)
    log.producers.take_snapshot()
    log.send(1, 1)
    log.send(1, 2, txn=True)
    log.producers.take_snapshot()
    log.send(1, 3, txn=True)
    state = log.producers
    state.reload(0, 2, NOW_MS)
    assert state.map_end_offset == 1, "what lies between is replayed by the log"
    assert list(state.snapshots) == [1]
    assert state.producers[1].last_sequence == 0
    assert state.first_unstable_offset is None
    assert log.disk.list_dir("/log") == ["00000000000000000001.snapshot"]


def test_a_damaged_snapshot_is_deleted_and_the_one_before_it_taken() -> None:
    log = Partition()
    log.send(1, 0)
    log.producers.take_snapshot()
    log.send(1, 1)
    log.producers.take_snapshot()
    path = log.producers.snapshots.path(2)
    data = bytearray(log.disk.read(path))
    data[-1] ^= 1
    log.disk.write(path, data)
    state = restarted(log)
    assert (state.map_end_offset, list(state.snapshots)) == (1, [1])


def test_without_a_snapshot_the_state_begins_at_the_log_start() -> None:
    log = Partition()
    log.send(1, 0)
    assert restarted(log, start=0, end=1).map_end_offset == 0
    log.producers.take_snapshot()
    state = restarted(log, start=1, end=9)
    assert (state.map_end_offset, list(state.snapshots), state.is_empty) == (1, [], True)


def test_every_byte_of_a_snapshot_counts() -> None:
    log = Partition()
    log.send(1, 0, txn=True)
    log.send(2, 0)
    data = encode_snapshot(log.producers.producers.values())
    assert len(decode_snapshot("x", data)) == 2
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x40
        with pytest.raises(CheckpointError):
            decode_snapshot("x", bytes(flipped))
    for end in range(len(data)):
        with pytest.raises(CheckpointError):
            decode_snapshot("x", data[:end])
    with pytest.raises(CheckpointError):
        decode_snapshot("x", data + bytes(46))


def test_an_empty_snapshot_is_ten_bytes() -> None:
    assert encode_snapshot([]) == struct.pack(">hIi", 1, 0x48674BC7, 0)


def test_starting_anew_forgets_everything() -> None:
    log = Partition()
    log.send(1, 0, txn=True)
    log.producers.take_snapshot()
    log.producers.reset(50)
    assert log.producers.is_empty
    assert log.producers.first_unstable_offset is None
    assert (log.producers.map_end_offset, log.disk.list_dir("/log")) == (50, [])


def test_snapshots_go_with_their_segments() -> None:
    log = Partition()
    for sequence in range(6):
        log.send(1, sequence)
        log.producers.take_snapshot()
    log.producers.delete_snapshots_before(2)
    assert list(log.producers.snapshots) == [2, 3, 4, 5, 6]
    log.producers.remove_stray_snapshots([0, 3, 5])
    assert list(log.producers.snapshots) == [3, 5, 6], "the newest is from the stop in order"
    log.producers.remove_stray_snapshots([3, 9])
    assert list(log.producers.snapshots) == [3]
    log.producers.snapshots.forget(3)
    assert log.producers.snapshots.latest is None
    assert log.disk.list_dir("/log") == ["00000000000000000003.snapshot"]


def test_a_later_log_start_ends_transactions_before_it() -> None:
    log = Partition()
    log.send(1, 0, txn=True)
    log.mark(1)
    log.producers.on_log_start(2)
    assert log.producers.first_unstable_offset is None
    assert 1 in log.producers.producers
    log.producers.on_log_start(40)
    assert log.producers.map_end_offset == 40
