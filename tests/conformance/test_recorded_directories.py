"""Apache Kafka's data directories open unchanged, contain what its dump shows, and are not modified."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support import golden
from tests.support.log_world import snapshot_of

from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, decode_batch
from barnabas.server.disk import OsDisk
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    EpochEntry,
    decode_epochs,
    decode_offsets,
)
from barnabas.storage.log import Log
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.segments import LogServices

#: When the recording was made, so that its producers are not yet forgotten.
_WALL_MS = 1_700_000_000_000
_SMALL_INTERVAL = {"rolled-0", "crash-0", "txn-rolled-0", "trimmed-0"}

_DIRECTORIES = sorted(
    {
        path.rpartition("/")[0]
        for path in golden.files()
        if path.endswith(".log") and "-delete/" not in path and ".dumps/" not in path
    }
)


def _partition(directory: str) -> TopicPartition:
    topic, _, index = directory.rpartition("/")[2].rpartition("-")
    return TopicPartition(topic, int(index))


def _checkpoint(directory: str, name: str) -> dict[TopicPartition, int]:
    path = f"{directory.rpartition('/')[0]}/{name}"
    return decode_offsets(path, golden.files().get(path, b""))


def _place(kind: str, directory: str, tmp_path: Path) -> tuple[Disk, str]:
    """Copies the directory to a disk."""
    disk: Disk = OsDisk() if kind == "os" else MemoryDisk()
    root = str(tmp_path) if kind == "os" else "/data"
    target = f"{root}/{directory.rpartition('/')[2]}"
    disk.make_dirs(target)
    for path, data in golden.files().items():
        if path.rpartition("/")[0] == directory:
            disk.write(f"{target}/{path.rpartition('/')[2]}", data)
    return disk, target


def _open(disk: Disk, target: str, directory: str, *, clean: bool, recovery_point: int = 0) -> Log:
    partition = _partition(directory)
    config = LogConfig(index_interval_bytes=100 if str(partition) in _SMALL_INTERVAL else 4096)
    return open_log(
        LogServices(disk, lambda: _WALL_MS, lambda bound: 0, Descriptors(3)),
        Opening(
            target,
            partition,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=_checkpoint(directory, LOG_START_CHECKPOINT).get(partition, 0),
        ),
    )


def _records(log: Log) -> list[Record]:
    batches = log.batches(log.log_start_offset, 4000)
    records = [record for _, view in batches for record in decode_batch(view)]
    return [record for record in records if record.offset >= log.log_start_offset]


def _dumped(directory: str) -> list[tuple[int, int, int, int]]:
    for folder, text in golden.dumps():
        if folder == directory:
            logs = [log for log in golden.dumped_logs(text) if log.path.endswith(".log")]
            return [
                (record.offset, record.timestamp, record.key_size, record.value_size)
                for log in sorted(logs, key=lambda log: log.path)
                for batch in log.batches
                for record in batch.records
            ]
    raise AssertionError(f"no dump of {directory}")


def _sizes(records: list[Record]) -> list[tuple[int, int, int, int]]:
    return [
        (r.offset, r.timestamp, -1 if r.key is None else len(r.key), -1 if r.value is None else len(r.value))
        for r in records
    ]


def test_the_recording_is_there() -> None:
    assert len(_DIRECTORIES) > 60


def _was_stopped_in_order(directory: str) -> bool:
    return f"{directory.rpartition('/')[0]}/{CLEAN_SHUTDOWN_FILE}" in golden.files()


def _epochs(files: dict[str, bytes], log_end_offset: int) -> list[EpochEntry]:
    entries = decode_epochs(LEADER_EPOCH_CHECKPOINT, files.get(LEADER_EPOCH_CHECKPOINT, b""))
    return [entry for entry in entries if entry.start_offset < log_end_offset]


@pytest.mark.parametrize("kind", ["os", "memory"])
@pytest.mark.parametrize("directory", _DIRECTORIES)
def test_a_directory_reads_as_its_dump_and_stays_as_it_is(kind: str, directory: str, tmp_path: Path) -> None:
    disk, target = _place(kind, directory, tmp_path)
    before = snapshot_of(disk, target)
    log = _open(disk, target, directory, clean=_was_stopped_in_order(directory))
    assert _sizes(_records(log)) == [entry for entry in _dumped(directory) if entry[0] >= log.log_start_offset]
    for record in _records(log):
        data = log.read(max(record.offset, log.log_start_offset), 1, up_to=log.log_end_offset).data
        assert record.offset in [found.offset for found in decode_batch(data)]
    log.close(clean=True)
    after = snapshot_of(disk, target)
    if not _was_stopped_in_order(directory):
        return
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    # Snapshots that no segment begins with are removed when a log is opened, but for the newest.
    bases = {name.partition(".")[0] for name in before if name.endswith(".log")}
    strays = sorted(name for name in before if name.endswith(".snapshot") and name.partition(".")[0] not in bases)
    changed -= {name for name in strays[:-1] if name not in after}
    changed -= {name for name in before if name.endswith(".deleted") and name not in after}
    # An epoch in which nothing was written is forgotten, as by Kafka when it opens the log.
    if _epochs(before, log.log_end_offset) == _epochs(after, log.log_end_offset):
        changed.discard(LEADER_EPOCH_CHECKPOINT)
    # A log of the time before producer snapshots gets its first one; the metadata log was not closed by its broker.
    allowed = r"\.snapshot$" if "old-formats" in directory else r"^$"
    if "__cluster_metadata" in directory:
        allowed = r"\.(snapshot|timeindex|index)$|^leader-epoch-checkpoint$"
    assert [name for name in sorted(changed) if not re.search(allowed, name)] == []


@pytest.mark.parametrize(
    "directory", [d for d in _DIRECTORIES if "old-formats" not in d and "killed" not in d and "/n3/" not in d]
)
def test_after_an_unclean_stop_everything_is_rebuilt_as_kafka_had_it(directory: str, tmp_path: Path) -> None:
    """Indexes, transaction indexes, snapshots and epochs, all from the `.log` files alone."""
    disk, target = _place("memory", directory, tmp_path)
    before = snapshot_of(disk, target)
    for name in before:
        if name.endswith((".index", ".timeindex", ".txnindex")):
            disk.remove(f"{target}/{name}")
        elif name.endswith(".snapshot") and name != max(n for n in before if n.endswith(".snapshot")):
            disk.write(f"{target}/{name}", b"damaged")
    log = _open(disk, target, directory, clean=False)
    assert _sizes(_records(log)) == [entry for entry in _dumped(directory) if entry[0] >= log.log_start_offset]
    log.close(clean=True)
    after = snapshot_of(disk, target)
    for name, data in before.items():
        if name.endswith(".log") or (name.endswith(".txnindex") and not _is_compacted(directory)):
            assert after[name] == data, name
        if name.endswith(".timeindex") and "__" not in directory:
            # Kafka's entries at the end of a segment, and Barnabas's.
            assert after[name][-12:] == data[-12:] or _is_compacted(directory), name
        if name.endswith(".index") and "__" not in directory and not _is_compacted(directory):
            assert after[name] == data or _grew_over_restarts(directory), name


def _is_compacted(directory: str) -> bool:
    """Returns whether a log is compacted: Kafka's cleaner writes batches in groups, with one index entry for each
    group.
    """
    return "compacted" in directory


def _grew_over_restarts(directory: str) -> bool:
    """Returns whether a log was opened several times: Kafka restarts the count of bytes for the next index entry when
    it opens a log, and after each fetched batch of records.
    """
    return "epochs" in directory or "replicated" in directory or "crash" in directory


def test_a_killed_broker_s_directory_is_recovered_as_kafka_did(tmp_path: Path) -> None:
    """The torn write is cut off, and the preallocated indexes are rebuilt."""
    directory = "stage3-killed/crash-0"
    recovered = {
        path.rpartition("/")[2]: data
        for path, data in golden.files().items()
        if path.startswith("stage3-recovered/crash-0/")
    }
    recovery_point = _checkpoint(directory, RECOVERY_POINT_CHECKPOINT).get(_partition(directory), 0)
    for point in {0, recovery_point}:
        disk, target = _place("memory", directory, tmp_path)
        log = _open(disk, target, directory, clean=False, recovery_point=point)
        assert log.log_end_offset == 30
        log.close(clean=True)
        mine = snapshot_of(disk, target)
        for name in recovered:
            if name.endswith(".log"):
                assert mine[name] == recovered[name], name
            if name.endswith((".index", ".timeindex")) and name in mine:
                assert len(mine[name]) <= 72, name
        assert sorted(n for n in mine if n.endswith((".log", ".index"))) == sorted(
            n for n in recovered if n.endswith((".log", ".index"))
        )


def test_preallocated_indexes_are_read_up_to_their_zeros(tmp_path: Path) -> None:
    disk, target = _place("memory", "stage1-clean-shutdown/rolled-0", tmp_path)
    for name in disk.list_dir(target):
        if name.endswith(".index"):
            disk.write(f"{target}/{name}", disk.read(f"{target}/{name}").ljust(4096, b"\0"))
        if name.endswith(".timeindex"):
            disk.write(f"{target}/{name}", disk.read(f"{target}/{name}").ljust(4092, b"\0"))
    log = _open(disk, target, "stage1-clean-shutdown/rolled-0", clean=True)
    assert log.log_end_offset == 60
    assert [len(segment.index) for segment in log.segments] == [7] * 7 + [3]
    assert [len(segment.time_index) for segment in log.segments] == [7] * 7 + [3]
    log.close(clean=True)
    assert disk.size(f"{target}/00000000000000000056.index") == 24


def test_time_and_transactions_of_the_recording(tmp_path: Path) -> None:
    disk, target = _place("memory", "stage1-clean-shutdown/txn-rolled-0", tmp_path)
    log = _open(disk, target, "stage1-clean-shutdown/txn-rolled-0", clean=True)
    end = log.log_end_offset
    aborted: set[int] = set()
    offset = 0
    while offset < end:
        read = log.read(offset, 1, up_to=end)
        aborted |= {first for _, first in log.aborted_transactions(offset, read)}
        offset = max(record.offset for record in decode_batch(read.data)) + 1
    assert len(aborted) == 2
    assert log.last_stable_offset(end) == end
    newest = log.max_timestamp()
    assert newest is not None
    found = log.offset_for_timestamp(newest[0])
    assert found is not None
    assert found[:2] == newest[:2]
    assert log.offset_for_timestamp(newest[0] + 1) is None
