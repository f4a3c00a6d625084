"""What a coordinator's log says, read when leadership of the partition comes.

    read     slice by slice; keys and values stay bytes, the last value of each key counts
    replay   the values that count are decoded, some in each slice
    loaded   once the HW has passed the LEO of the moment of election (G6), so that a record which the last leader
             committed is never missing

A coordinator that takes over many partitions loads one after the other, one slice in each turn of the loop: what is
held up is bounded, and the first partitions serve long before the last. A partition whose slice must come from the
disk lets others go on meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.common.host import Buffer, Host, Timers
from barnabas.common.types import TopicPartition
from barnabas.coordinators.runtime import KeyValue, PartitionReader
from barnabas.records.batch import ControlType, control_type, decode_batch, iter_headers
from barnabas.records.entries import Entry, read_batch_entries
from barnabas.records.record import Record

#: What one slice may take: two or three milliseconds.
LOAD_SLICE_BYTES: Final = 64 * 1024
LOAD_SLICE_RECORDS: Final = 256
#: How soon a loaded shard looks again whether the HW has passed what it loaded; doubled each time, up to a bound.
_HW_POLL_MS: Final = 5
_HW_POLL_MAX_MS: Final = 160

#: By producer id, the records of transactions that were open at the end of the log; without those whose keys were
#: written again behind them.
OpenTransactions = dict[int, list[KeyValue]]


class LoadSink(Protocol):
    """Who takes in what a log says."""

    def replay(self, key: bytes, value: bytes) -> None:
        """The last value of a key. DecodeError: it is none of ours."""

    def on_loaded(self, transactions: OpenTransactions) -> None: ...

    def on_load_failed(self, error: Exception) -> None: ...


class Loads:
    """All that one coordinator loads: one slice in each turn of the loop."""

    __slots__ = ("_is_under_way", "_queue", "_timers", "reader")

    def __init__(self, timers: Timers, reader: PartitionReader) -> None:
        self.reader = reader
        self._timers = timers
        self._queue: deque[Callable[[], None]] = deque()
        self._is_under_way = False

    def begin(self, load: Callable[[], None]) -> None:
        """When those that came before have ended, or wait for something."""
        self._queue.append(load)
        self._go_on()

    def next(self, load: Callable[[], None]) -> None:
        """The next slice of a load that has begun."""
        self._queue.appendleft(load)
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_under_way:
            self._is_under_way = True
            self._timers.call_soon(self._run)

    def _run(self) -> None:
        load = self._queue.popleft()
        self._is_under_way = False
        if self._queue:
            self._go_on()
        load()


class LogLoader:
    """Reads one partition from start to end; see the module's text."""

    __slots__ = (
        "_host",
        "_latest",
        "_loads",
        "_partition",
        "_poll_ms",
        "_position",
        "_reader",
        "_sink",
        "_stopped",
        "_target",
        "_transactions",
    )

    def __init__(self, host: Host, loads: Loads, partition: TopicPartition, sink: LoadSink) -> None:
        self._host = host
        self._loads = loads
        self._reader = loads.reader
        self._partition = partition
        self._sink = sink
        self._position = 0
        self._target = 0
        self._latest: dict[bytes, bytes | None] = {}
        #: Of open transactions, by producer: the offset and the value of each key that nothing later was written for.
        self._transactions: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        self._poll_ms = _HW_POLL_MS
        self._stopped = False

    def start(self) -> None:
        try:
            self._target = self._reader.log_end_offset(self._partition)
            self._begin()
        except (RequestFailed, StorageFault) as error:
            self._fail(error)
            return
        self._loads.begin(self._read_slice)

    def stop(self) -> None:
        """Leadership is gone: nothing more happens."""
        self._stopped = True

    def _begin(self) -> None:
        self._latest.clear()
        self._transactions.clear()
        self._position = self._reader.log_start_offset(self._partition)

    def _fail(self, error: Exception) -> None:
        self._stopped = True
        self._sink.on_load_failed(error)

    def _read_slice(self) -> None:
        if self._stopped:
            return
        if self._position >= self._target:
            self._replay_slice(list(self._latest.items()), 0)
            return
        self._reader.read(self._partition, self._position, LOAD_SLICE_BYTES, self._on_slice)

    def _on_slice(self, read: Buffer | Exception) -> None:
        if self._stopped:
            return
        try:
            if isinstance(read, Exception):
                raise read
            self._take(read)
        except RequestFailed as failure:
            if failure.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._fail(failure)
                return
            self._begin()  # the log start moved on under us
        except (DecodeError, RecordsRejected, StorageFault) as error:
            self._fail(error)
            return
        self._loads.next(self._read_slice)

    def _take(self, data: Buffer) -> None:
        view = memoryview(data)
        before = self._position
        for place, header in iter_headers(view):
            if header.next_offset <= self._position:
                continue
            batch = view[place : place + header.size_bytes]
            if header.is_control:
                self._take_marker(header.producer_id, decode_batch(batch))
            else:
                entries = read_batch_entries(header, batch)
                self._take_entries(header.producer_id if header.is_transactional else None, entries)
            self._position = header.next_offset
        if self._position == before:
            self._position = self._target  # compaction may have emptied the end of the log

    def _take_entries(self, producer_id: int | None, entries: Sequence[Entry]) -> None:
        for offset, key, value in entries:
            if offset < self._position or key is None:
                continue
            if producer_id is not None:
                self._transactions.setdefault(producer_id, {})[key] = (offset, value)
                continue
            self._latest[key] = value
            if self._transactions:
                self._drop_before(key, offset)

    def _drop_before(self, key: bytes, offset: int) -> None:
        """The later one counts, whenever the transaction of the earlier one ends."""
        for written in self._transactions.values():
            if key in written and written[key][0] < offset:
                del written[key]

    def _take_marker(self, producer_id: int, records: Sequence[Record]) -> None:
        written = self._transactions.pop(producer_id, {})
        for record in records:
            if control_type(record) == ControlType.COMMIT:
                for key, (offset, value) in written.items():
                    self._latest[key] = value
                    self._drop_before(key, offset)

    def _replay_slice(self, items: list[tuple[bytes, bytes | None]], start: int) -> None:
        if self._stopped:
            return
        try:
            for key, value in items[start : start + LOAD_SLICE_RECORDS]:
                if value is not None:
                    self._sink.replay(key, value)
        except DecodeError as error:
            self._fail(error)
            return
        if start + LOAD_SLICE_RECORDS < len(items):
            self._loads.next(lambda: self._replay_slice(items, start + LOAD_SLICE_RECORDS))
        else:
            self._latest.clear()
            self._await_high_watermark()

    def _await_high_watermark(self) -> None:
        if self._stopped:
            return
        try:
            reached = self._reader.high_watermark(self._partition) >= self._target
        except (RequestFailed, StorageFault) as error:
            self._fail(error)
            return
        if reached:
            self._stopped = True
            self._sink.on_loaded(
                {
                    producer_id: [KeyValue(key, value) for key, (_, value) in written.items()]
                    for producer_id, written in self._transactions.items()
                }
            )
        else:
            self._host.timers.call_later(self._poll_ms, self._await_high_watermark)
            self._poll_ms = min(2 * self._poll_ms, _HW_POLL_MAX_MS)
