"""Names of the files in `version-2`: `log.HEX` and `snapshot.HEX`, HEX being a zxid.

    log.HEX        HEX is the zxid of the first transaction in it
    snapshot.HEX   HEX is the last transaction applied when its writing began; `.gz` or `.snappy` if it is compressed

A file with any other name does not belong to the server, as with Apache's.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.common.host import Disk

VERSION_FOLDER = "version-2"
LOG_PREFIX = "log"
SNAPSHOT_PREFIX = "snapshot"
#: Prefixes of names that neither this server nor Apache's takes for a log or a snapshot.
PARTIAL_PREFIX = "partial-"
CUT_PREFIX = "cut-"
_ZXID_MAX = (1 << 63) - 1


class DataFile(NamedTuple):
    """A log or a snapshot in its folder."""

    zxid: int
    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def zxid_of(name: str, prefix: str) -> int | None:
    """Returns the zxid in the name of a file, None if it is not a file of this kind. A suffix after a second dot is
    ignored.
    """
    parts = name.split(".")
    if len(parts) < 2 or parts[0] != prefix:
        return None
    digits = parts[1]
    if not digits or not digits.isascii() or not digits.isalnum():
        return None
    try:
        zxid = int(digits, 16)
    except ValueError:
        return None
    return zxid if zxid <= _ZXID_MAX else None


def name_of(prefix: str, zxid: int) -> str:
    """Returns the name of the log or snapshot with this zxid."""
    return f"{prefix}.{zxid:x}"


def data_files(disk: Disk, folder: str, prefix: str) -> list[DataFile]:
    """Returns the logs or snapshots of a folder, ordered by zxid; none if the folder does not exist."""
    if not disk.is_dir(folder):
        return []
    found = []
    for name in disk.list_dir(folder):
        zxid = zxid_of(name, prefix)
        if zxid is not None:
            found.append(DataFile(zxid, f"{folder}/{name}"))
    return sorted(found)


def logs_from(logs: list[DataFile], zxid: int) -> list[DataFile]:
    """Returns the logs that can have transactions after `zxid`: the last one that begins at or before it, and later
    ones. `logs` rise by zxid.
    """
    first = 0
    for index, log in enumerate(logs):
        if log.zxid <= zxid + 1:
            first = index
    return logs[first:]
