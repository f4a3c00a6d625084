"""Second decisions of the quorum: voters, votes, candidates, and what a node learns from others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.raft.log_checkpoint import VotingRestriction
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
from barnabas.raft.voters import VoterEndpoint, VoterKey, VoterSet
from barnabas.simulation.second_decisions import Arguments, SecondDecision

UNKNOWN: Final = -1
OTHER_DIRECTORY: Final = bytes(15) + b"\x07"
_NEW_CLUSTER_TAG: Final = 8_194
SOMEBODY: Final = 99


# -- keys


def is_of(voter: Any, key: Any) -> bool:
    """Returns whether the key is this voter's; a static voter has no directory."""
    if voter.directory_id == ZERO_UUID:
        return bool(voter.node_id == key.node_id)
    return tuple(voter) == tuple(key)


def _is_own_key(own: Any, node_id: int, directory_id: bytes) -> bool:
    """Returns whether a request names this node; a peer that does not know an id leaves it out."""
    if node_id == UNKNOWN or node_id < 0:
        return True
    return bool(own.node_id == node_id) and (directory_id == ZERO_UUID or directory_id == own.directory_id)


def _found(voters: Any, key: Any) -> Any:
    return next((voter for voter in voters.voters if is_of(voter.key, key)), None)


def _near_keys(voters: Any, key: Any) -> Iterator[Arguments]:
    for voter in voters.voters:
        yield voters, voter.key
        yield voters, voter.key._replace(directory_id=OTHER_DIRECTORY)
        yield voters, voter.key._replace(directory_id=ZERO_UUID)
        yield voters, voter.key._replace(node_id=SOMEBODY)


def _by_id(voters: Any, node_id: int) -> Any:
    return {voter.key.node_id: voter for voter in voters.voters}.get(node_id)


def _near_ids(voters: Any, node_id: int) -> Iterator[Arguments]:
    for each in (*voters.ids, SOMEBODY):
        yield voters, each


def _is_only(voters: Any, key: Any) -> bool:
    return [is_of(voter.key, key) for voter in voters.voters] == [True]


def _near_only(voters: Any, key: Any) -> Iterator[Arguments]:
    yield from _near_keys(voters, key)
    for voter in voters.voters[:2]:
        yield VoterSet((voter,)), voter.key
        yield VoterSet((voter,)), VoterKey(SOMEBODY)


def _joined(voters: Any, voter: Any) -> list[Any]:
    by_id = {each.key.node_id: each for each in voters.voters}
    by_id[voter.key.node_id] = voter
    return [by_id[node_id] for node_id in sorted(by_id)]


def _near_joined(voters: Any, voter: Any) -> Iterator[Arguments]:
    for each in voters.voters:
        yield voters, each._replace(key=each.key._replace(directory_id=OTHER_DIRECTORY))
    for node_id in (0, SOMEBODY):
        yield voters, voter._replace(key=VoterKey(node_id, OTHER_DIRECTORY))


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
    no promise; only who is notified by a leader refuses it (KIP-996)."""
    kind = type(role)
    if pre_vote:
        knows_leader = kind is Leader or (kind is Follower and role.has_fetched)
        return up_to_date and not knows_leader
    if kind not in (Unattached, Prospective, Follower):
        return False
    if role.voted is not None:
        return is_of(role.voted, candidate)
    return up_to_date and role.leader_id == UNKNOWN


def _roles(state: Any, candidate: Any) -> Iterator[Any]:
    """Yields all roles that a node can have in its epoch, with and without votes and leaders."""
    epoch, votes = state.role.epoch, Votes({1})
    other = candidate._replace(directory_id=OTHER_DIRECTORY)
    for voted in (None, candidate, other, VoterKey(candidate.node_id), VoterKey(SOMEBODY)):
        for leader_id in (UNKNOWN, SOMEBODY):
            yield Unattached(epoch, voted, leader_id)
            yield Prospective(epoch, votes, voted, leader_id)
        for has_fetched in (False, True):
            yield Follower(epoch, SOMEBODY, (), voted, has_fetched)
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
    for each in (-1, 0, own.node_id, SOMEBODY):
        for directory in (ZERO_UUID, own.directory_id, OTHER_DIRECTORY):
            yield elections, each, directory


def turn(elections: Any, gone_id: int) -> int:
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
    others = [VoterKey(SOMEBODY + number) for number in range(4)]
    for length in (1, 2, 3, 4):
        for place in range(length):
            yield elections, [*others[:place], own, *others[place : length - 1]]
    yield elections, [own._replace(directory_id=OTHER_DIRECTORY)]
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
    is_other = leader_id not in (UNKNOWN, core.own.node_id)
    if epoch > known:
        return False, epoch, leader_id if is_other else UNKNOWN
    if leader == UNKNOWN and is_other:
        leader = leader_id
    return code not in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER), epoch, leader


def _learned(result: bool, core: Any, *_: Any) -> object:
    return result, core.quorum.epoch, core.quorum.leader_id


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
    SecondDecision("raft.elections:Elections._turn_ms", turn, _near_turns),
    SecondDecision("raft.elections:Elections._succession_ms", _succession, _near_successions),
    SecondDecision("raft.core:Core.may_vote_for", _is_permitted),
    SecondDecision("raft.core:Core.leader_only", _leader_code, _near_leader),
    SecondDecision("raft.core:Core.is_other_cluster", _is_foreign, _near_foreign),
    SecondDecision("raft.core:Core.learn_from", _is_useful, shown=_learned),
)
