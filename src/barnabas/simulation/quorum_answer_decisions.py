"""Second decisions of the quorum's messages: what answers and requests contain, when timers are due, and what a
node's files say about its metadata log.

A random delay is judged by its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.raft.log_checkpoint import VotingRestriction
from barnabas.raft.peers import Alarm
from barnabas.raft.quorum import Follower, Leader, Unattached
from barnabas.raft.voters import VoterKey
from barnabas.records.batch import decode_batch
from barnabas.simulation.log_files import read_batches
from barnabas.simulation.raft_decisions import is_of, turn
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision

_UNKNOWN: Final = -1
_LEADER_CHANGE: Final = 2
_BACKOFF_MS: Final = 50
#: The free space of a disk in memory that is not full.
_ROOM: Final = 1 << 40
_SOON: Final = "soon"


# -- timers


def _is_candidate(core: Any) -> bool:
    """Returns whether a node can start an election: a voter without restriction, or one whose removal can fail."""
    quorum = core.quorum
    ids = [voter.key for voter in quorum.voters]
    is_voter = any(is_of(key, core.own) for key in ids)
    if quorum.restriction in (VotingRestriction.BEHIND, VotingRestriction.NEW) and not (is_voter and len(ids) == 1):
        may_be_first = quorum.restriction is VotingRestriction.NEW and core.log.end_offset == 0
        if not may_be_first:
            return False
    was_voter = any(is_of(voter.key, core.own) for voter in quorum.history.voters_before)
    return is_voter or (was_voter and quorum.history.voters_offset >= core.delivery.high_watermark)


class _NoTimers:
    """The timers of probes, which nobody waits for."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        return self

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Does nothing."""

    def cancel(self) -> None:
        """Does nothing."""


def _left_ms(alarm: Any) -> int | None:
    return None if alarm._due_ms is None else alarm._due_ms - alarm._clock.now_ms()


def _patience(elections: Any, role: Any) -> int:
    """Returns the fetch timeout, and the turn of a node that would start an election after it."""
    core = elections._core
    turn_ms = turn(elections, role.leader_id) if _is_candidate(core) else 0
    return int(core.times.fetch_timeout_ms + turn_ms)


def _election_alarm(_: Any, elections: Any, *more: Any) -> int | None:
    return _left_ms(elections._alarm)


def _ended(elections: Any, delay_ms: int) -> object:
    core = elections._core
    # The attempts of the epochs since the last leader count together.
    attempts = elections._attempts if elections._ended_epoch >= 0 else 0
    return min(delay_ms, core.times.election_timeout_ms), core.quorum.epoch, attempts


def _after_end(_: Any, elections: Any, delay_ms: int) -> object:
    return _left_ms(elections._alarm), elections._ended_epoch, elections._attempts


def _near_ended(elections: Any, delay_ms: int) -> Iterator[Arguments]:
    for ended_epoch in (-1, 0, 1, elections._core.quorum.epoch):
        for attempts in (0, 3):
            changed = copy(elections)
            changed._alarm = Alarm(elections._core.host.clock, _NoTimers(), _NoTimers().cancel)
            changed._ended_epoch, changed._attempts = ended_epoch, attempts
            yield changed, delay_ms


def _backed_off(elections: Any) -> object:
    return elections._lost + 1, True, True


def _after_back_off(_: Any, elections: Any) -> object:
    """Returns the lost elections, whether the node backs off, and whether for at most 50 ms, doubled by each."""
    longest = min(_BACKOFF_MS * 2 ** min(elections._lost, 16), elections._core.times.election_backoff_max_ms)
    left_ms = _left_ms(elections._alarm)
    return elections._lost, elections._is_backing_off, left_ms is not None and 1 <= left_ms <= max(longest, 1)


def _after_soon(_: Any, elections: Any) -> bool:
    left_ms = _left_ms(elections._alarm)
    return left_ms is not None and 1 <= left_ms <= max(elections._core.times.election_timeout_ms // 10, 1)


def _role_timer(elections: Any, role: Any) -> object:
    """Returns how long a node waits in its new role: a leader not at all, a follower for its leader."""
    if isinstance(role, Leader):
        return None
    if isinstance(role, Follower):
        return _patience(elections, role)
    if isinstance(role, Unattached) and not _is_candidate(elections._core):
        return None
    if isinstance(role, Unattached) and elections._ended_epoch < 0:
        return _SOON
    return UNJUDGED


def _after_role(_: Any, elections: Any, role: Any) -> object:
    left_ms, timeout_ms = _left_ms(elections._alarm), elections._core.times.election_timeout_ms
    if isinstance(role, Unattached) and left_ms is not None and timeout_ms <= left_ms < 2 * max(timeout_ms, 1):
        return _SOON
    return left_ms


def _true(*_: Any, **__: Any) -> bool:
    return True


def _is_random_timeout(result: int, core: Any) -> bool:
    base_ms = core.times.election_timeout_ms
    return bool(base_ms <= result <= 2 * base_ms)


def _expected_quorum(leading: Any, leader: Any) -> int | None:
    """Returns 1.5 fetch timeouts, unless the leader alone is the majority."""
    voters = leader.progress._voters
    needed = len(voters) // 2 + 1 - (leading._core.own.node_id in voters)
    return leading._core.times.fetch_timeout_ms * 3 // 2 if needed else None


def _quorum_alarm(_: Any, leading: Any, leader: Any) -> int | None:
    return _left_ms(leading._check)


# -- answers to fetches


def _answered(answers: Any, code: ErrorCode, **more: Any) -> object:
    """Returns what each answer to a fetch says: the HW only of a leader that serves."""
    core = answers._core
    role = core.quorum.role
    high_watermark = role.progress.high_watermark if isinstance(role, Leader) and not code else _UNKNOWN
    found = [more.get(name) for name in ("diverging_epoch", "snapshot_id")]
    records = bytes(more.get("records") or b"")
    return code, high_watermark, core.log.start_offset, core.quorum.leader_id, core.quorum.epoch, records, found


def _said(answer: Any, *_: Any) -> object:
    leader = answer.current_leader
    found = [answer.diverging_epoch, answer.snapshot_id]
    start, records = answer.log_start_offset, bytes(answer.records or b"")
    code = ErrorCode(answer.error_code)
    return code, answer.high_watermark, start, leader.leader_id, leader.leader_epoch, records, found


def _can_continue(answers: Any, offset: int, last_epoch: int) -> object:
    """Returns whether a replica continues where its log ends, if that is decided by the epochs in this log."""
    log = answers._core.log
    entries = [(entry.epoch, entry.start_offset) for entry in log.log.epochs.entries]
    if log.start_offset > 0 or not entries or offset == 0:
        return UNJUDGED
    ends = dict(
        zip((epoch for epoch, _ in entries), [*(start for _, start in entries[1:]), log.end_offset], strict=True)
    )
    return last_epoch in ends and offset <= ends[last_epoch]


def _continues(answer: Any, *_: Any) -> bool:
    return answer is None


def _epoch_end(log: Any, epoch: int) -> object:
    """Returns the newest epoch that is not later, and where it ends."""
    entries = [(entry.epoch, entry.start_offset) for entry in log.log.epochs.entries]
    if not entries or epoch < entries[0][0]:
        return UNJUDGED
    known = [each for each, _ in entries if each <= epoch][-1]
    return known, min([start for each, start in entries if each > known], default=log.end_offset)


def _near_ends(log: Any, epoch: int) -> Iterator[Arguments]:
    for entry in log.log.epochs.entries[-4:]:
        for more in (-1, 0, 1):
            yield log, entry.epoch + more


def _whole_batches(log: Any, offset: int, max_bytes: int) -> object:
    return (True, True) if log.start_offset <= offset < log.end_offset else UNJUDGED


def _are_whole(data: Any, log: Any, offset: int, max_bytes: int) -> object:
    """Returns whether the first batch has the offset, and whether the data end with a batch."""
    batches = read_batches(bytes(data))
    has_offset = bool(batches) and batches[0].base_offset <= offset <= batches[0].last_offset
    return has_offset, sum(batch.size for batch in batches) == len(data)


def _fetch_fields(cluster_id: str, own: Any, **more: Any) -> object:
    high_watermark = more["high_watermark"]
    return (
        cluster_id,
        own.node_id,
        own.directory_id,
        more["epoch"],
        more["offset"],
        more["last_epoch"],
        high_watermark,
        bool(more.get("is_unwritable")),
    )


def _in_fetch(request: Any, *_: Any) -> object:
    (partition,) = request.topics[0].partitions
    return (
        request.cluster_id,
        request.replica_state.replica_id,
        partition.replica_directory_id,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.high_watermark,
        bool(request.unknown_tags),
    )


def _vote_fields(cluster_id: str, own: Any, voter: Any, **more: Any) -> object:
    is_new = bool(more.get("is_of_new_cluster"))
    return cluster_id, tuple(own), tuple(voter), more["epoch"], tuple(more["last"]), more["pre_vote"], is_new


def _in_vote(request: Any, *_: Any) -> object:
    (asked,) = request.topics[0].partitions
    own, voter = (
        (asked.replica_id, asked.replica_directory_id),
        (
            request.voter_id,
            asked.voter_directory_id,
        ),
    )
    last = asked.last_offset_epoch, asked.last_offset
    return request.cluster_id, own, voter, asked.replica_epoch, last, asked.pre_vote, bool(request.unknown_tags)


def _leader_ends(cls: Any, leader_id: int, address: Any) -> list[tuple[Any, ...]]:
    return [] if address is None or leader_id < 0 else [(leader_id, *address)]


def _near_leader_ends(cls: Any, leader_id: int, address: Any) -> Iterator[Arguments]:
    for each in (-1, 0, 3):
        for end in (None, ("host", 9)):
            yield cls, each, end


def _shown_ends(result: Any, *_: Any) -> list[tuple[Any, ...]]:
    return [(end.node_id, end.host, end.port) for end in result]


# -- changes of the voters


def _refused(changes: Any, cluster_id: str | None, epoch: int) -> ErrorCode | None:
    core = changes._core
    if cluster_id is not None and cluster_id != core.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if epoch != core.quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < core.quorum.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
    return None if isinstance(core.quorum.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _near_refused(changes: Any, cluster_id: str | None, epoch: int) -> Iterator[Arguments]:
    for name in (None, changes._core.cluster_id, "another"):
        for more in (-1, 0, 1):
            yield changes, name, changes._core.quorum.epoch + more


def _code_of(refusal: Any, *_: Any) -> ErrorCode | None:
    return None if refusal is None else refusal[0]


def _too_early(changes: Any, what: str, *, may_be_static: bool = False) -> ErrorCode | None:
    """Returns why a change must wait: another one is not committed, or the leader does not know what is."""
    core = changes._core
    committed = core.quorum.role.progress.high_watermark
    if changes._pending is not None or committed < 0:
        return ErrorCode.REQUEST_TIMED_OUT
    if core.history.kraft_version == 0:
        return None if may_be_static else ErrorCode.UNSUPPORTED_VERSION
    return None if core.history.voters_offset < committed else ErrorCode.REQUEST_TIMED_OUT


def _near_early(changes: Any, what: str, *, may_be_static: bool = False) -> Iterator[Arguments]:
    for pending in (None, object()):
        changed = copy(changes)
        changed._pending = pending
        yield changed, what


def _can_upgrade(changes: Any) -> bool:
    core = changes._core
    role = core.quorum.role
    if not isinstance(role, Leader) or role.progress.high_watermark < 0 or changes._pending is not None:
        return False
    known = {node_id for node_id, state in role.progress._voters.items() if state.directory_id != ZERO_UUID}
    is_old = any(update.max_kraft_version == 0 for update in changes._updates.values())
    return not is_old and set(role.progress._voters) <= known | set(changes._updates)


def _is_none(result: Any, *_: Any) -> bool:
    return result is None


# -- files


def _is_broken(chain: Any, header: Any, batch: Any) -> bool:
    """Returns whether a batch cannot follow: offsets have no gaps, and an epoch begins with a LeaderChange."""
    epoch, last = header.partition_leader_epoch, chain._epoch
    if header.base_offset != chain._next_offset or header.magic != 2 or epoch < max(last, 0):
        return True
    if chain._quorum_epoch is not None and epoch > chain._quorum_epoch:
        return True
    if last < 0 or (epoch == last and not header.is_control):
        return False
    kinds = [bytes(record.key or b"")[2:4] for record in decode_batch(batch)] if header.is_control else []
    return (_LEADER_CHANGE.to_bytes(2, "big") in kinds) is not bool(epoch > last)


def _near_broken(chain: Any, header: Any, batch: Any) -> Iterator[Arguments]:
    for more in (-1, 0, 1):
        yield chain, header._replace(base_offset=chain._next_offset + more), batch
        yield chain, header._replace(partition_leader_epoch=max(chain._epoch, 0) + more), batch
        if chain._quorum_epoch is not None:
            yield chain, header._replace(partition_leader_epoch=chain._quorum_epoch + more), batch
    yield chain, header._replace(magic=1), batch
    yield chain, header._replace(partition_leader_epoch=-1), batch


def _has_reason(text: str, *_: Any) -> bool:
    return bool(text)


class _Damaged(bytes):
    """Bytes of a snapshot that a probe has damaged."""


def _broken_snapshot(data: Any) -> object:
    return ("failed", "DecodeError") if isinstance(data, _Damaged) else UNJUDGED


def _near_snapshots(data: Any) -> Iterator[Arguments]:
    whole = bytes(data)
    batches = read_batches(whole)
    if batches:
        yield (_Damaged(whole[: batches[-1].position]),)
        yield (_Damaged(whole[:-1]),)
        yield (_Damaged(whole + whole[: batches[0].size]),)
        for batch in batches[:2]:
            place = batch.position + batch.size - 1
            yield (_Damaged(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]),)


def _may_fail(writer: Any) -> bool:
    """Returns whether the disk is one that can be full."""
    disk = writer._host.disk
    return hasattr(disk, "without_effects") or disk.free_bytes < _ROOM


def _flushed(writer: Any, end: int, epoch: int) -> object:
    """Returns the checkpoint after a flush: what is committed counts as far as it is on this disk."""
    if _may_fail(writer):
        return UNJUDGED
    before = writer.checkpoint
    committed = max(before.committed, min(writer._high_watermark(), end))
    restriction = before.restriction
    if restriction is VotingRestriction.NEW_CLUSTER and end > 0:
        restriction = VotingRestriction.NONE
    return committed, end, epoch, before.quorum_epoch, restriction


def _shortened(writer: Any, end: int, epoch: int) -> object:
    before = writer.checkpoint
    if end >= before.end:
        return tuple(before)
    return min(before.committed, end), end, epoch, before.quorum_epoch, before.restriction


def _newest_epoch(writer: Any, quorum_epoch: int) -> object:
    if _may_fail(writer):
        return UNJUDGED
    before = writer.checkpoint
    if writer._file.checkpoint is None:
        return tuple(before)
    restriction = before.restriction
    if restriction is VotingRestriction.NEW_CLUSTER and before.end > 0 and quorum_epoch > before.quorum_epoch:
        restriction = VotingRestriction.NONE
    return before.committed, before.end, before.epoch, max(before.quorum_epoch, quorum_epoch), restriction


def _checkpoint_of(_: Any, writer: Any, *more: Any) -> object:
    return tuple(writer.checkpoint)


def _rows(voters: Any) -> object:
    return [
        (tuple(voter.key), [tuple(end) for end in voter.endpoints], voter.min_kraft_version, voter.max_kraft_version)
        for voter in voters.voters
    ]


def _rows_in(record: Any, *_: Any) -> object:
    return [
        (
            (voter.voter_id, voter.voter_directory_id),
            [(end.name, end.host, end.port) for end in voter.endpoints],
            voter.kraft_version_feature.min_supported_version,
            voter.kraft_version_feature.max_supported_version,
        )
        for voter in record.voters
    ]


def _read_rows(result: Any, *_: Any) -> object:
    return _rows(result)


def _announced(voters: Any, leader_id: int, granting: Any) -> object:
    return leader_id, [voter.key.node_id for voter in voters.voters], [key.node_id for key in granting]


def _in_announcement(message: Any, *_: Any) -> object:
    granting = [voter.voter_id for voter in message.granting_voters]
    return message.leader_id, [voter.voter_id for voter in message.voters], granting


def _near_announced(voters: Any, leader_id: int, granting: Any) -> Iterator[Arguments]:
    yield voters, 3, (VoterKey(3),)


def _none(*_: Any, **__: Any) -> Iterator[Arguments]:
    return iter(())


def _decision(
    target: str, expected: Callable[..., Any], shown: Callable[..., Any], probes: Any = _none
) -> SecondDecision:
    return SecondDecision(f"raft.{target}", expected, probes, shown)


QUORUM_ANSWER_DECISIONS: Final = (
    _decision("elections:Elections._wait_for_leader", _patience, _election_alarm),
    _decision("elections:Elections._epoch_ended", _ended, _after_end, _near_ended),
    _decision("elections:Elections._back_off", _backed_off, _after_back_off),
    _decision("elections:Elections.start_election_soon", _true, _after_soon),
    _decision("elections:Elections.on_role", _role_timer, _after_role),
    _decision("core:Core.election_timeout_ms", _true, _is_random_timeout),
    _decision("leading:Leading._expect_quorum", _expected_quorum, _quorum_alarm),
    _decision("fetch_answers:FetchAnswers._partition", _answered, _said),
    _decision("fetch_answers:FetchAnswers._redirect_for", _can_continue, _continues),
    _decision("metadata_log:MetadataLog.end_of_epoch", _epoch_end, lambda result, *_: result, _near_ends),
    _decision("metadata_log:MetadataLog.read", _whole_batches, _are_whole),
    _decision("messages:fetch_request", _fetch_fields, _in_fetch),
    _decision("messages:vote_request", _vote_fields, _in_vote),
    _decision("messages:node_endpoints", _leader_ends, _shown_ends, _near_leader_ends),
    _decision("voter_changes:VoterChanges._refusal", _refused, _code_of, _near_refused),
    _decision("voter_changes:VoterChanges._not_now", _too_early, _code_of, _near_early),
    _decision("voter_changes:VoterChanges.upgrade_refusal", _can_upgrade, _is_none),
    _decision("evidence:Chain._reason", _is_broken, _has_reason, _near_broken),
    _decision("snapshots:decode_snapshot", _broken_snapshot, lambda result, *_: None, _near_snapshots),
    _decision("log_checkpoint:LogCheckpointWriter.flushed", _flushed, _checkpoint_of),
    _decision("log_checkpoint:LogCheckpointWriter.shorten", _shortened, _checkpoint_of),
    _decision("log_checkpoint:LogCheckpointWriter.note_epoch", _newest_epoch, _checkpoint_of),
    _decision("voters:VoterSet.to_record", _rows, _rows_in),
    _decision("voters:voters_from_record", _rows_in, _read_rows),
    _decision("voters:VoterSet.leader_change", _announced, _in_announcement, _near_announced),
)
