"""A group of the consumer protocol under arbitrary events: members join, leave, crash and change subscriptions, answers
are lost, some revoke slowly, topics are created, extended and deleted, the coordinator moves and its log stalls. Two
members never own one partition, only present members commit, epochs never decrease, and in the end all partitions are
owned.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.consumer_members import Consumer, consumer_group
from tests.support.group_world import GroupWorld, MemoryPartitions, commit_errors

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.consumer.group import ConsumerGroupState
from barnabas.coordinators.groups.consumer.member import partitions_of
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.groups.shard import GroupShard

SESSION_MS = 45_000
REBALANCE_MS = 20_000
TOPICS = ("orders", "bills", "goods")
REGEXES = ("o.*", "(bills|goods)", ".*")
INSTANCES = ("i1", "i2")
MEMBERS_MAX = 6
#: The time is well below the timeout of the coordinator.
REVOCATION_MS = 10_000

subscriptions = st.one_of(
    st.tuples(st.sets(st.sampled_from(TOPICS), min_size=1).map(sorted), st.none()),
    st.tuples(st.none(), st.sampled_from(REGEXES)),
)


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(
            GroupConfig(offsets_commit_timeout_ms=2**31), consumer_config=ConsumerConfig(), log=MemoryPartitions()
        )
        self.alive: list[Consumer] = []
        #: Crashed, but perhaps not known to be.
        self.ghosts: list[Consumer] = []
        self.parked: list[tuple[Consumer, Any]] = []
        #: How long members have been giving back.
        self.revoking_ms: dict[str, int] = {}
        self.named = 0
        self.epoch = 0

    # -- what happens

    @precondition(lambda self: len(self.alive) < MEMBERS_MAX)
    @rule(
        subscription=subscriptions,
        instance_id=st.sampled_from((None, None, *INSTANCES)),
        assignor=st.sampled_from((None, "range", "uniform")),
        revokes_slowly=st.booleans(),
    )
    def join(self, subscription: Any, instance_id: str | None, assignor: str | None, revokes_slowly: bool) -> None:
        if any(one.instance_id == instance_id is not None for one in self.alive):
            return
        self.named += 1
        topics, regex = subscription
        consumer = Consumer(
            self.world,
            f"m{self.named}",
            topics,
            instance_id=instance_id,
            regex=regex,
            assignor=assignor,
            rebalance_ms=REBALANCE_MS,
            revokes_slowly=revokes_slowly,
        )
        self.alive.append(consumer)
        self._beat(consumer)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), epoch=st.sampled_from((-1, -2)))
    def leave(self, data: st.DataObject, epoch: int) -> None:
        consumer = self._idle(data)
        if consumer is None or self.world.log.holding:
            return
        self.alive.remove(consumer)
        consumer.leave(epoch if consumer.instance_id is not None else -1)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.alive))
        self.alive.remove(consumer)
        self.ghosts.append(consumer)
        self.parked = [(one, answer) for one, answer in self.parked if one is not consumer]

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def lose_an_answer(self, data: st.DataObject) -> None:
        consumer = self._idle(data)
        if consumer is not None:
            consumer.send()
            consumer.lose_answer()
            if self.world.topics and not self.world.log.holding:
                self._everybody_commits()

    @precondition(lambda self: any(one.is_revoking for one in self.alive))
    @rule(data=st.data())
    def finish_revoking(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from([one for one in self.alive if one.is_revoking])).finish_revoking()

    @precondition(lambda self: self.world.topics and not self.world.log.holding)
    @rule()
    def everybody_commits(self) -> None:
        self._everybody_commits()

    def _everybody_commits(self) -> None:
        """Ghosts, too."""
        group, place = self._shard().consumers.find("g"), (min(self.world.topics), 0)
        for one in (*self.alive, *self.ghosts):
            if one.epoch > 0:
                answer = self.world.commit("g", {place: 1}, generation=one.epoch, member_id=one.member_id)
                member = None if group is None else group.members.get(one.member_id)
                is_current = member is not None and member.epoch == one.epoch
                code = commit_errors(answer)[place]
                assert (code is ErrorCode.NONE) == is_current, f"{code.name} for {one.member_id} at {one.epoch}"

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), subscription=subscriptions)
    def change_subscription(self, data: st.DataObject, subscription: Any) -> None:
        topics, regex = subscription
        consumer = data.draw(st.sampled_from(self.alive))
        # A field that a request omits keeps its value, so the request names both.
        consumer.subscribe(topics or (), regex or "")

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        consumer = self._idle(data)
        if consumer is not None:
            self._beat(consumer)

    @rule()
    def beat_all(self) -> None:
        for consumer in self.alive:
            if not any(one is consumer for one, _ in self.parked):
                self._beat(consumer)

    @rule(seconds=st.sampled_from((1, 5, 30, 60)))
    def pass_time(self, seconds: int) -> None:
        for _ in range(0, seconds, 5):
            if not self.world.log.holding:
                self.beat_all()
            self._pass_ms(min(seconds, 5) * 1_000)
        self._take_answers()

    def _pass_ms(self, duration_ms: int) -> None:
        revoking = [one for one in self.alive if one.is_revoking]
        spent = {one.member_id: self.revoking_ms.get(one.member_id, 0) + duration_ms for one in revoking}
        self.revoking_ms = spent
        for one in revoking:
            if spent[one.member_id] > REVOCATION_MS:
                one.finish_revoking()
        self.world.pass_ms(duration_ms)

    @rule(name=st.sampled_from(TOPICS), count=st.sampled_from((0, 1, 4, 7)))
    def change_topic(self, name: str, count: int) -> None:
        """Extends, deletes or creates a topic."""
        if count == 0:
            self.world.topics.pop(name, None)
            for consumer in self.alive:
                consumer.forget(name)
        else:
            self.world.topics[name] = max(count, self.world.topics.get(name, 0))

    @rule()
    def hold_the_log(self) -> None:
        self.world.log.holding = True

    @rule()
    def let_the_log_go(self) -> None:
        self.world.log.holding = False
        self.world.log.commit()
        self._take_answers()

    @rule(keeps=st.booleans())
    def move_the_coordinator(self, keeps: bool) -> None:
        """The next one has, or never had, what was not committed yet."""
        log = self.world.log
        self.world.coordinator.shutdown()
        log.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if keeps:
            log.keep_uncommitted()
        else:
            log.lose_uncommitted()
        log.holding = False
        self.world = self.world.restart()
        for consumer in self.alive:
            consumer.world = self.world
        self.world.until_active(10)
        self._take_answers()

    # -- what holds

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        """Checks the owners. A member that the group has removed is exempt: it can be unaware of that, and cannot
        commit any more.
        """
        group = self._shard().consumers.find("g")
        seen: dict[tuple[str, int], str] = {}
        for consumer in self.alive:
            if consumer.epoch > 0 and group is not None and consumer.member_id in group.members:
                for place in consumer.owned:
                    assert place not in seen, f"{place} is owned by {seen[place]} and {consumer.member_id}"
                    seen[place] = consumer.member_id

    @invariant()
    def epochs_grow(self) -> None:
        group = self._shard().consumers.find("g")
        if group is not None:
            assert group.epoch >= self.epoch
            self.epoch = group.epoch
            assert group.assignment_epoch <= group.epoch
            assert all(member.epoch <= group.assignment_epoch for member in group.members.values())

    @rule()
    def the_log_says_what_is_served(self) -> None:
        group = self._shard().consumers.find("g")
        if group is None or self.world.log.holding:
            return
        other = GroupWorld(log=self.world.log, host=self.world.host, topics=self.world.topic_view)
        other.until_active(0)
        loaded = consumer_group(other)
        other.coordinator.shutdown()
        assert loaded == group

    def teardown(self) -> None:
        """Ends all faults: live members continue, dead ones are removed."""
        self.let_the_log_go()
        self.the_log_says_what_is_served()
        for _ in range(2 * (SESSION_MS + REBALANCE_MS) // 5_000):
            self.beat_all()
            self._pass_ms(5_000)
            self.nobody_owns_what_another_owns()
        group = self._shard().consumers.find("g")
        if not self.alive:
            assert group is None or not group.members
            return
        assert group is not None
        assert set(group.members) == {one.member_id for one in self.alive}
        assert group.state is ConsumerGroupState.STABLE
        names = {name for name in group.names() if name in self.world.topics}
        wanted = {(name, index) for name in names for index in range(self.world.topics[name])}
        owned = [place for one in self.alive for place in sorted(one.owned)]
        assert sorted(owned) == sorted(wanted)
        for one in self.alive:
            member = group.members[one.member_id]
            assert len(one.owned) == len(list(partitions_of(member.assigned)))
            assert {name for name, _ in one.owned} <= group.names_of(member)

    # -- clients

    def _shard(self) -> GroupShard:
        shard = self.world.coordinator.shard(0)
        assert shard is not None
        return shard

    def _idle(self, data: st.DataObject) -> Consumer | None:
        waiting = {one.member_id for one, _ in self.parked}
        idle = [one for one in self.alive if one.member_id not in waiting]
        return data.draw(st.sampled_from(idle)) if idle else None

    def _beat(self, consumer: Consumer) -> None:
        answer = consumer.send()
        if answer.is_parked:
            self.parked.append((consumer, answer))
        else:
            self._take(consumer, answer)

    def _take_answers(self) -> None:
        waiting, self.parked = self.parked, []
        for consumer, answer in waiting:
            if answer.is_parked:
                self.parked.append((consumer, answer))
            elif consumer in self.alive:
                self._take(consumer, answer)

    @staticmethod
    def _take(consumer: Consumer, answer: Any) -> None:
        code = consumer.take(answer)
        expected = {
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        }
        assert code in expected, answer.response
        if code is ErrorCode.GROUP_ID_NOT_FOUND:
            consumer.epoch = 0
            consumer.owned.clear()


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
