"""Second decisions of leaders, controllers and the quorum: who is in sync, alive, elected, and what is committed."""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections import deque
from collections.abc import Iterator
from copy import copy
from typing import Any, Final

from barnabas.common.errors import FatalFault
from barnabas.records.checksum import crc32c
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision

_UNKNOWN: Final = -1


# -- followers


def _last_fetch(follower: Any) -> int:
    session = follower.session_fetch
    return int(follower.fetched_ms if session is None else session.ms)


def _last_caught_up(follower: Any) -> int:
    session = follower.session_fetch
    return int(follower.caught_up_ms if session is None else session.ms)


def _has_fetched(follower: Any, now_ms: int, duration_ms: int) -> bool:
    return follower.leo >= 0 and _last_fetch(follower) + duration_ms >= now_ms


def _near_fetch(follower: Any, now_ms: int, duration_ms: int) -> Iterator[Arguments]:
    for more in (-1, 0, 1):
        yield follower, _last_fetch(follower) + duration_ms + more, duration_ms


def _keeps_up(follower: Any, leader_leo: int, now_ms: int, lag_ms_max: int) -> bool:
    return follower.leo == leader_leo or _last_caught_up(follower) + lag_ms_max >= now_ms


def _near_lag(follower: Any, leader_leo: int, now_ms: int, lag_ms_max: int) -> Iterator[Arguments]:
    for end in (leader_leo, leader_leo + 1):
        for more in (-1, 0, 1):
            yield follower, end, _last_caught_up(follower) + lag_ms_max + more, lag_ms_max


# -- the ISR and the HW


def _members(leadership: Any) -> set[int]:
    """Returns the replicas that must have a record: of the committed ISR and of the proposed one."""
    return {*leadership.isr, *(leadership.proposed or ())}


def _high_watermark(leadership: Any, leader_leo: int, now_ms: int, lag_ms_max: int, may_join: Any) -> int:
    ends = [leader_leo]
    for replica, follower in leadership.followers.items():
        joins = follower.leo >= 0 and _keeps_up(follower, leader_leo, now_ms, lag_ms_max)
        if replica in _members(leadership) or (joins and may_join(replica, follower.broker_epoch, follower.directory)):
            ends.append(follower.leo)
    return min(ends)


def _near_high_watermark(
    leadership: Any, leader_leo: int, now_ms: int, lag_ms_max: int, may_join: Any
) -> Iterator[Arguments]:
    """Each follower in turn is at the beginning, or has not fetched, or is at the end."""
    for replica in leadership.followers:
        for end in (_UNKNOWN, 0, leader_leo):
            changed = _with_end(leadership, replica, end)
            yield changed, leader_leo, _last_caught_up(changed.followers[replica]), lag_ms_max, lambda *_: True
    yield leadership, leader_leo, now_ms, lag_ms_max, lambda *_: False


def _with_end(leadership: Any, replica: int, end: int) -> Any:
    changed = copy(leadership)
    changed.followers = {each: copy(follower) for each, follower in leadership.followers.items()}
    changed.followers[replica].leo = end
    return changed


def _enlarged(leadership: Any, replica: int, high_watermark: int, may_join: Any) -> tuple[int, ...] | None:
    follower = leadership.followers.get(replica)
    if follower is None or replica in leadership.isr or leadership.proposed is not None:
        return None
    if any(end > follower.leo for end in (high_watermark, leadership.epoch_start_offset)):
        return None
    joins = may_join(replica, follower.broker_epoch, follower.directory)
    return (*leadership.isr, replica) if joins else None


def _near_enlarged(leadership: Any, replica: int, high_watermark: int, may_join: Any) -> Iterator[Arguments]:
    follower = leadership.followers.get(replica)
    if follower is not None:
        for end in (high_watermark, leadership.epoch_start_offset):
            for less in (0, 1):
                if end >= less:
                    yield _with_end(leadership, replica, end - less), replica, high_watermark, lambda *_: True


def _reduced(leadership: Any, leader_leo: int, now_ms: int, lag_ms_max: int) -> tuple[int, ...] | None:
    if leadership.proposed is not None:
        return None
    behind = {
        replica
        for replica, follower in leadership.followers.items()
        if not _keeps_up(follower, leader_leo, now_ms, lag_ms_max) and replica != leadership.node_id
    }
    kept = tuple(replica for replica in leadership.isr if replica not in behind)
    return None if kept == leadership.isr else kept


def _near_reduced(leadership: Any, leader_leo: int, now_ms: int, lag_ms_max: int) -> Iterator[Arguments]:
    for follower in leadership.followers.values():
        for more in (0, 1):
            yield leadership, leader_leo + 1, _last_caught_up(follower) + lag_ms_max + more, lag_ms_max


def _new_follower(follower: Any, caught_up_ms: int) -> tuple[int, ...]:
    """Returns the state of a follower that has not fetched: everything is unknown but when it counts as caught up."""
    return _UNKNOWN, _UNKNOWN, _UNKNOWN, caught_up_ms


def _follower_of(_: Any, follower: Any, caught_up_ms: int) -> tuple[int, ...]:
    return follower.leo, follower.log_start_offset, follower.broker_epoch, follower.caught_up_ms


# -- the reasons of ISR changes, in requests

_REASON_TAG: Final = 8_192
_HEAD, _ROW = struct.Struct(">q"), struct.Struct(">iqq")
_ROWS_MAX: Final = 1_000


def _reason(tags: Any) -> object:
    """Returns the LEO and the rows of the first field of this tag; None if its size is none that a leader writes."""
    data = next((bytes(data) for tag, data in tags if tag == _REASON_TAG), b"")
    rows, rest = divmod(len(data) - _HEAD.size, _ROW.size)
    if rest or not 0 <= rows <= _ROWS_MAX:
        return None
    return _HEAD.unpack_from(data)[0], [_ROW.unpack_from(data, _HEAD.size + row * _ROW.size) for row in range(rows)]


def _reason_of(reason: Any, _: Any) -> object:
    return None if reason is None else (reason.leader_leo, [tuple(each) for each in reason.members])


def _near_reasons(tags: Any) -> Iterator[Arguments]:
    """Fields of other sizes: cut, too long, and with the most rows and one more."""
    sizes = {0, 1, _HEAD.size - 1, _HEAD.size, _HEAD.size + 1, _HEAD.size + _ROW.size - 1, _HEAD.size + 2 * _ROW.size}
    for size in sorted(sizes | {_HEAD.size + _ROW.size * rows for rows in (_ROWS_MAX, _ROWS_MAX + 1)}):
        yield ([(3, b"other"), (_REASON_TAG, bytes(range(256)) * (size // 256) + bytes(range(size % 256)))],)


# -- limits of replication


def _windows(throttle: Any, size: int, now_ms: int) -> list[list[int]]:
    """Returns the windows after these bytes: [start, bytes], without those that are too old."""
    windows = [list(each) for each in throttle._samples]
    if windows and now_ms < windows[-1][0] + throttle._window_ms:
        windows[-1][1] += size
    else:
        windows.append([now_ms, size])
    oldest = now_ms - throttle._windows * throttle._window_ms
    while windows and windows[0][0] < oldest:
        del windows[0]
    return windows


def _near_windows(throttle: Any, size: int, now_ms: int) -> Iterator[Arguments]:
    if throttle._samples:
        first, last = throttle._samples[0][0], throttle._samples[-1][0]
        ends = (last + throttle._window_ms, first + throttle._windows * throttle._window_ms)
        for at_ms in sorted({end + more for end in ends for more in (-1, 0, 1) if end + more >= last}):
            changed = copy(throttle)
            changed._samples = deque(list(each) for each in throttle._samples)
            yield changed, size, at_ms


def _windows_of(_: Any, throttle: Any, size: int, now_ms: int) -> list[list[int]]:
    return [list(each) for each in throttle._samples]


# -- sessions of brokers


def _is_alive(sessions: Any, broker_id: int, now_ms: int) -> bool:
    session = sessions._sessions.get(broker_id)
    return session is not None and session.contact_ms > now_ms - sessions.timeout_ms


def _near_session(sessions: Any, broker_id: int, now_ms: int) -> Iterator[Arguments]:
    session = sessions._sessions.get(broker_id)
    if session is not None:
        for more in (-1, 0, 1):
            yield sessions, broker_id, session.contact_ms + sessions.timeout_ms + more


def _expired(sessions: Any, now_ms: int) -> list[int]:
    return [each for each in sorted(sessions._sessions) if not _is_alive(sessions, each, now_ms)]


def _near_expired(sessions: Any, now_ms: int) -> Iterator[Arguments]:
    for session in sessions._sessions.values():
        for more in (-1, 0, 1):
            yield sessions, session.contact_ms + sessions.timeout_ms + more


# -- the quorum


def _committed(progress: Any) -> tuple[bool, int]:
    """Returns whether the HW moves, and the HW: the largest end in this epoch that a majority has."""
    ends = [state.end_offset for state in progress._voters.values()]
    had = [end for end in ends if sum(other >= end for other in ends) * 2 > len(ends)]
    new = max(had, default=_UNKNOWN)
    if new > progress.epoch_start_offset and new > progress.high_watermark:
        return True, new
    return False, progress.high_watermark


def _near_committed(progress: Any) -> Iterator[Arguments]:
    """Each voter in turn is one record further or has not fetched; and the epoch begins one record later."""
    for changed in _changed_ends(progress):
        yield (changed,)


def _changed_ends(progress: Any) -> Iterator[Any]:
    for node_id, state in progress._voters.items():
        for end in (_UNKNOWN, progress.epoch_start_offset, progress.epoch_start_offset + 1, state.end_offset + 1):
            changed = copy(progress)
            changed._voters = {each: copy(other) for each, other in progress._voters.items()}
            changed._voters[node_id].end_offset = end
            yield changed


def _moved_to(moved: bool, progress: Any) -> tuple[bool, int]:
    return moved, progress.high_watermark


def _is_won(votes: Any, voters: Any) -> bool:
    return len(set(voters.ids) & set(votes.granted)) * 2 > len(voters.ids)


def _near_won(votes: Any, voters: Any) -> Iterator[Arguments]:
    """Each number of votes."""
    ids = sorted(voters.ids)
    for count in range(len(ids) + 1):
        changed = copy(votes)
        changed.granted = set(ids[:count])
        yield changed, voters


def _state_of(data: bytes, path: str) -> tuple[int, int, int]:
    """Returns epoch, leader and vote of a `quorum-state` file. Raises FatalFault if it is damaged."""
    line, _, rest = data.partition(b"\n")
    try:
        if rest.strip() and rest.decode() != f"crc32c {crc32c(line):08x}\n":
            raise FatalFault("checksum")
        fields = json.loads(line)
        if fields["data_version"] not in (0, 1):
            raise FatalFault("version")
        if fields["data_version"] == 0:
            [int(voter["voterId"]) for voter in fields.get("currentVoters") or ()]
        elif not _ID.fullmatch(fields["votedDirectoryId"]):
            raise FatalFault("directory")
        return fields["leaderEpoch"], fields["leaderId"], fields["votedId"]
    except (ValueError, KeyError, TypeError) as error:
        raise FatalFault("no JSON") from error


#: A directory id, in URL-safe base64.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")


def _near_states(data: bytes, path: str) -> Iterator[Arguments]:
    """Files of other releases, without a checksum, and with a smaller or larger one."""
    line, _, rest = data.partition(b"\n")
    fields: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        fields = json.loads(line)
    for version in (-1, 2, 3):
        yield json.dumps({**fields, "data_version": version}).encode() + b"\n", path
    yield line + b"\n", path
    yield line[:-1] + b"\n", path
    if rest.startswith(b"crc32c "):
        for digit in (b"0", b"f"):
            yield line + b"\ncrc32c " + digit * 8 + b"\n", path


def _fields_of(state: Any, *_: Any) -> tuple[int, int, int]:
    return state.epoch, state.leader_id, state.voted_id


def _lines_after(file: Any, checkpoint: Any, *, sync: bool = False) -> object:
    """Returns the two lines after a write, the older one first: a torn write of one must leave the other."""
    lines = _lines(file)
    if not lines:
        return UNJUDGED
    if checkpoint == file.checkpoint:
        return lines
    return [lines[-1], [int(each) for each in checkpoint]]


def _lines_of(_: Any, file: Any, *__: Any) -> list[list[int]]:
    return _lines(file)


def _lines(file: Any) -> list[list[int]]:
    """Returns the numbers of each undamaged line, without version, sequence and checksum, by sequence."""
    disk = file._disk
    reading = disk.without_effects() if hasattr(disk, "without_effects") else contextlib.nullcontext()
    with reading:
        data = disk.read(file.path)
    found = []
    for line in data.split(b"\n")[1:]:
        body, _, checksum = line.rpartition(b" ")
        if checksum == b"%08x" % crc32c(body + b" "):
            found.append([int(each) for each in body.split()[1:]])
    return [numbers for _, *numbers in sorted(found)]


CLUSTER_DECISIONS: Final = (
    SecondDecision("replication.leadership:FollowerState.__init__", _new_follower, shown=_follower_of),
    SecondDecision("replication.isr_reasons:read_reason", _reason, _near_reasons, _reason_of),
    SecondDecision("replication.leadership:FollowerState.fetched_within", _has_fetched, _near_fetch),
    SecondDecision("replication.leadership:FollowerState.is_caught_up", _keeps_up, _near_lag),
    SecondDecision(
        "replication.leadership:Leadership.high_watermark", _high_watermark, _near_high_watermark, judged_every=8
    ),
    SecondDecision("replication.leadership:Leadership.enlarged", _enlarged, _near_enlarged),
    SecondDecision("replication.leadership:Leadership.reduced", _reduced, _near_reduced),
    SecondDecision("replication.throttle:Throttle.record", _windows, _near_windows, _windows_of),
    SecondDecision("controller.kraft.broker_sessions:BrokerSessions.is_alive", _is_alive, _near_session),
    SecondDecision("controller.kraft.broker_sessions:BrokerSessions.expired", _expired, _near_expired),
    SecondDecision("raft.progress:Progress.advance", _committed, _near_committed, _moved_to),
    SecondDecision("raft.quorum:Votes.is_won", _is_won, _near_won),
    SecondDecision("raft.quorum_state:decode_state", _state_of, _near_states, _fields_of),
    SecondDecision("raft.log_checkpoint:LogCheckpointFile.write", _lines_after, shown=_lines_of),
)
