"""`.log` and `.checkpoint` files as text, as Apache Kafka's DumpLogSegments prints them: batches, and with deep
iteration their records. Also contains what the dumps of all kinds of files share (see `dump`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barnabas.common.errors import DecodeError, RecordsRejected
from barnabas.common.host import Disk, File
from barnabas.protocol.codec import decode
from barnabas.protocol.kafka_json import to_json_object, to_json_text
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.records.batch import (
    BatchHeader,
    ControlType,
    Record,
    control_type,
    decode_batch,
    has_valid_crc,
    read_end_txn_marker,
    read_header,
)
from barnabas.records.compression import codec_of
from barnabas.records.header import (
    LEGACY_MIN_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V2,
    NO_SEQUENCE,
    PREFIX,
    PREFIX_BYTES,
    advance_sequence,
)
from barnabas.records.legacy import legacy_checksums
from barnabas.storage.checkpoints import BOOTSTRAP_CHECKPOINT, LOG_SUFFIX
from barnabas.storage.read_window import Window

CHECKPOINT_SUFFIX = ".checkpoint"
UNLIMITED = 0x7FFFFFFF
DEFAULT_MAX_MESSAGE_BYTES = 5 * 1024 * 1024

#: Returns the text of a record's key and of its value, None where there is none.
Decoder = Callable[[Record], tuple[str | None, str | None]]

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint(\.part|\.deleted)?")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()
_CONTROL_MESSAGES: dict[int, tuple[str, type[Message]]] = {
    ControlType.LEADER_CHANGE: (" LeaderChange: ", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: (" SnapshotHeader ", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: (" SnapshotFooter ", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: (" KRaftVersion ", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: (" KRaftVoters ", VotersRecord),
}


class DumpFailed(Exception):
    """The error for a dump that ends where Kafka's tool ends, with a Java exception of this class."""

    def __init__(self, java_class: str, message: str | None = None) -> None:
        super().__init__(java_class if message is None else f"{java_class}: {message}")
        self.java_class = java_class
        self.message = message


def java_text(data: bytes) -> str:
    """Decodes bytes as Java does: UTF-8, with a replacement character for invalid ones."""
    return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def decode_as_text(record: Record) -> tuple[str | None, str | None]:
    """Decodes the key and value of a record of an ordinary topic as text."""
    return (
        None if record.key is None else java_text(record.key),
        None if record.value is None else java_text(record.value),
    )


@dataclass(frozen=True, slots=True)
class DumpOptions:
    deep_iteration: bool = False
    print_data_log: bool = False
    index_sanity_check: bool = False
    verify_index_only: bool = False
    skip_record_metadata: bool = False
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_bytes: int = UNLIMITED
    decoder: Decoder = decode_as_text


@dataclass(frozen=True, slots=True)
class DumpedFile:
    """A file to dump: `path` as the caller gave it, which most lines show, and `absolute_path` for the others."""

    path: str
    absolute_path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def base_offset(self) -> int:
        digits = self.name.partition(".")[0]
        if not (digits.isascii() and digits.isdecimal()):
            raise DumpFailed("java.lang.NumberFormatException", f'For input string: "{digits}"')
        return int(digits)

    def sibling(self, suffix: str) -> str:
        """Returns the path of another file of the same segment."""
        return self.path[: len(self.path) - len(self.name)] + self.name.partition(".")[0] + suffix

    def absolute_sibling(self, suffix: str) -> str:
        return DumpedFile(self.absolute_path, self.absolute_path).sibling(suffix)


def open_existing(disk: Disk, path: str, shown: str | None = None) -> File:
    """Opens a file for reading. Raises DumpFailed with the `shown` path if it does not exist."""
    try:
        return disk.open(path, read_only=True)
    except FileNotFoundError:
        raise DumpFailed("java.nio.file.NoSuchFileException", shown or path) from None


class DumpedBatches:
    """The batches of a file from `start` to `end` as Java's reader finds them: it ends at the first incomplete batch,
    and fails at an impossible size."""

    __slots__ = ("_end", "_path", "_position", "_window")

    def __init__(self, path: str, window: Window, start: int = 0, end: int | None = None) -> None:
        self._path = path
        self._window = window
        self._position = start
        self._end = window.end if end is None else min(end, window.end)

    def __iter__(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        return self

    def __next__(self) -> tuple[BatchHeader, memoryview]:
        position = self._position
        if position >= self._end - PREFIX_BYTES:
            raise StopIteration
        _, size = PREFIX.unpack(self._window.at(position, LOG_OVERHEAD))
        if size < LEGACY_MIN_BYTES - LOG_OVERHEAD:
            raise DumpFailed(
                "org.apache.kafka.common.errors.CorruptRecordException",
                f"Found record size {size} smaller than minimum record overhead (14) in file {self._path}.",
            )
        if position > self._end - LOG_OVERHEAD - size:
            raise StopIteration
        data = self._window.at(position, LOG_OVERHEAD + size)
        self._position = position + len(data)
        with invalid_record():
            return read_header(data), data


@contextmanager
def invalid_record() -> Iterator[None]:
    """Turns an error of our own reader about a broken record into the exception that ends the dump."""
    try:
        yield
    except (DecodeError, RecordsRejected) as error:
        raise DumpFailed("org.apache.kafka.common.InvalidRecordException", str(error)) from error


def java_order(paths: dict[str, list[tuple[int, int]]]) -> list[str]:
    """Returns the paths in the order in which a Scala hash map with these keys iterates."""

    def spread(path: str) -> int:
        value = 0
        units = path.encode("utf-16-be")
        for place in range(0, len(units), 2):
            value = (31 * value + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
        return value ^ (value >> 16)

    table = 16
    while len(paths) >= table * 3 // 4:
        table *= 2
    hashes = {path: spread(path) for path in paths}
    signed = {path: value - (1 << 32) if value >> 31 else value for path, value in hashes.items()}
    return sorted(paths, key=lambda path: (hashes[path] & (table - 1), signed[path]))


class LogDump:
    """Prints `.log` and `.checkpoint` files, one after the other."""

    __slots__ = ("_disk", "_non_consecutive", "_options", "_out")

    def __init__(self, disk: Disk, options: DumpOptions, out: Callable[[str], None]) -> None:
        self._disk = disk
        self._options = options
        self._out = out
        self._non_consecutive: dict[str, list[tuple[int, int]]] = {}

    def dump(self, dumped: DumpedFile) -> None:
        self._out(_first_line(dumped))
        options = self._options
        file = open_existing(self._disk, dumped.path)
        try:
            window = Window(file, options.max_bytes)
            position, last_offset = 0, -1
            for header, data in DumpedBatches(dumped.absolute_path, window):
                self._out(_batch_line(header, position, data))
                if options.deep_iteration or options.print_data_log:
                    last_offset = self._records(dumped, header, data, last_offset)
                position += len(data)
            if window.end > position and options.max_bytes == UNLIMITED:
                self._out(f"Found {window.end - position} invalid bytes at the end of {dumped.name}\n")
        finally:
            file.close()

    def finish(self, err: Callable[[str], None]) -> None:
        for path in java_order(self._non_consecutive):
            err(f"Non-consecutive offsets in {path}\n")
            for first, second in reversed(self._non_consecutive[path]):
                err(f"  {first} is followed by {second}\n")

    def _records(self, dumped: DumpedFile, header: BatchHeader, data: memoryview, last_offset: int) -> int:
        with invalid_record():
            records = decode_batch(data)
            checksums = legacy_checksums(data) if header.magic != MAGIC_V2 else []
        options = self._options
        for place, record in enumerate(records):
            if last_offset not in (-1, record.offset - 1):
                self._non_consecutive.setdefault(dumped.absolute_path, []).append((last_offset, record.offset))
            last_offset = record.offset
            parts, prefix = [], "| "
            if not options.skip_record_metadata:
                parts.append(_record_line(header, record))
                prefix = " "
                if checksums:
                    crc, is_valid = checksums[place]
                    parts.append(f" isValid: {_java_bool(is_valid)} crc: {crc}}}")
                if header.is_control:
                    parts.append(_control_text(record))
            if options.print_data_log and not header.is_control:
                key, payload = options.decoder(record)
                parts.append("" if key is None else f"{prefix}key: {key}")
                parts.append("" if payload is None else f" payload: {payload}")
            self._out("".join(parts) + "\n")
        return last_offset


def _first_line(dumped: DumpedFile) -> str:
    name = dumped.name
    if name.endswith(LOG_SUFFIX):
        return f"Log starting offset: {dumped.base_offset()}\n"
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot\n"
    match = _SNAPSHOT_NAME.fullmatch(name)
    if match is None:
        raise DumpFailed("java.util.NoSuchElementException", "No value present")
    return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}\n"


def _java_bool(value: bool) -> str:
    return "true" if value else "false"


def _timestamp_type(header: BatchHeader) -> str:
    if header.magic == MAGIC_V0:
        return "NoTimestampType"
    return "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime"


def _batch_line(header: BatchHeader, position: int, data: memoryview) -> str:
    if header.magic == MAGIC_V2:
        horizon = header.delete_horizon_ms
        identity = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} "
            f"isTransactional: {_java_bool(header.is_transactional)} isControl: {_java_bool(header.is_control)} "
            f"deleteHorizonMs: {java_optional(horizon)}"
        )
    else:
        identity = f"offset: {header.last_offset}"
    with invalid_record():
        codec = codec_of(header.attributes).name.lower()
    return (
        f"{identity} position: {position} {_timestamp_type(header)}: {header.max_timestamp} size: {len(data)} "
        f"magic: {header.magic} compresscodec: {codec} crc: {header.crc} "
        f"isvalid: {_java_bool(has_valid_crc(data, 0, header))}\n"
    )


def java_optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _record_line(header: BatchHeader, record: Record) -> str:
    line = (
        f"| offset: {record.offset} {_timestamp_type(header)}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if header.magic != MAGIC_V2:
        return line
    has_sequence = header.base_sequence != NO_SEQUENCE
    sequence = advance_sequence(header.base_sequence, record.offset - header.base_offset) if has_sequence else -1
    keys = ",".join(java_text(key.encode("utf-8", "surrogateescape")) for key, _ in record.headers)
    return f"{line} sequence: {sequence} headerKeys: [{keys}]"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _control_text(record: Record) -> str:
    kind = control_type(record)
    marker = read_end_txn_marker(record)
    if marker is not None:
        return f" endTxnMarker: {'COMMIT' if marker.commit else 'ABORT'} coordinatorEpoch: {marker.coordinator_epoch}"
    if kind not in _CONTROL_MESSAGES or record.value is None:
        return f" controlType: UNKNOWN({kind})"
    title, cls = _CONTROL_MESSAGES[kind]
    with invalid_record():
        # Each message begins with its own version.
        version = min(int.from_bytes(record.value[:2], "big"), cls.VERSIONS[1])
        message, _ = decode(cls, version, record.value)
        return title + to_json_text(to_json_object(message, version))
