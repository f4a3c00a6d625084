"""The metadata quorum on this node: its parts put together, and the interface for the controller.

    propose -> append (page cache) -> to the others, and flush (fsync) -> a majority has it -> high watermark
                                                                    -> listeners -> done

A request, a response, a timer, a proposal or the end of a flush is an event. The parts return the resulting actions as
a value (`raft.ready`), and `raft.execution` carries these out in the order of its fields.

Invariants
- Records count for a voter only once flushed; nothing is delivered beyond the high watermark.
- Listeners get every committed batch once, in order, beginning with the latest snapshot (and again from a later one,
  if the leader no longer has the records that this node needs); a proposal's `done` is called after the listeners.
- Leadership is announced when everything before the leader's epoch was delivered, so that a controller starts from all
  committed records.

In a quorum of one voter `propose` commits before it returns. Proposals from within a listener or a `done` are appended
immediately and committed next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RequestFailed, StorageExhausted, StorageFault, is_exhausted
from barnabas.common.host import Host
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.raft.commits import CommitListener
from barnabas.raft.core import Core, Identity, QuorumTimes
from barnabas.raft.delivery import Delivery
from barnabas.raft.elections import Elections
from barnabas.raft.execution import Execution, Parts
from barnabas.raft.fetch_answers import FetchAnswers
from barnabas.raft.following import Following
from barnabas.raft.formatting import Formatted
from barnabas.raft.leading import Leading
from barnabas.raft.log_checkpoint import CheckpointIdentity, VotingRestriction
from barnabas.raft.log_health import NO_SPACE, LogHealth
from barnabas.raft.log_loading import read_bootstrap
from barnabas.raft.metadata_batches import BatchBody
from barnabas.raft.metadata_log import MetadataLog
from barnabas.raft.opening import open_metadata
from barnabas.raft.peers import NoPeers, Peers
from barnabas.raft.publisher import MetadataPublisher
from barnabas.raft.quorum import Follower, Leader, QuorumState, Resigned, Role, Unattached
from barnabas.raft.ready import NOTHING, Ahead, Committed
from barnabas.raft.serving import QuorumServer
from barnabas.raft.snapshots import SnapshotFiles, SnapshotId, encode_snapshot
from barnabas.raft.starting import PromiseWriter, check_stored, controller_endpoints, state_at_least
from barnabas.raft.voter_changes import VoterChanges
from barnabas.raft.voters import VoterKey, VoterSet
from barnabas.storage.health import WriteHealth


class RaftNode:
    """The metadata quorum on this node: create it, add listeners, then `start` it.

    Each image is published to `store` before any other listener gets its records.
    """

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        store: MetadataStore,
        formatted: Formatted,
        peers: Peers | None = None,
        health: WriteHealth | None = None,
    ) -> None:
        self._host = host
        self._config = config
        self.own = VoterKey(config.node_id, formatted.metadata_directory_id)
        self._delivery = Delivery([MetadataPublisher(host.clock, config, store, self.write_snapshot)])
        self._identity = CheckpointIdentity.of(config.node_id, formatted.cluster_id, formatted.metadata_directory_id)
        names = config.controller_listener_names
        identity = Identity(
            formatted.cluster_id,
            self.own,
            controller_endpoints(config),
            config.metadata_log_dir,
            names[0] if names else "CONTROLLER",
        )
        peers = NoPeers(host.timers) if peers is None else peers
        self._health = WriteHealth(host, [config.metadata_log_dir]) if health is None else health
        self._health.when_changed(self._on_health)
        log_health = LogHealth(host, self._health, config.metadata_log_dir)
        core = self._core = Core(host, self._run, peers, QuorumTimes.of(config), identity, self._delivery, log_health)
        core.bootstrap = tuple((address.host, address.port) for address in config.bootstrap_controllers)
        self._elections = Elections(core)
        self._following = Following(core, self._elections)
        self._leading = Leading(core)
        answers = FetchAnswers(core, self._leading)
        #: Changes of the voters and of kraft.version.
        self.changes = VoterChanges(core, self._leading)
        #: The server for requests of other nodes and of tools.
        self.server = QuorumServer(core, self._elections, answers, self.changes)
        parts = Parts(self._elections, self._following, self._leading, answers, self.changes)
        self._execution = Execution(core, peers, parts, self._commit)
        self._on_leadership: list[Callable[[bool], None]] = []
        self._on_leader: list[Callable[[], None]] = []
        self._announced = False
        self._settling = False

    # Listeners.

    def add_listener(self, listener: CommitListener) -> None:
        """Adds a listener; only before `start`."""
        assert not self._core.is_open, "listeners are added before `start`"
        self._delivery.listeners.append(listener)

    def on_leadership(self, callback: Callable[[bool], None]) -> None:
        """Calls `callback(True)` when this node leads and has delivered all earlier records, else `callback(False)`."""
        self._on_leadership.append(callback)

    def on_disk_failed(self, callback: Callable[[], None]) -> None:
        """Calls `callback()` before the process ends because the disk of the metadata log failed."""
        self._core.disk_listeners.append(callback)

    def on_leader(self, callback: Callable[[], None]) -> None:
        """Calls `callback()` when this node's role has changed, and with it possibly the leader that it knows."""
        self._on_leader.append(callback)

    # State.

    @property
    def log(self) -> MetadataLog:
        return self._core.log

    @property
    def quorum(self) -> QuorumState:
        return self._core.quorum

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """The leader's id; -1 if none is known."""
        if not self._core.is_open or isinstance(self.quorum.role, Resigned):
            return -1
        return self.quorum.leader_id

    @property
    def is_leader(self) -> bool:
        return self._core.is_open and isinstance(self.quorum.role, Leader)

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.quorum.is_alone

    @property
    def kraft_version(self) -> int:
        if not self._core.is_open:
            return 0 if self._config.voters else 1
        return self._core.history.kraft_version

    @property
    def voters(self) -> VoterSet:
        """The voters by the latest record in the log, committed or not."""
        return self.quorum.voters

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return self.voters.ids

    @property
    def log_end_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        """The offset before which everything is committed, and delivered except during a delivery."""
        return max(self._delivery.high_watermark, self._delivery.offset)

    def leader_address(self, listener: str | None = None) -> tuple[str, int] | None:
        """Returns (host, port) of the leader's controller listener; None if none is known."""
        return None if self.leader_id < 0 else self._core.leader_address(listener)

    # Start and stop.

    def start(self) -> None:
        """Opens the log, restores this node's role, and takes part. The only voter is the leader when this returns.

        Raises FatalFault, in one line, if the files on disk cannot be this node's.
        """
        self._core.guard(self._open)
        self._run(self._begin)
        self._core.has_begun = True

    def _begin(self) -> None:
        core = self._core
        quorum, role = core.quorum, core.quorum.role
        if quorum.is_alone:
            quorum.become_candidate()
        elif isinstance(role, Resigned):
            quorum.become_unattached(role.epoch + 1)
            self._elections.start_election_soon()
        elif isinstance(role, Unattached) and role.leader_id >= 0 and self._address_is_known(role.leader_id):
            core.learn(role.epoch, role.leader_id, (), from_leader=True)
        else:
            self._on_role(role, role)
            if core.can_be_candidate:
                self._elections.start_election_soon()

    def _address_is_known(self, node_id: int) -> bool:
        return self._core.address_of(node_id) is not None

    def _open(self) -> None:
        opened = open_metadata(
            self._host, self._config, self._identity, lambda: self._delivery.high_watermark, self._health
        )
        log, loaded, state, state_file, restriction = opened
        check_stored(self._config, self.own, state, loaded)
        stored = state_at_least(state, max(log.latest_epoch, loaded.snapshot_id.epoch))
        self._execution.open(PromiseWriter(state_file, log.keeper, loaded.history, self._config.metadata_log_dir))
        self._core.open(log, QuorumState(self.own, loaded.history, stored, self._core.draft, self._on_role))
        self._core.quorum.restriction = restriction
        if loaded.snapshot is not None:
            self._delivery.reset(loaded.snapshot_id, loaded.snapshot)
        for batch in loaded.batches:
            self._delivery.appended(batch)

    def stop(self) -> None:
        """Stops cleanly: resigns, and closes the log so that the next startup finds it complete."""
        if not self._core.is_open or self._core.is_stopped:
            return
        if self.is_leader:
            self.quorum.become_resigned()
            # The draft is carried out before everything closes, even if this is called from within an event.
            self._execution.carry_out(self._core.draft.take())
        self._core.is_stopped = True
        self._elections.stop()
        self._leading.stop()
        self.changes.stop()
        self._delivery.fail_waiting()
        try:
            self.log.close()
        except (StorageFault, OSError) as fault:
            # The next startup reads the log from end to end anyway.
            self._host.faults.report(f"the metadata log was not closed cleanly: {fault}", fault)

    # Roles.

    def _on_role(self, before: Role, role: Role) -> None:
        """Notifies every part of the new role. The last part can change the role again."""
        try:
            if isinstance(before, Leader):
                self._resign()
        finally:
            self._apply_role(before, role)

    def _apply_role(self, before: Role, role: Role) -> None:
        self.changes.on_role(role)
        self._leading.on_role(before, role)
        if isinstance(role, Leader) or self._is_first_leader(role):
            self._core.lift_restriction()
        self._following.on_role(role)
        if self.quorum.role is role:
            self._elections.on_role(role)
        for callback in self._on_leader:
            callback()

    def _is_first_leader(self, role: Role) -> bool:
        """Returns whether this new voter has elected the leader that it follows, the first one of its quorum."""
        if not isinstance(role, Follower) or self.quorum.restriction is not VotingRestriction.NEW:
            return False
        return role.voted is not None and role.voted.node_id == role.leader_id

    def _resign(self) -> None:
        if self._announced:
            self._announced = False
            for callback in self._on_leadership:
                callback(False)
        self._delivery.fail_waiting()

    # Proposals.

    def propose(
        self,
        records: Sequence[tuple[Message, int]],
        *,
        wall_ms: int,
        done: Callable[[int], None] | None = None,
        failed: Callable[[], None] | None = None,
        encoded: Sequence[BatchBody] | None = None,
    ) -> int:
        """Appends (record, version) pairs, and returns the offset of the first one. `encoded` has the
        records of all batches, if they were encoded before (`metadata_batches.encode_in_portions`).

        `done` is called with that offset when all of them are committed; `failed` is called instead if this node no
        longer leads: then they may be committed later, or not. Raises RequestFailed if this node does not lead
        (NOT_CONTROLLER), or if the log cannot be written (KAFKA_STORAGE_ERROR): then none of them is kept.
        """
        role = self.quorum.role
        if not isinstance(role, Leader):
            raise RequestFailed(ErrorCode.NOT_CONTROLLER)
        assert records, "a proposal has records"
        first_offset = self.log_end_offset
        try:
            for append in self._leading.batches(records, wall_ms, encoded):
                self._execution.append(append)
        except StorageExhausted as fault:
            # No other node has the batches before the one that found no space.
            self._delivery.truncated(first_offset)
            self._core.guard(lambda: self.log.truncate(first_offset))
            self._core.log_health.on_refused(fault)
            self._leading.on_unwritable()
            raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, NO_SPACE) from fault
        if done is not None or failed is not None:
            self._delivery.wait(self.log_end_offset, first_offset, done, failed)
        self._run(self._leading.publish)
        return first_offset

    def step_down(self) -> None:
        """Resigns, because the controller has no space for its first records; the only voter stays leader."""
        self._leading.step_down()

    def _on_health(self) -> None:
        """Hands over leadership if the directory of the metadata log refuses writes."""
        if self._core.is_open and not self._core.log_health.is_writable:
            self._leading.on_unwritable()

    def when_committed(
        self, end_offset: int, done: Callable[[int], None], failed: Callable[[], None] | None = None
    ) -> None:
        """Calls `done(end_offset)`, possibly before it returns, when everything before that offset is committed.

        Callbacks are called in the order of the proposals. `failed` is as for a proposal.
        """
        if end_offset <= self._delivery.offset and not self._delivery.is_waited_for:
            done(end_offset)
            return
        self._delivery.wait(end_offset, end_offset, done, failed)
        self._settle()

    # Events.

    def _run(self, step: Callable[[], None]) -> None:
        """Runs one event: the step, and then all actions that follow from it."""
        try:
            step()
        finally:
            self._settle()

    def _settle(self) -> None:
        """Carries out actions until none is left, including the actions of events that begin meanwhile."""
        if self._settling:
            return
        self._settling = True
        try:
            while True:
                ready = self._core.draft.take()
                if ready is not NOTHING:
                    self._execution.carry_out(ready)
                elif self._core.is_stopped or not self._delivery.complete_one():
                    return
        finally:
            self._settling = False

    def _commit(self, committed: Committed | Ahead) -> None:
        """Delivers committed batches; then announces leadership, and completes voter changes and proposals."""
        if isinstance(committed, Ahead):
            self._delivery.deliver_ahead(*committed)
            return
        self._delivery.commit(committed.high_watermark, is_all=committed.is_all)
        role = self.quorum.role
        if not isinstance(role, Leader):
            return
        if not self._announced:
            assert self._delivery.offset > role.progress.epoch_start_offset, (
                "the commit includes a record of the leader's epoch"
            )
            self._announced = True
            for callback in self._on_leadership:
                callback(True)
        if self.quorum.role is role:
            self.changes.on_committed()
        while self._delivery.complete_one():
            pass

    # Snapshots.

    def bootstrap_records(self) -> list[tuple[Message, int]]:
        """Returns the records that the directory was formatted with."""
        return read_bootstrap(self._host.disk, self._config.metadata_log_dir)

    def write_snapshot(self, image: MetadataImage, done: Callable[[], None]) -> None:
        """Writes a snapshot of a committed image, off the event loop because it can be large; then deletes old ones."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        log, wall_ms = self.log, self._host.clock.wall_ms()
        if snapshot_id.end_offset > log.end_offset:
            done()  # the image includes records that are only in memory, because the log cannot be written
            return
        files = SnapshotFiles(self._host.disk, log.directory)
        voters, kraft_version = self._core.history.at(snapshot_id.end_offset)

        def work() -> None:
            data = encode_snapshot(
                image_records(image),
                epoch=image.epoch,
                wall_ms=wall_ms,
                last_contained_log_timestamp_ms=image.timestamp_ms,
                kraft_version=kraft_version,
                voters=voters if kraft_version else None,
            )
            files.write(snapshot_id, data)

        def written(_: object, error: BaseException | None) -> None:
            try:
                if error is None and not self._core.is_stopped:
                    log.clean(files, wall_ms)
                    log.keeper.sync()
            except (StorageFault, OSError) as fault:
                error = fault
            if isinstance(error, StorageFault | OSError) and not is_exhausted(error):
                self._core.fail(error)
            if error is not None:
                self._host.faults.report(f"snapshot {snapshot_id.file_name} was not written: {error}", error)
            done()

        self._host.blocking.run(work, written)
