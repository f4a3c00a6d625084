"""The repair and verification of a metadata log, in addition to what `barnabas log` does for any log.

A repair cuts the log at the damage as it does any other, and keeps a copy of what it cuts. In addition it records that
this voter may have lost records that it acknowledged (`VotingRestriction.BEHIND`), so that the voter does not vote
before it has caught up with a leader; it replaces a lost or unreadable `quorum-state` by one that begins with the epoch
after the last known one, in which this node has given no vote; and it moves damaged snapshots aside if an older one and
the log have the same content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.common.errors import DecodeError, FatalFault, RecordsRejected
from barnabas.common.host import Disk
from barnabas.common.types import ZERO_UUID
from barnabas.protocol.messages.records_raft import KRaftVersionRecord
from barnabas.raft.control import decode_control
from barnabas.raft.evidence import Chain, first_base
from barnabas.raft.log_checkpoint import CheckpointIdentity, LogCheckpoint, LogCheckpointFile, VotingRestriction
from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.quorum_state import FILE_NAME, ElectionState, QuorumStateFile
from barnabas.raft.snapshots import SnapshotFiles, SnapshotId
from barnabas.records.batch import BatchHeader, decode_batch, read_header
from barnabas.storage.checkpoints import META_PROPERTIES, CheckpointError, decode_meta_properties
from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.offline.verify import PartitionVerification
from barnabas.storage.repair_folder import RepairFolder


def is_metadata_log(directory: str) -> bool:
    return directory == metadata_log_directory(directory.rpartition("/")[0])


def chain_of(disk: Disk, directory: str) -> Callable[[BatchHeader, memoryview], str]:
    """Returns a check for `PartitionVerification`: a function that returns the reason why a batch cannot follow those
    before it, or "" if it can.
    """
    chain = Chain(max(first_base(list(disk.list_dir(directory))), 0), None)
    return lambda header, batch: "" if chain.follows(header, batch) else chain.reason


@dataclass(slots=True)
class _Found:
    """The state of the metadata log on disk, as it will be after the log is cut at its damage."""

    end: int = 0
    epoch: int = 0
    first_base: int = 0
    is_cut: bool = False
    is_dynamic: bool = False
    sound: list[SnapshotId] = field(default_factory=list)
    damaged: list[SnapshotId] = field(default_factory=list)
    state: ElectionState | None = None
    state_fault: str = ""


class MetadataRepair:
    """The repair of the metadata log in one log directory. `steps` describes the changes that `apply` makes."""

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._directory = metadata_log_directory(log_dir)
        self._checkpoint_file = LogCheckpointFile(disk, log_dir)
        self.steps: list[str] = []
        self.faults: list[FileFault] = []
        #: The files whose faults are removed by the steps.
        self.repaired: set[str] = set()
        self._found = _Found()
        self._state: ElectionState | None = None
        self._checkpoint: LogCheckpoint | None = None
        if disk.is_dir(self._directory) or self._checkpoint_file.checkpoint is not None:
            self._examine()
            self._plan()

    # Examination

    def _examine(self) -> None:
        disk, found = self._disk, self._found
        if not disk.is_dir(self._directory):
            return
        self._examine_log()
        files = SnapshotFiles(disk, self._directory)
        for snapshot_id in files.list():
            try:
                found.is_dynamic |= files.read(snapshot_id).voters is not None
                found.sound.append(snapshot_id)
            except DecodeError:
                found.damaged.append(snapshot_id)
        try:
            found.state = QuorumStateFile(disk, self._directory).read()
        except FatalFault:
            found.state_fault = "cannot be read"

    def _examine_log(self) -> None:
        disk, found = self._disk, self._found
        follows = chain_of(disk, self._directory)
        verification = PartitionVerification(disk, self._directory, follows=follows)
        found.end = verification.run().log_end_offset
        found.first_base = verification.scans[0].base_offset if verification.scans else 0
        found.is_cut = verification.damaged is not None
        for scan in verification.scans:
            if scan.first_offsets and scan.first_offsets[0] < found.end:
                found.epoch = scan.epochs[-1]
                found.is_dynamic = found.is_dynamic or self._names_voters(scan.path, scan.positions, scan.sizes)
            if scan.damage is not None:
                break

    def _names_voters(self, path: str, positions: list[int], sizes: list[int]) -> bool:
        file = self._disk.open(path, read_only=True)
        try:
            for position, size in zip(positions, sizes, strict=True):
                data = memoryview(file.read_at(position, size))
                if read_header(data).is_control and _is_of_kraft_version(data):
                    return True
        finally:
            file.close()
        return False

    # Plan

    def _plan(self) -> None:
        self._plan_snapshots()
        self._plan_state()
        self._plan_checkpoint()

    def _plan_snapshots(self) -> None:
        """Plans to move damaged snapshots aside, if the log and an older snapshot replace them."""
        found = self._found
        covered = max((known.end_offset for known in found.sound), default=0)
        newest_lost = max((known.end_offset for known in found.damaged), default=0)
        if not found.damaged or found.first_base > covered or found.end < max(covered, newest_lost):
            found.damaged = []
            return
        for snapshot_id in found.damaged:
            path = f"{self._directory}/{snapshot_id.file_name}"
            self.steps.append(f"{path}: moved aside; the log has everything from offset {covered} on")
            self.repaired.add(path)

    def _plan_state(self) -> None:
        found, checkpoint = self._found, self._checkpoint_file.checkpoint
        path = f"{self._directory}/{FILE_NAME}"
        known = max(
            0 if checkpoint is None else checkpoint.quorum_epoch,
            found.epoch,
            max((snapshot_id.epoch for snapshot_id in found.sound), default=0),
        )
        text = found.state_fault
        if not text and found.state is None and known > 0:
            text = f"is missing, although this node took part in epoch {known}"
        elif not text and found.state is not None and found.state.epoch < known:
            text = f"has epoch {found.state.epoch}, although this node took part in epoch {known}"
        if not text:
            return
        self.faults.append(FileFault(path, FileFaultKind.CHECKPOINT, text))
        self.repaired.add(path)
        self._state = ElectionState(known + 1)
        self.steps.append(f"{path}: rewritten, to begin with epoch {known + 1}")

    def _plan_checkpoint(self) -> None:
        found, checkpoint = self._found, self._checkpoint_file.checkpoint
        end, epoch = max(
            [(found.end, found.epoch), *((known.end_offset, known.epoch) for known in found.sound if known.end_offset)]
        )
        is_behind = checkpoint is not None and (epoch, end) < (checkpoint.epoch, checkpoint.end)
        is_short = checkpoint is not None and end < checkpoint.end
        if is_short and checkpoint is not None:
            text = f"everything before offset {checkpoint.end} was on this disk, but the metadata log ends at {end}"
            self.faults.append(FileFault(self._checkpoint_file.path, FileFaultKind.CHECKPOINT, text, None, end))
            self.repaired.add(self._checkpoint_file.path)
        # A node that has written `quorum-state` also has a checkpoint: if it is gone, its content is unknown.
        is_lost = checkpoint is None and found.state is not None and (found.state.is_own or not found.end)
        if not (is_behind or is_short or found.is_cut or is_lost or self._state is not None):
            return
        before = checkpoint or LogCheckpoint()
        state = self._state or found.state
        quorum_epoch = max(before.quorum_epoch, epoch if state is None else state.epoch)
        self._checkpoint = LogCheckpoint(
            min(before.committed, end), min(found.end, end), found.epoch, quorum_epoch, VotingRestriction.BEHIND
        )
        self.steps.append(
            f"{self._checkpoint_file.path}: records that this voter, if it is not the only one, does not vote before "
            "it has caught up with a leader"
        )

    # Execution

    def apply(self, kept_name: str) -> None:
        """Carries out the steps of the repair, after the log was cut."""
        disk, files = self._disk, SnapshotFiles(self._disk, self._directory)
        disk.make_dirs(self._directory)
        kept = RepairFolder(disk, self._directory, kept_name)
        kept.move(*(files.path(snapshot_id) for snapshot_id in self._found.damaged))
        if self._state is not None:
            state_file = QuorumStateFile(disk, self._directory)
            kept.copy(f"{self._directory}/{FILE_NAME}")
            # Voter ids are in the file for people; a static quorum takes its voters from the configuration.
            state_file.write(self._state, kraft_version=int(self._found.is_dynamic), voter_ids=[])
        if self._checkpoint is not None:
            kept.copy(self._checkpoint_file.path)
            self._checkpoint_file.create(self._checkpoint_file.identity or self._identity(), self._checkpoint)

    def _identity(self) -> CheckpointIdentity:
        path = f"{self._log_dir}/{META_PROPERTIES}"
        try:
            meta = decode_meta_properties(path, self._disk.read(path))
        except (CheckpointError, OSError):
            return CheckpointIdentity.of(0, "-", ZERO_UUID)
        return CheckpointIdentity.of(meta.node_id or 0, meta.cluster_id or "-", meta.directory_id or ZERO_UUID)


def _is_of_kraft_version(batch: memoryview) -> bool:
    try:
        return any(isinstance(decode_control(r.key, r.value), KRaftVersionRecord) for r in decode_batch(batch))
    except (DecodeError, RecordsRejected):
        return False
