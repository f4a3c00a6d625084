"""Second decisions of group coordinators: what a target assignment must be, the next step of each member, who may join,
commit and fetch, and how records are read.

Kafka prescribes no assignment, so a target is judged by its properties: complete, as even as the subscriptions allow,
and with as few moved partitions as that allows. Everything else is decided again from sets of partitions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.assignors import Subscriber
from barnabas.coordinators.groups.consumer.member import ClassicInfo, Member, MemberState
from barnabas.coordinators.groups.group_records import CommittedOffset, OffsetKey
from barnabas.simulation.coordinator_dict import offset_of
from barnabas.simulation.second_decisions import Arguments, SecondDecision

Places = frozenset[tuple[bytes, int]]
_JOIN, _LEAVE, _STATIC_LEAVE = 0, -1, -2
_NONE: Final = -1
#: Probes are about small groups: a large one would take too long.
_MEMBERS_MAX, _TOPICS_MAX, _PARTITIONS_MAX = 8, 5, 40


def _refuse(code: ErrorCode) -> None:
    raise RequestFailed(code)


def _places(assignment: Any) -> Places:
    return frozenset((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)


# -- target assignments


def _is_right(assignor: str, subscribers: Sequence[Subscriber], counts: Mapping[bytes, int]) -> str:
    return ""


def _fault(targets: Any, assignor: str, subscribers: Sequence[Subscriber], counts: Mapping[bytes, int]) -> str:
    """Returns what is wrong with these targets, or ""."""
    if set(targets) != {one.member_id for one in subscribers}:
        return f"targets of {sorted(targets)}"
    if any(not indexes for target in targets.values() for indexes in target.values()):
        return "a topic without partitions"
    found = {one.member_id: _places(targets[one.member_id]) for one in subscribers}
    wanted = {
        (topic_id, index) for one in subscribers for topic_id in one.topic_ids for index in range(counts[topic_id])
    }
    if sum(map(len, found.values())) != len(wanted) or frozenset().union(*found.values()) != wanted:
        return "a partition has no owner or two"
    if any(topic_id not in one.topic_ids for one in subscribers for topic_id, _ in found[one.member_id]):
        return "a partition of a topic without subscription"
    if assignor == "range":
        return "" if found == _ranges(subscribers, counts) else f"no ranges: {found}"
    return _unevenness(subscribers, found) or _needless_moves(subscribers, counts, found)


def _ranges(subscribers: Sequence[Subscriber], counts: Mapping[bytes, int]) -> dict[str, Places]:
    """Returns the ranges: each partition of a topic goes to a subscriber, in order; the first ones get more."""
    static = sorted((one.instance_id, one.member_id) for one in subscribers if one.instance_id is not None)
    dynamic = sorted(one.member_id for one in subscribers if one.instance_id is None)
    topics = {one.member_id: one.topic_ids for one in subscribers}
    ranges: dict[str, set[tuple[bytes, int]]] = {one.member_id: set() for one in subscribers}
    for topic_id in {topic_id for each in topics.values() for topic_id in each}:
        owners = [name for name in (*(name for _, name in static), *dynamic) if topic_id in topics[name]]
        left, index = counts[topic_id], 0
        for place, name in enumerate(owners):
            share = -(-left // (len(owners) - place))
            ranges[name] |= {(topic_id, index + each) for each in range(share)}
            left, index = left - share, index + share
    return {name: frozenset(each) for name, each in ranges.items()}


def _unevenness(subscribers: Sequence[Subscriber], found: Mapping[str, Places]) -> str:
    """Returns a move that would make the shares more even, or ""."""
    for more in subscribers:
        for less in subscribers:
            if len(found[more.member_id]) - len(found[less.member_id]) > 1 and any(
                topic_id in less.topic_ids for topic_id, _ in found[more.member_id]
            ):
                return f"{less.member_id} could have a partition of {more.member_id}"
    return ""


def _needless_moves(subscribers: Sequence[Subscriber], counts: Mapping[bytes, int], found: Mapping[str, Places]) -> str:
    """Returns what was moved without need, or "". A partition that two members had is the first one's."""
    before: dict[str, Places] = {}
    taken: set[tuple[bytes, int]] = set()
    for one in sorted(subscribers, key=lambda each: each.member_id):
        valid = {place for place in _places(one.target) if place[0] in one.topic_ids and place[1] < counts[place[0]]}
        before[one.member_id] = frozenset(valid - taken)
        taken |= valid
    kept = sum(len(before[name] & found[name]) for name in found)
    if len({one.topic_ids for one in subscribers}) == 1:
        total, number = sum(map(len, found.values())), len(subscribers)
        sizes = sorted(map(len, before.values()), reverse=True)
        most = sum(min(size, (total + number - 1 - place) // number) for place, size in enumerate(sizes))
        return "" if kept == most else f"{kept} partitions stay, {most} could"
    is_complete = len(taken) == sum(map(len, found.values()))
    if is_complete and not _unevenness(subscribers, before) and before != found:
        return "an even assignment was changed"
    return ""


def _near_targets(assignor: str, subscribers: Sequence[Subscriber], counts: Mapping[bytes, int]) -> Iterator[Arguments]:
    """The group with another member, without one, with more partitions, with other subscriptions and with old targets
    that are larger, doubled and of the past.
    """
    yield assignor, [], counts
    if not 0 < len(subscribers) <= _MEMBERS_MAX or len(counts) > _TOPICS_MAX or sum(counts.values()) > _PARTITIONS_MAX:
        return
    topics = sorted(counts)
    first = subscribers[0]
    everything = {topic_id: frozenset(range(counts[topic_id] + 1)) for topic_id in topics} | {b"gone": frozenset({0})}
    news = [Subscriber(f"{name}{first.member_id}", None, first.topic_ids, {}) for name in "az"]
    two = [Subscriber(name, instance, frozenset(topics[:1]), {}) for name, instance in (("q", "a"), ("p", "b"))]
    for name in ("uniform", "range"):
        yield name, [*subscribers, news[0]], counts
        yield name, [*news, *subscribers], counts
        yield name, subscribers[1:], counts
        yield name, subscribers, {topic_id: count + 3 for topic_id, count in counts.items()}
        yield name, subscribers, {topic_id: max(count - 1, 1) for topic_id, count in counts.items()}
        yield name, [*subscribers, *two], counts
        yield name, [*two, *subscribers, *news], {topic_id: count + 4 for topic_id, count in counts.items()}
        yield name, [one._replace(target=everything) for one in subscribers], counts
        yield name, [first._replace(target=everything), *subscribers[1:], *news], counts
        yield name, [*(one._replace(target=everything) for one in (*subscribers, *two)), *news], counts


# -- the next step of a member


def _reconciled(member: Any, goal: Any, owned: Any, *, subscription_changed: bool) -> object:
    has, lost = _places(member.assigned), _places(member.revoking)
    reported = None if owned is None else _places(owned)
    if member.state is MemberState.UNKNOWN:
        if reported is None or reported:
            _refuse(ErrorCode.FENCED_MEMBER_EPOCH)
        member = replace(member, epoch=goal.epoch)
    goes_on = {
        MemberState.STABLE: member.epoch != goal.epoch,
        MemberState.UNREVOKED_PARTITIONS: reported is not None and not reported & lost,
    }.get(member.state, True)
    if goes_on:
        wanted = frozenset(place for place in _places(goal.target) if place[0] in goal.subscribed)
        free = {place for place in wanted - has if goal.owner_of(*place) in (None, member.member_id)}
        if has - wanted and (reported is None or reported & (has - wanted)):
            return _stepped(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, has & wanted, has - wanted)
        state = MemberState.STABLE if wanted <= has | free else MemberState.UNRELEASED_PARTITIONS
        return _stepped(member, goal.epoch, state, (has & wanted) | free, frozenset())
    dropped = frozenset(place for place in has if place[0] not in goal.subscribed)
    if not subscription_changed or not dropped:
        return _fields(member)
    if reported is None or reported & (lost | dropped):
        return _stepped(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, has - dropped, lost | dropped)
    return _stepped(member, member.epoch, member.state, has - dropped, lost)


def _stepped(member: Any, epoch: int, state: Any, assigned: Iterable[Any], revoking: Iterable[Any]) -> object:
    before = _fields(member)
    step = epoch, member.previous_epoch, state, frozenset(assigned), frozenset(revoking)
    return before if before == step else (epoch, member.epoch, *step[2:])


def _fields(member: Any, *_: Any) -> object:
    return member.epoch, member.previous_epoch, member.state, _places(member.assigned), _places(member.revoking)


def _near_steps(member: Any, goal: Any, owned: Any, **named: Any) -> Iterator[Arguments]:
    """Each state and report, with a goal that is reached, next or ahead, and with partitions that are free or not."""
    if len(_places(member.assigned)) + len(_places(goal.target)) > _PARTITIONS_MAX:
        return
    one = {topic_id: frozenset({min(indexes)}) for topic_id, indexes in (member.assigned or goal.target).items()}
    larger = {**goal.target, b"other": frozenset({0, 1})}
    subscribed = frozenset({*goal.subscribed, b"other"})
    for state in MemberState:
        for revoking in ({}, {b"lost": frozenset({1})}):
            at = replace(member, state=state, revoking=revoking)
            for report in (None, {}, member.assigned, goal.target, one, revoking):
                for epoch in (member.epoch, member.epoch + 1):
                    for owner in (None, member.member_id, "another"):
                        free = replace(
                            goal, epoch=epoch, target=larger, subscribed=subscribed, owner_of=lambda *_, to=owner: to
                        )
                        yield at, free, report
                    yield at, replace(goal, epoch=epoch, target=one), report
                    yield at, replace(goal, epoch=epoch, subscribed=frozenset()), report


def _checked_epoch(member: Any, epoch: int, owned: Any) -> None:
    is_repeated = epoch == member.previous_epoch and epoch < member.epoch
    if epoch != member.epoch and not (is_repeated and owned is not None and _places(owned) <= _places(member.assigned)):
        _refuse(ErrorCode.FENCED_MEMBER_EPOCH)


def _near_epochs(member: Any, epoch: int, owned: Any) -> Iterator[Arguments]:
    more = {**member.assigned, b"other": frozenset({0})}
    for other in {member.epoch + each for each in (-2, -1, 0, 1)} | {member.previous_epoch}:
        for previous in (member.previous_epoch, member.epoch - 1, member.epoch):
            for report in (None, {}, member.assigned, more):
                yield replace(member, previous_epoch=previous), other, report


def _checked_instance(existing: Any, member_id: str, instance_id: str | None) -> str:
    if existing is None:
        _refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    if existing.member_id != member_id:
        _refuse(ErrorCode.FENCED_INSTANCE_ID)
    return member_id


def _near_instances(existing: Any, member_id: str, instance_id: str | None) -> Iterator[Arguments]:
    yield None, member_id, instance_id
    yield Member("one", "i"), "one", "i"
    yield Member("one", "i"), "two", "i"


def _member_id(member: Any, *_: Any) -> Any:
    return member.member_id


def _checked_heartbeat(request: Any, api_version: int, assignors: Sequence[str]) -> None:
    epoch, problems = request.member_epoch, [request.group_id == "", request.instance_id == "", request.rack_id == ""]
    problems += [request.member_id == "" and (api_version > 0 or epoch != _JOIN)]
    problems += [len(request.subscribed_topic_names or []) > 10_000, epoch < _STATIC_LEAVE]
    if epoch == _JOIN:
        problems += [request.rebalance_timeout_ms < 0, request.topic_partitions is None or request.topic_partitions]
        problems += [not (request.subscribed_topic_names or request.subscribed_topic_regex)]
    problems += [epoch == _STATIC_LEAVE and request.instance_id is None]
    if any(problems):
        _refuse(ErrorCode.INVALID_REQUEST)
    if request.server_assignor not in (None, *assignors):
        _refuse(ErrorCode.UNSUPPORTED_ASSIGNOR)


#: Values of the fields of a heartbeat, each of which makes a difference to some check.
_HEARTBEATS: Final[Mapping[str, Sequence[Any]]] = {
    "member_id": ("", "m"),
    "group_id": ("", "g"),
    "instance_id": (None, "", "i"),
    "rack_id": (None, "", "r"),
    "member_epoch": (-3, -2, -1, 0, 1),
    "rebalance_timeout_ms": (-1, 0, 5),
    "subscribed_topic_names": (None, [], ["t"]),
    "subscribed_topic_regex": (None, "", "t.*"),
    "topic_partitions": (None, []),
    "server_assignor": (None, "range", "none"),
}


def _with(request: Any, **changes: Any) -> Any:
    other = copy.copy(request)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def _near_heartbeats(request: Any, *more: Any) -> Iterator[Any]:
    for name, values in _HEARTBEATS.items():
        for value in values:
            yield _with(request, **{name: value})
            if name != "member_epoch":
                for epoch in (_JOIN, _STATIC_LEAVE, 3):
                    yield _with(request, **{name: value}, member_epoch=epoch)


def _near_checks(request: Any, api_version: int, assignors: Sequence[str]) -> Iterator[Arguments]:
    for other in _near_heartbeats(request):
        for version in (0, 1):
            yield other, version, assignors
    for count in (10_000, 10_001):
        yield _with(request, subscribed_topic_names=["t"] * count), api_version, assignors


def _near_kinds(request: Any) -> Iterator[Arguments]:
    full = _with(request, topic_partitions=[], rebalance_timeout_ms=5, subscribed_topic_names=["t"])
    for base in (request, full):
        for other in _near_heartbeats(base):
            yield (other,)


def _is_leaving(request: Any) -> bool:
    return bool(request.member_epoch in (_LEAVE, _STATIC_LEAVE))


def _is_plain(request: Any) -> bool:
    fields = request.topic_partitions, request.subscribed_topic_names, request.subscribed_topic_regex
    has_none = (*fields, request.server_assignor) == (None, None, None, None)
    return bool(request.member_epoch >= 1 and has_none and request.rebalance_timeout_ms == _NONE)


def _is_full(request: Any) -> bool:
    has_topics = (request.subscribed_topic_names, request.subscribed_topic_regex) != (None, None)
    return bool(has_topics and request.topic_partitions is not None and request.rebalance_timeout_ms != _NONE)


def _updated(member: Any, heartbeat: Any) -> Any:
    """Returns the member with what the heartbeat says; a field that is null or -1 says nothing."""
    request, said = heartbeat.request, {}
    fields = ("instance_id", "instance_id"), ("rack_id", "rack_id"), ("server_assignor", "server_assignor")
    for ours, theirs in (*fields, ("topic_names", "subscribed_topic_names"), ("regex", "subscribed_topic_regex")):
        value = getattr(request, theirs)
        if value is not None:
            said[ours] = frozenset(value) if ours == "topic_names" else value
    if request.rebalance_timeout_ms != _NONE:
        said["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    client = heartbeat.client_id, heartbeat.client_host
    return replace(member, **said, client_id=client[0], client_host=client[1], classic=None)


def _near_updates(member: Any, heartbeat: Any) -> Iterator[Arguments]:
    full = replace(member, instance_id="j", rack_id="k", server_assignor="uniform", rebalance_timeout_ms=7, regex="x")
    for other in _near_heartbeats(heartbeat.request):
        yield full, heartbeat._replace(request=other)


# -- consumer groups


def _chosen_assignor(planner: Any, group: Any) -> str:
    """Returns the assignor with the most votes; the order of the configuration decides between equals."""
    configured = list(planner._context.config.assignors)
    votes = [member.server_assignor for member in group.members.values()]
    return str(sorted(configured, key=lambda name: -votes.count(name))[0])


def _near_votes(planner: Any, group: Any) -> Iterator[Arguments]:
    some = sorted(group.members)[:3]
    for votes in (
        ("range",),
        ("uniform", "range"),
        ("range", None, "none"),
        ("none", "none", "range"),
        (None, "range"),
    ):
        members = group.members
        for name, vote in zip(some, votes, strict=False):
            members = members.set(name, replace(members[name], server_assignor=vote))
        yield planner, replace(group, members=members)


def _is_stale(planner: Any, resolved: Any) -> bool:
    old_ms = planner._context.wall_ms() - resolved.timestamp_ms
    if planner._context.topics.version > resolved.version:
        return bool(old_ms > 10_000)
    return bool(old_ms > max(planner._context.config.regex_refresh_interval_ms, 10_000))


def _near_stale(planner: Any, resolved: Any) -> Iterator[Arguments]:
    now_ms, version = planner._context.wall_ms(), planner._context.topics.version
    for age_ms in (10_000, planner._context.config.regex_refresh_interval_ms):
        for more in (0, 1):
            for known in (version - 1, version):
                yield planner, resolved._replace(timestamp_ms=now_ms - age_ms - more, version=known)


def _may_commit(group: Any, member_id: str, epoch: int, api_version: int) -> None:
    if epoch >= 0 or group.members:
        if member_id not in group.members:
            _refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        if group.members[member_id].classic is None and api_version <= 8:
            _refuse(ErrorCode.UNSUPPORTED_VERSION)
        _has_epoch(group, member_id, epoch)


def _has_epoch(group: Any, member_id: str, epoch: int) -> None:
    if member_id not in group.members:
        _refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.members[member_id]
    if epoch != member.epoch:
        _refuse(ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION)


def _may_commit_in_transaction(group: Any, member_id: str, instance_id: str | None, epoch: int) -> None:
    is_nobody = not member_id and instance_id is None
    if epoch >= 0 or (group.members and not is_nobody):
        _has_epoch(group, member_id, epoch)


def _may_fetch(group: Any, member_id: str | None, epoch: int) -> None:
    if member_id is not None or epoch >= 0:
        _has_epoch(group, member_id or "", epoch)


def _near_members(group: Any) -> Iterator[Any]:
    """Yields this group and its variants with a member of each protocol, and without members, and the members' ids."""
    new, classic = Member("new", epoch=4), Member("old", epoch=4, classic=ClassicInfo(5, ()))
    empty = group.members.clear() if hasattr(group.members, "clear") else type(group.members)()
    yield replace(group, members=empty), ""
    with_both = replace(group, members=group.members.set("new", new).set("old", classic))
    for member_id in ("", "new", "old", "unknown"):
        yield with_both, member_id


def _near_commits(group: Any, member_id: str, epoch: int, api_version: int) -> Iterator[Arguments]:
    for other, name in _near_members(group):
        for each in (-1, 0, 3, 4, 5):
            for version in (8, 9):
                yield other, name, each, version


def _near_transactional(group: Any, member_id: str, instance_id: str | None, epoch: int) -> Iterator[Arguments]:
    for other, name in _near_members(group):
        for each in (-1, 0, 3, 4, 5):
            for instance in (None, "i"):
                yield other, name, instance, each


def _near_fetches(group: Any, member_id: str | None, epoch: int) -> Iterator[Arguments]:
    for other, name in _near_members(group):
        for each in (-1, 0, 3, 4, 5):
            yield other, name, each
            yield other, None, each


# -- records

_Committed = tuple[int, int, str, int, int]


def _written(committed: Any) -> _Committed:
    return tuple(committed)


def _read_back(value: bytes, committed: Any) -> object:
    return offset_of(value)


def _near_offsets(committed: Any) -> Iterator[Arguments]:
    for letters in (0, 1, 125, 126, 127, 128):
        for expiry_ms in (_NONE, 0, 5):
            yield (CommittedOffset(2**40, 3 if expiry_ms == _NONE else -1, "x" * letters, 7, expiry_ms),)


def _parsed(value: bytes) -> _Committed:
    return offset_of(value)


def _tuple(found: Any, *_: Any) -> Any:
    return None if found is None else tuple(found)


def _ended_offsets(pending: Any, producer_id: int, *, commit: bool) -> object:
    """Returns the offsets that take effect, and those that stay open: later writes of a key count."""
    own = dict(pending._by_producer.get(producer_id, {}))
    left = set()
    for other, written in pending._by_producer.items():
        for key, (place, _) in written.items():
            is_replaced = commit and key in own and place < own[key][0]
            if other != producer_id and not is_replaced:
                left.add((other, key))
    return (
        {key: committed for key, (_, committed) in own.items()},
        left,
        {(k.group_id, k.topic, k.partition) for _, k in left},
    )


def _open_offsets(ended: Any, pending: Any, *_: Any) -> object:
    left = {(producer_id, key) for producer_id, written in pending._by_producer.items() for key in written}
    places = {(group_id, *place) for group_id, of_group in pending._open.items() for place in of_group}
    return dict(ended), left, places


def _near_ends_of_offsets(pending: Any, producer_id: int, **named: Any) -> Iterator[Arguments]:
    """Three transactions, of which two write the same keys, one after the other."""
    for ended in (1, 2, 3, 4):
        other = type(pending)()
        for number, (producer, partition) in enumerate(((1, 0), (2, 0), (2, 1), (1, 1), (3, 2), (1, 0))):
            other.put(producer, OffsetKey("g", "t", partition), CommittedOffset(number, -1, "", 0))
        yield other, ended


_CONSUMER: Final = "coordinators.groups.consumer."
#: Many probes that do not depend on the state of the run.
_RARELY: Final = (1, 500)
_SELDOM: Final = (3, 100)
_RECORDS: Final = "coordinators.groups.group_records:"

GROUP_DECISIONS: Final = (
    SecondDecision(_CONSUMER + "assignors:assign", _is_right, _near_targets, _fault, probed=_SELDOM),
    SecondDecision(_CONSUMER + "reconcile:reconcile", _reconciled, _near_steps, _fields, probed=_SELDOM),
    SecondDecision(_CONSUMER + "heartbeat:_check_epoch", _checked_epoch, _near_epochs, probed=_SELDOM),
    SecondDecision(
        _CONSUMER + "heartbeat:check_instance", _checked_instance, _near_instances, _member_id, probed=_RARELY
    ),
    SecondDecision(_CONSUMER + "heartbeat:_updated", _updated, _near_updates, probed=_RARELY),
    SecondDecision(_CONSUMER + "requests:check_heartbeat", _checked_heartbeat, _near_checks, probed=_RARELY),
    SecondDecision(_CONSUMER + "requests:is_leaving", _is_leaving, _near_kinds, probed=_RARELY),
    SecondDecision(_CONSUMER + "requests:is_plain", _is_plain, _near_kinds, probed=_RARELY),
    SecondDecision(_CONSUMER + "requests:is_full", _is_full, _near_kinds, probed=_RARELY),
    SecondDecision(_CONSUMER + "planning:Planner.assignor_of", _chosen_assignor, _near_votes, probed=_SELDOM),
    SecondDecision(_CONSUMER + "planning:Planner._is_stale", _is_stale, _near_stale, probed=_SELDOM),
    SecondDecision(_CONSUMER + "fencing:check_commit", _may_commit, _near_commits, probed=_RARELY),
    SecondDecision(
        _CONSUMER + "fencing:check_transactional_commit",
        _may_commit_in_transaction,
        _near_transactional,
        probed=_RARELY,
    ),
    SecondDecision(_CONSUMER + "fencing:check_fetch", _may_fetch, _near_fetches, probed=_RARELY),
    SecondDecision(_RECORDS + "offset_value", _written, _near_offsets, _read_back, probed=_RARELY),
    SecondDecision(_RECORDS + "parse_offset", _parsed, shown=_tuple),
    SecondDecision(
        "coordinators.groups.pending_offsets:PendingOffsets.end",
        _ended_offsets,
        _near_ends_of_offsets,
        _open_offsets,
        probed=_RARELY,
    ),
)
