"""A group under arbitrary events: members join, leave, crash and restart, the log is slow, coordinators replace each
other. The ledger checks what must hold all the time; at the end all live members must settle.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.group_clients import GROUP, INSTANCES, PARTITIONS, REBALANCE_MS, SESSION_MS, Client, Ledger, Phase
from tests.support.group_world import GroupWorld, fetched

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.runtime import ShardState

CLIENTS_MAX = 7


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.ledger = Ledger()
        self.clients: list[Client] = []
        #: Fenced or crashed, but perhaps not aware of it.
        self.ghosts: list[Client] = []
        self.named = 0
        self.offset = 0
        #: The highest offset by partition whose commit was acknowledged; below, the highest that was ever read.
        self.acknowledged: dict[int, int] = {}
        self.read: dict[int, int] = {}
        self.generations: dict[tuple[int, str], int] = {}
        self.refused = False
        self.commits: list[tuple[int, int, Callable[[], ErrorCode | None]]] = []

    @initialize(dynamic=st.integers(0, 3), static=st.integers(0, 2), seconds=st.integers(0, 12))
    def begin(self, dynamic: int, static: int, seconds: int) -> None:
        for _ in range(dynamic):
            self._new(None, 9)
        for instance_id in INSTANCES[:static]:
            self._new(instance_id, 9)
        self._run(seconds, None)

    @property
    def is_serving(self) -> bool:
        shard = self.world.coordinator.shard(0)
        return shard is not None and shard.state is ShardState.ACTIVE

    @rule(seconds=st.integers(1, 12))
    def run(self, seconds: int) -> None:
        self._run(seconds, None)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(seconds=st.integers(1, 12), data=st.data())
    def run_while_one_pauses(self, seconds: int, data: st.DataObject) -> None:
        self._run(seconds, data.draw(st.sampled_from(self.clients)))

    def _run(self, seconds: int, paused: Client | None) -> None:
        """Lets all clients do what they should, for a while."""
        for _ in range(seconds):
            for client in list(self.clients):
                if client is not paused:
                    self._beat(client)
            self.world.pass_ms(1_000)

    def _beat(self, client: Client) -> None:
        if client.phase is Phase.FENCED:
            client.restart()  # a generation that was not stored is forgotten, and with it the id it had there
        client.beat(self.world)

    def _new(self, instance_id: str | None, version: int) -> None:
        self.named += 1
        client = Client(f"c{self.named}", instance_id, version, self.ledger)
        self.clients.append(client)
        client.step(self.world)

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(version=st.integers(5, 9))
    def start_dynamic(self, version: int) -> None:
        self._new(None, version)

    @precondition(lambda self: len(self.clients) < CLIENTS_MAX)
    @rule(instance_id=st.sampled_from(INSTANCES), version=st.integers(5, 9))
    def start_static(self, instance_id: str, version: int) -> None:
        """Starts a static member, possibly under the instance id of one that still runs: that one becomes a ghost."""
        for old in [client for client in self.clients if client.instance_id == instance_id]:
            self.clients.remove(old)
            self.ghosts.append(old)
        self._new(instance_id, version)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.ghosts.append(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        client.leave(self.world)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.clients)).beat(self.world)

    @rule()
    def beat_all(self) -> None:
        for client in list(self.clients):
            client.beat(self.world)

    @rule(duration_ms=st.sampled_from((1, 500, 3_000, 6_000, SESSION_MS, REBALANCE_MS)))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_ms(duration_ms)

    @rule(partition=st.sampled_from(PARTITIONS))
    def everybody_commits(self, partition: int) -> None:
        """Ghosts, too."""
        for client in self.clients + self.ghosts:
            self._commit(client, partition)

    def _commit(self, client: Client, partition: int) -> None:
        if client.generation < 0:
            return
        self.offset += 1
        is_current = self._is_current(client)
        answer = client.commit(self.world, partition, self.offset)
        if not is_current:
            assert answer() not in (None, ErrorCode.NONE), "only a current member of the generation may commit"
        self.commits.append((partition, self.offset, answer))

    @rule()
    def everybody_asks_again(self) -> None:
        """Sends heartbeats and syncs of all clients with their present member ids and generations."""
        for client in self.clients + self.ghosts:
            if client.generation < 0 or not self.is_serving:
                continue
            is_current = self._is_current(client)
            at = (GROUP, client.generation, client.member_id)
            alive = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            assert (self.world.heartbeat(*at, instance_id=client.instance_id) in alive) == is_current
            if not is_current:
                sync = self.world.sync(*at, instance_id=client.instance_id)
                assert not sync.is_parked
                assert sync.error not in alive, "only a current member of the generation is given a part"

    def _is_current(self, client: Client) -> bool:
        group = self.world.find(GROUP) if self.is_serving else None
        member = None if group is None else group.members.get(client.member_id)
        return group is not None and member is not None and group.generation == client.generation

    @rule(partition=st.sampled_from(PARTITIONS), then=st.sampled_from(("lost", "kept")))
    def fail_over_twice(self, partition: int, then: str) -> None:
        """Commits without an acknowledgement are read by the next coordinator, if at all, only when the one after it
        cannot lose them any more.
        """
        self.world.log.holding = True
        for client in self.clients:
            self._commit(client, partition)
        self.fail_over(tail="undecided", wait_ms=0)
        self.read_offsets()
        self.fail_over(tail=then, wait_ms=0)
        self.read_offsets()

    @rule()
    def stall_log(self) -> None:
        self.world.log.holding = True

    @rule(code=st.sampled_from((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)))
    def refuse_appends(self, code: ErrorCode) -> None:
        self.world.log.refuse_with = code
        self.refused = True

    @rule(count=st.integers(1, 5))
    def commit_some(self, count: int) -> None:
        self.world.log.commit(count)

    @rule()
    def release_log(self) -> None:
        log = self.world.log
        log.commit()
        if not self.is_serving:
            log.keep_uncommitted()
            self.world.pass_ms(100)
        log.holding = False
        log.refuse_with = None

    @rule(tail=st.sampled_from(("lost", "kept", "undecided")), wait_ms=st.sampled_from((0, 0, 2_000)))
    def fail_over(self, tail: str, wait_ms: int) -> None:
        """Lets another coordinator take over; uncommitted records are lost with the old one, or kept, or their outcome
        is unknown.
        """
        log = self.world.log
        self.world.coordinator.shutdown()
        log.fail_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if tail == "lost":
            log.lose_uncommitted()
        elif tail == "kept":
            log.keep_uncommitted()
        log.holding = False
        self.ledger.incarnation += 1
        self.world = GroupWorld(self.world.config, log=log, host=self.world.host, lead=False)
        self.world.pass_ms(wait_ms)
        self.world.coordinator.on_partition_leader(0, self.ledger.incarnation)
        self.world.pass_ms(0)

    @rule()
    def read_offsets(self) -> None:
        if not self.is_serving:
            return
        for (_, partition), offset in fetched(self.world.fetch(GROUP)).items():
            assert offset >= self.read.get(partition, 0), "an offset that was read never goes back"
            self.read[partition] = offset

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        for partition, offset, answer in list(self.commits):
            error = answer()
            if error is not None:
                self.commits.remove((partition, offset, answer))
                if error is ErrorCode.NONE:
                    self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))
        if not self.is_serving:
            return
        kept = self.world.offsets(GROUP)
        for partition, offset in self.acknowledged.items():
            assert kept["orders", partition].offset >= offset, "an acknowledged commit is never lost"

    @invariant()
    def the_group_is_in_order(self) -> None:
        group = self.world.find(GROUP) if self.is_serving else None
        if group is None:
            return
        at = (self.ledger.incarnation, group.group_id)
        assert group.generation >= self.generations.get(at, 0), "generations go forward"
        self.generations[at] = group.generation
        waiting = [member for member in group.members.values() if member.join_reply is not None]
        assert group.awaiting_joins == len(waiting)
        assert all(group.members[member].instance_id == name for name, member in group.static_members.items())
        assert (group.leader_id in group.members) if group.members else group.leader_id is None
        match group.state:
            case GroupState.EMPTY:
                assert not group.members
            case GroupState.PREPARING_REBALANCE:
                assert group.join_deadline.is_scheduled, "somebody must end it"
            case GroupState.COMPLETING_REBALANCE:
                assert group.sync_deadline.is_scheduled or not group.pending_syncs
                assert not waiting
            case GroupState.STABLE:
                assert all(member.sync_reply is None for member in group.members.values())
        for member in group.members.values():
            assert member.session.is_scheduled or member.keeps_alive, "nobody stays forever"

    def teardown(self) -> None:
        """Ends all faults: within a session, two rebalances and the initial delay all live members share all
        partitions.
        """
        self.release_log()
        bound_ms = SESSION_MS + 3 * REBALANCE_MS + 10_000
        for _ in range(bound_ms // 1_000):
            for client in self.clients:
                self._beat(client)
            if self.is_settled():
                break
            self.world.pass_ms(1_000)
        if self.clients:
            assert self.is_settled(), f"{self.clients} did not settle: {self.world.group(GROUP).state}"
            owned = sorted(partition for client in self.clients for partition in client.owned)
            assert owned == list(PARTITIONS), "every partition has one owner"
        self.acknowledged_offsets_are_there()
        self.reload_equals()

    def is_settled(self) -> bool:
        group = self.world.find(GROUP)
        return (
            group is not None
            and group.is_in(GroupState.STABLE)
            and set(group.members) == {client.member_id for client in self.clients}
            and all(client.phase is Phase.MEMBER for client in self.clients)
            and {client.generation for client in self.clients} == {group.generation}
        )

    def reload_equals(self) -> None:
        """Another coordinator reads in the log the state that this one has."""
        group, offsets = self.world.find(GROUP), dict(self.world.offsets(GROUP))
        if group is None or not group.is_in(GroupState.STABLE, GroupState.EMPTY):
            return
        before = _shown(self.world)
        self.fail_over(tail="lost", wait_ms=0)
        assert dict(self.world.offsets(GROUP)) == offsets
        if not self.refused or group.is_in(GroupState.STABLE):
            # A group that became empty while the log took nothing comes back with its last members, who time out.
            assert _shown(self.world) == before


def _shown(world: GroupWorld) -> tuple[object, ...] | None:
    group = world.find(GROUP)
    if group is None:
        return None
    members = [
        (m.member_id, m.instance_id, m.assignment, m.protocols, m.session_timeout_ms, m.rebalance_timeout_ms)
        for m in group.members.values()
    ]
    return group.state, group.generation, group.protocol_type, group.protocol_name, group.leader_id, members


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=(HypothesisPhase.explicit, HypothesisPhase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
