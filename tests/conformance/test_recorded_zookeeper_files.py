"""A data directory of Apache ZooKeeper 3.8.4: every byte of its logs and snapshots is understood, and comes out again.

It was recorded with `snapCount=30`, so that it has five logs and five snapshots: creations of all kinds, multis that
succeed and fail, ACLs, quotas, sessions that end, an expiry, a kill and a restart.
"""

from __future__ import annotations

import struct
from zlib import adler32

import pytest
from tests.support.zookeeper_files import FOLDER, FOLDERS, FilesWorld, disk_with, recorded_files, state_of

from barnabas.simulation.host import MemoryHost
from barnabas.zookeeper.files.log_frames import LOG_HEADER, LogFrames, framed
from barnabas.zookeeper.files.snapshot_format import decode_snapshot
from barnabas.zookeeper.files.txn_entries import decode_entry, encode_entry
from barnabas.zookeeper.files.txn_recovery import recover
from barnabas.zookeeper.txns import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetAclTxn,
    SetDataTxn,
    TxnEntry,
)

_FILES = recorded_files()
_LOGS = sorted(name for name in _FILES if name.startswith("log."))
_SNAPSHOTS = sorted((name for name in _FILES if name.startswith("snapshot.")), key=lambda name: int(name[9:], 16))
_LAST_ZXID = 0x56
_TREE_DIGEST = 52116572954


def _entries(name: str) -> list[TxnEntry]:
    file = disk_with(_FILES).open(f"{FOLDER}/{name}")
    return [decode_entry(frame.entry) for frame in LogFrames(file)]


@pytest.mark.parametrize("name", _LOGS)
def test_a_log_encodes_to_the_bytes_it_was_decoded_from(name: str) -> None:
    entries = _entries(name)

    encoded = LOG_HEADER + b"".join(framed(encode_entry(entry)) for entry in entries)

    assert _FILES[name][: len(encoded)] == encoded
    assert not any(_FILES[name][len(encoded) :])
    assert entries[0].header.zxid == int(name[4:], 16)


def test_the_recording_has_every_kind_of_transaction() -> None:
    entries = [entry for name in _LOGS for entry in _entries(name)]

    assert [entry.header.zxid for entry in entries] == list(range(1, _LAST_ZXID + 1))
    assert {type(entry.txn) for entry in entries} == {
        CreateTxn,
        CreateTtlTxn,
        CreateContainerTxn,
        DeleteTxn,
        SetDataTxn,
        SetAclTxn,
        CreateSessionTxn,
        CloseSessionTxn,
        ErrorTxn,
        MultiTxn,
    }


@pytest.mark.parametrize("kept", range(len(_SNAPSHOTS)))
def test_each_snapshot_with_its_log_gives_apaches_tree(kept: int) -> None:
    newer = _SNAPSHOTS[kept + 1 :]
    host = MemoryHost(disk=disk_with({name: data for name, data in _FILES.items() if name not in newer}))

    recovered = recover(host.disk, FOLDERS, host.faults, extended_types=True)

    # Each transaction contains the digest of Apache's tree after it; a difference would be logged as a warning.
    assert host.faults.warned == []
    assert recovered.database.last_zxid == _LAST_ZXID
    assert recovered.database.tree.digest == _TREE_DIGEST
    assert recovered.replayed == _LAST_ZXID - int(_SNAPSHOTS[kept][9:], 16)
    assert not recovered.needs_snapshot


@pytest.mark.parametrize("name", _SNAPSHOTS)
def test_a_snapshot_has_two_seals_over_all_bytes(name: str) -> None:
    data = _FILES[name]

    (checksum,) = struct.unpack(">q", data[-13:-5])

    assert checksum == adler32(data[:-13])
    assert decode_snapshot(data, int(name[9:], 16)).nodes[0][0] == "/"


def test_nothing_is_changed_by_reading() -> None:
    host = MemoryHost(disk=disk_with(_FILES))

    recover(host.disk, FOLDERS, host.faults, extended_types=True)

    assert {name: host.disk.read(f"{FOLDER}/{name}") for name in host.disk.list_dir(FOLDER)} == _FILES


def test_the_servers_own_snapshot_of_the_tree_is_the_same_state() -> None:
    world = FilesWorld(disk_with(_FILES))
    before, acls = world.state(), {path: node.acl for path, node in world.database.tree.nodes.items()}
    world.store.write_snapshot_now()
    for name in _FILES:
        world.disk.remove(f"{FOLDER}/{name}")

    recovered = recover(world.disk, FOLDERS, world.host.faults, extended_types=True)

    assert world.host.faults.warned == []
    assert world.names() == [f"snapshot.{_LAST_ZXID:x}"]
    assert state_of(recovered.database) == before
    assert {path: node.acl for path, node in recovered.database.tree.nodes.items()} == acls
    assert recovered.database.sessions == world.database.sessions
    assert recovered.database.tree.digest == _TREE_DIGEST
