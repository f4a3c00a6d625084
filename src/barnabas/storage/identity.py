"""The topic id of a log, in `partition.metadata` (KIP-516).

A new log gets its id in memory; the file is written in the background, at the latest before the first record. So a
broker that gets thousands of partitions does not wait for one sync each. A log without the file therefore has no
records (except one from before Kafka 2.8), and after a crash it can be taken for that of any topic. Kafka, which writes
the file equally late, sets such a directory aside and creates a new one.
"""

from __future__ import annotations

from barnabas.common.host import Disk
from barnabas.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata, remove_quietly, write_atomically

#: Two random ids differ in about sixty bits; one wrong byte in the file changes at most this many.
_MISREAD_BITS_MAX = 8


def is_misread(stored: bytes, expected: bytes) -> bool:
    """Returns whether the id in the file is almost the one in the metadata: the file is damaged, and not another
    topic's."""
    return 0 < (int.from_bytes(stored, "big") ^ int.from_bytes(expected, "big")).bit_count() <= _MISREAD_BITS_MAX


class TopicIdFile:
    """The topic id file of one log, a `BackgroundFile`. `directory` changes when the log's directory is renamed."""

    __slots__ = ("_disk", "directory", "is_saved", "topic_id")

    #: A topic id never changes.
    version = 0

    def __init__(self, disk: Disk, directory: str, topic_id: bytes) -> None:
        self._disk = disk
        self.directory = directory
        self.topic_id = topic_id
        self.is_saved = False

    @property
    def path(self) -> str:
        return f"{self.directory}/{PARTITION_METADATA}"

    @property
    def needs_write(self) -> bool:
        return not self.is_saved

    def encode(self) -> bytes:
        return encode_partition_metadata(self.topic_id)

    def take_draft(self, version: int, temporary: str) -> None:
        """Renames a synced draft into place. A sync of a record of this log also syncs the directory, and so the name.
        Raises OSError."""
        if self.is_saved:
            remove_quietly(self._disk, temporary)
        else:
            self._disk.rename(temporary, self.path)
            self.is_saved = True

    def persist(self) -> None:
        """Writes the file immediately, unless it is saved. Raises OSError."""
        if not self.is_saved:
            write_atomically(self._disk, self.path, self.encode())
            self.is_saved = True
