"""A group of the classic protocol in memory under random requests: a small world of which a seed takes milliseconds.

Members of several versions, dynamic and static, join, leave, die and send late and wrong requests. A simple model of
the group predicts every answer, and which requests wait.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.support.classic_model import (
    COMPLETING,
    EMPTY,
    NEVER,
    PREPARING,
    STABLE,
    ModelGroup,
    ModelMember,
    loaded,
    memory_of,
    refusal_of,
    selected,
    shown_of,
)
from tests.support.group_world import Answer, GroupWorld

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions

_GROUP = "g"
_STEPS = 90
_DELAY_MS, _SIZE_MAX, _NEW_MS = 3_000, 4, 20_000
_E = ErrorCode


class ClassicExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"classic {seed}")
        self._world = GroupWorld(
            GroupConfig(
                initial_rebalance_delay_ms=_DELAY_MS, group_size_max=_SIZE_MAX, new_member_join_timeout_ms=_NEW_MS
            )
        )
        self._group: ModelGroup | None = None
        #: The group as a load would find it.
        self._stored: ModelGroup | None = None
        self._now_ms = 0
        self._parked: list[Answer[Any]] = []
        self._answers: list[tuple[str, Answer[Any], dict[str, Any]]] = []
        self._sizes = 0

    def run(self) -> None:
        with second_decisions().judging():
            steps = [self._join_new, self._join_new, self._join_again, self._join_again, self._join_again, self._sync]
            steps += [self._sync, self._sync, self._beat, self._beat, self._leave, self._time, self._time, self._time]
            steps += [self._settle, self._settle, self._ask_wrongly, self._move]
            for _ in range(_STEPS):
                self._random.choice(steps)()
                self._check()

    # -- answers

    def _say(self, what: str, answer: Answer[Any] | None, **fields: Any) -> None:
        """Notes that a request gets this answer in this step."""
        if answer is not None:
            self._answers.append((what, answer, fields))
            self._parked = [each for each in self._parked if each is not answer]

    def _park(self, answer: Answer[Any]) -> Answer[Any]:
        self._parked.append(answer)
        return answer

    def _check(self) -> None:
        while self._next_ms() <= self._now_ms:
            self._happens()
        self._world.pass_ms(0)
        answers, self._answers = self._answers, []
        for what, answer, fields in answers:
            if answer.is_parked:
                raise Violation(f"{what} is not answered with {fields}")
            found = {name: shown_of(getattr(answer.response, name)) for name in fields}
            if found != fields:
                raise Violation(f"{what} is answered with {found}, it should be {fields}")
        if not all(answer.is_parked for answer in self._parked):
            raise Violation("a request that should wait is answered")
        self._describe()
        held = self._world.find(_GROUP)
        if held is not None and held.held_bytes != memory_of(self._group):
            raise Violation(f"the group counts {held.held_bytes} bytes, it is {memory_of(self._group)}")

    def _describe(self) -> None:
        found, group = self._world.describe(_GROUP, version=5), self._group
        state = "Dead" if group is None else group.state
        protocol = group.protocol or "" if group is not None and group.state == STABLE else ""
        members = {}
        for member in [] if group is None else group.members.values():
            metadata = member.protocols[protocol] if protocol else b""
            members[member.member_id] = member.instance_id, metadata, member.assignment
        shown = {
            row.member_id: (row.group_instance_id, bytes(row.member_metadata), bytes(row.member_assignment))
            for row in found.members
        }
        if (found.group_state, found.protocol_data, shown) != (state, protocol, members):
            raise Violation(f"the group is described as {found}, it is {state} {protocol} {members}")

    # -- requests

    def _protocols(self) -> dict[str, bytes]:
        known = {"range": b"r", "robin": b"o", "sticky": b"s"}
        names = self._random.choice(
            (["range"], ["range", "robin"], ["robin", "range"], ["range", "sticky"], ["sticky"])
        )
        return {name: known[name] for name in names}

    def _join_new(self) -> None:
        instance = self._random.choice((None, None, "i1", "i2"))
        self._sizes += 1
        session_ms = self._random.choice((6_000, 12_000, 20_000)) + 137 * (self._sizes % 40)
        if self._random.random() < 0.05:
            session_ms = self._random.choice((5_999, 1_800_001))
        self._join(
            ModelMember("", instance, self._protocols(), session_ms, session_ms + self._random.choice((1_011, -2_989))),
            self._random.choice((3, 5, 9)),
        )

    def _join_again(self) -> None:
        group = self._group
        if group is None:
            return
        ids = [*group.members, *group.pending, "unknown"]
        member_id = self._random.choice(ids)
        known = group.members.get(member_id)
        if known is None:
            member = ModelMember(
                member_id, None, self._protocols(), 6_500 + 137 * (self._sizes % 40), 9_000 + self._sizes
            )
        else:
            protocols = known.protocols if self._random.random() < 0.7 else self._protocols()
            member = replace(known, protocols=dict(protocols))
            if self._random.random() < 0.1:
                member = replace(member, instance_id=self._random.choice((None, "i1", "i2")))
        self._join(member, self._random.choice((3, 5, 9)))

    def _join(self, member: ModelMember, version: int) -> None:
        known = set() if self._group is None else set(self._group.members)
        answer = self._world.join(
            _GROUP,
            member.member_id,
            instance_id=member.instance_id,
            protocols=member.protocols,
            session_ms=member.session_ms,
            rebalance_ms=member.rebalance_ms,
            version=version,
        )
        self._world.pass_ms(0)
        refusal = self._join_refusal(member)
        if refusal is not None:
            code, member_id = refusal
            self._say("JoinGroup", answer, error_code=code, member_id=member_id)
            return
        assert self._group is not None
        group = self._group
        if member.member_id and member.member_id not in group.pending:
            self._rejoin(group, group.members[member.member_id], member, answer)
        elif not member.member_id and member.instance_id is None and version >= 4:
            member_id = answer.response.member_id
            self._say("JoinGroup", answer, error_code=_E.MEMBER_ID_REQUIRED, generation_id=-1)
            group.pending[member_id] = self._now_ms + member.session_ms
        else:
            if not member.member_id:
                found = self._world.find(_GROUP)
                assert found is not None
                (member.member_id,) = set(found.members) - known
            old = next(
                (e for e in group.members.values() if e.instance_id and e.instance_id == member.instance_id), None
            )
            if old is None:
                self._add(group, member, answer)
            else:
                self._replace(group, old, member, answer, version)

    def _join_refusal(self, member: ModelMember) -> tuple[ErrorCode, str] | None:
        if not 6_000 <= member.session_ms <= 1_800_000:
            return _E.INVALID_SESSION_TIMEOUT, member.member_id
        if self._group is None:
            if member.member_id:
                return _E.UNKNOWN_MEMBER_ID, member.member_id
            self._group, self._stored = ModelGroup(), ModelGroup()
        group, known = self._group, self._group.members.get(member.member_id)
        joined = [each for each in group.members.values() if each.join is not None]
        is_full = {
            PREPARING: known not in joined and len(joined) >= _SIZE_MAX,
            EMPTY: False,
        }.get(group.state, known is None and len(group.members) >= _SIZE_MAX)
        if is_full:
            if known is not None:
                self._remove(group, known)
            group.pending.pop(member.member_id, None)
            self._maybe_complete(group)
            return _E.GROUP_MAX_SIZE_REACHED, ""
        common = [n for n in member.protocols if all(n in each.protocols for each in group.members.values())]
        if group.state != EMPTY and not common:
            return _E.INCONSISTENT_GROUP_PROTOCOL, member.member_id
        if member.member_id in group.pending:
            return None if member.instance_id is None else (_E.UNKNOWN_MEMBER_ID, member.member_id)
        refusal = refusal_of(group, member.member_id, member.instance_id) if member.member_id else _E.NONE
        return None if refusal is _E.NONE else (refusal, member.member_id)

    def _add(self, group: ModelGroup, member: ModelMember, answer: Answer[Any]) -> None:
        group.new_added |= group.state == PREPARING and group.before == EMPTY
        group.pending.pop(member.member_id, None)
        group.members[member.member_id] = member
        group.leader = group.leader or member.member_id
        member.join, member.is_new, member.due_ms = self._park(answer), True, self._now_ms + _NEW_MS
        self._rebalance(group)

    def _rejoin(self, group: ModelGroup, known: ModelMember, member: ModelMember, answer: Answer[Any]) -> None:
        same = list(known.protocols.items()) == list(member.protocols.items())
        is_leader = group.leader == known.member_id
        if same and (group.state == COMPLETING or (group.state == STABLE and not is_leader)):
            self._say_joined(group, known, answer)
            return
        self._say("JoinGroup", known.join, error_code=_E.REBALANCE_IN_PROGRESS, member_id=known.member_id)
        known.protocols, known.join = dict(member.protocols), self._park(answer)
        known.session_ms, known.rebalance_ms = member.session_ms, member.rebalance_ms
        self._rebalance(group)

    def _replace(
        self, group: ModelGroup, old: ModelMember, new: ModelMember, answer: Answer[Any], version: int
    ) -> None:
        leader_before = group.leader
        self._say("JoinGroup", old.join, error_code=_E.FENCED_INSTANCE_ID, member_id=old.member_id)
        self._say("SyncGroup", old.sync, error_code=_E.FENCED_INSTANCE_ID)
        del group.members[old.member_id]
        group.members[new.member_id] = new
        new.assignment, new.due_ms = old.assignment, self._now_ms + new.session_ms
        group.unsynced.discard(old.member_id)
        if group.leader == old.member_id:
            group.leader = new.member_id
        new.join = self._park(answer)
        if group.state == STABLE and selected(group) == group.protocol:
            new.join = None
            if version >= 9:
                self._say_joined(group, new, answer, skip_assignment=group.leader == new.member_id)
            else:
                self._say("JoinGroup", answer, error_code=_E.NONE, leader=leader_before, members=[])
            self._store(group)
        elif group.state in (STABLE, COMPLETING):
            self._prepare(group)
        else:
            self._maybe_complete(group)

    def _say_joined(self, group: ModelGroup, member: ModelMember, answer: Answer[Any] | None, **more: Any) -> None:
        assert group.protocol is not None
        rows = [(each.member_id, each.instance_id, each.protocols[group.protocol]) for each in group.members.values()]
        self._say(
            "JoinGroup",
            answer,
            error_code=_E.NONE,
            generation_id=group.generation,
            protocol_name=group.protocol,
            leader=group.leader,
            member_id=member.member_id,
            members=rows if group.leader == member.member_id else [],
            **more,
        )

    def _target(self) -> tuple[str, int, str | None]:
        """Returns a member, a generation and an instance, which are mostly right."""
        group = self._group
        if group is None or not group.members:
            return "unknown", 0, None
        member = self._random.choice(list(group.members.values()))
        found = member.member_id, group.generation, member.instance_id
        if self._random.random() < 0.8:
            return found
        return self._random.choice(
            (
                ("unknown", found[1], None),
                (found[0], found[1] - 1, found[2]),
                (found[0], found[1] + 1, found[2]),
                (found[0], found[1], "unknown"),
                (found[0], found[1], "i1"),
                (found[0], found[1], None),
            )
        )

    def _sync(self) -> None:
        group, (member_id, generation, instance_id) = self._group, self._target()
        name = None if group is None else group.protocol
        if self._random.random() < 0.1 or name is None:
            name = "other"
        given = (
            {} if group is None else {each: f"{each} {generation} {self._now_ms}".encode() for each in group.members}
        )
        given = {each: data for each, data in given.items() if self._random.random() < 0.9}
        is_leader = group is not None and group.leader == member_id
        answer = self._world.sync(
            _GROUP, generation, member_id, given if is_leader else {}, instance_id=instance_id, protocol_name=name
        )
        refusal = refusal_of(group, member_id, instance_id)
        if refusal is _E.NONE and group is not None:
            if generation != group.generation:
                refusal = _E.ILLEGAL_GENERATION
            elif name != group.protocol:
                refusal = _E.INCONSISTENT_GROUP_PROTOCOL
            elif group.state == PREPARING:
                refusal = _E.REBALANCE_IN_PROGRESS
        if refusal is not _E.NONE or group is None:
            self._say("SyncGroup", answer, error_code=refusal, assignment=b"")
            return
        member = group.members[member_id]
        group.unsynced.discard(member_id)
        if not group.unsynced:
            group.sync_ms = NEVER
        if group.state == STABLE:
            self._say("SyncGroup", answer, error_code=_E.NONE, assignment=member.assignment, protocol_name=name)
            return
        self._say("SyncGroup", member.sync, error_code=_E.REBALANCE_IN_PROGRESS)
        member.sync = self._park(answer)
        if is_leader:
            for each in group.members.values():
                each.assignment = given.get(each.member_id, b"")
            self._become(group, STABLE)
            self._answer_syncs(group, _E.NONE)
            self._store(group)

    def _answer_syncs(self, group: ModelGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            if member.sync is not None:
                self._say("SyncGroup", member.sync, error_code=code, assignment=member.assignment)
                member.sync, member.due_ms = None, self._now_ms + member.session_ms

    def _beat(self) -> None:
        group, (member_id, generation, instance_id) = self._group, self._target()
        found = self._world.heartbeat(_GROUP, generation, member_id, instance_id=instance_id)
        expected = refusal_of(group, member_id, instance_id)
        if expected is _E.NONE and group is not None:
            if generation != group.generation:
                expected = _E.ILLEGAL_GENERATION
            else:
                group.members[member_id].due_ms = self._now_ms + group.members[member_id].session_ms
                expected = _E.REBALANCE_IN_PROGRESS if group.state == PREPARING else _E.NONE
        if found != expected:
            raise Violation(f"a heartbeat is answered with {found}, it should be {expected}")

    def _leave(self) -> None:
        group = self._group
        rows: list[tuple[str, str | None]] = []
        for _ in range(self._random.choice((1, 1, 2))):
            member_id, _, instance_id = self._target()
            if group is not None and group.pending and self._random.random() < 0.3:
                member_id, instance_id = self._random.choice(list(group.pending)), None
            rows.append(("" if instance_id is not None and self._random.random() < 0.5 else member_id, instance_id))
        error, codes = self._world.leave(_GROUP, *rows)
        if group is None:
            if error is not _E.NONE or set(codes) != {_E.UNKNOWN_MEMBER_ID}:
                raise Violation(f"members leave a group that does not exist: {error}, {codes}")
            return
        expected = [self._left(group, *row) for row in rows]
        if codes != expected:
            raise Violation(f"{rows} leave with {codes}, it should be {expected}")
        if _E.NONE in codes:
            self._after_removal(group)

    def _left(self, group: ModelGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id:
            owner = next((e for e in group.members.values() if e.instance_id == instance_id and instance_id), None)
            if owner is None:
                return _E.UNKNOWN_MEMBER_ID
            member_id = owner.member_id
        if member_id in group.pending:
            del group.pending[member_id]
            return _E.NONE
        refusal = refusal_of(group, member_id, instance_id)
        if refusal is _E.NONE:
            self._remove(group, group.members[member_id])
        return refusal

    def _ask_wrongly(self) -> None:
        answer = self._world.join("", "")
        self._say("JoinGroup without a group", answer, error_code=_E.INVALID_GROUP_ID)
        unnamed = self._world.sync(_GROUP, 1, "m", protocol_name=None)
        self._say("SyncGroup without a protocol", unnamed, error_code=_E.INCONSISTENT_GROUP_PROTOCOL)

    # -- rebalances

    def _become(self, group: ModelGroup, state: str) -> None:
        group.before, group.state = group.state, state

    def _remove(self, group: ModelGroup, member: ModelMember) -> None:
        self._say("JoinGroup", member.join, error_code=_E.UNKNOWN_MEMBER_ID, member_id="")
        self._say("SyncGroup", member.sync, error_code=_E.UNKNOWN_MEMBER_ID)
        del group.members[member.member_id]
        group.unsynced.discard(member.member_id)
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), None)

    def _after_removal(self, group: ModelGroup) -> None:
        if group.state in (STABLE, COMPLETING):
            self._prepare(group)
        else:
            self._maybe_complete(group)

    def _rebalance(self, group: ModelGroup) -> None:
        if group.state == PREPARING:
            self._maybe_complete(group)
        else:
            self._prepare(group)

    def _is_joined(self, group: ModelGroup) -> bool:
        return not group.pending and all(member.join is not None for member in group.members.values())

    def _longest(self, group: ModelGroup) -> int:
        return max((member.rebalance_ms for member in group.members.values()), default=0)

    def _prepare(self, group: ModelGroup) -> None:
        if group.state == COMPLETING:
            for member in group.members.values():
                member.assignment = b""
            self._answer_syncs(group, _E.REBALANCE_IN_PROGRESS)
        group.sync_ms = NEVER
        self._become(group, PREPARING)
        if group.before == EMPTY:
            group.join_ms = self._now_ms + _DELAY_MS
            group.initial = _DELAY_MS, max(self._longest(group) - _DELAY_MS, 0)
        elif self._is_joined(group):
            self._complete(group)
        else:
            group.initial, group.join_ms = None, self._now_ms + self._longest(group)

    def _maybe_complete(self, group: ModelGroup) -> None:
        if group.state == PREPARING and group.before != EMPTY and self._is_joined(group):
            self._complete(group)

    def _complete(self, group: ModelGroup) -> None:
        group.join_ms, group.initial = NEVER, None
        for member in [each for each in group.members.values() if each.join is None and each.instance_id is None]:
            self._remove(group, member)
        joined = [member for member in group.members.values() if member.join is not None]
        if group.members and not joined:
            group.join_ms = self._now_ms + self._longest(group)
            return
        if joined and group.members[group.leader or ""].join is None:
            group.leader = joined[0].member_id
        group.new_added = False
        group.generation += 1
        group.protocol = selected(group) if group.members else None
        self._become(group, COMPLETING if group.members else EMPTY)
        group.unsynced = set(group.members)
        if not group.members:
            self._store(group)
            return
        for member in group.members.values():
            self._say_joined(group, member, member.join)
            member.join, member.is_new, member.due_ms = None, False, self._now_ms + member.session_ms
        group.sync_ms = self._now_ms + self._longest(group)

    def _store(self, group: ModelGroup) -> None:
        members = {
            each.member_id: replace(
                each,
                protocols={group.protocol or "": each.protocols[group.protocol or ""]},
                join=None,
                sync=None,
                is_new=False,
            )
            for each in group.members.values()
        }
        state = STABLE if members else EMPTY
        self._stored = ModelGroup(state, state, group.generation, group.leader, group.protocol, members)

    # -- time and failovers

    def _time(self) -> None:
        duration_ms = self._random.choice((1, 500, 1_500, 3_000, 5_003, 9_007, 40_009))
        until_ms = self._now_ms + duration_ms
        while (at_ms := self._next_ms()) <= until_ms:
            self._now_ms = at_ms
            self._happens()
        self._now_ms = until_ms
        self._world.pass_ms(duration_ms)

    def _next_ms(self) -> int:
        group = self._group
        if group is None:
            return NEVER
        dues = [member.due_ms for member in group.members.values()]
        return min([*dues, *group.pending.values(), group.join_ms, group.sync_ms])

    def _happens(self) -> None:
        """Lets happen what falls due now."""
        group, now_ms = self._group, self._now_ms
        assert group is not None
        for member in list(group.members.values()):
            if member.due_ms == now_ms:
                member.due_ms = NEVER
                if member.is_new or (member.join is None and member.sync is None):
                    self._remove(group, member)
                    self._after_removal(group)
                return
        for member_id, due_ms in group.pending.items():
            if due_ms == now_ms:
                del group.pending[member_id]
                self._maybe_complete(group)
                return
        if group.join_ms == now_ms:
            if group.initial is not None and group.new_added and group.initial[1]:
                delay_ms, left_ms = group.initial
                group.new_added = False
                next_ms = min(_DELAY_MS, left_ms)
                group.initial, group.join_ms = (next_ms, max(left_ms - delay_ms, 0)), now_ms + next_ms
            else:
                self._complete(group)
            return
        group.sync_ms = NEVER
        if group.unsynced:
            for member_id in sorted(group.unsynced):
                self._remove(group, group.members[member_id])
            self._prepare(group)

    def _settle(self) -> None:
        """All members do what their group needs: they join again, or request their assignment."""
        group = self._group
        for member in [] if group is None else list(group.members.values()):
            assert group is not None
            if member.member_id not in group.members:
                continue
            if group.state == PREPARING and member.join is None:
                self._join(replace(member), 9)
            elif group.state == COMPLETING and member.sync is None:
                self._sync_rightly(group, member)
            self._check()
            if self._random.random() < 0.1:
                break

    def _sync_rightly(self, group: ModelGroup, member: ModelMember) -> None:
        found = member.member_id, group.generation, member.instance_id
        target, self._target = self._target, lambda: found  # type: ignore[method-assign]
        self._sync()
        self._target = target  # type: ignore[method-assign]

    def _move(self) -> None:
        there = [] if self._group is None else list(self._group.members.values())
        if self._random.random() < (0.3 if any(each.join or each.sync for each in there) else 0.7):
            return
        for member in there:
            self._say("JoinGroup", member.join, error_code=_E.NOT_COORDINATOR)
            self._say("SyncGroup", member.sync, error_code=_E.NOT_COORDINATOR)
        self._world = self._world.restart()
        self._world.until_active(1)
        self._now_ms = self._world.host.clock.now_ms()
        self._group = None if self._stored is None else loaded(self._stored, self._now_ms)
