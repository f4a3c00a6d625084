"""Writes a snapshot in steps, between which the tree changes.

The file has the zxid at which its writing began. Nodes are written in their current state, so some contain later
transactions; the log has these too, and `Database.apply` accepts them a second time. It has the name `partial-...`
until it is complete and synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final
from zlib import adler32

from barnabas.common.host import File, Host
from barnabas.zookeeper.files.file_names import PARTIAL_PREFIX, SNAPSHOT_PREFIX, name_of
from barnabas.zookeeper.files.snapshot_format import (
    DIGEST_VERSION,
    END_OF_NODES,
    AclNumbers,
    SnapshotDigest,
    encode_digest,
    encode_head,
    encode_nodes,
    encode_seal,
)
from barnabas.zookeeper.tree.database import Database

#: The number of nodes per step, which takes about 2 ms.
_NODES_PER_STEP: Final = 500
_ACLS_PER_STEP: Final = 4000


class SnapshotWriter:
    """Writes one snapshot. `ended` is called once: with None when the snapshot is complete, else with the error."""

    __slots__ = (
        "_checksum",
        "_database",
        "_ended",
        "_file",
        "_folder",
        "_host",
        "_is_completing",
        "_is_dropped",
        "_steps",
        "zxid",
    )

    def __init__(
        self, host: Host, folder: str, database: Database, ended: Callable[[BaseException | None], None]
    ) -> None:
        self._host = host
        self._folder = folder
        self._database = database
        self._ended = ended
        self.zxid = database.last_zxid
        self._file: File | None = None
        self._checksum = adler32(b"")
        self._is_dropped = False
        self._is_completing = False
        self._steps = self._written()

    def start(self) -> None:
        """Begins to write, a step per turn of the loop."""
        self._host.timers.call_soon(self._step)

    def write_all(self) -> None:
        """Writes the snapshot now; for startup. Raises OSError."""
        for _ in self._steps:
            pass
        self._complete()

    def drop(self) -> None:
        """Stops, and discards the snapshot; one that only has to be synced is completed."""
        self._is_dropped = True
        if not self._is_completing:
            self._abandon()

    def _step(self) -> None:
        if self._is_dropped:
            return
        try:
            if next(self._steps, False):
                self._host.timers.call_soon(self._step)
                return
        except OSError as error:
            self._abandon()
            self._ended(error)
            return
        self._is_completing = True
        self._host.blocking.run(self._complete, self._completed)

    def _completed(self, _: None, error: BaseException | None) -> None:
        if self._is_dropped:
            return
        if error is not None:
            self._abandon()
        self._ended(error)

    def _written(self) -> Iterator[bool]:
        """Writes the file, and yields after each step."""
        database, zxid = self._database, self.zxid
        sessions = dict(database.sessions)
        acls = AclNumbers()
        walk = database.tree.walk()
        while nodes := list(islice(walk, _ACLS_PER_STEP)):
            for _, node in nodes:
                acls.add(node.acl)
            yield True
        self._file = self._host.disk.open(self._partial, create=True)
        self._file.truncate(0)
        self._write(encode_head(sessions, acls))
        walk = database.tree.walk()
        while nodes := list(islice(walk, _NODES_PER_STEP)):
            # The log creates younger nodes again.
            self._write(encode_nodes([each for each in nodes if each[1].czxid <= zxid], acls))
            yield True
        self._write(END_OF_NODES)
        self._write(encode_seal(self._checksum))
        digest = SnapshotDigest(database.last_zxid, DIGEST_VERSION, database.tree.digest)
        self._write(encode_digest(digest if digest.zxid > 0 else None))
        self._write(encode_seal(self._checksum))

    def _write(self, data: bytes) -> None:
        assert self._file is not None, "the file is open"
        self._file.append(data)
        self._checksum = adler32(data, self._checksum)

    @property
    def _partial(self) -> str:
        return f"{self._folder}/{PARTIAL_PREFIX}{name_of(SNAPSHOT_PREFIX, self.zxid)}"

    def _complete(self) -> None:
        """Syncs the file and gives it its name; it can run on a thread."""
        file, disk = self._file, self._host.disk
        assert file is not None, "the file is written"
        file.sync()
        file.close()
        self._file = None
        disk.rename(self._partial, f"{self._folder}/{name_of(SNAPSHOT_PREFIX, self.zxid)}")
        disk.sync_dir(self._folder)

    def _abandon(self) -> None:
        """Closes and removes the partial file."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
                self._host.disk.remove(self._partial)
        except OSError as error:
            self._host.faults.report(f"{self._partial} is left behind", error)
