"""Second decisions of classic groups: who may join, which protocol is chosen, and what is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.simulation.second_decisions import Arguments, SecondDecision

_NONE: Final = -1
#: Many probes that do not depend on the state of the run.
_RARELY: Final = (1, 500)
_SELDOM: Final = (3, 100)


def _refuse(code: ErrorCode) -> None:
    raise RequestFailed(code)


def _member_id(member: Any, *_: Any) -> Any:
    return member.member_id


def _tuple(found: Any, *_: Any) -> Any:
    return None if found is None else tuple(found)


def _accepted(committers: Any, metadata: str | None, offset: int, leader_epoch: int, retention_ms: int) -> object:
    config, now_ms = committers._context.config, committers._context.wall_ms()
    text = "" if metadata is None else metadata
    if len(text) > config.offset_metadata_size_max:
        return None
    expiry_ms = _NONE if retention_ms < 0 else min(now_ms + retention_ms, 2**63 - 1)
    return offset, leader_epoch, text, now_ms, expiry_ms


def _near_accepted(
    committers: Any, metadata: str | None, offset: int, leader_epoch: int, retention_ms: int
) -> Iterator[Arguments]:
    largest = committers._context.config.offset_metadata_size_max
    for text in (None, "", "x" * largest, "x" * (largest + 1)):
        for retention in (-1, 0, 1, 2**63 - 1):
            yield committers, text, offset, leader_epoch, retention


def _is_supported(group: Any, protocol_type: str, protocols: Any) -> bool:
    if group.state is GroupState.EMPTY:
        return protocol_type != "" and len(protocols) > 0
    if protocol_type != group.protocol_type:
        return False
    return any(all(name in member.protocols for member in group.members.values()) for name in protocols)


def _near_protocols(group: Any, protocol_type: str, protocols: Any) -> Iterator[Arguments]:
    known = {name: b"" for member in group.members.values() for name in member.protocols}
    for kind in ("", "consumer", "connect", protocol_type):
        for offered in ({}, {"none": b""}, {**protocols}, known, {"none": b"", **known}):
            yield group, kind, offered


def _selected(group: Any) -> str:
    """Returns the protocol with the most votes; a member votes for the first of its protocols that all support."""
    members = list(group.members.values())
    common = [name for name in members[0].protocols if all(name in each.protocols for each in members)]
    votes = [next(name for name in member.protocols if name in common) for member in members]
    return str(max(votes, key=votes.count))


def _member_of(group: Any, member_id: str, instance_id: str | None) -> str:
    by_instance = {each.instance_id: each.member_id for each in group.members.values() if each.instance_id is not None}
    if instance_id is not None and instance_id not in by_instance:
        _refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    if instance_id is not None and by_instance[instance_id] != member_id:
        _refuse(ErrorCode.FENCED_INSTANCE_ID)
    if member_id not in group.members:
        _refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    return member_id


def _near_identities(group: Any, member_id: str, instance_id: str | None) -> Iterator[Arguments]:
    instances = [each.instance_id for each in group.members.values()][:2]
    for name in (member_id, "unknown", *list(group.members)[:2]):
        for instance in {None, "unknown", instance_id, *instances}:
            yield group, name, instance


def _has_room(joining: Any, group: Any, member_id: str) -> bool:
    largest = joining._context.config.group_size_max
    joined = [name for name, member in group.members.items() if member.join_reply is not None]
    if group.state is GroupState.PREPARING_REBALANCE:
        return member_id in joined or len(joined) < largest
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        return member_id in group.members or len(group.members) < largest
    return True


def _near_room(joining: Any, group: Any, member_id: str) -> Iterator[Arguments]:
    for name in ("unknown", *list(group.members)[:2]):
        yield joining, group, name


def _has_same(member: Any, protocols: Any) -> bool:
    return [*member.protocols] == [*protocols] and dict(member.protocols) == dict(protocols)


def _near_same(member: Any, protocols: Any) -> Iterator[Arguments]:
    own = member.protocols
    for other in (dict(own), {}, dict(reversed(own.items())), {**own, "more": b""}, dict.fromkeys(own, b"other")):
        yield member, other


def _subscriptions(metadata: Iterable[bytes]) -> frozenset[str] | None:
    names: set[str] = set()
    for each in metadata:
        try:
            version, count = int.from_bytes(each[:2], signed=True), int.from_bytes(each[2:6], signed=True)
            if len(each) < 6 or version < 0 or count < 0 or count > len(each):
                return None
            rest = each[6:]
            for _ in range(count):
                size = int.from_bytes(rest[:2], signed=True)
                if len(rest) < 2 or size < 0 or size > len(rest) - 2:
                    return None
                names.add(rest[2 : 2 + size].decode())
                rest = rest[2 + size :]
        except UnicodeDecodeError:
            return None
    return frozenset(names)


def _near_subscriptions(metadata: Iterable[bytes]) -> Iterator[Arguments]:
    one = b"\0\1\0\0\0\2\0\1a\0\2bc"
    for each in (one, one[:-1], one + b"\xff", one[:9], one[:7], b"\xff\xff" + one[2:], b"\0\0\0\0\0\0", b"\0\0"):
        yield ([each],)
    for each in (b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff", b"\0\0\0\0\0\1\0\1\xff", b"\0\0\0\0\0\1\0\0"):
        yield ([one, each],)
    yield ([],)


_CLASSIC: Final = "coordinators.groups.classic."

CLASSIC_DECISIONS: Final = (
    SecondDecision(_CLASSIC + "group:ClassicGroup.supports", _is_supported, _near_protocols, probed=_SELDOM),
    SecondDecision(_CLASSIC + "group:ClassicGroup.select_protocol", _selected),
    SecondDecision(_CLASSIC + "group:ClassicGroup.validate", _member_of, _near_identities, _member_id, probed=_SELDOM),
    SecondDecision(_CLASSIC + "group:Member.has_protocols", _has_same, _near_same, probed=_SELDOM),
    SecondDecision(_CLASSIC + "joining:Joining._has_capacity", _has_room, _near_room, probed=_SELDOM),
    SecondDecision(
        "coordinators.groups.committers:Committers.accept", _accepted, _near_accepted, _tuple, probed=_RARELY
    ),
    SecondDecision(
        "coordinators.groups.subscription:subscribed_topics", _subscriptions, _near_subscriptions, probed=_RARELY
    ),
)
