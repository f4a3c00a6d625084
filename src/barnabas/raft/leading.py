"""A leader's duties: announces its epoch, appends and flushes, commits what a majority has, resigns without a majority.

`progress.py` computes the high watermark.

Invariants
- Appended records are sent to the others immediately, in parallel to the leader's own flush, and count for the leader
  only after that flush (G16).
- A leader from which no majority has fetched for 1.5 fetch timeouts resigns: it cannot know that it still leads.
- A leader that was removed from the voters resigns when the removal is committed, and not before (KIP-853).
- A leader whose log cannot be written resigns when another voter's can: immediately if that voter has all records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.common.errors import StorageExhausted
from barnabas.common.portions import whole
from barnabas.protocol.message import Message
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from barnabas.protocol.messages.records_raft import KRaftVersionRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.core import Core
from barnabas.raft.messages import begin_request, end_request, only_partition
from barnabas.raft.metadata_batches import BatchBody, encode_at, encode_in_portions
from barnabas.raft.peers import Alarm
from barnabas.raft.quorum import Leader, Resigned, Role
from barnabas.raft.ready import Append
from barnabas.raft.snapshots import encode_control_batch
from barnabas.raft.voter_history import KRAFT_VERSION_MAX, NOT_IN_LOG
from barnabas.raft.voters import Voter, VoterKey, VoterSet

#: The first BeginQuorumEpoch requests are repeated quickly, because a voter may just be starting.
_BEGIN_FIRST_MS = 50
#: The time that a successor without all records gets to fetch them from a leader with a full disk.
_HAND_OVER_MS = 1_000
_HAND_OVER_LOOK_MS = 100


class Leading:
    """The part of a node that leads the quorum; inactive in other roles."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._check = Alarm(core.host.clock, core.timers, self._on_no_quorum)
        self._begin = Alarm(core.host.clock, core.timers, self._send_begin)
        self._begin_ms = 0
        self._hand_over = Alarm(core.host.clock, core.timers, self._maybe_hand_over)
        self._unwritable_since_ms: int | None = None

    def on_role(self, before: Role, role: Role) -> None:
        core = self._core
        if isinstance(before, Leader):
            self._check.cancel()
            self._begin.cancel()
            self._hand_over.cancel()
            self._unwritable_since_ms = None
            core.draft.wake()
        if isinstance(role, Resigned):
            self._send_end(role)
        if not isinstance(role, Leader):
            return
        self._begin_ms = _BEGIN_FIRST_MS
        self._expect_quorum(role)
        self._send_begin()
        self._append_start(role)
        core.draft.flush()

    def stop(self) -> None:
        self._check.cancel()
        self._begin.cancel()
        self._hand_over.cancel()

    # A full disk.

    def on_unwritable(self) -> None:
        """Resigns soon, or as soon as another voter can take over, because the log cannot be written."""
        core = self._core
        if isinstance(core.quorum.role, Leader) and not core.quorum.is_alone and self._unwritable_since_ms is None:
            self._unwritable_since_ms = core.now_ms
            self._hand_over.set(0)

    def _maybe_hand_over(self) -> None:
        core = self._core
        leader = core.quorum.role
        if not isinstance(leader, Leader) or core.is_stopped or core.log_health.is_writable:
            self._unwritable_since_ms = None
            return
        assert self._unwritable_since_ms is not None, "the time is set with the alarm"
        now_ms = core.now_ms
        successor = leader.progress.writable_successor(now_ms - core.times.fetch_timeout_ms)
        has_all = successor is not None and successor.end_offset >= core.log.end_offset
        if successor is None or (not has_all and now_ms - self._unwritable_since_ms < _HAND_OVER_MS):
            # No other voter could do better, so this one remains leader and checks again.
            self._hand_over.set(_HAND_OVER_LOOK_MS)
            return
        core.host.faults.inform(
            f"node {core.own.node_id} resigns as leader of the metadata quorum in epoch {leader.epoch}: the directory "
            f"of its metadata log {core.log_health.cause}; node {successor.key.node_id} is its preferred successor"
        )
        core.quorum.become_resigned()

    def step_down(self) -> None:
        """Resigns whether or not there is a successor: there is no space for the first records of an epoch."""
        core = self._core
        leader = core.quorum.role

        def resign() -> None:
            if core.quorum.role is leader and isinstance(leader, Leader) and not core.is_stopped:
                core.host.faults.inform(
                    f"node {core.own.node_id} resigns as leader of the metadata quorum in epoch {leader.epoch}: its "
                    "metadata log has no space for the first records of an epoch"
                )
                core.quorum.become_resigned()

        core.timers.call_soon(resign)

    # The log.

    def _append_start(self, leader: Leader) -> None:
        """Appends the LeaderChange that begins an epoch; also appends the voters, if they are not in the log or if this
        leader's address has changed.
        """
        core = self._core
        history = core.history
        voters = history.voters
        messages: list[Message] = [voters.leader_change(core.own.node_id, leader.granting)]
        if history.kraft_version > 0:
            own = Voter(core.own, core.own_endpoints, 0, KRAFT_VERSION_MAX)
            moved = core.own_endpoints and voters.find(core.own) not in (None, own)
            if history.voters_offset == NOT_IN_LOG or moved:
                messages.append(KRaftVersionRecord(version=0, kraft_version=history.kraft_version))
                messages.append((voters.with_voter(own) if moved else voters).to_record())
        self.append_control(messages)

    def append_control(self, messages: list[Message]) -> int:
        """Appends control records in a separate batch. Returns the offset of the last one."""
        core = self._core
        leader = core.quorum.role
        assert isinstance(leader, Leader), "only a leader appends"
        base_offset, wall_ms = core.log.end_offset, core.host.clock.wall_ms()
        data = encode_control_batch(messages, base_offset=base_offset, epoch=leader.epoch, wall_ms=wall_ms)
        last_offset = base_offset + len(messages) - 1
        batch = CommittedBatch(base_offset, last_offset, leader.epoch, wall_ms, len(data), ())
        core.draft.append([Append(data, batch)])
        changed = False
        for place, message in enumerate(messages):
            changed |= core.history.note(base_offset + place, message)
        if changed:
            leader.progress.set_voters(core.history.voters)
            self._expect_quorum(leader)
        return last_offset

    def on_refused(self, refused: Append, fault: StorageExhausted) -> None:
        """Takes back control records that found no space. A leader that cannot begin its epoch resigns."""
        core = self._core
        leader = core.quorum.role
        assert isinstance(leader, Leader), "only a leader appends"
        base_offset = refused.batch.base_offset
        core.history.truncate(base_offset)
        leader.progress.set_voters(core.history.voters)
        begins_epoch = base_offset == leader.epoch_start_offset
        if begins_epoch and core.quorum.is_alone:
            core.fail(fault)
        core.log_health.on_refused(fault)
        if begins_epoch:
            self.step_down()
            return
        self._expect_quorum(leader)
        # The state of a leader that would have removed itself is new, and does not have its flushed end yet.
        self.on_flushed()
        self.on_unwritable()

    def batches(
        self, records: Sequence[tuple[Message, int]], wall_ms: int, encoded: Sequence[BatchBody] | None = None
    ) -> Iterator[Append]:
        """Yields these records as batches of this leader's epoch, each after the one before it was appended. `encoded`
        has the records of all batches, if they were encoded before."""
        core = self._core
        epoch = core.quorum.epoch
        for body in whole(encode_in_portions(records)) if encoded is None else encoded:
            base_offset = core.log.end_offset
            data = encode_at(body, base_offset, epoch, wall_ms)
            last_offset = base_offset + len(body.records) - 1
            yield Append(data, CommittedBatch(base_offset, last_offset, epoch, wall_ms, len(data), body.records))

    def publish(self) -> None:
        """Sends the appended records to the delayed fetches, and flushes them to this node's disk."""
        self._core.draft.wake()
        self._core.draft.flush()

    def on_flushed(self) -> None:
        """Counts the flushed records of this node, because the flushed end of the log has moved."""
        role = self._core.quorum.role
        if isinstance(role, Leader) and role.progress.on_own_flush(self._core.log.flushed_offset, self._core.now_ms):
            self._moved(role)

    def on_replica(self, key: VoterKey, *, moved: bool) -> None:
        """Handles a replica's fetch. `moved` says whether the fetch has raised the high watermark."""
        role = self._core.quorum.role
        if isinstance(role, Leader):
            if role.progress.note_fetch(key):
                self._expect_quorum(role)
            if moved:
                self._moved(role)

    def _moved(self, leader: Leader) -> None:
        high_watermark = leader.progress.high_watermark
        assert high_watermark <= self._core.log.end_offset, "a leader commits only records of its log"
        self._core.commit(high_watermark, is_all=True)
        self._core.draft.wake()

    # The other voters.

    def _expect_quorum(self, leader: Leader) -> None:
        if leader.progress.needs_others:
            self._check.set(self._core.times.fetch_timeout_ms * 3 // 2)
        else:
            self._check.cancel()

    def _on_no_quorum(self) -> None:
        if isinstance(self._core.quorum.role, Leader) and not self._core.is_stopped:
            self._core.host.faults.report(
                f"node {self._core.own.node_id} resigns as leader of epoch {self._core.quorum.epoch} of the metadata "
                "quorum: no majority of the voters has fetched from it for too long"
            )
            self._core.quorum.become_resigned()

    def _send_begin(self) -> None:
        """Sends BeginQuorumEpoch to every voter that has not fetched recently, because it may not know the leader."""
        core = self._core
        leader = core.quorum.role
        if not isinstance(leader, Leader) or core.is_stopped:
            return
        half_ms = core.times.fetch_timeout_ms // 2
        for voter in core.quorum.voters:
            state = leader.progress.state_of(voter.key)
            is_own = voter.key.node_id == core.own.node_id
            if not is_own and (
                state is None or state.last_fetch_ms < 0 or core.now_ms - state.last_fetch_ms >= half_ms
            ):
                self._send_begin_to(leader, voter)
        self._begin.set(max(min(self._begin_ms, half_ms), 1))
        self._begin_ms *= 2

    def _send_begin_to(self, leader: Leader, voter: Voter) -> None:
        core = self._core
        address = core.address_of(voter.key.node_id)
        if address is None:
            return
        request = begin_request(core.cluster_id, core.own.node_id, leader.epoch, voter.key, core.own_endpoints)
        core.send(address, request, lambda response: core.persisting(lambda: self._on_begun(response)))

    def _on_begun(self, response: Message | None) -> None:
        answer = None
        if isinstance(response, BeginQuorumEpochResponse) and not response.error_code and not self._core.is_stopped:
            answer = only_partition(response)
        if answer is not None:
            endpoints = self._core.leader_endpoints_in(response, answer.leader_id)
            self._core.learn_from(answer.error_code, answer.leader_epoch, answer.leader_id, endpoints)

    def _send_end(self, role: Resigned) -> None:
        """Sends EndQuorumEpoch, so that voters need not wait for their timeouts. If it is lost, they wait for them."""
        core = self._core
        voters: VoterSet = core.quorum.voters
        for voter in voters:
            address = core.address_of(voter.key.node_id)
            if address is None or voter.key.node_id == core.own.node_id:
                continue
            request = end_request(core.cluster_id, core.own.node_id, role.epoch, role.successors, core.own_endpoints)
            core.send(address, request, lambda response: None)
