"""Loading of a coordinator's partition: reads the log when this broker becomes the partition's leader.

    read     slice by slice; keys and values stay bytes, the last value of each key counts
    replay   decodes the values that count, a part of them in each slice
    finish   the sink completes its state from all that was replayed, one step in each slice
    loaded   once the HW has passed the LEO at the time of the election (G6), so that no record is missing that the
             previous leader committed

A coordinator that takes over many partitions loads one after the other, one slice in each turn of the loop: other
requests are delayed by a bounded time, and the first partitions serve long before the last one. While a partition
waits for a slice from the disk, the others continue.

A load skips a record that cannot be read, a batch with a wrong checksum or with records that cannot be found, and
everything from bytes that are not a batch up to the next segment. Each is reported with its offset and counted in
`Loads.skipped`; the partition is loaded without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.common.host import Buffer, Host, Timers
from barnabas.common.types import TopicPartition
from barnabas.coordinators.runtime import PartitionReader
from barnabas.records.batch import ControlType, control_type, decode_batch, has_valid_crc, iter_headers
from barnabas.records.entries import Entry, read_batch_entries
from barnabas.records.header import BatchHeader, corrupt
from barnabas.records.record import Record

#: The bounds of one slice: two or three milliseconds of work.
LOAD_SLICE_BYTES: Final = 64 * 1024
LOAD_SLICE_RECORDS: Final = 256
#: The delay before a loaded shard checks again whether the HW has passed the end of the loaded records; doubled each
#: time, up to the maximum.
_HW_POLL_MS: Final = 5
_HW_POLL_MAX_MS: Final = 160

#: The number of unreadable records of a partition that are reported one by one; further ones are reported as a count.
_REPORTED_MAX: Final = 10
#: The number of bytes of a key that a report shows.
_SHOWN_KEY_BYTES: Final = 24


class LoadSink(Protocol):
    """The receiver of a log's contents. A topic without transactional writes needs no `replay_open`."""

    __slots__ = ()

    def replay(self, key: bytes, value: bytes) -> None:
        """Applies the last value of a key. Raises DecodeError if the record cannot be read."""

    def replay_open(self, producer_id: int, key: bytes, value: bytes) -> None:
        """Applies a record of a transaction that is open at the end of the log, unless a later record has the same key.
        Raises DecodeError if the record cannot be read."""
        return

    def finish(self) -> Iterator[None]:
        """Does the work that remains after the replay; yields whenever the work of one turn of the loop is done."""
        return iter(())

    def on_loaded(self) -> None: ...

    def on_load_failed(self, error: Exception) -> None: ...


class Loads:
    """The loads of all partitions of one coordinator, one slice in each turn of the loop."""

    __slots__ = ("_is_under_way", "_queue", "_timers", "reader", "skipped")

    def __init__(self, timers: Timers, reader: PartitionReader) -> None:
        self.reader = reader
        self._timers = timers
        self._queue: deque[Callable[[], None]] = deque()
        self._is_under_way = False
        #: The number of records that were skipped because they could not be read.
        self.skipped = 0

    def begin(self, load: Callable[[], None]) -> None:
        """Starts a load as soon as the loads before it have ended, or wait for the disk."""
        self._queue.append(load)
        self._schedule_run()

    def next(self, load: Callable[[], None]) -> None:
        """Schedules the next slice of a load that has begun."""
        self._queue.appendleft(load)
        self._schedule_run()

    def _schedule_run(self) -> None:
        if not self._is_under_way:
            self._is_under_way = True
            self._timers.call_soon(self._run)

    def _run(self) -> None:
        load = self._queue.popleft()
        self._is_under_way = False
        if self._queue:
            self._schedule_run()
        load()


class LogLoader:
    """The load of one partition from its log start to its end; the module docstring describes the steps."""

    __slots__ = (
        "_host",
        "_latest",
        "_loads",
        "_open_keys",
        "_partition",
        "_poll_ms",
        "_position",
        "_reader",
        "_sink",
        "_skipped",
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
        self._latest: dict[bytes, Entry] = {}
        #: The open transactions by producer id: the last entry of each key, unless a later record outside has that key.
        self._transactions: dict[int, dict[bytes, Entry]] = {}
        #: The producer ids whose open transactions contain a key.
        self._open_keys: dict[bytes, set[int]] = {}
        self._poll_ms = _HW_POLL_MS
        self._skipped = 0
        self._stopped = False

    def start(self) -> None:
        """Starts to read from the log start offset. The load ends at the present LEO."""
        try:
            self._target = self._reader.log_end_offset(self._partition)
            self._begin()
        except (RequestFailed, StorageFault) as error:
            self._fail(error)
            return
        self._loads.begin(self._read_slice)

    def stop(self) -> None:
        """Ends the load without a result: this broker no longer leads the partition."""
        self._stopped = True

    def _begin(self) -> None:
        self._latest.clear()
        self._transactions.clear()
        self._open_keys.clear()
        self._position = self._reader.log_start_offset(self._partition)

    def _fail(self, error: Exception) -> None:
        self._stopped = True
        self._sink.on_load_failed(error)

    # -- skipping unreadable data

    def _skip(self, what: str, error: Exception, count: int = 1) -> None:
        self._loads.skipped += count
        self._skipped += 1
        if self._skipped <= _REPORTED_MAX:
            self._host.faults.report(f"{self._partition}: {what} cannot be read and is skipped", error)

    def _skip_record(self, entry: Entry, error: Exception) -> None:
        offset, key, _ = entry
        shown = (key or b"")[:_SHOWN_KEY_BYTES]
        self._skip(f"the record at offset {offset} with the key {shown!r}", error)

    def _skip_batch(self, header: BatchHeader, error: Exception) -> None:
        span = f"offsets {header.base_offset} to {header.last_offset}"
        self._skip(f"the batch of {header.record_count} records at {span}", error, max(header.record_count, 1))

    def _skip_segment(self, error: Exception) -> None:
        """Skips to the next segment, since no batch begins at the position."""
        end = self._reader.next_segment(self._partition, self._position) or self._target
        self._skip(f"the log between offsets {self._position} and {end}", error)
        self._position = end

    def _report_skipped(self) -> None:
        if self._skipped > _REPORTED_MAX:
            self._host.faults.report(
                f"{self._partition}: {self._skipped} records or batches cannot be read and are skipped, "
                f"of which the first {_REPORTED_MAX} are reported above"
            )

    # -- reading

    def _read_slice(self) -> None:
        if self._stopped:
            return
        if self._position >= self._target:
            self._replay_slice(deque(self._latest.values()))
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
            self._begin()  # the log start offset passed the position: read from the new one
        except RecordsRejected as error:
            try:
                self._skip_segment(error)
            except (RequestFailed, StorageFault) as failure:
                self._fail(failure)
                return
        except StorageFault as error:
            self._fail(error)
            return
        self._loads.next(self._read_slice)

    def _take(self, data: Buffer) -> None:
        """Processes the batches of one read. Raises RecordsRejected if the bytes at the position are not a batch."""
        view = memoryview(data)
        before = self._position
        for place, header in iter_headers(view):
            if header.next_offset <= self._position:
                continue
            self._take_batch(header, view[place : place + header.size_bytes])
            self._position = header.next_offset
        if self._position == before:
            if len(view):
                raise corrupt(f"{len(view)} bytes contain no complete batch")
            self._position = self._target  # compaction may have emptied the end of the log

    def _take_batch(self, header: BatchHeader, batch: memoryview) -> None:
        try:
            if not has_valid_crc(batch, 0, header):
                raise corrupt("the checksum is wrong")
            if header.is_control:
                self._take_marker(header.producer_id, decode_batch(batch))
            else:
                entries = read_batch_entries(header, batch)
                self._take_entries(header.producer_id if header.is_transactional else None, entries)
        except (DecodeError, RecordsRejected) as error:
            self._skip_batch(header, error)

    def _take_entries(self, producer_id: int | None, entries: Sequence[Entry]) -> None:
        for entry in entries:
            offset, key, _ = entry
            if offset < self._position or key is None:
                continue
            if producer_id is not None:
                self._transactions.setdefault(producer_id, {})[key] = entry
                self._open_keys.setdefault(key, set()).add(producer_id)
                continue
            self._latest[key] = entry
            if key in self._open_keys:
                self._drop_before(key, offset)

    def _drop_before(self, key: bytes, offset: int) -> None:
        """Removes older records of the key from open transactions: the later record counts, whenever those
        transactions end."""
        writers = self._open_keys.get(key, ())
        for producer_id in tuple(writers):
            written = self._transactions[producer_id]
            if written[key][0] < offset:
                del written[key]
                self._close(key, producer_id)

    def _close(self, key: bytes, producer_id: int) -> None:
        writers = self._open_keys[key]
        writers.discard(producer_id)
        if not writers:
            del self._open_keys[key]

    def _take_marker(self, producer_id: int, records: Sequence[Record]) -> None:
        commits = any(control_type(record) == ControlType.COMMIT for record in records)
        written = self._transactions.pop(producer_id, {})
        for key in written:
            self._close(key, producer_id)
        if commits:
            for key, entry in written.items():
                self._latest[key] = entry
                self._drop_before(key, entry[0])

    # -- replaying

    def _replay_slice(self, entries: deque[Entry]) -> None:
        if self._stopped:
            return
        for _ in range(min(len(entries), LOAD_SLICE_RECORDS)):
            entry = entries.popleft()
            _, key, value = entry
            if key is not None and value is not None:
                try:
                    self._sink.replay(key, value)
                except DecodeError as error:
                    self._skip_record(entry, error)
        if entries:
            self._loads.next(lambda: self._replay_slice(entries))
            return
        self._latest.clear()
        self._run_steps(self._finish())

    def _finish(self) -> Iterator[None]:
        for producer_id, written in self._transactions.items():
            for count, entry in enumerate(written.values()):
                _, key, value = entry
                if key is not None and value is not None:
                    try:
                        self._sink.replay_open(producer_id, key, value)
                    except DecodeError as error:
                        self._skip_record(entry, error)
                if count % LOAD_SLICE_RECORDS == LOAD_SLICE_RECORDS - 1:
                    yield
        yield from self._sink.finish()

    def _run_steps(self, steps: Iterator[None]) -> None:
        """Runs one step in this turn of the loop, and the others in later turns."""
        if self._stopped:
            return
        for _ in steps:
            self._loads.next(lambda: self._run_steps(steps))
            return
        self._transactions.clear()
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
            self._report_skipped()
            self._sink.on_loaded()
        else:
            self._host.timers.call_later(self._poll_ms, self._await_high_watermark)
            self._poll_ms = min(2 * self._poll_ms, _HW_POLL_MAX_MS)
