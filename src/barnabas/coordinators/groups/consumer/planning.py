"""The effects of changes to members, subscriptions or topics: new epochs, a new target assignment, members' next steps.

subscriptions or topics change      -> group epoch + 1
group epoch > assignment epoch      -> the next request of any member computes a new target assignment
member epoch < assignment epoch     -> the member's next heartbeat performs its next step

Expired sessions and other missed deadlines remove their members here, too. What costs time for each topic or member is
a generator: the operation that it belongs to is stepped (`writes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from typing import Final

from barnabas.coordinators.groups.consumer.assignors import Subscriber, assign
from barnabas.coordinators.groups.consumer.consumer_context import ConsumerContext
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import NOTHING, PER_UNIT, Assignment, Member, MemberState
from barnabas.coordinators.groups.consumer.member_deadlines import DeadlineKind
from barnabas.coordinators.groups.consumer.reconcile import Goal, reconcile
from barnabas.coordinators.groups.consumer.regex import Describable, ResolvedRegex, check_regex, resolve
from barnabas.coordinators.groups.consumer.topic_summaries import metadata_hash
from barnabas.coordinators.groups.consumer.writes import Answer, GroupOperation

#: The minimum time between two resolutions of an expression because topics changed.
REGEX_REFRESH_MIN_MS: Final = 10_000
#: The delay before the removal of a member is tried again after a failed write.
_REMOVAL_RETRY_MS: Final = 1_000
#: The number of members that are removed in a quarter of a millisecond.
_REMOVED_PER_UNIT: Final = 16
#: The number of members whose deadlines start in a quarter of a millisecond.
_SESSIONS_PER_UNIT: Final = 64
#: The fixed cost of a member, compared with one of the names that it subscribes to.
_MEMBER_WORK: Final = 16
_MEMBERS_WORK_PER_UNIT: Final = PER_UNIT * _MEMBER_WORK


class Planner:
    """The epochs, target assignments and deadlines of one shard's consumer groups."""

    __slots__ = ("_context",)

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    # -- subscriptions

    def subscribe(
        self, draft: Draft, before: Member | None, member: Member, describable: Describable | None = None
    ) -> Generator[int, None, bool]:
        """Stores a member that may have changed its subscription. Returns whether the group's subscribed topics may
        have changed, which bumps the group epoch. `describable` limits what an expression matches: None means all
        topics. Raises RequestFailed with INVALID_REGULAR_EXPRESSION."""
        old_regex = before.regex if before is not None else ""
        if member.regex and member.regex != old_regex:
            check_regex(member.regex)
        yield from draft.put_member(member)
        if old_regex and old_regex != member.regex:
            self._drop_unused_regexes(draft, {old_regex})
        # The topics can change between two steps: the group is then compared with them once more, because this version
        # is older.
        version = self._context.topics.version
        regexes = {one.regex for one in draft.group.members.values()} - {""}
        resolved_anew = bool(regexes) and (yield from self._resolve_regexes(draft, regexes, describable))
        changed = before is None or before.topic_names != member.topic_names or old_regex != member.regex
        bump = changed or resolved_anew or draft.group.epoch == 0
        yield from self._compare_topics(draft, version, bump=bump)
        return changed or resolved_anew

    def needs_refresh(self, group: ConsumerGroup) -> bool:
        """Returns whether a group must be compared with newer metadata of its topics, or has regular expressions to
        resolve again.
        """
        slot = self._context.writes.slots.get(group.group_id)
        if slot is None or slot.topics_version != self._context.topics.version:
            return True
        return any(self._is_stale(resolved) for resolved in group.regexes.values())

    def _is_stale(self, resolved: ResolvedRegex) -> bool:
        age_ms = self._context.wall_ms() - resolved.timestamp_ms
        if age_ms <= REGEX_REFRESH_MIN_MS:
            return False
        return (
            resolved.version < self._context.topics.version or age_ms > self._context.config.regex_refresh_interval_ms
        )

    def _resolve_regexes(
        self, draft: Draft, regexes: Collection[str], describable: Describable | None
    ) -> Generator[int, None, bool]:
        """Resolves new and stale expressions by the rights of the member whose request it is, as Kafka does. Returns
        whether any of them now matches other topics."""
        group, topics = draft.group, self._context.topics
        changed = False
        for regex in sorted(regexes):
            known = group.regexes.get(regex)
            if known is not None and not self._is_stale(known):
                continue
            version, timestamp_ms = topics.version, self._context.wall_ms()
            names = yield from resolve(regex, topics.names(), describable)
            changed = changed or known is None or known.topics != names
            yield from draft.put_regex(regex, ResolvedRegex(names, version, timestamp_ms))
        return changed

    @staticmethod
    def _drop_unused_regexes(draft: Draft, regexes: Collection[str]) -> None:
        for regex in sorted(regexes):
            if regex in draft.group.regexes and not draft.group.subscribers_of(regex):
                draft.remove_regex(regex)

    def _compare_topics(self, draft: Draft, version: int, *, bump: bool) -> Generator[int, None, None]:
        """Compares the group with its topics, which had this version when the operation began to read them."""
        names = yield from draft.group.names_in_steps()
        found = yield from metadata_hash(self._context.topics, names)
        if bump or found != draft.group.metadata_hash:
            draft.bump(found)
        slots, group_id = self._context.writes.slots, draft.group_id

        def compared() -> None:
            if group_id in slots:
                slots[group_id].topics_version = version

        draft.effects.append(compared)

    # -- targets

    def make_target(self, draft: Draft) -> Generator[int, None, None]:
        """Computes a new target assignment for a group that has changed since the last one."""
        group = draft.group
        subscribers = []
        targets = group.targets
        counts: dict[bytes, int] = {}
        known: dict[frozenset[str] | tuple[frozenset[str], str], frozenset[bytes]] = {}
        work = 0
        for member in group.in_order():
            names = member.topic_names
            subscription = (names, member.regex) if member.regex else names
            topic_ids = known.get(subscription)
            if topic_ids is None:
                found = yield from self._topics_of(group, member)
                # All members get the partitions of the latest look at a topic, which can grow meanwhile.
                counts.update(found)
                topic_ids = known[subscription] = frozenset(found)
            member_id = member.member_id
            subscribers.append(Subscriber(member_id, member.instance_id, topic_ids, targets.get(member_id, NOTHING)))
            # Equal subscriptions of two members are compared name by name.
            work += _MEMBER_WORK + len(names)
            if work > _MEMBERS_WORK_PER_UNIT:
                yield 1
                work = 0
        targets_now = yield from assign(self.assignor_of(group), subscribers, counts)
        yield from draft.put_targets(group.epoch, targets_now)

    def _topics_of(self, group: ConsumerGroup, member: Member) -> Generator[int, None, dict[bytes, int]]:
        """Returns the partition counts of the existing topics that the member subscribes to."""
        find, counts = self._context.topics.find, {}
        for count, name in enumerate(group.names_of(member), 1):
            topic = find(name)
            if topic is not None:
                counts[topic.topic_id] = topic.partition_count
            if not count % PER_UNIT:
                yield 1
        return counts

    def assignor_of(self, group: ConsumerGroup) -> str:
        """Returns the assignor that most members request; among equals, the one that is configured first."""
        votes = dict.fromkeys(self._context.config.assignors, 0)
        for member in group.members.values():
            if member.server_assignor in votes:
                votes[member.server_assignor] += 1
        return max(votes, key=votes.__getitem__)

    # -- the members' next steps

    def advance(
        self, draft: Draft, member: Member, owned: Assignment | None, *, subscription_changed: bool = False
    ) -> Generator[int, None, Member]:
        """Returns the member after its next step. Raises RequestFailed with FENCED_MEMBER_EPOCH."""
        group = draft.group
        if not subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        subscribed = yield from self._topics_of(group, member)
        goal = Goal(
            epoch=group.assignment_epoch,
            target=group.target(member.member_id),
            subscribed=subscribed,
            owner_of=lambda topic_id, partition: group.owners.get((topic_id, partition)),
        )
        stepped = yield from reconcile(member, goal, owned, subscription_changed=subscription_changed)
        if stepped is not member:
            yield from draft.put_member(stepped)
            if not stepped.is_classic:
                draft.effects.append(lambda: self._watch_revocation(draft.group_id, stepped))
        return stepped

    def _watch_revocation(self, group_id: str, member: Member) -> None:
        """Starts or ends the deadline of a revocation: a member that does not release its partitions within its
        rebalance timeout is removed."""
        sessions, member_id, epoch = self._context.sessions, member.member_id, member.epoch
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            sessions.cancel(group_id, member_id, DeadlineKind.REBALANCE)
            return

        def must_release(current: Member) -> bool:
            return current.epoch == epoch and current.state is MemberState.UNREVOKED_PARTITIONS

        self.remove_after(group_id, member_id, DeadlineKind.REBALANCE, member.rebalance_timeout_ms, must_release)

    # -- sessions

    def extend_session(self, group_id: str, member: Member) -> None:
        """Extends the session of a member after a sign of life."""
        member_id = member.member_id
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._context.session_timeout_ms(group_id)
        if not self._context.sessions.extend(group_id, member_id, DeadlineKind.SESSION, timeout_ms):
            self.remove_after(group_id, member_id, DeadlineKind.SESSION, timeout_ms, _always)

    def restart_sessions(self, group: ConsumerGroup) -> None:
        """Starts the deadlines of all members after a load: for their sessions, and for revocations in progress. Those
        of thousands of members start in later turns of the loop."""
        self._context.writes.answer_in_steps(self._restart_sessions(group.group_id, group.in_order()), lambda _: None)

    def _restart_sessions(self, group_id: str, members: Iterable[Member]) -> Generator[int, None, None]:
        for count, one in enumerate(members, 1):
            group = self._context.writes.group(group_id)
            member = None if group is None else group.members.get(one.member_id)
            if member is not None:
                self.extend_session(group_id, member)
                if not member.is_classic:
                    self._watch_revocation(group_id, member)
            if not count % _SESSIONS_PER_UNIT:
                yield 1

    def remove_after(
        self,
        group_id: str,
        member_id: str,
        kind: DeadlineKind,
        timeout_ms: int,
        still_applies: Callable[[Member], bool],
    ) -> None:
        """Removes the member after this time if `still_applies(member)` is true and the deadline was not moved."""
        sessions, writes = self._context.sessions, self._context.writes

        def run(draft: Draft) -> Generator[int, None, None]:
            member = None if draft.now is None else draft.now.members.get(member_id)
            if member is not None and still_applies(member) and not sessions.is_scheduled(group_id, member_id, kind):
                yield from self.remove(draft, frozenset({member_id}))

        def on_due() -> None:
            if writes.group(group_id) is not None:
                # If the write fails, this broker is no longer the coordinator, or tries again.
                writes.submit(group_id, GroupOperation(run, lambda _: schedule(_REMOVAL_RETRY_MS)))

        def schedule(delay_ms: int) -> None:
            if writes.group(group_id) is not None:
                sessions.schedule(group_id, member_id, kind, delay_ms, on_due)

        sessions.schedule(group_id, member_id, kind, timeout_ms, on_due)

    # -- leaving

    def remove(self, draft: Draft, member_ids: frozenset[str]) -> Generator[int, None, None]:
        """Removes members. If only classic members are left, the group is converted into a classic one."""
        version = self._context.topics.version
        if (yield from self._context.downgrade(draft, member_ids)):
            return
        regexes = {draft.group.members[member_id].regex for member_id in member_ids}
        for count, member_id in enumerate(sorted(member_ids), 1):
            yield from draft.remove_member(member_id)
            if not count % _REMOVED_PER_UNIT:
                yield 1
            draft.effects.append(_forgetting(self._context, draft.group_id, member_id))
        self._drop_unused_regexes(draft, regexes - {""})
        yield from self._compare_topics(draft, version, bump=True)


def _forgetting(context: ConsumerContext, group_id: str, member_id: str) -> Answer:
    return lambda: context.sessions.forget(group_id, member_id)


def _always(_: Member) -> bool:
    return True
