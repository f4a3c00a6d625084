"""The metadata quorum on this node: its log, its role, and the order in which things become durable and visible.

    propose -> append (page cache) -> flush (fsync) -> end offset of this voter -> high watermark -> listeners -> done

Invariants
- Nothing counts for this voter before it is flushed; nothing is delivered beyond the high watermark.
- Listeners get every committed batch once, in order, beginning with the latest snapshot; a proposal's `done` is called
  after the listeners have its records.
- Leadership is announced when everything before the leader's epoch has been delivered, so that a controller starts from
  all that was ever committed.

For a quorum of one `propose` commits before it returns, unless the caller holds the flush back to share one fsync among
several proposals (`held`). Proposals made from within a listener or a `done` are appended at once and committed next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import DecodeError, ErrorCode, FatalFault, RequestFailed, StorageFault
from barnabas.common.host import Host
from barnabas.metadata.frame import decode_record, encode_record
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import KRaftVersionRecord, VotersRecord
from barnabas.raft.control import decode_control
from barnabas.raft.log import MetadataLog
from barnabas.raft.quorum import Leader, QuorumState
from barnabas.raft.quorum_state import ElectionState, QuorumStateFile
from barnabas.raft.snapshots import (
    BOOTSTRAP_NAME,
    Snapshot,
    SnapshotFiles,
    SnapshotId,
    decode_snapshot,
    encode_control_batch,
    encode_snapshot,
)
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet, voters_from_record
from barnabas.records.batch import BatchHeader, Record, decode_batch, encode_batch

#: No batch gets longer than this (Kafka's KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024


class CommittedBatch(NamedTuple):
    """A committed batch of the metadata log. `records` is empty for the quorum's own control batches."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    size_bytes: int
    records: Sequence[Message]


class Listener(Protocol):
    """Who follows the committed metadata log."""

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """The content up to `snapshot_id.end_offset`, in place of everything before."""

    def on_commit(self, batch: CommittedBatch) -> None: ...


class _Waiting(NamedTuple):
    """Called when everything before `end_offset` is committed, or with None when it will not be by this leader."""

    end_offset: int
    base_offset: int
    done: Callable[[int], None]
    failed: Callable[[], None] | None


class RaftNode:
    """Make it, add listeners, `start` it. `directory_id` is that of the metadata log's directory."""

    def __init__(self, host: Host, config: BrokerConfig, directory_id: bytes) -> None:
        self._host = host
        self._config = config
        self._root = config.metadata_log_dir
        self.own = VoterKey(config.node_id, directory_id)
        self.kraft_version = 0
        self._listeners: list[Listener] = []
        self._on_leadership: list[Callable[[bool], None]] = []
        self._log: MetadataLog | None = None
        self._quorum: QuorumState | None = None
        #: Appended and not yet delivered.
        self._appended: deque[CommittedBatch] = deque()
        self._waiting: deque[_Waiting] = deque()
        self._delivered_offset = 0
        self._announced = False
        self._held = 0
        self._polling = False

    # Who listens.

    def add_listener(self, listener: Listener) -> None:
        """Before `start`."""
        assert self._log is None, "listeners come before the start"
        self._listeners.append(listener)

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        """`callback(True)` when this node leads and has delivered all that came before; `callback(False)` when it
        leads no more."""
        self._on_leadership.append(callback)

    # What it is.

    @property
    def log(self) -> MetadataLog:
        assert self._log is not None, "the raft node is not started"
        return self._log

    @property
    def quorum(self) -> QuorumState:
        assert self._quorum is not None, "the raft node is not started"
        return self._quorum

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """-1 where none is known."""
        return self._quorum.leader_id if self._quorum is not None else -1

    @property
    def is_leader(self) -> bool:
        return self._quorum is not None and isinstance(self._quorum.role, Leader)

    @property
    def voters(self) -> VoterSet:
        return self.quorum.voters

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed, and delivered unless a delivery is just going on."""
        role = self.quorum.role
        return role.high_watermark if isinstance(role, Leader) else self._delivered_offset

    # Start and stop.

    def start(self) -> None:
        """Open the log, go back to where this node was, and lead if it is the only voter."""
        log = self._log = MetadataLog(self._host, self._config)
        files = SnapshotFiles(self._host.disk, log.directory)
        latest = files.latest()
        voters = _static_voters(self._config)
        self.kraft_version = 0 if voters is not None else 1
        bootstrapped = False
        if latest is not None:
            snapshot = self._read_snapshot(files, latest)
            log.start_after_snapshot(latest)
            if voters is None and snapshot.voters is not None:
                voters = snapshot.voters
                bootstrapped = latest.end_offset == 0
            self._deliver_snapshot(latest, snapshot)
        batches, logged_voters = self._read_log(log)
        if self.kraft_version and logged_voters is not None:
            voters, bootstrapped = logged_voters, False
        if voters is None:
            raise FatalFault(
                f"{log.directory} names no voters and controller.quorum.voters is not set: format the directory with "
                "its first voters, or set controller.quorum.voters"
            )
        self._take_up_role(log, voters)
        self._appended.extend(batches)
        if self.quorum.voters.is_only(self.own):
            self._lead(bootstrap_voters=bootstrapped)
            return
        raise FatalFault(
            f"node {self.own.node_id} is one of {len(voters)} voters {[v.key.node_id for v in voters]}: a quorum of "
            "more than one is not supported yet"
        )

    def _take_up_role(self, log: MetadataLog, voters: VoterSet) -> None:
        state_file = QuorumStateFile(self._host.disk, log.directory)
        stored = state_file.read()
        if stored is None or stored.epoch < log.latest_epoch:
            stored = ElectionState(log.latest_epoch)

        def persist(state: ElectionState) -> None:
            voter_ids = [voter.key.node_id for voter in voters]
            state_file.write(state, kraft_version=self.kraft_version, voter_ids=voter_ids)

        self._quorum = QuorumState(self.own, voters, stored, persist)

    def _lead(self, *, bootstrap_voters: bool) -> None:
        """Win the election of one. The epoch begins with a LeaderChange; a new cluster's also says who votes."""
        candidate = self.quorum.become_candidate()
        leader = self.quorum.become_leader(self.log.end_offset)
        messages: list[Message] = [self.quorum.voters.leader_change(self.own.node_id, candidate.granting)]
        if bootstrap_voters:
            messages.append(KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
            messages.append(self.quorum.voters.to_record())
        wall_ms = self._host.clock.wall_ms()
        base_offset = leader.epoch_start_offset
        batch = encode_control_batch(messages, base_offset=base_offset, epoch=leader.epoch, wall_ms=wall_ms)
        self._append(batch, CommittedBatch(base_offset, base_offset + len(messages) - 1, leader.epoch, wall_ms, 0, ()))
        self._poll()

    def close(self) -> None:
        """Clean: the log's indexes are cut to size; the next start need not look for a torn tail."""
        if self._log is not None:
            self._log.close()

    # Proposals.

    def propose(
        self,
        records: Sequence[tuple[Message, int]],
        *,
        wall_ms: int,
        done: Callable[[int], None] | None = None,
        failed: Callable[[], None] | None = None,
    ) -> int:
        """Append (record, version) pairs; returns the first one's offset, which `done` gets too, when all of them are
        committed. RequestFailed(NOT_CONTROLLER) if this node does not lead."""
        role = self.quorum.role
        if not isinstance(role, Leader):
            raise RequestFailed(ErrorCode.NOT_CONTROLLER)
        assert records, "a proposal has records"
        first_offset = self.log_end_offset
        for chunk, messages in _chunks(records):
            base_offset = self.log_end_offset
            batch = encode_batch(
                [Record(base_offset + i, wall_ms, None, value) for i, value in enumerate(chunk)],
                base_offset=base_offset,
                leader_epoch=role.epoch,
            )
            last_offset = base_offset + len(chunk) - 1
            self._append(batch, CommittedBatch(base_offset, last_offset, role.epoch, wall_ms, len(batch), messages))
        if done is not None:
            self._waiting.append(_Waiting(self.log_end_offset, first_offset, done, failed))
        self._poll()
        return first_offset

    def when_committed(self, end_offset: int, done: Callable[[int], None]) -> None:
        """Call `done(end_offset)` when everything before it is committed, maybe at once. In the order of proposals."""
        if end_offset <= self._delivered_offset and not self._waiting:
            done(end_offset)
            return
        self._waiting.append(_Waiting(end_offset, end_offset, done, None))
        self._poll()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Proposals made inside share one flush, at the end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        self._poll()

    def _append(self, batch: bytearray, committed: CommittedBatch) -> None:
        try:
            self.log.append(batch, committed.epoch)
        except (StorageFault, OSError) as error:
            self._fail(error)
        self._appended.append(committed)

    def _poll(self) -> None:
        """Flush what was appended, move the high watermark, deliver, complete; until nothing is left to do."""
        if self._held or self._polling or not self.is_leader:
            return
        self._polling = True
        try:
            while self._flush() or self._complete():
                pass
        finally:
            self._polling = False

    def _flush(self) -> bool:
        role = self.quorum.role
        end_offset = self.log_end_offset
        if not isinstance(role, Leader) or role.high_watermark >= end_offset:
            return False
        try:
            self.log.flush()
        except (StorageFault, OSError) as error:
            self._fail(error)
        role.update(self.own, end_offset, self.quorum.voters)
        self._deliver(role.high_watermark)
        return True

    def _deliver(self, high_watermark: int) -> None:
        while self._appended and self._appended[0].last_offset < high_watermark:
            batch = self._appended.popleft()
            for listener in self._listeners:
                listener.on_commit(batch)
            self._delivered_offset = batch.last_offset + 1
        role = self.quorum.role
        if not self._announced and isinstance(role, Leader) and self._delivered_offset > role.epoch_start_offset:
            self._announced = True
            for callback in self._on_leadership:
                callback(True)

    def _complete(self) -> bool:
        completed = False
        while self._waiting and self._waiting[0].end_offset <= self._delivered_offset:
            waiting = self._waiting.popleft()
            waiting.done(waiting.base_offset)
            completed = True
        return completed

    def _fail(self, error: Exception) -> None:
        """Without its metadata log a voter's word is worth nothing."""
        self._host.faults.fatal(f"the metadata log in {self.log.directory} failed", error)
        raise FatalFault(f"the metadata log in {self.log.directory} failed: {error}") from error

    # Snapshots.

    def bootstrap_records(self) -> list[tuple[Message, int]]:
        """What the directory was formatted with; empty if there is no such file."""
        path = f"{self._root}/{BOOTSTRAP_NAME}"
        if not self._host.disk.exists(path):
            return []
        try:
            return decode_snapshot(self._host.disk.read(path)).records
        except DecodeError as error:
            raise FatalFault(f"{path} cannot be read: {error}") from error

    def write_snapshot(self, image: MetadataImage, done: Callable[[SnapshotId], None]) -> None:
        """Of a committed image. Encoded and written off the loop, as it may be large; then old ones are removed."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        log = self.log
        files = SnapshotFiles(self._host.disk, log.directory)
        wall_ms = self._host.clock.wall_ms()
        voters = self.quorum.voters if self.kraft_version else None

        def work() -> None:
            data = encode_snapshot(
                image_records(image),
                epoch=image.epoch,
                wall_ms=wall_ms,
                last_contained_log_timestamp_ms=image.timestamp_ms,
                kraft_version=self.kraft_version,
                voters=voters,
            )
            files.write(snapshot_id, data)

        def written(_: object, error: BaseException | None) -> None:
            if error is not None:
                self._host.faults.report(f"snapshot {snapshot_id.file_name} was not written", error)
                return
            log.clean(files, wall_ms)
            done(snapshot_id)

        self._host.blocking.run(work, written)

    def _read_snapshot(self, files: SnapshotFiles, snapshot_id: SnapshotId) -> Snapshot:
        try:
            return files.read(snapshot_id)
        except DecodeError as error:
            raise FatalFault(f"{files.path(snapshot_id)} cannot be read: {error}") from error

    def _deliver_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        if snapshot_id.end_offset == 0:
            # The first snapshot of a dynamic quorum holds its voters only.
            return
        for listener in self._listeners:
            listener.on_snapshot(snapshot_id, snapshot)
        self._delivered_offset = snapshot_id.end_offset

    def _read_log(self, log: MetadataLog) -> tuple[list[CommittedBatch], VoterSet | None]:
        """The batches after the latest snapshot, and the last voters that the log names."""
        batches: list[CommittedBatch] = []
        voters: VoterSet | None = None
        for header, view in log.batches(self._delivered_offset, _READ_BYTES):
            records: list[Message] = []
            for record in decode_batch(view):
                if header.is_control:
                    message = decode_control(record.key, record.value)
                    if isinstance(message, VotersRecord):
                        voters = voters_from_record(message)
                else:
                    records.append(self._decode(record, log))
            batches.append(_committed(header, records))
        return batches, voters

    def _decode(self, record: Record, log: MetadataLog) -> Message:
        try:
            if record.value is None:
                raise DecodeError("a metadata record has a value")
            return decode_record(record.value)[0]
        except DecodeError as error:
            raise FatalFault(
                f"{log.directory}: the metadata record at offset {record.offset} cannot be read ({error}); the log may "
                "be of a newer release"
            ) from error


def _committed(header: BatchHeader, records: Sequence[Message]) -> CommittedBatch:
    return CommittedBatch(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.max_timestamp,
        header.size_bytes,
        records,
    )


def _chunks(records: Sequence[tuple[Message, int]]) -> Iterator[tuple[list[bytes], list[Message]]]:
    values: list[bytes] = []
    messages: list[Message] = []
    size = 0
    for record, version in records:
        value = encode_record(record, version)
        if values and size + len(value) > _MAX_BATCH_BYTES:
            yield values, messages
            values, messages, size = [], [], 0
        values.append(value)
        messages.append(record)
        size += len(value) + 16
    yield values, messages


def _static_voters(config: BrokerConfig) -> VoterSet | None:
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
