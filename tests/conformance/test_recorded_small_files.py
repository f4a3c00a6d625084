"""Checkpoints, property files and producer snapshots have the content of Kafka's dump, and are written in the same
bytes.
"""

from __future__ import annotations

import re

import pytest
from tests.support import golden

from barnabas.common.types import TopicPartition
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    EpochEntry,
    decode_clean_shutdown,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    file_name,
    offset_of,
    parse_dir_name,
)
from barnabas.storage.producer_entries import ProducerEntry
from barnabas.storage.producer_snapshots import decode_snapshot, encode_snapshot

FILES = golden.files()
_ENDINGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def named(pattern: str) -> list[str]:
    found = [path for path in FILES if re.search(pattern, path)]
    assert found, pattern
    return found


@pytest.mark.parametrize("path", named(r"offset-checkpoint(\.b)?$"))
def test_offset_checkpoints(path: str) -> None:
    data = FILES[path]
    offsets = decode_offsets(path, data)
    assert len(offsets) == len(data.splitlines()[2:])
    if data:
        assert encode_offsets(offsets) == data


def test_offsets_of_the_first_stage() -> None:
    path = "stage1-clean-shutdown/recovery-point-offset-checkpoint"
    offsets = decode_offsets(path, FILES[path])
    assert len(offsets) == 30
    assert offsets[TopicPartition("multi", 2)] == 9
    assert offsets[TopicPartition("__consumer_offsets", 0)] == 25


@pytest.mark.parametrize("path", named(LEADER_EPOCH_CHECKPOINT))
def test_leader_epochs(path: str) -> None:
    assert encode_epochs(decode_epochs(path, FILES[path])) == FILES[path]


def test_epochs_over_restarts() -> None:
    path = f"stage1-clean-shutdown/epochs-0/{LEADER_EPOCH_CHECKPOINT}"
    assert decode_epochs(path, FILES[path]) == [EpochEntry(0, 0), EpochEntry(4, 5), EpochEntry(6, 8)]


@pytest.mark.parametrize("path", named(rf"/{PARTITION_METADATA}$"))
def test_partition_metadata(path: str) -> None:
    assert encode_partition_metadata(decode_partition_metadata(path, FILES[path])) == FILES[path]


@pytest.mark.parametrize("path", named(rf"/{META_PROPERTIES}(\.b)?$"))
def test_meta_properties(path: str) -> None:
    meta = decode_meta_properties(path, FILES[path])
    assert meta.node_id in (1, 2, 3)
    assert meta.cluster_id
    assert (meta.directory_id is None) == (meta.version == 0)
    ours, theirs = encode_meta_properties(meta, 1_795_228_260_000).split(b"\n"), FILES[path].split(b"\n")
    assert (ours[0], ours[2:]) == (theirs[0], theirs[2:])
    assert ours[1] == b"#Sat Nov 21 02:31:00 UTC 2026"


@pytest.mark.parametrize("path", named(rf"/{CLEAN_SHUTDOWN_FILE}$"))
def test_clean_shutdown(path: str) -> None:
    epoch = decode_clean_shutdown(FILES[path])
    assert epoch == -1 if "zookeeper" in path else epoch > 0
    assert encode_clean_shutdown(epoch) == FILES[path]


def test_file_and_directory_names() -> None:
    for path in FILES:
        if ".dumps/" in path:
            continue
        folder, _, name = path.rpartition("/")
        for ending in _ENDINGS:
            if name.endswith(ending):
                offset = offset_of(name)
                assert offset is not None
                assert file_name(offset, ending) == name
        if folder.count("/") == (2 if path.startswith("replicated/") else 1):
            assert parse_dir_name(folder.rpartition("/")[2]) is not None
    deleted = parse_dir_name("deleted-later-0.68d4a2e8e6e7489db1930608d20b5d88-delete")
    assert deleted == (TopicPartition("deleted-later", 0), "-delete")


def _shown(entry: ProducerEntry) -> str:
    """Returns the line of Kafka's dump for a producer."""
    txn = "OptionalLong.empty" if entry.txn_first_offset is None else f"OptionalLong[{entry.txn_first_offset}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {txn} lastTimestamp: {entry.last_timestamp} "
    )
    for batch in entry.batches:
        line += (
            f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
        )
    return line


def _dumped_snapshots() -> dict[str, list[str]]:
    return {
        f"{folder}/{path.partition('/')[2]}": [line for line in lines if line.startswith("producerId: ")]
        for folder, text in golden.dumps()
        for _, path, lines in golden.sections(text)
        if path.endswith(".snapshot")
    }


def test_producer_snapshots_read_as_their_dumps() -> None:
    dumped = _dumped_snapshots()
    assert sum(map(len, dumped.values())) > 40
    for path, lines in dumped.items():
        assert [_shown(entry) for entry in decode_snapshot(path, FILES[path])] == lines


def test_producer_snapshots_written_again() -> None:
    for path in named(r"\.snapshot$"):
        assert encode_snapshot(decode_snapshot(path, FILES[path])) == FILES[path]
