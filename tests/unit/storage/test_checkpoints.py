"""Small files: atomic replacement, malformed contents, names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.common.types import TopicPartition, Uuid
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.checkpoints import (
    CheckpointError,
    MetaProperties,
    decode_clean_shutdown,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    dir_name,
    encode_meta_properties,
    file_name,
    marked_dir_name,
    offset_of,
    parse_dir_name,
    read_offsets,
    write_atomically,
    write_offsets,
)

PARTITION = TopicPartition("my-topic", 12)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("/d")
    return disk


def test_offsets_round_trip_through_the_disk(disk: MemoryDisk) -> None:
    offsets = {PARTITION: 7, TopicPartition("a.b_c", 0): 1 << 60}
    assert read_offsets(disk, "/d/x") == {}
    write_offsets(disk, "/d/x", offsets)
    assert disk.read("/d/x") == b"0\n2\nmy-topic 12 7\na.b_c 0 1152921504606846976\n"
    assert read_offsets(disk, "/d/x") == offsets
    assert disk.list_dir("/d") == ["x"]


class RecordingDisk(MemoryDisk):
    """Says in which order things were done."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, path: str, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        self.calls.append(f"write {path} sync={sync}")
        super().write(path, data, sync=sync)

    def rename(self, source: str, target: str) -> None:
        self.calls.append(f"rename {source} {target}")
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.calls.append(f"sync {path}")
        super().sync_dir(path)


def test_a_file_is_replaced_in_the_order_that_survives_a_crash() -> None:
    disk = RecordingDisk()
    disk.make_dirs("/d")
    write_atomically(disk, "/d/x", b"new")
    assert disk.calls == ["write /d/x.tmp sync=True", "rename /d/x.tmp /d/x", "sync /d"]


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na zero 1\n",
        b"0\n1\na 0 one\n",
        b"0\n2\na 0 1\na 0 2\n",
        b"\xff\xfe",
        b"0\n-1\n",
    ],
)
def test_malformed_offset_checkpoints_are_named(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^/d/some-checkpoint: "):
        decode_offsets("/d/some-checkpoint", data)


def test_an_empty_checkpoint_has_no_entries() -> None:
    assert decode_offsets("x", b"") == {}
    assert decode_epochs("x", b"0\n0\n") == []


@pytest.mark.parametrize(
    "data", [b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0\ntopic_id: nope", b"version: 0"]
)
def test_malformed_partition_metadata(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode_partition_metadata("x", data)


def test_a_zero_topic_id_is_none() -> None:
    with pytest.raises(CheckpointError, match="zero"):
        decode_partition_metadata("x", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


def test_meta_properties_keep_odd_cluster_ids() -> None:
    meta = MetaProperties(1, 4, "a=b:c#d\\e", Uuid(bytes(range(16))))
    assert decode_meta_properties("x", encode_meta_properties(meta, 0)) == meta
    assert encode_meta_properties(meta, 0).startswith(b"#\n#Thu Jan 01 00:00:00 UTC 1970\nnode.id=4\n")


@pytest.mark.parametrize(
    "data", [b"", b"version=2\n", b"version=1\ncluster.id=x\n", b"version=1\nnode.id=a\ncluster.id=x\n"]
)
def test_malformed_meta_properties(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode_meta_properties("x", data)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":0}', b'{"brokerEpoch":"x"}', b"\xff"])
def test_a_clean_shutdown_file_may_say_nothing(data: bytes) -> None:
    assert decode_clean_shutdown(data) == -1


def test_names() -> None:
    assert dir_name(PARTITION) == "my-topic-12"
    assert parse_dir_name("my-topic-12") == (PARTITION, "")
    name = marked_dir_name(PARTITION, bytes(16), "-delete")
    assert name == f"my-topic-12.{'0' * 32}-delete"
    assert parse_dir_name(name) == (PARTITION, "-delete")
    assert len(marked_dir_name(TopicPartition("t" * 249, 0), bytes(16), "-delete")) == 255
    assert parse_dir_name("odd-delete-3") == (TopicPartition("odd-delete", 3), "")
    for other in ("lost+found", "topic", "-1", "topic-", "topic-x", "topic-²", "snapshots"):
        assert parse_dir_name(other) is None
    assert file_name(42, ".log") == "00000000000000000042.log"
    assert offset_of("00000000000000000042.log.deleted") == 42
    assert offset_of("leader-epoch-checkpoint") is None


@pytest.mark.parametrize("decode", [decode_meta_properties, decode_partition_metadata])
def test_a_file_without_a_version_is_named_so(decode: Callable[[str, bytes], object]) -> None:
    for data in (b"", b"junk", bytes(20)):
        with pytest.raises(CheckpointError, match="the version is missing"):
            decode("there", data)
