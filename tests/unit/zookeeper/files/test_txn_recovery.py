"""Recovery from damaged, missing and foreign files: each row of its table."""

from __future__ import annotations

import struct

import pytest
from tests.support.zookeeper_files import FOLDER, FOLDERS, FilesWorld

from barnabas.simulation.host import MemoryHost
from barnabas.zookeeper.files.log_frames import LOG_HEADER_BYTES, LogFrames
from barnabas.zookeeper.files.txn_recovery import DamagedFiles, recover
from barnabas.zookeeper.txns import CreateTxn, SetDataTxn, TxnDigest, TxnEntry, TxnHeader


def _written(count: int = 5) -> FilesWorld:
    """Returns a world whose only log has a session and `count` nodes, synced, and which is not closed: killed."""
    world = FilesWorld()
    world.open_session()
    for number in range(count):
        world.create(f"/n{number}", b"x" * 50)
    world.sync()
    return world


def _ends(world: FilesWorld, name: str) -> list[int]:
    """Returns the offset after each entry of a log."""
    frames = LogFrames(world.disk.open(f"{FOLDER}/{name}"))
    ends = []
    for _ in frames:
        ends.append(frames.end)
    return ends


def _refusal(world: FilesWorld, *, trust_empty: bool = False) -> str:
    host = MemoryHost(disk=world.disk)
    before = {name: world.read(name) for name in world.names()}
    with pytest.raises(DamagedFiles) as caught:
        recover(world.disk, FOLDERS, host.faults, trust_empty=trust_empty)
    assert {name: world.read(name) for name in world.names()} == before, "a refused start changes nothing"
    return str(caught.value)


def test_a_fresh_folder_gets_an_empty_snapshot() -> None:
    world = FilesWorld()

    assert world.snapshots() == ["snapshot.0"]
    assert world.logs() == []


def test_everything_synced_is_there_after_a_kill() -> None:
    world = _written()
    before = world.state()

    world.start()

    assert world.state() == before
    assert world.database.sessions == {0x1000: 30_000}
    assert world.host.faults.warned == []


def test_a_start_continues_in_a_log_of_its_own() -> None:
    world = _written()
    world.start()

    world.create("/later")
    world.sync()

    assert world.logs() == ["log.1", "log.7"]
    before = world.state()
    world.start()
    assert world.state() == before


@pytest.mark.parametrize("lost", [1, 5, 20, 60])
def test_a_torn_entry_at_the_end_is_cut_and_kept(lost: int) -> None:
    world = _written()
    data, ends = world.read("log.1"), _ends(world, "log.1")
    world.write("log.1", data[: ends[-1] - lost] + bytes(len(data) - ends[-1] + lost))

    world.start()

    assert "/n3" in world.database.tree.nodes
    assert "/n4" not in world.database.tree.nodes
    (warning,) = world.host.faults.warned
    assert f"log.1 is cut at {ends[-2]}, after its last good entry" in warning
    assert len(world.read("log.1")) == ends[-2]
    assert world.read(f"cut-log.1-at-{ends[-2]}") == data[ends[-2] : ends[-1] - lost].rstrip(b"\0")
    world.create("/n4")
    world.sync()
    world.start()
    assert world.host.faults.warned == []
    assert "/n4" in world.database.tree.nodes


def test_a_flipped_bit_cuts_the_log_there() -> None:
    world = _written()
    data, ends = bytearray(world.read("log.1")), _ends(world, "log.1")
    data[ends[2] + 30] ^= 1
    world.write("log.1", bytes(data))

    world.start()

    assert "/n1" in world.database.tree.nodes
    assert "/n2" not in world.database.tree.nodes
    assert "whose checksum does not match" in world.host.faults.warned[0]
    assert f"the {ends[-1] - ends[2]} bytes after it are kept in" in world.host.faults.warned[0]


def test_a_log_without_its_first_page_is_removed() -> None:
    world = _written()
    world.start()
    world.create("/later")
    world.sync()
    world.write("log.7", bytes(4096))

    world.start()

    assert "/later" not in world.database.tree.nodes
    assert world.logs() == ["log.1"]


def test_an_empty_log_is_removed() -> None:
    world = _written()
    world.write("log.7", b"")

    world.start()

    assert world.logs() == ["log.1"]
    assert "/n4" in world.database.tree.nodes


def test_a_log_that_is_none_is_refused() -> None:
    world = _written()
    world.write("log.7", b"no log at all, but some text")

    assert "log.7 is not a transaction log" in _refusal(world)


def test_a_torn_log_before_the_last_one_is_cut_if_the_next_one_continues() -> None:
    world = _written()
    ends = _ends(world, "log.1")
    world.start()
    world.create("/later")
    world.sync()
    data = bytearray(world.read("log.1"))
    data[ends[-1]] = 7
    world.write("log.1", bytes(data))

    world.start()

    assert "/later" in world.database.tree.nodes
    assert len(world.read("log.1")) == ends[-1]


def test_missing_transactions_between_two_logs_are_refused() -> None:
    world = _written()
    ends = _ends(world, "log.1")
    world.start()
    world.create("/later")
    world.sync()
    world.write("log.1", world.read("log.1")[: ends[3]])

    text = _refusal(world)

    assert "transactions 0x5 to 0x6 are missing before /zk/version-2/log.7" in text


def test_a_damaged_snapshot_falls_back_to_the_one_before() -> None:
    world = _written()
    before = world.state()
    world.store.write_snapshot_now()
    data = bytearray(world.read("snapshot.6"))
    data[100] ^= 1
    world.write("snapshot.6", bytes(data))

    world.start()

    assert "snapshot.6 is damaged and not used: its checksum does not match" in world.host.faults.warned[0]
    assert world.state() == before
    # The start replaced it.
    world.start()
    assert world.host.faults.warned == []
    assert world.recovered.replayed == 0


def test_a_snapshot_whose_writing_did_not_end_falls_back() -> None:
    world = _written()
    world.store.write_snapshot_now()
    world.write("snapshot.6", world.read("snapshot.6")[:-40])

    world.start()

    assert "it was not written completely" in world.host.faults.warned[0]
    assert "/n4" in world.database.tree.nodes


def test_only_damaged_snapshots_are_refused() -> None:
    world = _written()
    world.write("snapshot.0", b"ZKSN")

    text = _refusal(world)

    assert "no snapshot in /zk/version-2 can be read (snapshot.0: it has only 4 bytes" in text
    assert "restore one from a backup" in text


def test_a_fallback_that_needs_a_purged_log_is_refused() -> None:
    world = _written()
    world.store.write_snapshot_now()
    world.start()
    world.create("/later")
    world.sync()
    world.disk.remove(f"{FOLDER}/log.1")
    world.write("snapshot.6", world.read("snapshot.6")[:-1])

    assert "transactions 0x1 to 0x6 are missing before" in _refusal(world)


def test_a_log_without_a_snapshot_is_refused() -> None:
    world = _written()
    world.disk.remove(f"{FOLDER}/snapshot.0")

    assert "snapshot.trust.empty=true" in _refusal(world)


def test_a_log_without_a_snapshot_is_trusted_if_asked_to() -> None:
    world = _written()
    before = world.state()
    world.disk.remove(f"{FOLDER}/snapshot.0")
    host = MemoryHost(disk=world.disk)

    recovered = recover(world.disk, FOLDERS, host.faults, trust_empty=True)

    assert recovered.needs_snapshot
    assert sorted(recovered.database.tree.nodes) == [path for path, *_ in before]


@pytest.mark.parametrize("suffix, advice", [("gz", "unpack it with gunzip"), ("snappy", "without compression")])
def test_a_compressed_snapshot_is_refused_with_advice(suffix: str, advice: str) -> None:
    world = _written()
    world.write(f"snapshot.6.{suffix}", b"\x1f\x8b")

    text = _refusal(world)

    assert f"snapshot.6.{suffix} is compressed (snapshot.compression.method={suffix})" in text
    assert advice in text


def test_an_entry_of_an_unknown_type_is_refused() -> None:
    world = _written()
    header = TxnHeader(1, 0, 7, 0, 99)
    txn = SetDataTxn("/n0", b"", 1)
    world.store.append(TxnEntry(header, txn, None))
    world.sync()

    assert "a transaction of type 99" in _refusal(world)


def test_another_tree_than_the_writers_is_reported() -> None:
    world = FilesWorld()
    header = TxnHeader(1, 0, 1, 1_000, 1)
    txn = CreateTxn("/n", b"", None, False, 1)
    world.store.append(TxnEntry(header, txn, TxnDigest(2, 12345)))
    world.sync()

    world.start()

    assert "the tree differs from the one that its writer had after zxid 0x1" in world.host.faults.warned[0]


def test_ephemerals_without_a_session_go_at_the_start() -> None:
    """G45: an ephemeral goes with its session, even across a restart."""
    world = FilesWorld()
    world.create("/orphan", is_ephemeral=True)
    world.sync()

    world.start()

    assert "/orphan" not in world.database.tree.nodes


def test_files_of_other_names_are_left_alone() -> None:
    world = _written()
    for name in ("log.xyz", "log", "snapshot.", "notes.txt", "acceptedEpoch"):
        world.write(name, b"mine")

    world.start()

    assert world.host.faults.warned == []
    assert {"log.xyz", "log", "snapshot.", "notes.txt", "acceptedEpoch"} < set(world.names())


def test_an_ensembles_epochs_are_no_gaps() -> None:
    world = FilesWorld()
    world.store.append(TxnEntry(TxnHeader(1, 0, 0x1_0000_0001, 0, 1), CreateTxn("/a", b"", None, False, 1), None))
    world.store.append(TxnEntry(TxnHeader(1, 0, 0x2_0000_0001, 0, 1), CreateTxn("/b", b"", None, False, 2), None))
    world.sync()

    world.start()

    assert world.database.last_zxid == 0x2_0000_0001
    assert world.logs() == ["log.100000001"]


def test_a_header_is_needed_before_the_first_entry() -> None:
    world = _written()
    data = world.read("log.1")

    assert data[:LOG_HEADER_BYTES] == struct.pack(">4siq", b"ZKLG", 2, 0)
