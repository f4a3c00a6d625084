"""A leader's duties: announce its epoch, append and flush, commit what a majority has, and give up when it is alone.

Invariants
- What is appended goes out to the others at once, beside its own flush; it counts for this node after that (G16).
- A leader that a majority has not fetched from for 1.5 fetch timeouts resigns: it cannot know that it still leads.
- A leader that was removed from the voters resigns when that is committed, and not before (KIP-853).
- A leader whose log takes no records resigns while another voter takes some, at once if that one has all the records.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import StorageExhausted, StorageFault
from barnabas.protocol.message import Message
from barnabas.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from barnabas.protocol.messages.records_raft import KRaftVersionRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.core import Core
from barnabas.raft.fetch_answers import FetchAnswers
from barnabas.raft.messages import begin_request, end_request, only_partition
from barnabas.raft.peers import Alarm
from barnabas.raft.quorum import Leader, Resigned, Role
from barnabas.raft.snapshots import encode_control_batch
from barnabas.raft.voter_history import KRAFT_VERSION_MAX, NOT_IN_LOG
from barnabas.raft.voters import Voter, VoterKey, VoterSet

#: The first rounds of BeginQuorumEpoch follow each other quickly, for a voter may just be starting.
_BEGIN_FIRST_MS = 50
#: A successor that lacks records gets so long to fetch them from a leader without room.
_HAND_OVER_MS = 1_000
_HAND_OVER_LOOK_MS = 100


class Leading:
    def __init__(self, core: Core, answers: FetchAnswers) -> None:
        self._core = core
        self._answers = answers
        answers.on_replica = self._on_replica
        self._check = Alarm(core.host.clock, core.host.timers, self._on_no_quorum)
        self._begin = Alarm(core.host.clock, core.host.timers, self._send_begin)
        self._begin_ms = 0
        self._hand_over = Alarm(core.host.clock, core.host.timers, self._maybe_hand_over)
        self._no_room_ms: int | None = None
        #: Called when the high watermark has moved.
        self.on_committed: Callable[[], None] = lambda: None

    def on_role(self, before: Role, role: Role) -> None:
        core = self._core
        if isinstance(before, Leader):
            self._check.cancel()
            self._begin.cancel()
            self._hand_over.cancel()
            self._no_room_ms = None
            self._answers.wake()
        if isinstance(role, Resigned):
            self._send_end(role)
        if not isinstance(role, Leader):
            return
        self._begin_ms = _BEGIN_FIRST_MS
        self._expect_quorum(role)
        self._send_begin()
        self._append_start(role)
        core.flush()

    def stop(self) -> None:
        self._check.cancel()
        self._begin.cancel()
        self._hand_over.cancel()

    # Without room.

    def no_room(self) -> None:
        """The log takes no records: give up the office as soon as whoever met that is done, if another voter can."""
        core = self._core
        if isinstance(core.quorum.role, Leader) and not core.quorum.is_alone and self._no_room_ms is None:
            self._no_room_ms = core.now_ms
            self._hand_over.set(0)

    def _maybe_hand_over(self) -> None:
        core = self._core
        leader = core.quorum.role
        if not isinstance(leader, Leader) or core.is_stopped or core.room.is_there:
            self._no_room_ms = None
            return
        assert self._no_room_ms is not None, "set with the alarm"
        now_ms = core.now_ms
        successor = leader.progress.writable_successor(now_ms - core.times.fetch_timeout_ms)
        has_all = successor is not None and successor.end_offset >= core.log.end_offset
        if successor is None or (not has_all and now_ms - self._no_room_ms < _HAND_OVER_MS):
            # Nobody would do better: it stays what it is, and looks again.
            self._hand_over.set(_HAND_OVER_LOOK_MS)
            return
        core.host.faults.inform(
            f"node {core.own.node_id} gives up leading the metadata quorum in epoch {leader.epoch}: the directory of "
            f"its metadata log {core.room.cause}; node {successor.key.node_id} is to follow it"
        )
        core.quorum.become_resigned()

    def step_down(self) -> None:
        """Without room for what a leader must begin with: give up the office, whoever follows."""
        core = self._core
        leader = core.quorum.role

        def resign() -> None:
            if core.quorum.role is leader and isinstance(leader, Leader) and not core.is_stopped:
                core.host.faults.inform(
                    f"node {core.own.node_id} gives up leading the metadata quorum in epoch {leader.epoch}: its "
                    "metadata log has no room for what an epoch begins with"
                )
                core.quorum.become_resigned()

        core.host.timers.call_soon(resign)

    # The log.

    def _append_start(self, leader: Leader) -> None:
        """The epoch begins with a LeaderChange; a new cluster's, or a leader's that has moved, also says who votes."""
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
        if core.quorum.is_alone:
            self.append_control(messages)
            return
        try:
            self._append_control(messages)
        except StorageExhausted as fault:
            core.room.refused(fault)
            self.step_down()

    def append_control(self, messages: list[Message]) -> int:
        """Control records in a batch of their own; the offset of the last one."""
        try:
            return self._append_control(messages)
        except StorageExhausted as fault:
            self._core.fail(fault)

    def _append_control(self, messages: list[Message]) -> int:
        """As `append_control`; StorageExhausted if there is no room."""
        core = self._core
        leader = core.quorum.role
        assert isinstance(leader, Leader), "only a leader appends"
        base_offset, wall_ms = core.log.end_offset, core.host.clock.wall_ms()
        batch = encode_control_batch(messages, base_offset=base_offset, epoch=leader.epoch, wall_ms=wall_ms)
        last_offset = base_offset + len(messages) - 1
        self.append(batch, CommittedBatch(base_offset, last_offset, leader.epoch, wall_ms, len(batch), ()))
        changed = False
        for place, message in enumerate(messages):
            changed |= core.history.note(base_offset + place, message)
        if changed:
            leader.progress.set_voters(core.history.voters)
            self._expect_quorum(leader)
        return last_offset

    def append(self, batch: bytearray, committed: CommittedBatch) -> None:
        """Not flushed, and nobody is told yet. StorageExhausted if there is no room for it: it is not appended then."""
        core = self._core
        try:
            core.log.append(batch, committed.epoch)
        except StorageExhausted:
            raise
        except (StorageFault, OSError) as error:
            core.fail(error)
        core.room.took()
        core.delivery.appended(committed)

    def publish(self) -> None:
        """Send what was appended on its way: to those who wait for it, and to this node's disk."""
        self._answers.wake()
        self._core.flush()

    def on_flushed(self) -> None:
        role = self._core.quorum.role
        if isinstance(role, Leader) and role.progress.on_own_flush(self._core.log.flushed_offset, self._core.now_ms):
            self._moved()

    def _on_replica(self, key: VoterKey, moved: bool) -> None:
        role = self._core.quorum.role
        if isinstance(role, Leader):
            if role.progress.hear_of(key):
                self._expect_quorum(role)
            if moved:
                self._moved()

    def _moved(self) -> None:
        self.on_committed()
        self._answers.wake()

    # The others.

    def _expect_quorum(self, leader: Leader) -> None:
        if leader.progress.needs_others:
            self._check.set(self._core.times.fetch_timeout_ms * 3 // 2)
        else:
            self._check.cancel()

    def _on_no_quorum(self) -> None:
        if isinstance(self._core.quorum.role, Leader) and not self._core.is_stopped:
            self._core.host.faults.report(
                f"no majority of the voters has fetched from node {self._core.own.node_id} in epoch "
                f"{self._core.quorum.epoch} for too long: it leads no more"
            )
            self._core.quorum.become_resigned()

    def _send_begin(self) -> None:
        """To every voter that has not fetched lately: it may not know who leads."""
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
                self._tell(leader, voter)
        self._begin.set(max(min(self._begin_ms, half_ms), 1))
        self._begin_ms *= 2

    def _tell(self, leader: Leader, voter: Voter) -> None:
        core = self._core
        address = core.address_of(voter.key.node_id)
        if address is None:
            return
        request = begin_request(core.cluster_id, core.own.node_id, leader.epoch, voter.key, core.own_endpoints)
        core.peers.send(
            address,
            request,
            lambda response: core.careful(lambda: self._on_begun(response)),
            timeout_ms=core.times.request_timeout_ms,
        )

    def _on_begun(self, response: Message | None) -> None:
        answer = None
        if isinstance(response, BeginQuorumEpochResponse) and not response.error_code and not self._core.is_stopped:
            answer = only_partition(response)
        if answer is not None:
            endpoints = self._core.endpoints_told(response, answer.leader_id)
            self._core.take_in(answer.error_code, answer.leader_epoch, answer.leader_id, endpoints)

    def _send_end(self, role: Resigned) -> None:
        """Tell the voters that they need not wait. If it is lost they find out by themselves."""
        core = self._core
        voters: VoterSet = core.quorum.voters
        for voter in voters:
            address = core.address_of(voter.key.node_id)
            if address is None or voter.key.node_id == core.own.node_id:
                continue
            request = end_request(core.cluster_id, core.own.node_id, role.epoch, role.successors, core.own_endpoints)
            core.peers.send(address, request, lambda response: None, timeout_ms=core.times.request_timeout_ms)
