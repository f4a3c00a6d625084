"""A directory with one log that contains every kind of file and batch, to be damaged, and checks of the rest
afterwards.
"""

from __future__ import annotations

from tests.support.batches import NOW_MS
from tests.support.log_world import PARTITION, LogWorld

from barnabas.common.host import Disk
from barnabas.records.batch import Record, decode_batch, encode_end_txn_marker, iter_headers
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    dir_name,
    encode_clean_shutdown,
    parse_dir_name,
    write_offsets,
)
from barnabas.storage.file_faults import FileFault
from barnabas.storage.log import Origin
from barnabas.storage.offline.repair import Repair, apply_directory, plan_directory
from barnabas.storage.offline.verify import PartitionVerification, check_directory

ROOT = "/logs"
DIRECTORY = f"{ROOT}/{PARTITION}"
KEPT = "repair-then"
Files = dict[str, bytes]


def varied_log() -> Files:
    """Returns a log with several segments, leader epochs, codecs, idempotent batches, and committed and aborted
    transactions, after a clean shutdown.
    """
    world = LogWorld()
    assert dir_name(PARTITION) == DIRECTORY.rpartition("/")[2]
    sequence = 0
    for turn in range(9):
        epoch = turn // 3
        at = NOW_MS + turn * 10
        world.append(at, at + 2, at + 1, epoch=epoch, codec=turn % 5)
        world.append(at, epoch=epoch, producer_id=7, producer_epoch=0, base_sequence=turn)
        for producer_id in (8, 9):
            world.append(
                at,
                at + 1,
                epoch=epoch,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
        sequence += 2
        for producer_id in (8, 9):
            marker = encode_end_txn_marker(
                commit=(turn + producer_id) % 2 == 0,
                coordinator_epoch=0,
                timestamp=at + 5,
                producer_id=producer_id,
                producer_epoch=0,
            )
            world.append_batch(marker, epoch, Origin.COORDINATOR)
    end = world.log.log_end_offset
    world.log.close(clean=True)
    disk = world.disk
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        write_offsets(disk, f"{ROOT}/{name}", {PARTITION: end})
    disk.write(f"{ROOT}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(3))
    return files_in(disk, ROOT)


def files_in(disk: Disk, directory: str) -> Files:
    """Returns the bytes of all files below a directory, by path."""
    found: Files = {}
    for name in disk.list_dir(directory):
        path = f"{directory}/{name}"
        if disk.is_dir(path):
            found |= files_in(disk, path)
        else:
            found[path] = disk.read(path)
    return found


def disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    for path, data in files.items():
        disk.make_dirs(path.rpartition("/")[0])
        disk.write(path, data)
    return disk


def verified(disk: MemoryDisk) -> tuple[PartitionVerification, list[FileFault]]:
    """Returns the partition's verification, and all faults in the data directory."""
    verification = PartitionVerification(disk, DIRECTORY)
    report = verification.run()
    parsed = parse_dir_name(DIRECTORY.rpartition("/")[2])
    assert parsed is not None
    faults = [*report.faults, *check_directory(disk, ROOT, {parsed.topic_partition: report})]
    return verification, faults


def repaired(disk: MemoryDisk) -> list[str]:
    """Repairs as `barnabas log repair --yes` does, and returns the steps."""
    verification, faults = verified(disk)
    repair = Repair(disk, verification)
    repair.apply(KEPT)
    planned = plan_directory(disk, ROOT, {PARTITION: verification.report})
    if faults:
        apply_directory(disk, ROOT, planned, KEPT)
    return [*repair.steps, *planned]


def batches(files: Files) -> list[tuple[str, int, bytes]]:
    """Returns (path, position, bytes) of every batch of the log, in order."""
    found = []
    for path in sorted(
        path for path in files if path.startswith(DIRECTORY) and path.count("/") == DIRECTORY.count("/") + 1
    ):
        if path.endswith(".log"):
            data = files[path]
            found += [(path, at, data[at : at + header.size_bytes]) for at, header in iter_headers(data)]
    return found


def records(found: list[tuple[str, int, bytes]]) -> list[Record]:
    return [record for _, _, batch in found for record in decode_batch(batch)]


def lost_bytes(before: Files, after: Files) -> list[str]:
    """Returns the files of the partition whose old bytes cannot be restored from the current files and those kept
    aside.
    """
    lost = []
    for path, data in before.items():
        folder, _, name = path.rpartition("/")
        kept = {p.rpartition("/")[2]: d for p, d in after.items() if p.startswith(f"{folder}/{KEPT}/")}
        now = bytearray(after.get(path, b""))
        if data in (bytes(now), kept.get(name), after.get(f"{path}.{KEPT}")):
            continue
        for piece, old in kept.items():
            if piece.startswith(f"{name}.at-"):
                at = int(piece.rpartition("-")[2])
                now[at : at + len(old)] = old
            elif piece.startswith(f"{name}.from-"):
                now += old
        if bytes(now) != data:
            lost.append(path)
    return lost
