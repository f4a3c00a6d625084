"""The metadata log as a node finds it at startup: latest snapshot, the batches after it, and the voters."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import DecodeError, FatalFault, RecordsRejected
from barnabas.common.host import Disk
from barnabas.protocol.message import Message
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.metadata_batches import check_metadata_version, read_batch
from barnabas.raft.metadata_log import MetadataLog
from barnabas.raft.snapshots import Snapshot, SnapshotFiles, SnapshotId, decode_snapshot
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.storage.checkpoints import BOOTSTRAP_CHECKPOINT

_READ_BYTES: Final = 1024 * 1024


class Loaded(NamedTuple):
    """The loaded log; `snapshot` is None if the log goes back to offset 0."""

    snapshot_id: SnapshotId
    snapshot: Snapshot | None
    batches: list[CommittedBatch]
    history: VoterHistory


def load(log: MetadataLog, snapshot_id: SnapshotId | None, snapshot: Snapshot | None, config: BrokerConfig) -> Loaded:
    """Loads the newest snapshot and the log after it. Raises FatalFault, with the log's path, if it cannot be read."""
    if snapshot_id is None or snapshot is None:
        return Loaded(SnapshotId(0, 0), None, *_read_batches(log, 0, _first_history(config, None)))
    if snapshot_id.end_offset == 0:
        # The first snapshot of a dynamic quorum contains only its voters.
        return Loaded(SnapshotId(0, 0), None, *_read_batches(log, 0, _first_history(config, snapshot)))
    log.start_after_snapshot(snapshot_id)
    history = _first_history(config, None)
    history.start_at_snapshot(snapshot_id.end_offset, snapshot.voters, snapshot.kraft_version)
    return Loaded(snapshot_id, snapshot, *_read_batches(log, snapshot_id.end_offset, history))


def _first_history(config: BrokerConfig, snapshot: Snapshot | None) -> VoterHistory:
    """Returns the voters that count before the first record: those of the configuration, those of the formatted
    directory, or none.
    """
    voters = static_voters(config)
    if snapshot is not None and snapshot.voters is not None:
        return VoterHistory(snapshot.voters, snapshot.kraft_version)
    return VoterHistory(VoterSet(), 1) if voters is None else VoterHistory(voters, 0)


def static_voters(config: BrokerConfig) -> VoterSet | None:
    """Returns the voters of `controller.quorum.voters`; None for a dynamic quorum."""
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
    """Returns the records that the directory was formatted with; none if the file is missing."""
    path = f"{log_dir}/{BOOTSTRAP_CHECKPOINT}"
    if not disk.exists(path):
        return []
    try:
        return decode_snapshot(disk.read(path)).records
    except DecodeError as error:
        raise FatalFault(
            f"{path} cannot be read: {error}; a new cluster starts from it: restore the file, or empty the directory "
            "and format it again"
        ) from error


def read_snapshot(files: SnapshotFiles, snapshot_id: SnapshotId) -> Snapshot:
    """Reads a snapshot. Raises DecodeError if it is incomplete, and FatalFault if it is of a newer release."""
    snapshot = files.read(snapshot_id)
    for record, _ in snapshot.records:
        check_metadata_version(record)
    return snapshot


def _read_batches(log: MetadataLog, offset: int, history: VoterHistory) -> tuple[list[CommittedBatch], VoterHistory]:
    """Returns the batches from `offset` on, and adds their voters to `history`."""
    try:
        batches = [read_batch(header, view, history) for header, view in log.batches(offset, _READ_BYTES)]
    except (DecodeError, RecordsRejected) as error:
        raise FatalFault(f"the metadata log in {log.directory} cannot be read: {error}") from error
    return batches, history
