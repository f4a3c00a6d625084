"""Removal of old files (`PurgeTxnLog`): all but the newest snapshots, and the logs that none of these needs."""

from __future__ import annotations

from barnabas.common.host import Disk
from barnabas.zookeeper.files.file_names import LOG_PREFIX, SNAPSHOT_PREFIX, DataFile, data_files, logs_from
from barnabas.zookeeper.files.txn_recovery import Folders

#: The fewest snapshots that are retained; `autopurge.snapRetainCount` below it counts as it.
RETAINED_MIN = 3
_END_BYTES = 5
_END = b"\x00\x00\x00\x01/"


def purge(disk: Disk, folders: Folders, retained: int) -> list[str]:
    """Removes old snapshots and logs, and returns their names. Raises OSError.

    Only snapshots that are complete count as retained; with none of them, nothing is removed.
    """
    snapshots = data_files(disk, folders.snapshots, SNAPSHOT_PREFIX)
    complete = [each for each in snapshots if is_complete(disk, each)]
    kept = complete[-max(retained, RETAINED_MIN) :]
    if not kept:
        return []
    oldest = kept[0].zxid
    logs = data_files(disk, folders.logs, LOG_PREFIX)
    needed = logs_from(logs, oldest)
    old = [each for each in snapshots if each.zxid < oldest]
    old += [each for each in logs if each not in needed]
    for each in old:
        disk.remove(each.path)
    return [each.name for each in old]


def is_complete(disk: Disk, snapshot: DataFile) -> bool:
    """Returns whether the snapshot ends like a complete one; its checksum is not verified."""
    file = disk.open(snapshot.path, read_only=True)
    try:
        size = file.size()
        return size > _END_BYTES and file.read_at(size - _END_BYTES, _END_BYTES) == _END
    finally:
        file.close()
