"""Opens the files that a node left on disk, compares the log with the node's own notes about it, and refuses startup if
anything is missing.

    checkpoint, quorum-state  what this node remembers outside its log      (`raft.log_checkpoint`, `raft.quorum_state`)
    no log                    startup is refused if there are topics, a checkpoint or a quorum-state
    newest valid snapshot     a damaged one is renamed if an older one and the log have the same content
    log, from end to end      a torn tail is cut off, other damage is refused                    (`raft.evidence`)
    end of the log            not before the offset that the checkpoint records as on disk

A voter whose log is intact, but ends before what it may have acknowledged according to the checkpoint, does not vote
before it has caught up; nor does a newly formatted one, if other voters have records already (`VotingRestriction`),
unless it was formatted for a new cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import DecodeError, FatalFault
from barnabas.common.host import Host
from barnabas.common.types import METADATA_TOPIC_ID
from barnabas.raft.evidence import Chain, CutCheck, advice, first_base, limit_of
from barnabas.raft.log_checkpoint import (
    CheckpointIdentity,
    LogCheckpoint,
    LogCheckpointFile,
    LogCheckpointWriter,
    VotingRestriction,
)
from barnabas.raft.log_loading import Loaded, load, read_snapshot
from barnabas.raft.metadata_log import MetadataLog, metadata_log_directory
from barnabas.raft.quorum_state import FILE_NAME, ElectionState, QuorumStateFile
from barnabas.raft.snapshots import Snapshot, SnapshotFiles, SnapshotId
from barnabas.storage.checkpoints import (
    LOG_SUFFIX,
    PARTITION_METADATA,
    CheckpointError,
    decode_partition_metadata,
    encode_partition_metadata,
    parse_dir_name,
    write_atomically,
)
from barnabas.storage.health import WriteHealth


class Opened(NamedTuple):
    """The state from which a node continues."""

    log: MetadataLog
    loaded: Loaded
    state: ElectionState | None
    state_file: QuorumStateFile
    restriction: VotingRestriction


class _Snapshots(NamedTuple):
    """The newest readable snapshot, and the newer ones that cannot be read."""

    newest: SnapshotId | None
    content: Snapshot | None
    damaged: tuple[SnapshotId, ...]
    #: The oldest readable snapshot; the log begins at its end.
    oldest: SnapshotId | None
    why: str


def open_metadata(
    host: Host,
    config: BrokerConfig,
    identity: CheckpointIdentity,
    high_watermark: Callable[[], int],
    health: WriteHealth | None = None,
) -> Opened:
    """Opens the metadata log. Each flush will record `high_watermark` in the checkpoint.

    Raises FatalFault, in one line with the file's path, if something is damaged or missing; OSError; StorageFault.
    """
    return _Opening(host, config, identity, high_watermark, health).run()


class _Opening:
    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        identity: CheckpointIdentity,
        high_watermark: Callable[[], int],
        health: WriteHealth | None,
    ) -> None:
        self._host = host
        self._config = config
        self._identity = identity
        self._high_watermark = high_watermark
        self._health = health
        self._disk = host.disk
        self._log_dir = config.metadata_log_dir
        self._directory = metadata_log_directory(self._log_dir)
        #: Whether other nodes can rely on this node's earlier acknowledgements.
        self._is_voter = config.is_controller
        self._disk.make_dirs(self._directory)
        self._files = SnapshotFiles(self._disk, self._directory)

    def run(self) -> Opened:
        self._check_identity()
        state_file = QuorumStateFile(self._disk, self._directory)
        state = self._read_state(state_file)
        checkpoint_file = LogCheckpointFile(self._disk, self._log_dir)
        if checkpoint_file.is_damaged:
            self._host.faults.warn(
                f"{checkpoint_file.path} is damaged: rewritten from its intact lines and from the log; without an "
                "intact line, a voter that is not the only one does not vote before it has caught up with a leader"
            )
        checkpoint = checkpoint_file.checkpoint
        if not self._is_voter and checkpoint is not None and checkpoint.restriction is VotingRestriction.BEHIND:
            # A repair wrote quorum-state with an epoch that possibly no leader has reached. This node does not vote, so
            # it needs no promise; it would wait for that leader.
            state = None
        self._files.remove_unfinished()
        snapshots = self._snapshots()
        has_records = self._has_records(snapshots)
        if not has_records and not snapshots.damaged:
            self._check_nothing_is_gone(checkpoint, state)
        if self._is_voter:
            self._check_state(checkpoint, state, has_records=has_records)
        limit = limit_of(checkpoint, is_state_own=state is not None and state.is_own)
        keeper = LogCheckpointWriter(self._host, checkpoint_file, self._high_watermark)
        log = self._open_log(keeper, state, limit)
        self._check_covered(log, snapshots)
        end = max(log.end_offset, 0 if snapshots.newest is None else snapshots.newest.end_offset)
        if self._is_voter and end < limit:
            raise FatalFault(
                f"{log.end_of_file}, offset {log.end_offset}: the log ends here, but everything before offset {limit} "
                f"was on this disk; {advice(self._log_dir)}"
            )
        if checkpoint is None and checkpoint_file.is_damaged and self._is_voter:
            # A write damages one of the two lines at most. The lost ones can have contained a restriction, or the end
            # of what this voter acknowledged.
            restriction = VotingRestriction.BEHIND
        else:
            restriction = self._find_restriction(checkpoint, state, log, snapshots)
        if restriction is VotingRestriction.NEW_CLUSTER and not self._is_unused(checkpoint_file, state):
            restriction = VotingRestriction.NEW
        # The log can be changed from here on, and the checkpoint must not be ahead of it.
        checkpoint = checkpoint or LogCheckpoint()
        end = log.end_offset
        checkpoint = checkpoint._replace(
            committed=min(checkpoint.committed, end), end=min(checkpoint.end, end), restriction=restriction
        )
        keeper.begin(self._identity, checkpoint)
        if snapshots.oldest is not None:
            log.start_at(snapshots.oldest.end_offset)
        loaded = load(log, snapshots.newest, snapshots.content, self._config)
        log.flush()
        keeper.note_epoch(0 if state is None else state.epoch)
        return Opened(log, loaded, state, state_file, restriction)

    def _check_identity(self) -> None:
        """Checks the `partition.metadata` of the metadata log, and rewrites it if damaged: its content is fixed."""
        path = f"{self._directory}/{PARTITION_METADATA}"
        content = encode_partition_metadata(METADATA_TOPIC_ID)
        if self._disk.exists(path):
            try:
                found = decode_partition_metadata(path, self._disk.read(path))
                if found == METADATA_TOPIC_ID:
                    return
                problem = f"{path}: another topic's id"
            except CheckpointError as error:
                problem = str(error)
            self._host.faults.warn(f"{problem}: rewritten, because the id of the metadata log is fixed")
        write_atomically(self._disk, path, content)

    # Snapshots and remembered state

    def _snapshots(self) -> _Snapshots:
        ids, damaged, why = self._files.list(), [], ""
        for snapshot_id in reversed(ids):
            try:
                content = read_snapshot(self._files, snapshot_id)
            except DecodeError as error:
                damaged.append(snapshot_id)
                why = why or str(error)
                continue
            return _Snapshots(snapshot_id, content, tuple(damaged), ids[0], why)
        return _Snapshots(None, None, tuple(damaged), None, why)

    def _read_state(self, state_file: QuorumStateFile) -> ElectionState | None:
        """Returns the content of `quorum-state`; raises FatalFault at a voter if it is damaged.

        An observer needs no promises: it learns epoch and leader from the controllers again.
        """
        try:
            return state_file.read()
        except FatalFault as fault:
            if self._is_voter:
                raise
            what = str(fault).partition(";")[0]
            self._host.faults.warn(
                f"{what}: removed; this node does not vote, and learns epoch and leader from the controllers"
            )
            self._disk.remove(f"{self._directory}/{FILE_NAME}")
            return None

    def _has_records(self, snapshots: _Snapshots) -> bool:
        if snapshots.newest is not None and snapshots.newest.end_offset > 0:
            return True
        names = self._disk.list_dir(self._directory)
        return any(self._disk.size(f"{self._directory}/{name}") > 0 for name in names if name.endswith(LOG_SUFFIX))

    def _check_nothing_is_gone(self, checkpoint: LogCheckpoint | None, state: ElectionState | None) -> None:
        if checkpoint is not None and checkpoint.end == 0:
            return
        proof = ""
        if checkpoint is not None:
            proof = f"{self._log_dir}/{LogCheckpointFile.NAME} has end offset {checkpoint.end}"
        elif state is not None and state.epoch > 0:
            proof = f"its {FILE_NAME} has epoch {state.epoch}"
        else:
            topics = self._topics()
            if topics:
                proof = f"there are {len(topics)} partition directories, such as {topics[0]}"
        if not proof:
            return
        if not self._is_voter:
            self._host.faults.warn(
                f"the metadata log in {self._directory} is missing or empty, although {proof}: this node does not "
                "vote, and fetches it from the controllers again"
            )
            return
        raise FatalFault(
            f"the metadata log in {self._directory} is missing or empty, but {proof}: restore the directory; or, if "
            f"there are other voters, run `barnabas log repair {self._log_dir} --yes`: this voter then starts with an "
            "empty log, fetches it from their leader, and votes again when it has caught up"
        )

    def _topics(self) -> list[str]:
        found = []
        for log_dir in self._config.log_dirs:
            for name in self._disk.list_dir(log_dir) if self._disk.is_dir(log_dir) else ():
                parsed = parse_dir_name(name)
                is_other = parsed is not None and not parsed.suffix and f"{log_dir}/{name}" != self._directory
                if is_other and self._disk.is_dir(f"{log_dir}/{name}"):
                    found.append(f"{log_dir}/{name}")
        return found

    def _check_state(self, checkpoint: LogCheckpoint | None, state: ElectionState | None, *, has_records: bool) -> None:
        path = f"{self._directory}/{FILE_NAME}"
        way_out = (
            "without it this node could vote twice: restore the file, or run "
            f"`barnabas log repair {self._log_dir} --yes`, which writes one that begins with a later epoch"
        )
        known_epoch = 0 if checkpoint is None else checkpoint.quorum_epoch
        if state is None:
            if has_records or known_epoch > 0:
                raise FatalFault(f"{path} is missing, but this node has taken part in the quorum before; {way_out}")
        elif state.epoch < known_epoch:
            raise FatalFault(
                f"{path} has epoch {state.epoch}, but this node has taken part in epoch {known_epoch}; {way_out}"
            )

    # The log

    def _open_log(self, keeper: LogCheckpointWriter, state: ElectionState | None, limit: int) -> MetadataLog:
        base = first_base(list(self._disk.list_dir(self._directory)))
        quorum_epoch = None if state is None else state.epoch
        chain = Chain(max(base, 0), quorum_epoch)
        check = CutCheck(self._disk, self._log_dir, chain, limit, self._host.faults.warn, is_voter=self._is_voter)
        try:
            return MetadataLog(self._host, self._config, keeper, chain.follows, check.on_cut, self._health)
        except CheckpointError as error:
            raise FatalFault(str(error)) from error

    def _check_covered(self, log: MetadataLog, snapshots: _Snapshots) -> None:
        """Checks that snapshot and log leave no gap without the damaged snapshots, and renames these."""
        covered = 0 if snapshots.newest is None else snapshots.newest.end_offset
        is_whole = log.first_base <= covered and (log.end_offset >= covered or not snapshots.damaged)
        if not snapshots.damaged:
            if not is_whole:
                raise FatalFault(
                    f"the metadata log in {self._directory} begins at offset {log.first_base}, but no "
                    f"snapshot covers the records before it; {self._copy_advice()}"
                )
            return
        path = self._files.path(snapshots.damaged[0])
        if not is_whole or (covered == log.end_offset == 0):
            raise FatalFault(
                f"{path} cannot be read: {snapshots.why}; no older snapshot with the log after it can replace it; "
                f"{self._copy_advice()}"
            )
        for snapshot_id in snapshots.damaged:
            aside = self._files.set_aside(snapshot_id)
            self._host.faults.warn(
                f"{self._files.path(snapshot_id)} is damaged ({snapshots.why}): renamed to {aside}; nothing is lost, "
                f"because the log has everything from offset {covered} on"
            )

    def _copy_advice(self) -> str:
        if not self._is_voter:
            return f"remove {self._directory}: this node does not vote, and fetches it from the controllers again"
        return (
            "restore the directory, or copy the segments and snapshots of a stopped voter into it and run "
            f"`barnabas log repair {self._log_dir} --yes`, so that this voter does not vote before it has caught up"
        )

    def _is_unused(self, checkpoint_file: LogCheckpointFile, state: ElectionState | None) -> bool:
        """Returns whether it is certain that a directory of a new cluster has acknowledged nothing: its checkpoint is
        intact, and no other program has run on it.
        """
        return not checkpoint_file.is_damaged and (state is None or state.is_own) and not self._topics()

    def _find_restriction(
        self, checkpoint: LogCheckpoint | None, state: ElectionState | None, log: MetadataLog, snapshots: _Snapshots
    ) -> VotingRestriction:
        if not self._is_voter:
            return VotingRestriction.NONE
        if checkpoint is None:
            is_new = state is None and log.end_offset == 0 and snapshots.newest is None
            return VotingRestriction.NEW if is_new else VotingRestriction.NONE
        if checkpoint.restriction is not VotingRestriction.NONE:
            return checkpoint.restriction
        newest = (0, 0) if snapshots.newest is None else (snapshots.newest.epoch, snapshots.newest.end_offset)
        if max((log.latest_epoch, log.end_offset), newest) >= (checkpoint.epoch, checkpoint.end):
            return VotingRestriction.NONE
        self._host.faults.warn(
            f"the metadata log in {self._directory} ends at offset {log.end_offset}, epoch {log.latest_epoch}, but "
            f"this voter may have acknowledged offset {checkpoint.end}, epoch {checkpoint.epoch}: it does not vote "
            "before it has caught up"
        )
        return VotingRestriction.BEHIND
