"""Second decisions of small files: checkpoints, names, ids and snapshots of producers are decoded again, also torn and
damaged ones; and of what waits in directories.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from barnabas.common.types import TopicPartition, uuid_from_text, uuid_to_text
from barnabas.raft.snapshots import SnapshotId
from barnabas.records.checksum import crc32c
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision

#: The result of each probe of a damaged file.
_DAMAGED: Final = "failed", "CheckpointError"
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_DAY_MS: Final = 24 * 3_600_000
_PATH: Final = "/logs/file"
_MARKS: Final = ("-delete", "-future", "-stray")


# -- text checkpoints


def _rows(data: bytes, fields: int) -> list[list[str]] | None:
    """Returns the rows of a text checkpoint, None if it is damaged: version 0, the number of rows, and the rows."""
    if not data:
        return []
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if lines[0].strip() != "0" or len(lines) < 2 or not lines[1].strip().isdecimal():
        return None
    rows = [line.split() for line in lines[2:] if line.split()]
    if len(rows) != int(lines[1]) or any(len(row) != fields for row in rows):
        return None
    return rows


def _decoded_rows(path: str, data: bytes, fields: int) -> object:
    rows = _rows(data, fields)
    return _DAMAGED if rows is None else rows


def _damaged(data: bytes) -> Iterator[bytes]:
    """Yields versions of a checkpoint: with another version, another number of rows, cut off, not text."""
    yield b""
    yield b"0\n"
    yield b"0\nx\n"
    yield b"1" + data[1:]
    yield b"0\n1\n"
    yield data + b"one more\n"
    yield data[: len(data) // 2]
    yield data + b"\xff\n"


def _near_rows(path: str, data: bytes, fields: int) -> Iterator[Arguments]:
    for changed in _damaged(data):
        yield path, changed, fields
    row = " ".join("7" for _ in range(fields))
    yield path, f"0\n2\n{row}\n\n{row}\n".encode(), fields
    yield path, f"0\n1\n{row} 7\n".encode(), fields
    yield path, f"0\n1\n{row}".encode(), fields


def _offsets(path: str, data: bytes) -> object:
    rows = _rows(data, 3)
    try:
        found = [(TopicPartition(topic, int(number)), int(offset)) for topic, number, offset in rows or ()]
    except ValueError:
        return _DAMAGED
    return _DAMAGED if rows is None or len(dict(found)) < len(found) else list(dict(found).items())


def _near_offsets(path: str, data: bytes) -> Iterator[Arguments]:
    for changed in _damaged(data):
        yield path, changed
    for rows in ("1\na 0 5", "2\na 0 5\na 1 6", "2\na 0 5\na 0 5", "1\na x 5", "1\na 0 x", "1\na 0"):
        yield path, f"0\n{rows}\n".encode()


def _pairs(result: Any, *_: Any) -> object:
    return list(result.items())


def _epochs(path: str, data: bytes) -> object:
    rows = _rows(data, 2)
    try:
        return _DAMAGED if rows is None else [(int(epoch), int(start)) for epoch, start in rows]
    except ValueError:
        return _DAMAGED


def _near_epochs(path: str, data: bytes) -> Iterator[Arguments]:
    for changed in _damaged(data):
        yield path, changed
    for rows in ("1\n0 5", "2\n0 5\n3 6", "1\nx 5", "1\n0 5 6"):
        yield path, f"0\n{rows}\n".encode()


# -- names and ids


def _named(name: str) -> object:
    """Returns the partition of a directory and its mark; None for other directories."""
    found = re.fullmatch(r"(.+)\.([^.]{32})(-delete|-future|-stray)", name, re.DOTALL)
    stem, mark = (found[1], found[3]) if found else (name, "")
    live = re.fullmatch(r"(.+)-([0-9]+)", stem, re.DOTALL)
    return None if live is None else (TopicPartition(live[1], int(live[2])), mark)


def _near_names(name: str) -> Iterator[Arguments]:
    unique = "0" * 32
    for stem in ("orders-3", "a-b-10", "-3", "orders-", "orders", "orders-x", "a.b-1"):
        yield (stem,)
        for mark in _MARKS:
            yield (f"{stem}.{unique}{mark}",)
            yield (f"{stem}.{unique}0{mark}",)
            yield (f"{stem}{mark}",)


def _offset_in(name: str) -> int | None:
    digits = name.split(".")[0]
    return int(digits) if re.fullmatch("[0-9]{20}", digits) else None


def _near_file_names(name: str) -> Iterator[Arguments]:
    for each in (f"{7:020d}.log", f"{7:019d}.log", f"{7:021d}.log", f"{7:020d}", f"{7:020d}.log.deleted", "x.log"):
        yield (each,)


def _topic_id(path: str, data: bytes) -> object:
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if ":" in line:
            name, value = line.split(":", 1)
            fields[name.strip()] = value.strip()
    try:
        topic_id = uuid_from_text(fields.get("topic_id", ""))
    except ValueError:
        return _DAMAGED
    return _DAMAGED if fields.get("version") != "0" or topic_id == bytes(16) else topic_id


def _near_topic_ids(path: str, data: bytes) -> Iterator[Arguments]:
    text = uuid_to_text(bytes(range(16)))
    yield path, data[:-1]
    for each in (f"version: 0\ntopic_id: {text}", f"version:0\ntopic_id:{text}\n", f"version: 1\ntopic_id: {text}"):
        yield path, each.encode()
    for each in (f"topic_id: {text}", "version: 0", f"version: 0\ntopic_id: {uuid_to_text(bytes(16))}"):
        yield path, each.encode()


def _clean_epoch(data: bytes) -> int:
    try:
        fields = json.loads(data)
    except ValueError:
        return -1
    epoch = fields.get("brokerEpoch") if isinstance(fields, dict) else None
    return epoch if isinstance(epoch, int) else -1


def _near_clean_epochs(data: bytes) -> Iterator[Arguments]:
    for each in (b"", b"{}", b"[1]", b'{"version":0,"brokerEpoch":7}', b'{"version":0,"brokerEpoch":"7"}', b"{"):
        yield (each,)


def _metadata_snapshot(name: str) -> object:
    stem, dot, suffix = name.partition(".")
    end, dash, epoch = stem.partition("-")
    sizes = len(end), dash, len(epoch), dot, suffix
    if sizes != (20, "-", 10, ".", "checkpoint") or not (end + epoch).isdecimal():
        return None
    return SnapshotId(int(end), int(epoch))


def _near_snapshot_names(name: str) -> Iterator[Arguments]:
    right = f"{12:020d}-{3:010d}.checkpoint"
    for each in (right, f"{right}.part", f"0{right}", right[1:], right.replace("-", "."), f"x{right[1:]}"):
        yield (each,)


# -- snapshots of producers


def _saved(path: str, data: bytes) -> object:
    """Returns the producers of a snapshot."""
    if len(data) < 10:
        return _DAMAGED
    version, checksum, number = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:6], "big"), data[6:10]
    count = int.from_bytes(number, "big", signed=True)
    if version != 1 or checksum != crc32c(data[6:]) or len(data) - 10 != count * _PRODUCER.size:
        return _DAMAGED
    return [_PRODUCER.unpack_from(data, 10 + place * _PRODUCER.size) for place in range(count)]


def _sealed(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def _near_saved(path: str, data: bytes) -> Iterator[Arguments]:
    entry = _PRODUCER.pack(5, 1, 9, 40, 2, 1_000, 3, 38)
    none = _PRODUCER.pack(6, 0, -1, -1, 0, 2_000, -1, -1)
    first = _PRODUCER.pack(7, 0, 0, 0, 0, 0, 0, 0)
    whole = _sealed(b"\0\1" + bytes(4) + (3).to_bytes(4, "big") + entry + none + first)
    yield path, whole
    for damaged in (b"", whole[:9], whole[:10], whole[:-1], _sealed(whole[:-1]), _sealed(whole + b"\0")):
        yield path, damaged
    yield path, whole[:-1] + b"\1"
    yield path, _sealed(b"\0\2" + whole[2:])
    yield path, _sealed(whole[:6] + b"\xff" * 4)
    yield path, _sealed(b"\0\1" + bytes(8))


def _fields_of(entries: Any, *_: Any) -> object:
    found = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        found.append(
            (
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                -1 if last is None else last.last_offset,
                0 if last is None else last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.txn_first_offset is None else entry.txn_first_offset,
            )
        )
    return found


def _encoded(entries: Any) -> object:
    return _fields_of(entries) if not isinstance(entries, Iterator) else UNJUDGED


def _decoded(data: bytes, entries: Any) -> object:
    return _saved(_PATH, data)


# -- directories


def _is_over(disk: Any, path: str, now_ms: int) -> object:
    """Returns whether a stray directory's day is over, on the disk of a probe."""
    if type(disk) is not MemoryDisk or not disk.is_dir(path):
        return UNJUDGED
    file = f"{path}/stray-since"
    text = disk.read(file) if disk.exists(file) else b""
    return text.isdigit() and int(text) <= now_ms and int(text) + _DAY_MS <= now_ms


def _near_day(disk: Any, path: str, now_ms: int) -> Iterator[Arguments]:
    for age_ms in (_DAY_MS - 1, _DAY_MS, 0, -1, None):
        other = MemoryDisk()
        other.make_dirs(path)
        other.write(f"{path}/stray-since", b"x" if age_ms is None else str(now_ms - age_ms).encode())
        yield other, path, now_ms
    other = MemoryDisk()
    other.make_dirs(path)
    yield other, path, now_ms


def _is_certain(files: Any, directory: Any, name: str, topic_partition: Any, offset: int) -> bool:
    """Returns whether the file on disk has at most this offset, whatever a failure leaves."""
    versions = [directory.written.get(name, {})]
    if name in directory.drafts:
        versions.append(directory.drafts[name].offsets)
    highest = max(version.get(topic_partition, 0) for version in versions)
    return name not in directory.unsynced_names and bool(highest <= offset)


def _near_certain(files: Any, directory: Any, name: str, topic_partition: Any, offset: int) -> Iterator[Arguments]:
    known = directory.written.get(name, {}).get(topic_partition, 0)
    for more in (-1, 0, 1):
        yield files, directory, name, topic_partition, known + more


def _has_entry(directory: Any, topic_partition: Any) -> bool:
    drafts = [draft.offsets for draft in directory.drafts.values()]
    return any(topic_partition in offsets for offsets in (*directory.written.values(), *drafts))


# -- compaction


def _first_dirty(log: Any, cleaned_to: int | None) -> int:
    places = range(log.log_start_offset, log.log_end_offset + 1)
    return int(cleaned_to if cleaned_to is not None and cleaned_to in places else log.log_start_offset)


def _near_dirty(log: Any, cleaned_to: int | None) -> Iterator[Arguments]:
    for end in (log.log_start_offset, log.log_end_offset):
        for more in (-1, 0, 1):
            yield log, end + more
    yield log, None


def _is_worth_it(part: Any, min_ratio: float) -> bool:
    return part.ratio > min_ratio if part.dirty_bytes == 0 or not part.is_overdue else True


def _near_worth(part: Any, min_ratio: float) -> Iterator[Arguments]:
    for is_overdue in (False, True):
        for dirty_bytes in (0, 1):
            for ratio in (min_ratio - 0.01, min_ratio, min_ratio + 0.01):
                yield part._replace(is_overdue=is_overdue, dirty_bytes=dirty_bytes, ratio=ratio), min_ratio


def _is_overdue(dirty: Any, until_ms: int) -> object:
    firsts = [segment._first_timestamp for segment in dirty]
    if any(first < -1 for first in firsts):
        return UNJUDGED
    return any(0 < first < until_ms for first in firsts)


def _near_overdue(dirty: Any, until_ms: int) -> Iterator[Arguments]:
    for segment in dirty:
        for more in (0, 1):
            if segment._first_timestamp > 0:
                yield dirty, segment._first_timestamp + more


def _groups(disk: Any, segments: Any, segment_bytes: int, index_bytes: int, end_offset: int) -> object:
    return list(segments), True, True


def _shown_groups(groups: Any, disk: Any, segments: Any, segment_bytes: int, *more: Any) -> object:
    """Returns the segments in their order, and whether no group is too large and none is empty."""
    sizes = [sum(segment.size_bytes for segment in group) for group in groups if len(group) > 1]
    return [segment for group in groups for segment in group], all(size <= segment_bytes for size in sizes), all(groups)


def _decision(
    target: str,
    expected: Callable[..., Any],
    probes: Callable[..., Any],
    shown: Callable[..., Any] = lambda result, *_: result,
) -> SecondDecision:
    return SecondDecision(target, expected, probes, shown)


def _none(*_: Any, **__: Any) -> Iterator[Arguments]:
    return iter(())


SMALL_FILE_DECISIONS: Final = (
    _decision("storage.checkpoints:decode_lines", _decoded_rows, _near_rows),
    _decision("storage.checkpoints:decode_offsets", _offsets, _near_offsets, _pairs),
    _decision("storage.checkpoints:decode_epochs", _epochs, _near_epochs),
    _decision("storage.checkpoints:parse_dir_name", _named, _near_names),
    _decision("storage.checkpoints:offset_of", _offset_in, _near_file_names),
    _decision("storage.checkpoints:decode_partition_metadata", _topic_id, _near_topic_ids),
    _decision("storage.checkpoints:decode_clean_shutdown", _clean_epoch, _near_clean_epochs),
    _decision("storage.producer_snapshots:decode_snapshot", _saved, _near_saved, _fields_of),
    _decision("storage.producer_snapshots:encode_snapshot", _encoded, _none, _decoded),
    _decision("storage.stray_removal:_is_due", _is_over, _near_day),
    _decision("storage.checkpoint_files:CheckpointFiles.is_at_most", _is_certain, _near_certain),
    _decision("storage.checkpoint_files:has_entry", _has_entry, _none),
    _decision("storage.compaction.cleanable:first_dirty_offset", _first_dirty, _near_dirty),
    _decision("storage.compaction.cleanable:Cleanable.is_worth_it", _is_worth_it, _near_worth),
    _decision("storage.compaction.cleanable:_is_overdue", _is_overdue, _near_overdue),
    _decision("storage.compaction.cleanable:group_segments", _groups, _none, _shown_groups),
    _decision("raft.snapshots:parse_name", _metadata_snapshot, _near_snapshot_names),
)
