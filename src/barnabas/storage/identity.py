"""Whose log it is: `partition.metadata`, with the topic id (KIP-516).

A log that is made is given its id in memory, and the file follows: beside the loop, or at the latest before the first
record is written. A broker that is given thousands of partitions at once need not wait for syncs of each. So a log
without the file has no records (but for one from before Kafka 2.8), and whoever opens it after a crash may take it for
that of any topic; Kafka, which writes the file as late, sets such a directory aside and makes a new one.
"""

from __future__ import annotations

from barnabas.common.host import Disk
from barnabas.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata, remove_quietly, write_atomically

#: Two ids that were drawn differ in about sixty bits; a wrong byte in the file changes no more than these.
_MISREAD_BITS_MAX = 8


def is_misread(told: bytes, right: bytes) -> bool:
    """Whether the file tells almost the id that the metadata have: it is damaged, and no other topic's."""
    return 0 < (int.from_bytes(told, "big") ^ int.from_bytes(right, "big")).bit_count() <= _MISREAD_BITS_MAX


class TopicIdFile:
    """Of one log; `beside.BesideFile`. `directory` is changed when the log's directory is renamed."""

    __slots__ = ("_disk", "directory", "is_saved", "topic_id")

    #: Nothing replaces an id.
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
    def is_owed(self) -> bool:
        return not self.is_saved

    def encode(self) -> bytes:
        return encode_partition_metadata(self.topic_id)

    def written_beside(self, version: int, temporary: str) -> None:
        """It stands in another file, synced. Whoever syncs a record of this log syncs the directory too, and so the
        name. Raises OSError."""
        if self.is_saved:
            remove_quietly(self._disk, temporary)
        else:
            self._disk.rename(temporary, self.path)
            self.is_saved = True

    def persist(self) -> None:
        """Raises OSError."""
        if not self.is_saved:
            write_atomically(self._disk, self.path, self.encode())
            self.is_saved = True
