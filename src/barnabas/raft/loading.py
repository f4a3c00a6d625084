"""What a node finds of the metadata log when it starts: latest snapshot, batches after it, and who votes."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import DecodeError, FatalFault, RecordsRejected
from barnabas.common.host import Disk
from barnabas.metadata.frame import decode_record
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import VotersRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.control import decode_control
from barnabas.raft.log import MetadataLog
from barnabas.raft.snapshots import Snapshot, SnapshotFiles, SnapshotId, decode_snapshot
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet, voters_from_record
from barnabas.records.batch import Record, decode_batch
from barnabas.storage.checkpoints import BOOTSTRAP_CHECKPOINT

_READ_BYTES: Final = 1024 * 1024


class Loaded(NamedTuple):
    """`snapshot` is None where the log goes back to its beginning."""

    snapshot_id: SnapshotId
    snapshot: Snapshot | None
    batches: list[CommittedBatch]
    voters: VoterSet
    #: The voters are those that the directory was formatted with, and the log does not name them yet.
    voters_are_new: bool


def load(log: MetadataLog, disk: Disk, config: BrokerConfig) -> Loaded:
    """FatalFault, naming the file, if something cannot be read or nobody is named as a voter."""
    files = SnapshotFiles(disk, log.directory)
    snapshot_id = files.latest()
    snapshot = None if snapshot_id is None else _read_snapshot(files, snapshot_id)
    if snapshot_id is not None:
        log.start_after_snapshot(snapshot_id)
    batches, logged_voters = _read_batches(log, snapshot_id.end_offset if snapshot_id is not None else 0)
    voters = static_voters(config)
    voters_are_new = False
    if voters is None and logged_voters is not None:
        voters = logged_voters
    elif voters is None and snapshot is not None:
        voters = snapshot.voters
        voters_are_new = log.end_offset == 0
    if voters is None:
        raise FatalFault(
            f"{log.directory} names no voters and controller.quorum.voters is not set: format the directory with its "
            "first voters, or set controller.quorum.voters"
        )
    if snapshot_id is None or snapshot_id.end_offset == 0:
        # The first snapshot of a dynamic quorum holds its voters only.
        return Loaded(SnapshotId(0, 0), None, batches, voters, voters_are_new)
    return Loaded(snapshot_id, snapshot, batches, voters, voters_are_new)


def static_voters(config: BrokerConfig) -> VoterSet | None:
    """Those of `controller.quorum.voters`; None for a dynamic quorum."""
    if not config.voters:
        return None
    name = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
    return VoterSet(
        tuple(
            Voter(VoterKey(voter.node_id), (VoterEndpoint(name, voter.host, voter.port),))
            for voter in sorted(config.voters)
        )
    )


def read_bootstrap(disk: Disk, log_dir: str) -> list[tuple[Message, int]]:
    """What the directory was formatted with; empty if there is no such file."""
    path = f"{log_dir}/{BOOTSTRAP_CHECKPOINT}"
    if not disk.exists(path):
        return []
    try:
        return decode_snapshot(disk.read(path)).records
    except DecodeError as error:
        raise FatalFault(f"{path} cannot be read: {error}") from error


def _read_snapshot(files: SnapshotFiles, snapshot_id: SnapshotId) -> Snapshot:
    try:
        return files.read(snapshot_id)
    except DecodeError as error:
        raise FatalFault(f"{files.path(snapshot_id)} cannot be read: {error}") from error


def _read_batches(log: MetadataLog, offset: int) -> tuple[list[CommittedBatch], VoterSet | None]:
    """Those from `offset` on, and the last voters that they name."""
    batches: list[CommittedBatch] = []
    voters: VoterSet | None = None
    try:
        for header, view in log.batches(offset, _READ_BYTES):
            records: list[Message] = []
            for record in decode_batch(view):
                if header.is_control:
                    message = decode_control(record.key, record.value)
                    voters = voters_from_record(message) if isinstance(message, VotersRecord) else voters
                else:
                    records.append(_decode(record))
            batches.append(
                CommittedBatch(
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    header.max_timestamp,
                    header.size_bytes,
                    records,
                )
            )
    except (DecodeError, RecordsRejected) as error:
        raise FatalFault(f"the metadata log in {log.directory} cannot be read: {error}") from error
    return batches, voters


def _decode(record: Record) -> Message:
    """Also fails for what a newer release wrote: this one would lose it."""
    try:
        if record.value is None:
            raise DecodeError("a metadata record without a value")
        return decode_record(record.value)[0]
    except DecodeError as error:
        raise DecodeError(f"the record at offset {record.offset}: {error}") from error
