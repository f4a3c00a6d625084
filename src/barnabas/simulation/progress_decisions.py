"""Second decisions of the quorum: the progress of replicas, the history of voters, and what a start finds."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, Final

from barnabas.common.types import ZERO_UUID
from barnabas.raft.log_checkpoint import LogCheckpoint
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.voters import Voter, VoterKey, VoterSet
from barnabas.simulation.raft_decisions import OTHER_DIRECTORY, SOMEBODY, UNKNOWN, is_of
from barnabas.simulation.second_decisions import Arguments, SecondDecision

_HOUR_MS: Final = 3_600_000
_OBSERVER_MS: Final = 300_000


# -- the progress of replicas


def _apart(progress: Any) -> Any:
    """Returns a copy with its own states of replicas."""
    other = copy(progress)
    other._voters = {node_id: copy(state) for node_id, state in progress._voters.items()}
    other._observers = {key: copy(state) for key, state in progress._observers.items()}
    other._fetched = set(progress._fetched)
    return other


def _state(progress: Any, key: Any) -> Any:
    voter = progress._voters.get(key.node_id)
    return voter if voter is not None and is_of(voter.key, key) else progress._observers.get(key)


def _shown(state: Any) -> tuple[object, ...]:
    return (
        state.end_offset,
        state.last_fetch_ms,
        state.last_caught_up_ms,
        state.leader_end_offset,
        state.directory_id,
        state.is_duplicate,
    )


def _fetched(progress: Any, key: Any, fetch_offset: int, leader_end: int, now_ms: int) -> object:
    """Returns the state of a replica after its fetch. It was caught up at its last fetch if it has now what the leader
    had then."""
    state = _state(progress, key)
    last_ms = last_end = caught_up = UNKNOWN
    before, former, returns = ZERO_UUID, ZERO_UUID, 0
    if state is not None:
        last_ms, last_end, caught_up = state.last_fetch_ms, state.leader_end_offset, state.last_caught_up_ms
        before, former, returns = state.directory_id, state.former_directory_id, state.returns
    if fetch_offset >= leader_end:
        caught_up = now_ms
    elif last_end > 0 and fetch_offset >= last_end:
        caught_up = last_ms
    came_back = key.directory_id not in (before, ZERO_UUID) and key.directory_id == former
    return fetch_offset, now_ms, caught_up, leader_end, key.directory_id, returns + came_back >= 2


def _after_fetch(_: Any, progress: Any, key: Any, *more: Any) -> object:
    return _shown(_state(progress, key))


def _near_fetch(progress: Any, key: Any, fetch_offset: int, leader_end: int, now_ms: int) -> Iterator[Arguments]:
    state = _state(progress, key)
    for end in (leader_end - 1, leader_end):
        for last_end in (-1, 0, end, end + 1):
            changed = _apart(progress)
            if state is not None and end >= 0:
                _state(changed, key).leader_end_offset = last_end
                yield changed, key, end, leader_end, now_ms
    if state is not None:
        for returns in (0, 1, 2):
            changed = _apart(progress)
            own = _state(changed, key)
            own.former_directory_id, own.directory_id, own.returns = key.directory_id, OTHER_DIRECTORY, returns
            yield changed, key, fetch_offset, leader_end, now_ms


def _flushed(progress: Any, end_offset: int, now_ms: int) -> object:
    own = progress._voters.get(progress.own.node_id)
    return None if own is None else (end_offset, now_ms, now_ms, progress.own.directory_id)


def _after_flush(_: Any, progress: Any, *more: Any) -> object:
    own = progress._voters.get(progress.own.node_id)
    return None if own is None else (own.end_offset, own.last_fetch_ms, own.last_caught_up_ms, own.directory_id)


def _near_flush(progress: Any, end_offset: int, now_ms: int) -> Iterator[Arguments]:
    yield _apart(progress), end_offset, now_ms
    yield _apart(progress), end_offset + 1, now_ms + 1


def _counted(progress: Any, key: Any) -> object:
    """Returns whether with this fetch a majority has fetched, and who has fetched since that was last so."""
    voters = progress._voters
    fetched = set(progress._fetched)
    if key.node_id in voters and is_of(voters[key.node_id].key, key):
        fetched.add(key.node_id)
    with_leader = len(fetched) + (progress.own.node_id in voters)
    return (True, set()) if with_leader * 2 > len(voters) else (False, fetched)


def _after_count(result: bool, progress: Any, key: Any) -> object:
    return result, set(progress._fetched)


def _near_count(progress: Any, key: Any) -> Iterator[Arguments]:
    for state in progress._voters.values():
        if state.key.node_id != progress.own.node_id:
            for fetched in (set(), {each for each in progress._voters if each != progress.own.node_id}):
                changed = _apart(progress)
                changed._fetched = set(sorted(fetched)[:-1])
                yield changed, state.key
    yield _apart(progress), VoterKey(SOMEBODY)


def _kept(progress: Any, voters: Any) -> object:
    """Returns the end offsets by replica after a change of the voters: nobody's is forgotten but that of a former
    leader."""
    states = [*progress._voters.values(), *progress._observers.values()]
    ends, taken = {}, []
    for voter in voters:
        known = [state for state in states if is_of(voter.key, state.key)]
        known += [
            state
            for state in progress._voters.values()
            if state.key == VoterKey(voter.key.node_id) and state.directory_id == voter.key.directory_id
        ]
        state = next(iter(known), None)
        taken.append(state)
        ends[voter.key] = UNKNOWN if state is None else state.end_offset
    left = [state for state in states if not any(state is one for one in taken)]
    return ends, {state.key: state.end_offset for state in left if state.key.node_id != progress.own.node_id}


def _all_ends(_: Any, progress: Any, voters: Any) -> object:
    return (
        {state.key: state.end_offset for state in progress._voters.values()},
        {key: state.end_offset for key, state in progress._observers.items()},
    )


def _near_kept(progress: Any, voters: Any) -> Iterator[Arguments]:
    if not progress._voters:
        return
    for voter in voters:
        yield _apart(progress), VoterSet(tuple(each for each in voters if each is not voter))
        moved = voter._replace(key=voter.key._replace(directory_id=OTHER_DIRECTORY))
        yield _apart(progress), VoterSet(tuple(moved if each is voter else each for each in voters))
    yield _apart(progress), VoterSet((*voters, Voter(VoterKey(SOMEBODY, OTHER_DIRECTORY), ())))


def _best_first(progress: Any) -> list[Any]:
    others = [state for node_id, state in sorted(progress._voters.items()) if node_id != progress.own.node_id]
    return [
        state.key
        for is_unwritable in (False, True)
        for end in sorted({state.end_offset for state in others}, reverse=True)
        for state in others
        if state.end_offset == end and state.is_unwritable == is_unwritable
    ]


def _near_successors(progress: Any, *more: Any) -> Iterator[Arguments]:
    for node_id in progress._voters:
        changed = _apart(progress)
        changed._voters[node_id].is_unwritable = True
        yield changed, *more
        changed = _apart(progress)
        changed._voters[node_id].end_offset += 1
        yield changed, *more


def _heir(progress: Any, fetched_since_ms: int) -> Any:
    first = next(iter(_best_first(progress)), None)
    state = None if first is None else progress._voters[first.node_id]
    is_fit = state is not None and not state.is_unwritable and state.last_fetch_ms not in (UNKNOWN,)
    return state if is_fit and state is not None and state.last_fetch_ms >= fetched_since_ms else None


def _near_heirs(progress: Any, fetched_since_ms: int) -> Iterator[Arguments]:
    yield from _near_successors(progress, fetched_since_ms)
    for state in progress._voters.values():
        for more in (0, 1):
            yield progress, state.last_fetch_ms + more


def _is_close(progress: Any, key: Any, now_ms: int) -> bool:
    """Returns whether a replica was caught up once and has fetched within an hour."""
    state = _state(progress, key)
    if state is None or state.last_caught_up_ms < 0 or state.last_fetch_ms < 0:
        return False
    return bool(now_ms < state.last_fetch_ms + _HOUR_MS)


def _near_close(progress: Any, key: Any, now_ms: int) -> Iterator[Arguments]:
    for one in (*progress._voters.values(), *progress._observers.values()):
        for more in (-1, 0):
            yield progress, one.key, one.last_fetch_ms + _HOUR_MS + more
    yield progress, VoterKey(SOMEBODY), now_ms


def _twice(progress: Any) -> list[int]:
    return sorted(node_id for node_id, state in progress._voters.items() if state.returns >= 2)


def _near_twice(progress: Any) -> Iterator[Arguments]:
    for returns in (1, 2, 3):
        changed = _apart(progress)
        for state in changed._voters.values():
            state.returns = returns
        yield (changed,)


def _seen(progress: Any, now_ms: int) -> list[Any]:
    alive = [key for key, state in progress._observers.items() if state.last_fetch_ms + _OBSERVER_MS >= now_ms]
    return sorted(alive)


def _near_seen(progress: Any, now_ms: int) -> Iterator[Arguments]:
    for state in progress._observers.values():
        for more in (0, 1):
            yield _apart(progress), state.last_fetch_ms + _OBSERVER_MS + more


def _keys_of(result: Any, *_: Any) -> list[Any]:
    return [state.key for state in result]


# -- the history of voters


def _history(history: Any) -> Any:
    other = copy(history)
    other._voters, other._versions = list(history._voters), list(history._versions)
    return other


def _at(history: Any, end_offset: int) -> object:
    voters = [voters for offset, voters in history._voters if offset < end_offset]
    versions = [version for offset, version in history._versions if offset < end_offset]
    return voters[-1], versions[-1]


def _near_offsets(history: Any, end_offset: int) -> Iterator[Arguments]:
    for offset, _ in (*history._voters[-3:], *history._versions[-3:]):
        for more in (0, 1):
            if offset + more > history._voters[0][0]:
                yield _history(history), offset + more


def _shortened(history: Any, end_offset: int) -> object:
    return (
        [entry for entry in history._voters if entry[0] < end_offset],
        [entry for entry in history._versions if entry[0] < end_offset],
    )


def _entries(_: Any, history: Any, *more: Any) -> object:
    return history._voters, history._versions


# -- what a start finds


def _state_at_least(stored: Any, epoch: int) -> object:
    return stored if stored is not None and stored.epoch >= epoch else ElectionState(epoch)


def _near_stored(stored: Any, epoch: int) -> Iterator[Arguments]:
    yield None, epoch
    for more in (-1, 0, 1):
        yield ElectionState(epoch + more, 1, 2), epoch


def _must_have(checkpoint: Any, *, is_state_own: bool) -> int:
    """Returns the offset before which no record may be missing; what Kafka has written since may be shorter, but not
    than what was committed."""
    if checkpoint is None:
        return 0
    return int(checkpoint.end if is_state_own else checkpoint.committed)


def _near_checkpoint(checkpoint: Any, *, is_state_own: bool) -> Iterator[Arguments]:
    yield (None,)
    yield (LogCheckpoint(3, 5, 1, 1),)


def _first_base(names: list[str]) -> int:
    bases = [int(name[:-4]) for name in names if name.endswith(".log") and len(name) == 24 and name[:20].isdigit()]
    return min([*bases], default=-1)


def _near_names(names: list[str]) -> Iterator[Arguments]:
    yield ([f"{5:020d}.log", f"{3:020d}.log", f"{1:020d}.index", "x.log"],)
    yield ([f"{1:020d}.index"],)


PROGRESS_DECISIONS: Final = (
    SecondDecision("raft.progress:Progress.on_fetch", _fetched, _near_fetch, _after_fetch),
    SecondDecision("raft.progress:Progress.on_own_flush", _flushed, _near_flush, _after_flush),
    SecondDecision("raft.progress:Progress.note_fetch", _counted, _near_count, _after_count),
    SecondDecision("raft.progress:Progress.set_voters", _kept, _near_kept, _all_ends),
    SecondDecision("raft.progress:Progress.successors", _best_first, _near_successors),
    SecondDecision("raft.progress:Progress.writable_successor", _heir, _near_heirs),
    SecondDecision("raft.progress:Progress.is_caught_up", _is_close, _near_close),
    SecondDecision("raft.progress:Progress.duplicate_ids", _twice, _near_twice),
    SecondDecision("raft.progress:Progress.observers", _seen, _near_seen, _keys_of),
    SecondDecision("raft.voter_history:VoterHistory.at", _at, _near_offsets),
    SecondDecision("raft.voter_history:VoterHistory.truncate", _shortened, _near_offsets, _entries),
    SecondDecision("raft.starting:state_at_least", _state_at_least, _near_stored),
    SecondDecision("raft.evidence:limit_of", _must_have, _near_checkpoint),
    SecondDecision("raft.evidence:first_base", _first_base, _near_names),
)
