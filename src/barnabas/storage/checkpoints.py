"""File names and small files of a log directory, in Kafka's formats.

    meta.properties                      the owner of the directory: node, cluster, directory id
    recovery-point-offset-checkpoint     per partition: synced up to here
    replication-offset-checkpoint        per partition: high watermark
    log-start-offset-checkpoint          per partition, where it is above the first segment's base offset
    cleaner-offset-checkpoint            per partition: compacted up to here
    metadata-log-checkpoint              how far the metadata log was committed and durable (`raft.log_checkpoint`)
    .kafka_cleanshutdown                 exists only after a clean shutdown
    barnabas-inventory                   written with it: the segments of every log (`inventory`)
    <topic>-<partition>/
        leader-epoch-checkpoint          epoch and start offset per line
        partition.metadata               topic id
        <base offset, 20 digits>.log .index .timeindex .txnindex .snapshot [.deleted .cleaned .swap]
    <topic>-<partition>.<id>-delete      a partition to be deleted (-future, -stray alike)

A text checkpoint is a version line, a line with the number of entries, and the entries. All files are replaced as a
whole: written under another name, synced, renamed, and the directory synced. A half-written file never has the real
name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from barnabas.common.host import Buffer, Disk
from barnabas.common.properties import parse_properties
from barnabas.common.types import TopicPartition, Uuid, uuid_from_text, uuid_to_text

META_PROPERTIES = "meta.properties"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
#: The metadata log's checkpoint, written by `raft.log_checkpoint`; Apache Kafka has no such file.
LOG_CHECKPOINT_FILE = "metadata-log-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
#: The suffix of a version of these files that is not yet in place.
NEXT_SUFFIX = ".next"

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

_VERSION = 0
_OFFSET_DIGITS = 20
NAME_BYTES_MAX = 255
_TEMPORARY_SUFFIX = ".tmp"


class CheckpointError(ValueError):
    """The error for a small file with invalid contents; the text names the file."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


def write_atomically(disk: Disk, path: str, data: Buffer) -> None:
    """Replaces the file at `path`: after a crash at any moment it has the old bytes or the new."""
    temporary = path + _TEMPORARY_SUFFIX
    try:
        disk.write(temporary, data, sync=True)
        disk.rename(temporary, path)
    except OSError:
        remove_quietly(disk, temporary)
        raise
    disk.sync_dir(path.rpartition("/")[0] or "/")


def check_room(disk: Disk, path: str, data: Buffer) -> None:
    """Raises OSError if the disk has no room for these bytes as a new version of the file at `path`."""
    temporary = path + _TEMPORARY_SUFFIX
    try:
        disk.write(temporary, data)
    finally:
        remove_quietly(disk, temporary)


def remove_quietly(disk: Disk, path: str) -> None:
    """Removes the file that a failed operation began to write, and raises no error: the caller gets the error of that
    operation.
    """
    try:
        if disk.exists(path):
            disk.remove(path)
    except OSError:
        return


def remove_tree_quietly(disk: Disk, path: str) -> None:
    """Removes the directory that a failed operation began to write, and raises no error."""
    try:
        if disk.is_dir(path):
            disk.remove_tree(path)
    except OSError:
        return


# Names


def file_name(offset: int, suffix: str) -> str:
    """Returns a name such as `00000000000000000042.log`."""
    assert offset >= 0, f"no file begins at offset {offset}"
    return f"{offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_of(name: str) -> int | None:
    """Returns the offset at the beginning of a file's name, or None."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == _OFFSET_DIGITS and digits.isdecimal() and digits.isascii() else None


def dir_name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"


def marked_dir_name(topic_partition: TopicPartition, unique: bytes, suffix: str) -> str:
    """Returns a name such as `orders-3.<32 hex digits>-delete`. A long topic name is cut, as the hex digits are
    unique."""
    tail = f"-{topic_partition.partition}.{unique.hex()}{suffix}"
    return topic_partition.topic[: NAME_BYTES_MAX - len(tail)] + tail


class PartitionDir(NamedTuple):
    """The parsed name of a directory. `suffix` is "" for a live partition; for the others `topic` can be cut."""

    topic_partition: TopicPartition
    suffix: str


def parse_dir_name(name: str) -> PartitionDir | None:
    """Returns the partition of a directory, or None if the name is not that of a partition."""
    suffix = ""
    for marked in (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX):
        if name.endswith(marked):
            stem, dot, unique = name[: -len(marked)].rpartition(".")
            if not dot or len(unique) != 32:
                continue
            name, suffix = stem, marked
            break
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return PartitionDir(TopicPartition(topic, int(partition)), suffix)


# Text checkpoints


def encode_lines(entries: Sequence[str]) -> bytes:
    """Encodes a text checkpoint with these entries."""
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(entries)), *entries)).encode()


def split_lines(path: str, data: bytes) -> list[str]:
    """Returns the lines of a text file, without the newline of the last one. Raises CheckpointError if it is not
    text."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(path, f"not text: {error}") from None
    return lines[:-1] if not lines[-1] else lines


def decode_lines(path: str, data: bytes, fields: int) -> list[list[str]]:
    """Returns the entries, each split into its `fields`. An empty file, as one just created, has none."""
    if not data:
        return []
    lines = split_lines(path, data)
    if lines[0].strip() != str(_VERSION):
        raise CheckpointError(path, f"version {lines[0]!r}, expected {_VERSION}")
    if len(lines) < 2 or not lines[1].strip().isdecimal():
        raise CheckpointError(path, "the second line is not the number of entries")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != int(lines[1]):
        raise CheckpointError(path, f"{lines[1]} entries announced, but {len(entries)} found")
    for entry in entries:
        if len(entry) != fields:
            raise CheckpointError(path, f"entry {' '.join(entry)!r} has {len(entry)} fields, not {fields}")
    return entries


def number(path: str, text: str) -> int:
    """Returns the number in `text`. Raises CheckpointError if it is not one."""
    try:
        return int(text)
    except ValueError:
        raise CheckpointError(path, f"{text!r} is not a number") from None


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_lines([f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()])


def decode_offsets(path: str, data: bytes) -> dict[TopicPartition, int]:
    """Returns the offsets in the order of the file. Raises CheckpointError if it is malformed."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in decode_lines(path, data, 3):
        topic_partition = TopicPartition(topic, number(path, partition))
        if topic_partition in offsets:
            raise CheckpointError(path, f"{topic_partition} is listed twice")
        offsets[topic_partition] = number(path, offset)
    return offsets


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Reads the offsets of a file as `decode_offsets` does; empty if it does not exist."""
    return decode_offsets(path, disk.read(path)) if disk.exists(path) else {}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_atomically(disk, path, encode_offsets(offsets))


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(path: str, data: bytes) -> list[EpochEntry]:
    return [
        EpochEntry(number(path, epoch), number(path, start_offset))
        for epoch, start_offset in decode_lines(path, data, 2)
    ]


# partition.metadata


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


def decode_partition_metadata(path: str, data: bytes) -> Uuid:
    fields: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    if "version" not in fields:
        raise CheckpointError(path, "the version is missing")
    if fields.get("version") != str(_VERSION):
        raise CheckpointError(path, f"version {fields.get('version')!r}, expected {_VERSION}")
    try:
        topic_id = uuid_from_text(fields.get("topic_id", ""))
    except ValueError as error:
        raise CheckpointError(path, str(error)) from None
    if topic_id == bytes(16):
        raise CheckpointError(path, "the topic id is zero")
    return topic_id


# meta.properties


class MetaProperties(NamedTuple):
    """The identity in a log directory. Version 0 is that of ZooKeeper mode (`broker.id`), version 1 that of KRaft
    (`node.id`).
    """

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: Uuid | None


#: Kafka writes the keys in the order of a hash table; the same order here makes the files byte-equal.
_NODE_KEYS = ("broker.id", "node.id")


def encode_meta_properties(meta: MetaProperties, wall_ms: int) -> bytes:
    """Encodes `meta.properties`, including the date line that Java's writer puts first."""
    date = datetime.fromtimestamp(wall_ms // 1000, UTC)
    days, months = ("Mon Tue Wed Thu Fri Sat Sun", "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")
    day, month = days.split()[date.weekday()], months.split()[date.month - 1]
    lines = ["#", f"#{day} {month} {date:%d %H:%M:%S} UTC {date.year}"]
    if meta.node_id is not None:
        lines.append(f"{_NODE_KEYS[meta.version]}={meta.node_id}")
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(meta.directory_id)}")
    lines.append(f"version={meta.version}")
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={_escape(meta.cluster_id)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _escape(value: str) -> str:
    return "".join(f"\\{c}" if c in "\\:=#!" else c for c in value)


def decode_meta_properties(path: str, data: bytes) -> MetaProperties:
    values = parse_properties(data.decode("utf-8", "replace"))
    if "version" not in values:
        raise CheckpointError(path, "the version is missing")
    version = number(path, values["version"])
    if version not in (0, 1):
        raise CheckpointError(path, f"version {version}, expected 0 or 1")
    node = values.get(_NODE_KEYS[version])
    directory = values.get("directory.id")
    try:
        directory_id = None if directory is None else uuid_from_text(directory)
    except ValueError as error:
        raise CheckpointError(path, str(error)) from None
    if version == 1 and (node is None or "cluster.id" not in values):
        raise CheckpointError(path, "node.id and cluster.id are required")
    return MetaProperties(version, None if node is None else number(path, node), values.get("cluster.id"), directory_id)


# .kafka_cleanshutdown


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Returns the broker epoch of the clean shutdown; -1 if the file has none, such as the empty file of older
    brokers."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
