"""The inventory: the segments of every log of a directory with their sizes, as of a clean shutdown.

    barnabas-inventory    a version, a number of lines, the broker epoch of the shutdown, the CRC-32C of the lines that
                          follow, and per log "topic partition base:bytes base:bytes ..."

The file is written just before the clean-shutdown marker and removed with it at startup. It is valid only together with
a marker of the same broker epoch: if Apache Kafka used the directory since, the marker differs. Without it, as after a
kill, missing segments are found from the files alone, as far as these show it (`segment_ends`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.common.host import Disk
from barnabas.common.types import TopicPartition
from barnabas.records.checksum import crc32c
from barnabas.storage.checkpoints import CheckpointError, number, split_lines

INVENTORY_FILE: Final = "barnabas-inventory"
_VERSION: Final = "0"
_HEAD_LINES: Final = 4
#: Base offset of a segment -> its size in bytes, in order.
Sizes = Mapping[int, int]


def encode_inventory(broker_epoch: int, logs: Iterable[tuple[TopicPartition, Sizes]]) -> bytes:
    lines = [
        f"{tp.topic} {tp.partition} {' '.join(f'{base}:{size}' for base, size in sizes.items())}\n"
        for tp, sizes in logs
    ]
    body = "".join(lines).encode()
    return f"{_VERSION}\n{len(lines)}\n{broker_epoch}\n{crc32c(body)}\n".encode() + body


def read_inventory(disk: Disk, path: str, broker_epoch: int) -> dict[TopicPartition, Sizes]:
    """Reads the inventory; empty if there is none, or if it belongs to another shutdown. Raises OSError,
    CheckpointError."""
    if not disk.exists(path):
        return {}
    lines = split_lines(path, disk.read(path))
    if len(lines) < _HEAD_LINES or lines[0] != _VERSION:
        raise CheckpointError(path, "its first lines are missing, or of another version")
    count, epoch, checksum = (number(path, line) for line in lines[1:_HEAD_LINES])
    rows = lines[_HEAD_LINES:]
    if count != len(rows) or crc32c("".join(f"{row}\n" for row in rows).encode()) != checksum:
        raise CheckpointError(path, "the checksum does not match")
    found: dict[TopicPartition, Sizes] = {}
    for row in rows if epoch == broker_epoch else ():
        topic, partition, *segments = row.split(" ")
        pairs = (segment.partition(":") for segment in segments if segment)
        found[TopicPartition(topic, number(path, partition))] = {
            number(path, base): number(path, size) for base, _, size in pairs
        }
    return found
