"""A coordinator of groups in memory under random requests: a small world of which a seed takes milliseconds.

Members of both protocols share a group, so that it is converted in both directions; some are static, leave for a while
and come back, and some subscribe with an expression. Another group has no members and commits offsets. Topics are
created, extended and deleted, members die, the coordinator moves. After every step the coordinator and its descriptions
are compared with the simple replay of its log; offsets are read with all versions of the request, lists are filtered
here again, wrong requests get their errors, and a member reads what it is assigned. In the end every partition has one
owner, and the members have equal shares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from tests.support.consumer_members import Consumer, describe, send
from tests.support.group_world import Answer, GroupWorld, delete_errors, fetched

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.runtime import ShardState
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from barnabas.simulation.coordinator_dict import CoordinatorDict
from barnabas.simulation.coordinator_replay import wrong_groups
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions

_GROUP, _SIMPLE = "g", "simple"
_STEPS = 60
_SESSION_MS, _REBALANCE_MS = 10_000, 8_000
#: The time that a request waits for a write.
_WRITE_MS = 5_000
_NONE = -1
_INVALID = ErrorCode.INVALID_REQUEST
_STATES = ("empty", "stable", "preparingrebalance", "completingrebalance", "reconciling", "assigning")


def _assignment(topic: str, indexes: list[int]) -> bytes:
    """Returns an assignment of the consumer protocol, version 0."""
    out = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", len(indexes))
    return out + b"".join(struct.pack(">i", index) for index in indexes) + struct.pack(">i", -1)


def _decoded(data: bytes) -> set[tuple[str, int]]:
    """Returns the partitions of an assignment of the consumer protocol."""
    found: set[tuple[str, int]] = set()
    (count,), at = struct.unpack_from(">i", data, 2), 6
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        name, at = data[at + 2 : at + 2 + size].decode(), at + 2 + size
        (number,) = struct.unpack_from(">i", data, at)
        found |= {(name, index) for index in struct.unpack_from(f">{number}i", data, at + 4)}
        at += 4 + 4 * number
    return found


def _named(world: GroupWorld, assigned: Mapping[bytes, Iterable[int]]) -> set[tuple[str, int]]:
    """Returns the partitions of the topics that exist."""
    found = set()
    for topic_id, indexes in assigned.items():
        topic = world.topic_view.find_id(topic_id)
        found |= set() if topic is None else {(topic.name, index) for index in indexes}
    return found


class ClassicMember:
    """A member of the classic protocol that reads `orders`; `step` continues as far as possible."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self._join: Answer[JoinGroupResponse] | None = None
        self._sync: Answer[SyncGroupResponse] | None = None

    def step(self, world: GroupWorld) -> None:
        if self._join is not None:
            self._take_join(world)
        elif self._sync is not None:
            self._take_sync()
        elif self.generation >= 0:
            if world.heartbeat(_GROUP, self.generation, self.member_id) is not ErrorCode.NONE:
                self.generation = -1
        else:
            self._join = world.join(_GROUP, self.member_id, session_ms=_SESSION_MS, rebalance_ms=_REBALANCE_MS)

    def _take_join(self, world: GroupWorld) -> None:
        assert self._join is not None
        if self._join.is_parked:
            return
        answer, self._join = self._join, None
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.response.member_id
        elif answer.error is not ErrorCode.NONE:
            self.member_id = ""
        else:
            response = answer.response
            self.member_id, self.generation = response.member_id, response.generation_id
            given: dict[str, bytes] = {}
            if response.leader == self.member_id and not response.skip_assignment:
                names = [member.member_id for member in response.members]
                count = world.topics.get("orders", 0)
                given = {
                    name: _assignment("orders", list(range(place, count, len(names))))
                    for place, name in enumerate(names)
                }
            self._sync = world.sync(_GROUP, self.generation, self.member_id, given)
            if not self._sync.is_parked and self._sync.error is ErrorCode.NONE:
                self._is_assigned(world, bytes(self._sync.response.assignment))

    def _is_assigned(self, world: GroupWorld, data: bytes) -> None:
        """Checks the answer of a consumer group: its partitions, encoded for the classic protocol."""
        shard = world.coordinator.shard(0)
        group = None if shard is None else shard.consumers.find(_GROUP)
        if group is not None and self.member_id in group.members:
            expected = _named(world, group.members[self.member_id].assigned)
            if _decoded(data) != expected:
                raise Violation(f"{self.member_id} gets {_decoded(data)} by SyncGroup, it has {expected}")

    def _take_sync(self) -> None:
        assert self._sync is not None
        if not self._sync.is_parked:
            if self._sync.error is not ErrorCode.NONE:
                self.generation = -1
            self._sync = None

    def forget(self) -> None:
        """Forgets the coordinator and the answers it waits for."""
        self._join = self._sync = None
        self.generation = -1


class GroupExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"groups {seed}")
        self._world = GroupWorld()
        self._consumers: list[Consumer] = []
        self._classic: list[ClassicMember] = []
        self._offsets: dict[tuple[str, int], int] = {}
        self._named = 0
        self._commits = 0
        self._uses_classic = self._random.random() < 0.6

    def run(self) -> None:
        with second_decisions().judging():
            self._run()

    def _run(self) -> None:
        steps = [
            self._beat,
            self._beat,
            self._join,
            self._join,
            self._join,
            self._leave,
            self._die,
            self._time,
            self._topic,
            self._subscribe,
        ]
        steps += [self._commit, self._commit, self._delete_offsets, self._move, self._ask_wrongly, self._come_back]
        steps += [self._stall]
        for _ in range(_STEPS):
            self._random.choice(steps)()
            self._compare(is_loaded=False)
        self._calm()

    # -- what happens

    def _beat(self) -> None:
        for one in self._consumers:
            if one.beat() is ErrorCode.NONE:
                self._reads_its_partitions(one)
        for member in self._classic:
            member.step(self._world)

    def _join(self) -> None:
        if self._uses_classic and self._random.random() < 0.5 and len(self._classic) < 3:
            self._classic.append(ClassicMember())
        elif len(self._consumers) < 4:
            self._named += 1
            topics = self._random.choice((("orders",), ("orders",), ("bills", "orders")))
            assignor = self._random.choice((None, "range", "uniform"))
            regex = self._random.choice((None, None, None, "o.*", "(orders|bills)"))
            instance = self._random.choice((None, None, "i1", "i2"))
            if self._uses_classic or any(one.instance_id == instance for one in self._consumers):
                instance = None
            one = Consumer(
                self._world,
                f"m{self._named}",
                topics if regex is None else self._random.choice((topics, ())),
                assignor=assignor,
                rebalance_ms=_REBALANCE_MS,
                regex=regex,
                instance_id=instance,
            )
            self._consumers.append(one)
            if one.beat() is not ErrorCode.NONE:
                self._consumers.remove(one)

    def _leave(self) -> None:
        if self._consumers and (not self._classic or self._random.random() < 0.7):
            self._consumers.pop(self._random.randrange(len(self._consumers))).leave()
        elif self._classic:
            member = self._classic.pop(self._random.randrange(len(self._classic)))
            if member.member_id:
                self._world.leave(_GROUP, (member.member_id, None))

    def _come_back(self) -> None:
        """A static member leaves for a while: its instance comes back under another id."""
        static = [one for one in self._consumers if one.instance_id is not None and one.epoch > 0]
        if not static:
            return
        one = self._random.choice(static)
        if (code := one.leave(-2)) is not ErrorCode.NONE:
            raise Violation(f"{one.member_id} cannot leave for a while: {code}")
        one.epoch = 0
        self._compare(is_loaded=False)
        self._named += 1
        one.member_id = f"m{self._named}"
        if one.beat() is not ErrorCode.NONE:
            raise Violation(f"{one.instance_id} cannot come back")
        self._reads_its_partitions(one)

    def _reads_its_partitions(self, one: Consumer) -> None:
        group = self._shard().consumers.find(_GROUP)
        member = None if group is None else group.members.get(one.member_id)
        if member is None or member.epoch != one.epoch:
            raise Violation(f"{one.member_id} is at epoch {one.epoch}, in the group it is {member}")
        assigned = _named(self._world, member.assigned)
        if not one.is_revoking and assigned != one.owned:
            raise Violation(f"{one.member_id} reads {one.owned}, its partitions are {assigned}")

    def _ask_wrongly(self) -> None:
        """Sends heartbeats with wrong ids, epochs and instances: they get their errors and change nothing."""
        group = self._shard().consumers.find(_GROUP)
        if group is None or not group.members:
            return
        member = self._random.choice(group.in_order())
        epoch, instance = member.epoch, member.instance_id
        wrong: list[tuple[str, int, str | None, ErrorCode]]
        wrong = [("unknown", max(epoch, 1), None, ErrorCode.UNKNOWN_MEMBER_ID)]
        wrong += [(member.member_id, max(epoch, 0) + 1, instance, ErrorCode.FENCED_MEMBER_EPOCH)]
        wrong += [(member.member_id, max(epoch, 1), "unknown", ErrorCode.UNKNOWN_MEMBER_ID)]
        wrong += [("unknown", -1, None, ErrorCode.UNKNOWN_MEMBER_ID), (member.member_id, -3, None, _INVALID)]
        wrong += [
            (member.member_id, -2, None, _INVALID),
            ("", 1, None, _INVALID),
            (member.member_id, 0, None, _INVALID),
        ]
        if epoch > 1:
            wrong += [(member.member_id, epoch - 1, instance, ErrorCode.FENCED_MEMBER_EPOCH)]
        if instance is not None:
            wrong += [("unknown", max(epoch, 1), instance, ErrorCode.FENCED_INSTANCE_ID)]
        for member_id, member_epoch, instance_id, code in wrong:
            request = ConsumerGroupHeartbeatRequest(
                group_id=_GROUP, member_id=member_id, member_epoch=member_epoch, instance_id=instance_id
            )
            found = send(self._world, request).error
            if found is not code:
                raise Violation(f"a heartbeat of {member_id, member_epoch, instance_id} gets {found}, not {code}")
        if self._shard().consumers.find(_GROUP) != group:
            raise Violation("a wrong heartbeat changed the group")

    def _die(self) -> None:
        if self._consumers and self._random.random() < 0.5:
            self._consumers.pop(self._random.randrange(len(self._consumers)))
        elif self._classic:
            self._classic.pop(self._random.randrange(len(self._classic)))

    def _time(self) -> None:
        for _ in range(self._random.choice((1, 3, 12, 30))):
            self._beat()
            self._world.pass_ms(2_000)
        self._world.pass_ms(0)

    def _topic(self) -> None:
        name = self._random.choice(("orders", "bills"))
        if self._random.random() < 0.3:
            self._world.topics.pop(name, None)
            self._world.delete(_SIMPLE)
            self._offsets = {}
            for one in self._consumers:
                one.forget(name)
        else:
            self._world.topics[name] = max(self._random.choice((1, 2, 5, 7)), self._world.topics.get(name, 0))

    def _subscribe(self) -> None:
        if self._consumers:
            self._random.choice(self._consumers).subscribe(self._random.choice((("orders",), ("bills", "orders"))))

    def _move(self) -> None:
        self._world = self._world.restart()
        self._world.until_active(1)
        for one in self._consumers:
            one.world = self._world
        for member in self._classic:
            member.forget()
        self._compare(is_loaded=True)

    def _stall(self) -> None:
        """Records are not committed for a while: requests wait for them no longer than for a write, and a group is
        converted only after all writes before.
        """
        world, log, partition = self._world, self._world.log, self._world.partition()
        log.holding = True
        place, is_writing = next(((topic, 0) for topic in world.topics), None), False
        if place is not None:
            self._commits += 1
            is_writing = world.commit(_SIMPLE, {place: self._commits}, version=8).is_parked
            if is_writing:
                # The commit happens later, although its time is over.
                self._offsets[place] = self._commits
        waiting: list[tuple[int, str, Answer[Any]]] = []
        for _ in range(self._random.choice((2, 3, 5))):
            self._named += 1
            request = ConsumerGroupHeartbeatRequest(
                group_id=_GROUP,
                member_id=f"w{self._named}",
                member_epoch=0,
                subscribed_topic_names=["orders"],
                rebalance_timeout_ms=_REBALANCE_MS,
                topic_partitions=[],
            )
            classic, written = world.find(_GROUP), len(log.records(partition))
            is_converted = classic is not None and not waiting and not self._shard().consumers.has(_GROUP)
            waiting.append((world.host.clock.now_ms(), f"w{self._named}", send(world, request)))
            if is_converted and is_writing and len(log.records(partition)) > written:
                raise Violation("a group is converted before the writes of its members are committed")
            world.pass_ms(self._random.choice((0, 700, 1_900)))
        if any(not answer.is_parked and answer.error is ErrorCode.NONE for _, _, answer in waiting):
            raise Violation("a member joins before its records are committed")
        if self._random.random() < 0.8:
            world.pass_ms(self._random.choice((500, 2_500, 4_000, 5_001)))
            now_ms = world.host.clock.now_ms()
            if any(answer.is_parked and now_ms > since_ms + _WRITE_MS for since_ms, _, answer in waiting):
                raise Violation("a request waits for longer than for a write")
        # A stable fetch also waits for writes of which the time is over.
        world.fetch(_SIMPLE, None, require_stable=True, version=9)
        log.holding = False
        log.commit()
        world.pass_ms(0)
        for _, member_id, answer in waiting:
            if answer.is_parked:
                raise Violation(f"{member_id} has no answer")
            send(world, ConsumerGroupHeartbeatRequest(group_id=_GROUP, member_id=member_id, member_epoch=-1))
        world.pass_ms(0)
        for _ in range(2):
            # Sessions can have ended meanwhile.
            self._beat()
            world.pass_ms(0)

    # -- offsets of a group without members

    def _commit(self) -> None:
        places = [(topic, index) for topic, count in self._world.topics.items() for index in range(count)]
        if places:
            place = self._random.choice(places)
            self._commits += 1
            answer = self._world.commit(_SIMPLE, {place: self._commits}, version=self._random.choice((5, 8, 9)))
            if answer.response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                self._offsets[place] = self._commits
        self._read()

    def _read(self) -> None:
        version = self._random.choice((1, 5, 7, 8, 9))
        known = {name: list(range(count)) for name, count in self._world.topics.items()}
        named = self._random.random() < 0.7 or version < 2
        answer = self._world.fetch(_SIMPLE, known if named else None, version=version)
        self._world.pass_ms(0)
        expected = {(name, index): _NONE for name, indexes in known.items() for index in indexes} if named else {}
        expected |= self._offsets
        found = fetched(answer)
        if found != expected:
            raise Violation(f"OffsetFetch version {version} says {found}, and it is {expected}")

    def _delete_offsets(self) -> None:
        if self._offsets and self._random.random() < 0.5:
            place = self._random.choice(list(self._offsets))
            if self._world.delete_offsets(_SIMPLE, [place]).error is ErrorCode.NONE:
                del self._offsets[place]
        elif self._offsets and delete_errors(self._world.delete(_SIMPLE))[_SIMPLE] is ErrorCode.NONE:
            self._offsets = {}
        self._read()

    # -- promises

    def _shard(self) -> GroupShard:
        shard = self._world.coordinator.shard(0)
        assert shard is not None
        assert shard.state is ShardState.ACTIVE
        return shard

    def _compare(self, *, is_loaded: bool) -> None:
        self._world.pass_ms(0)
        log = self._world.log
        partition = self._world.partition()
        replayed = CoordinatorDict()
        replayed.add(bytes(log.logs.get(partition, b"")), log.high_watermark(partition))
        problem = wrong_groups(self._shard(), replayed, is_loaded=is_loaded)
        if problem:
            raise Violation(f"a coordinator's state differs from its log: {problem}")
        owners: dict[tuple[str, int], str] = {}
        for one in self._consumers:
            for place in one.owned:
                if one.epoch > 0 and owners.setdefault(place, one.member_id) != one.member_id:
                    raise Violation(f"{place} is owned by {owners[place]} and {one.member_id}")
        self._list()
        written = replayed.consumer_groups().get(_GROUP)
        if written is not None and self._shard().consumers.find(_GROUP) is not None:
            self._describe(written)

    def _describe(self, written: dict[str, Any]) -> None:
        """Compares the description of the group with its log."""
        row = describe(self._world, _GROUP)[0]
        votes = [member["assignor"] for member in written["members"].values()]
        state, currents = "Reconciling", written["currents"]
        if not written["members"]:
            state = "Empty"
        elif written["epoch"]["epoch"] > written["target_epoch"]:
            state = "Assigning"
        elif all(
            name in currents and (currents[name]["state"], currents[name]["epoch"]) == (0, written["target_epoch"])
            for name in written["members"]
        ):
            state = "Stable"
        expected: dict[str, Any] = {
            "": (
                state,
                written["epoch"]["epoch"],
                written["target_epoch"],
                max(("uniform", "range"), key=votes.count),
            )
        }
        for name, member in written["members"].items():
            current = currents.get(name, {"epoch": 0, "assigned": set()})
            expected[name] = (
                (member["instance"], current["epoch"], sorted(member["topics"]), member["regex"] or ""),
                0 if member["classic"] else 1,
                self._named_places(current["assigned"]),
                self._named_places(written["targets"].get(name, set())),
            )
        found: dict[str, Any] = {"": (row.group_state, row.group_epoch, row.assignment_epoch, row.assignor_name)}
        for each in row.members:
            names = each.subscribed_topic_names, each.subscribed_topic_regex or ""
            found[each.member_id] = (
                (each.instance_id, each.member_epoch, *names),
                each.member_type,
                _described(each.assignment),
                _described(each.target_assignment),
            )
        if found != expected:
            raise Violation(f"ConsumerGroupDescribe says {found}, the log says {expected}")

    def _named_places(self, places: Iterable[tuple[bytes, int]]) -> set[tuple[str, int]]:
        topics = ((self._world.topic_view.find_id(topic_id), index) for topic_id, index in places)
        return {(topic.name, index) for topic, index in topics if topic is not None}

    def _list(self) -> None:
        everything = {row.group_id: row for row in self._world.list().response.groups}
        states = self._random.sample(_STATES, self._random.choice((0, 1, 2)))
        kinds = self._random.choice(((), ("consumer",), ("classic",)))
        found = {row.group_id for row in self._world.list(states, kinds).response.groups}
        expected = {
            group_id
            for group_id, row in everything.items()
            if (not states or row.group_state.lower() in states) and (not kinds or row.group_type in kinds)
        }
        if found != expected:
            raise Violation(f"ListGroups of {states} {kinds} names {sorted(found)}, not {sorted(expected)}")

    def _calm(self) -> None:
        """Lets everybody join and settle: each partition has one owner, and shares are equal."""
        self._world.topics.update({"orders": 7, "bills": 3})
        for one in self._consumers:
            one.subscribe(("orders",), "")
        for _ in range(60):
            self._beat()
            self._world.pass_ms(1_000)
            self._compare(is_loaded=False)
        group = self._shard().consumers.find(_GROUP)
        if group is None or not group.members:
            return
        shares = [sum(map(len, member.assigned.values())) for member in group.members.values()]
        if sum(shares) != self._world.topics["orders"] or max(shares) - min(shares) > 1:
            raise Violation(f"{self._world.topics['orders']} partitions are shared as {shares} when everything is calm")
        if len(group.members) != len(self._consumers) + len(self._classic):
            raise Violation(
                f"{len(self._consumers)} and {len(self._classic)} live, members are {sorted(group.members)}"
            )


def _described(assignment: Any) -> set[tuple[str, int]]:
    return {(row.topic_name, index) for row in assignment.topic_partitions for index in row.partitions}
