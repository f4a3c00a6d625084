"""Second decisions of the quorum: votes, candidates, the progress of replicas, the history of voters, and timeouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.raft.log_checkpoint import LogCheckpoint, VotingRestriction
from barnabas.raft.progress import Progress
from barnabas.raft.quorum import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
    Votes,
)
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.simulation.second_decisions import Arguments, SecondDecision

_UNKNOWN: Final = -1
_HOUR_MS: Final = 3_600_000
_OBSERVER_MS: Final = 300_000
_OTHER_DIRECTORY: Final = bytes(15) + b"\x07"
_NEW_CLUSTER_TAG: Final = 8_194
_SOMEBODY: Final = 99


# -- keys


def _is_of(voter: Any, key: Any) -> bool:
    """Returns whether the key is this voter's; a static voter has no directory."""
    if voter.directory_id == ZERO_UUID:
        return bool(voter.node_id == key.node_id)
    return tuple(voter) == tuple(key)


def _is_own_key(own: Any, node_id: int, directory_id: bytes) -> bool:
    """Returns whether a request names this node; a peer that does not know an id leaves it out."""
    if node_id == _UNKNOWN or node_id < 0:
        return True
    return bool(own.node_id == node_id) and (directory_id == ZERO_UUID or directory_id == own.directory_id)


def _found(voters: Any, key: Any) -> Any:
    return next((voter for voter in voters.voters if _is_of(voter.key, key)), None)


def _near_keys(voters: Any, key: Any) -> Iterator[Arguments]:
    for voter in voters.voters:
        yield voters, voter.key
        yield voters, voter.key._replace(directory_id=_OTHER_DIRECTORY)
        yield voters, voter.key._replace(directory_id=ZERO_UUID)
        yield voters, voter.key._replace(node_id=_SOMEBODY)


def _by_id(voters: Any, node_id: int) -> Any:
    return {voter.key.node_id: voter for voter in voters.voters}.get(node_id)


def _near_ids(voters: Any, node_id: int) -> Iterator[Arguments]:
    for each in (*voters.ids, _SOMEBODY):
        yield voters, each


def _is_only(voters: Any, key: Any) -> bool:
    return [_is_of(voter.key, key) for voter in voters.voters] == [True]


def _near_only(voters: Any, key: Any) -> Iterator[Arguments]:
    yield from _near_keys(voters, key)
    for voter in voters.voters[:2]:
        yield VoterSet((voter,)), voter.key
        yield VoterSet((voter,)), VoterKey(_SOMEBODY)


def _joined(voters: Any, voter: Any) -> list[Any]:
    by_id = {each.key.node_id: each for each in voters.voters}
    by_id[voter.key.node_id] = voter
    return [by_id[node_id] for node_id in sorted(by_id)]


def _near_joined(voters: Any, voter: Any) -> Iterator[Arguments]:
    for each in voters.voters:
        yield voters, each._replace(key=each.key._replace(directory_id=_OTHER_DIRECTORY))
    for node_id in (0, _SOMEBODY):
        yield voters, voter._replace(key=VoterKey(node_id, _OTHER_DIRECTORY))


def _left(voters: Any, key: Any) -> list[Any]:
    return [voter for voter in voters.voters if tuple(voter.key) != tuple(key)]


def _listed(result: Any, *_: Any) -> list[Any]:
    return list(result.voters)


def _address(endpoints: Sequence[Any], listener: str) -> tuple[str, int] | None:
    by_name = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in reversed(endpoints)}
    return by_name.get(listener) or next(((each.host, each.port) for each in endpoints), None)


def _near_addresses(endpoints: Sequence[Any], listener: str) -> Iterator[Arguments]:
    two = VoterEndpoint("A", "one", 1), VoterEndpoint("B", "two", 2)
    for name in ("A", "B", "C"):
        yield two, name
    yield (), "A"


# -- votes


def _is_lost(votes: Any, voters: Any, gone: Iterable[int] = ()) -> bool:
    """Returns whether a majority is out of reach. Who is gone counts as soon as anybody has refused."""
    ids = set(voters.ids)
    refusing = ids & votes.rejected
    if not refusing:
        return len(ids) == 0
    left = ids - refusing - (set(gone) - votes.granted)
    return len(left) * 2 <= len(ids)


def _near_lost(votes: Any, voters: Any, gone: Iterable[int] = ()) -> Iterator[Arguments]:
    ids = sorted(voters.ids)
    for granted in range(min(len(ids), 2) + 1):
        for rejected in range(len(ids) - granted + 1):
            changed = Votes(set(ids[:granted]), set(ids[granted : granted + rejected]))
            for absent in ((), ids[-1:], ids[:1]):
                yield changed, voters, absent


def _noted(votes: Any, node_id: int, *, granted: bool) -> tuple[set[int], set[int]]:
    yes, no = set(votes.granted), set(votes.rejected)
    if node_id not in yes | no:
        (yes if granted else no).add(node_id)
    return yes, no


def _near_votes(votes: Any, node_id: int, *, granted: bool) -> Iterator[Arguments]:
    for yes, no in ({1}, {2}), (set[int](), {1}), ({2}, set[int]()):
        yield Votes(set(yes), set(no)), 1


def _all_votes(_: Any, votes: Any, *more: Any) -> tuple[set[int], set[int]]:
    return votes.granted, votes.rejected


def _would_grant(state: Any, candidate: Any, *, up_to_date: bool, pre_vote: bool) -> bool:
    return _grants(state.role, candidate, up_to_date, pre_vote)


def _grants(role: Any, candidate: Any, up_to_date: bool, pre_vote: bool) -> bool:
    """Returns whether a node in this role votes: once in an epoch, for nobody in an epoch with a leader. A pre-vote is
    no promise; only who hears of a leader refuses it (KIP-996)."""
    kind = type(role)
    if pre_vote:
        hears_of_leader = kind is Leader or (kind is Follower and role.has_fetched)
        return up_to_date and not hears_of_leader
    if kind not in (Unattached, Prospective, Follower):
        return False
    if role.voted is not None:
        return _is_of(role.voted, candidate)
    return up_to_date and role.leader_id == _UNKNOWN


def _roles(state: Any, candidate: Any) -> Iterator[Any]:
    """Yields all roles that a node can have in its epoch, with and without votes and leaders."""
    epoch, votes = state.role.epoch, Votes({1})
    other = candidate._replace(directory_id=_OTHER_DIRECTORY)
    for voted in (None, candidate, other, VoterKey(candidate.node_id), VoterKey(_SOMEBODY)):
        for leader_id in (_UNKNOWN, _SOMEBODY):
            yield Unattached(epoch, voted, leader_id)
            yield Prospective(epoch, votes, voted, leader_id)
        for has_fetched in (False, True):
            yield Follower(epoch, _SOMEBODY, (), voted, has_fetched)
    yield Candidate(epoch, votes)
    yield Resigned(epoch)
    yield Leader(epoch, (), Progress(state.own, state.voters, 0))


def _in_all_roles(state: Any, candidate: Any, *, up_to_date: bool, pre_vote: bool) -> Iterator[Arguments]:
    for role in _roles(state, candidate):
        changed = copy(state)
        changed.role = role
        yield changed, candidate


#: The next roles in one epoch, by the names of the classes.
_NEXT: Final = {
    "Unattached": "Prospective Follower",
    "Prospective": "Unattached Candidate Follower",
    "Candidate": "Prospective Leader Follower",
    "Follower": "Prospective",
    "Leader": "Resigned",
    "Resigned": "",
}


def _can_follow(before: Any, after: Any, *, is_alone: bool) -> bool:
    old, new = type(before).__name__, type(after).__name__
    if after.epoch <= before.epoch:
        return after.epoch == before.epoch and new in _NEXT[old].split()
    if new == "Candidate":
        return old == "Prospective" or (is_alone and old != "Leader")
    return new in ("Unattached", "Follower")


def _near_roles(before: Any, after: Any, *, is_alone: bool) -> Iterator[Arguments]:
    votes = Votes({1})
    progress = Progress(VoterKey(1), VoterSet(), 0)
    for epoch in (before.epoch - 1, before.epoch, before.epoch + 1):
        for role in (
            Unattached(epoch),
            Prospective(epoch, votes),
            Candidate(epoch, votes),
            Follower(epoch, 1, ()),
            Leader(epoch, (), progress),
            Resigned(epoch),
        ):
            yield before, role


def _vote_code(core: Any, request: Any, asked: Any) -> ErrorCode:
    is_invalid = asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.last_offset_epoch > asked.replica_epoch
    if is_invalid or (asked.last_offset_epoch == asked.replica_epoch and not asked.pre_vote):
        return ErrorCode.INVALID_REQUEST
    if asked.replica_epoch < core.quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if asked.replica_id < 0:
        return ErrorCode.INVALID_REQUEST
    if not _is_own_key(core.own, request.voter_id, asked.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def _voted(elections: Any, request: Any, listener: str) -> object:
    """Returns error code, vote and epoch of the answer to a Vote request."""
    core = elections._core
    if request.cluster_id not in (None, core.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if [len(topic.partitions) for topic in request.topics] != [1]:
        return ErrorCode.INVALID_REQUEST
    (asked,) = request.topics[0].partitions
    code = _vote_code(core, request, asked)
    if code is ErrorCode.INVALID_REQUEST or code is ErrorCode.FENCED_LEADER_EPOCH:
        return code, False, core.quorum.epoch
    role = core.quorum.role if asked.replica_epoch == core.quorum.epoch else Unattached(asked.replica_epoch)
    if code:
        return code, False, asked.replica_epoch
    candidate = VoterKey(asked.replica_id, asked.replica_directory_id)
    up_to_date = [asked.last_offset_epoch, asked.last_offset] >= [core.log.latest_epoch, core.log.end_offset]
    is_new = _NEW_CLUSTER_TAG in [tag for tag, _ in request.unknown_tags]
    granted = _grants(role, candidate, up_to_date, asked.pre_vote)
    granted = granted and _is_permitted(core, asked.replica_id, asked.last_offset, is_of_new_cluster=is_new)
    return code, granted, asked.replica_epoch


def _vote_in(answer: Any, *_: Any) -> object:
    if not answer.topics:
        return ErrorCode(answer.error_code)
    (partition,) = answer.topics[0].partitions
    return ErrorCode(partition.error_code), partition.vote_granted, partition.leader_epoch


def _is_permitted(core: Any, candidate_id: int, last_offset: int, *, is_of_new_cluster: bool) -> bool:
    """Returns whether the voting restriction permits a vote: a voter that lacks records does not vote, and one that may
    replace a lost one votes only if nobody has records."""
    quorum = core.quorum
    nobody_has_records = last_offset == 0 and core.log.end_offset == 0
    if quorum.restriction is VotingRestriction.NEW_CLUSTER:
        return is_of_new_cluster or not nobody_has_records
    is_alone = _is_only(quorum.history.voters, core.own)
    if is_alone or quorum.restriction is VotingRestriction.NONE:
        return True
    return quorum.restriction is VotingRestriction.NEW and nobody_has_records and not is_of_new_cluster


def _epoch_code(elections: Any, node_id: int, epoch: int) -> ErrorCode:
    if epoch < elections._core.quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE if node_id >= 0 else ErrorCode.INVALID_REQUEST


def _near_epoch(elections: Any, node_id: int, epoch: int) -> Iterator[Arguments]:
    current = elections._core.quorum.epoch
    for each in (-1, 0, node_id):
        for more in (-1, 0, 1):
            yield elections, each, current + more


def _is_meant(elections: Any, node_id: int, directory_id: bytes) -> bool:
    return _is_own_key(elections._core.own, node_id, directory_id)


def _near_meant(elections: Any, node_id: int, directory_id: bytes) -> Iterator[Arguments]:
    own = elections._core.own
    for each in (-1, 0, own.node_id, _SOMEBODY):
        for directory in (ZERO_UUID, own.directory_id, _OTHER_DIRECTORY):
            yield elections, each, directory


def _turn(elections: Any, gone_id: int) -> int:
    """Returns 40 ms for each voter that comes before this one."""
    core = elections._core
    return 40 * len([each for each in core.quorum.voters.ids if each < core.own.node_id and each != gone_id])


def _near_turns(elections: Any, gone_id: int) -> Iterator[Arguments]:
    for each in (*elections._core.quorum.voters.ids, -1):
        yield elections, each


def _succession(elections: Any, successors: list[Any]) -> int:
    """Returns Kafka's delay: none for the first, the whole backoff for the last and for others, and half of that for
    each place before the last."""
    core = elections._core
    longest: int = core.times.election_backoff_max_ms
    places = [
        place
        for place, key in enumerate(successors)
        if key.node_id == core.own.node_id and key.directory_id in (ZERO_UUID, core.own.directory_id)
    ]
    if not places:
        return longest
    if places[0] == 0:
        return 0
    base = longest // 2 ** (len(successors) - 1)
    return int(min(base * 2 ** (places[0] - 1), longest))


def _near_successions(elections: Any, successors: list[Any]) -> Iterator[Arguments]:
    own = elections._core.own
    others = [VoterKey(_SOMEBODY + number) for number in range(4)]
    for length in (1, 2, 3, 4):
        for place in range(length):
            yield elections, [*others[:place], own, *others[place : length - 1]]
    yield elections, [own._replace(directory_id=_OTHER_DIRECTORY)]
    yield elections, [others[0], VoterKey(own.node_id)]
    yield elections, []


def _leader_code(core: Any, epoch: int) -> ErrorCode:
    known = core.quorum.epoch
    if epoch != known:
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < known else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if type(core.quorum.role) is Leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _near_leader(core: Any, epoch: int) -> Iterator[Arguments]:
    for more in (-1, 0, 1):
        yield core, core.quorum.epoch + more


def _is_foreign(core: Any, cluster_id: str | None) -> bool:
    return bool(cluster_id not in (None, core.cluster_id))


def _near_foreign(core: Any, cluster_id: str | None) -> Iterator[Arguments]:
    for each in (None, "", core.cluster_id, f"{core.cluster_id}x"):
        yield core, each


def _is_useful(core: Any, code: int, epoch: int, leader_id: int, endpoints: Any) -> object:
    """Returns whether the rest of a response counts, and the epoch and leader after it. Nobody believes a second leader
    of one epoch."""
    quorum = core.quorum
    known, leader = quorum.epoch, quorum.leader_id
    if epoch < known or code == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False, known, leader
    is_other = leader_id not in (_UNKNOWN, core.own.node_id)
    if epoch > known:
        return False, epoch, leader_id if is_other else _UNKNOWN
    if leader == _UNKNOWN and is_other:
        leader = leader_id
    return code not in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER), epoch, leader


def _learned(result: bool, core: Any, *_: Any) -> object:
    return result, core.quorum.epoch, core.quorum.leader_id


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
    return voter if voter is not None and _is_of(voter.key, key) else progress._observers.get(key)


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
    last_ms = last_end = caught_up = _UNKNOWN
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
            own.former_directory_id, own.directory_id, own.returns = key.directory_id, _OTHER_DIRECTORY, returns
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
    if key.node_id in voters and _is_of(voters[key.node_id].key, key):
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
    yield _apart(progress), VoterKey(_SOMEBODY)


def _kept(progress: Any, voters: Any) -> object:
    """Returns the end offsets by replica after a change of the voters: nobody's is forgotten but that of a former
    leader."""
    states = [*progress._voters.values(), *progress._observers.values()]
    ends, taken = {}, []
    for voter in voters:
        known = [state for state in states if _is_of(voter.key, state.key)]
        known += [
            state
            for state in progress._voters.values()
            if state.key == VoterKey(voter.key.node_id) and state.directory_id == voter.key.directory_id
        ]
        state = next(iter(known), None)
        taken.append(state)
        ends[voter.key] = _UNKNOWN if state is None else state.end_offset
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
        moved = voter._replace(key=voter.key._replace(directory_id=_OTHER_DIRECTORY))
        yield _apart(progress), VoterSet(tuple(moved if each is voter else each for each in voters))
    yield _apart(progress), VoterSet((*voters, Voter(VoterKey(_SOMEBODY, _OTHER_DIRECTORY), ())))


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
    is_fit = state is not None and not state.is_unwritable and state.last_fetch_ms not in (_UNKNOWN,)
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
    yield progress, VoterKey(_SOMEBODY), now_ms


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


RAFT_DECISIONS: Final = (
    SecondDecision("raft.voters:VoterSet.find", _found, _near_keys),
    SecondDecision("raft.voters:VoterSet.by_id", _by_id, _near_ids),
    SecondDecision("raft.voters:VoterSet.is_only", _is_only, _near_only),
    SecondDecision("raft.voters:VoterSet.with_voter", _joined, _near_joined, _listed),
    SecondDecision("raft.voters:VoterSet.without", _left, _near_keys, _listed),
    SecondDecision("raft.voters:address_on", _address, _near_addresses),
    SecondDecision("raft.quorum:Votes.is_lost", _is_lost, _near_lost),
    SecondDecision("raft.quorum:Votes.note", _noted, _near_votes, _all_votes),
    SecondDecision("raft.quorum:QuorumState.would_grant", _would_grant, _in_all_roles),
    SecondDecision("raft.quorum:can_follow", _can_follow, _near_roles),
    SecondDecision("raft.elections:Elections.on_vote", _voted, shown=_vote_in),
    SecondDecision("raft.elections:Elections._check", _epoch_code, _near_epoch),
    SecondDecision("raft.elections:Elections._is_meant", _is_meant, _near_meant),
    SecondDecision("raft.elections:Elections._turn_ms", _turn, _near_turns),
    SecondDecision("raft.elections:Elections._succession_ms", _succession, _near_successions),
    SecondDecision("raft.core:Core.may_vote_for", _is_permitted),
    SecondDecision("raft.core:Core.leader_only", _leader_code, _near_leader),
    SecondDecision("raft.core:Core.is_other_cluster", _is_foreign, _near_foreign),
    SecondDecision("raft.core:Core.learn_from", _is_useful, shown=_learned),
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
