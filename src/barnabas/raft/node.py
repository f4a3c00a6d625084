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
from typing import Final, NamedTuple, NoReturn

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, FatalFault, RequestFailed, StorageExhausted, StorageFault, is_exhausted
from barnabas.common.host import Host
from barnabas.metadata.frame import encode_record
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_raft import KRaftVersionRecord
from barnabas.raft.commits import CommittedBatch, Listener
from barnabas.raft.formatting import Formatted
from barnabas.raft.loading import Loaded, load, read_bootstrap
from barnabas.raft.log import MetadataLog
from barnabas.raft.publisher import MetadataPublisher
from barnabas.raft.quorum import Leader, QuorumState
from barnabas.raft.quorum_state import ElectionState, QuorumStateFile
from barnabas.raft.snapshots import SnapshotFiles, SnapshotId, encode_control_batch, encode_snapshot
from barnabas.raft.voters import VoterKey
from barnabas.records.batch import Record, encode_batch

#: No batch gets longer than this (Kafka's default of internal.metadata.max.batch.size.in.bytes).
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
_FLUSH_AGAIN_MS: Final = 1000
#: What a record's frame in its batch takes at most.
_RECORD_OVERHEAD_BYTES: Final = 24


class _Waiting(NamedTuple):
    """`done(base_offset)` is called when everything before `end_offset` is committed and delivered."""

    end_offset: int
    base_offset: int
    done: Callable[[int], None]


class RaftNode:
    """Make it, add listeners, `start` it. The images go to `store`, before any other listener hears of them."""

    def __init__(self, host: Host, config: BrokerConfig, store: MetadataStore, formatted: Formatted) -> None:
        self._host = host
        self._config = config
        self.own = VoterKey(config.node_id, formatted.metadata_directory_id)
        self.kraft_version = 0 if config.voters else 1
        self._listeners: list[Listener] = [MetadataPublisher(host.clock, config, store, self.write_snapshot)]
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
        return -1 if self._quorum is None else self._quorum.leader_id

    @property
    def is_leader(self) -> bool:
        return self._quorum is not None and isinstance(self._quorum.role, Leader)

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
        """Open the log, go back to where this node was, and lead: it is the only voter."""
        try:
            log = self._log = MetadataLog(self._host, self._config)
            loaded = load(log, self._host.disk, self._config)
            self._take_up_role(log, loaded)
        except (StorageFault, OSError) as error:
            self._fail(error)
        if not loaded.voters.is_only(self.own):
            ids = ", ".join(str(voter.key.node_id) for voter in loaded.voters)
            raise FatalFault(
                f"node {self.own.node_id} in a quorum of the voters {ids}: only a quorum of one is supported"
            )
        if loaded.snapshot is not None:
            for listener in self._listeners:
                listener.on_snapshot(loaded.snapshot_id, loaded.snapshot)
            self._delivered_offset = loaded.snapshot_id.end_offset
        self._appended.extend(loaded.batches)
        self._lead(voters_are_new=loaded.voters_are_new)

    def _take_up_role(self, log: MetadataLog, loaded: Loaded) -> None:
        state_file = QuorumStateFile(self._host.disk, log.directory)
        stored = state_file.read()
        latest_epoch = max(log.latest_epoch, loaded.snapshot_id.epoch)
        if stored is None or stored.epoch < latest_epoch:
            stored = ElectionState(latest_epoch)
        voter_ids = [voter.key.node_id for voter in loaded.voters]

        def persist(state: ElectionState) -> None:
            state_file.write(state, kraft_version=self.kraft_version, voter_ids=voter_ids)

        self._quorum = QuorumState(self.own, loaded.voters, stored, persist)

    def _lead(self, *, voters_are_new: bool) -> None:
        """Win the election of one. The epoch begins with a LeaderChange; a new cluster's also says who votes."""
        quorum = self.quorum
        candidate = quorum.become_candidate()
        leader = quorum.become_leader(self.log.end_offset)
        messages: list[Message] = [quorum.voters.leader_change(self.own.node_id, candidate.granting)]
        if voters_are_new:
            messages.append(KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
            messages.append(quorum.voters.to_record())
        wall_ms = self._host.clock.wall_ms()
        start = leader.epoch_start_offset
        batch = encode_control_batch(messages, base_offset=start, epoch=leader.epoch, wall_ms=wall_ms)
        try:
            self._append(batch, CommittedBatch(start, start + len(messages) - 1, leader.epoch, wall_ms, len(batch), ()))
        except StorageExhausted as fault:
            self._fail(fault)
        self._poll()

    def stop(self) -> None:
        """In order: no longer leader, and the log closed so that the next start finds it as it should be."""
        if self._log is None:
            return
        if self.is_leader:
            self.quorum.become_resigned()
            for callback in self._on_leadership:
                callback(False)
        self._waiting.clear()
        try:
            self._log.close()
        except StorageFault as fault:
            # The next start reads it again from end to end anyway.
            self._host.faults.report(f"the metadata log was not closed in order: {fault}", fault)

    # Proposals.

    def propose(
        self, records: Sequence[tuple[Message, int]], *, wall_ms: int, done: Callable[[int], None] | None = None
    ) -> int:
        """Append (record, version) pairs; returns the first one's offset, which `done` gets too, when all of them are
        committed. RequestFailed if this node does not lead (NOT_CONTROLLER), or if there is no room for them
        (KAFKA_STORAGE_ERROR): then nothing of them is kept."""
        role = self.quorum.role
        if not isinstance(role, Leader):
            raise RequestFailed(ErrorCode.NOT_CONTROLLER)
        assert records, "a proposal has records"
        first_offset = self.log_end_offset
        try:
            self._append_records(records, role.epoch, wall_ms)
        except StorageExhausted as fault:
            self._take_back(first_offset)
            self._host.faults.report(f"the metadata log takes no records: {fault}", fault)
            raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, "There is no room for the metadata log.") from fault
        if done is not None:
            self._waiting.append(_Waiting(self.log_end_offset, first_offset, done))
        self._poll()
        return first_offset

    def _append_records(self, records: Sequence[tuple[Message, int]], epoch: int, wall_ms: int) -> None:
        for values, messages in _chunks(records):
            base_offset = self.log_end_offset
            batch = encode_batch(
                [Record(base_offset + index, wall_ms, None, value) for index, value in enumerate(values)],
                base_offset=base_offset,
                leader_epoch=epoch,
            )
            last_offset = base_offset + len(values) - 1
            self._append(batch, CommittedBatch(base_offset, last_offset, epoch, wall_ms, len(batch), messages))

    def _take_back(self, end_offset: int) -> None:
        """A proposal of several batches of which one found no room: nobody has heard of those before it."""
        while self._appended and self._appended[-1].base_offset >= end_offset:
            self._appended.pop()
        try:
            self.log.truncate_to(end_offset)
        except (StorageFault, OSError) as error:
            self._fail(error)

    def when_committed(self, end_offset: int, done: Callable[[int], None]) -> None:
        """Call `done(end_offset)` when everything before it is committed, maybe at once. In the order of proposals."""
        if end_offset <= self._delivered_offset and not self._waiting:
            done(end_offset)
            return
        self._waiting.append(_Waiting(end_offset, end_offset, done))
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
        except StorageExhausted:
            raise
        except (StorageFault, OSError) as error:
            self._fail(error)
        self._appended.append(committed)

    def _poll(self) -> None:
        """Flush what was appended, move the high watermark, deliver, complete; until nothing is left to do."""
        if self._held or self._polling:
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
        except StorageExhausted as fault:
            # Not durable, not committed, nothing lost: whoever waits goes on waiting.
            self._host.faults.report(f"the metadata log cannot be flushed yet: {fault}", fault)
            self._host.timers.call_later(_FLUSH_AGAIN_MS, self._poll)
            return False
        except (StorageFault, OSError) as error:
            self._fail(error)
        role.update(self.own.node_id, end_offset, self.quorum.voters)
        self._deliver(role)
        return True

    def _deliver(self, role: Leader) -> None:
        while self._appended and self._appended[0].last_offset < role.high_watermark:
            batch = self._appended.popleft()
            for listener in self._listeners:
                listener.on_commit(batch)
            self._delivered_offset = batch.last_offset + 1
        for listener in self._listeners:
            listener.on_caught_up()
        if not self._announced:
            assert self._delivered_offset > role.epoch_start_offset, "the high watermark counts in the leader's epoch"
            self._announced = True
            for callback in self._on_leadership:
                callback(True)

    def _complete(self) -> bool:
        """One by one: what a `done` proposes may have been delivered meanwhile."""
        if not self._waiting or self._waiting[0].end_offset > self._delivered_offset:
            return False
        waiting = self._waiting.popleft()
        waiting.done(waiting.base_offset)
        return True

    def _fail(self, error: Exception) -> NoReturn:
        """Without its metadata log a voter's word is worth nothing."""
        message = f"the metadata log in {self._config.metadata_log_dir} failed: {error}"
        self._host.faults.fatal(message, error)
        raise FatalFault(message) from error

    # Snapshots.

    def bootstrap_records(self) -> list[tuple[Message, int]]:
        """What the directory was formatted with."""
        return read_bootstrap(self._host.disk, self._config.metadata_log_dir)

    def write_snapshot(self, image: MetadataImage, done: Callable[[], None]) -> None:
        """Of a committed image. Encoded and written off the loop, as it may be large; then old ones are removed."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        log, wall_ms, kraft_version = self.log, self._host.clock.wall_ms(), self.kraft_version
        files = SnapshotFiles(self._host.disk, log.directory)
        voters = self.quorum.voters if kraft_version else None

        def work() -> None:
            data = encode_snapshot(
                image_records(image),
                epoch=image.epoch,
                wall_ms=wall_ms,
                last_contained_log_timestamp_ms=image.timestamp_ms,
                kraft_version=kraft_version,
                voters=voters,
            )
            files.write(snapshot_id, data)

        def written(_: object, error: BaseException | None) -> None:
            try:
                if error is None:
                    log.clean(files, wall_ms)
            except (StorageFault, OSError) as fault:
                error = fault
            if isinstance(error, StorageFault | OSError) and not is_exhausted(error):
                self._fail(error)
            if error is not None:
                self._host.faults.report(f"snapshot {snapshot_id.file_name} was not written: {error}", error)
            done()

        self._host.blocking.run(work, written)


def _chunks(records: Sequence[tuple[Message, int]]) -> Iterator[tuple[list[bytes], list[Message]]]:
    """Framed records, and the records themselves, in batches that are not too long."""
    values: list[bytes] = []
    messages: list[Message] = []
    size = 0
    for record, version in records:
        value = encode_record(record, version)
        if values and size + len(value) + _RECORD_OVERHEAD_BYTES > _MAX_BATCH_BYTES:
            yield values, messages
            values, messages, size = [], [], 0
        values.append(value)
        messages.append(record)
        size += len(value) + _RECORD_OVERHEAD_BYTES
    yield values, messages
