"""Faults that are tied to events: they strike exactly then, or not at all, and each event is what its name says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.replication.move import MoveStage
from barnabas.replication.partition import Role
from barnabas.simulation import injector
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.fault_events import possible
from barnabas.simulation.faults import THERE, Fault, FaultEvent, FaultKind, FaultStep, fault_of
from barnabas.simulation.held_answers import HeldAnswer
from barnabas.simulation.injector import Injector
from barnabas.simulation.rare_events import Call
from barnabas.simulation.scenario import Run, Settings, run, schedule_of
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature
from barnabas.simulation.world import MILLISECOND_US, Note
from barnabas.simulation.worlds.replicated import Replicated, batch_of, produce_request
from barnabas.simulation.worlds.replication_explorer import ReplicationRun
from barnabas.storage.directories import root_of

THREE = Layout(brokers=3)
ONE = Settings(seed=1, faults_s=4, producers=1, consumers=1, operations=())


class Small:
    """A topic with one partition on three brokers, led by the first, and a client that writes to it."""

    def __init__(self) -> None:
        self.rig = Replicated(7)
        self.rig.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
        self.rig.await_equal()
        self.now_ms = self.rig.world.now_us // MILLISECOND_US
        self.answers: list[object] = []

    @contextmanager
    def injecting(self, *specs: str) -> Iterator[None]:
        """Injects faults, whose times are counted from now."""
        faults = [fault_of(spec) for spec in specs]
        faults = [fault._replace(at_ms=self.now_ms + fault.at_ms) for fault in faults]
        with Injector(self.rig.cluster).injecting(faults):
            yield

    def write(self, value: bytes, after_ms: int) -> None:
        """Sends a record to the leader later, once."""
        request = produce_request(self.rig.topic_id(), 0, batch_of(value))
        client = self.rig.client

        def send() -> None:
            client.send("broker1", request, self.answers.append, timeout_ms=400)

        self.rig.world.after(after_ms * MILLISECOND_US, send, client.process, "write")

    def strikes(self) -> list[FaultStep]:
        return strikes_in(self.rig.world.trace.notes)


def strikes_in(notes: list[Note]) -> list[FaultStep]:
    facts = [note.fact for note in notes]
    return [fact for fact in facts if isinstance(fact, FaultStep) and fact.begins and fact.tied is not None]


def test_a_leader_dies_between_its_append_and_the_fetches_of_its_followers() -> None:
    small = Small()
    with small.injecting("0:kill:there:5000@append:any:3"):
        for number, value in enumerate((b"one", b"two", b"three")):
            small.write(value, 10 + number * 50)
        small.rig.world.run_for(400 * MILLISECOND_US)
    (strike,) = small.strikes()
    assert (strike.fault.node, strike.fault.trigger) == ("broker1", None)
    assert strike.fault.at_ms - small.now_ms in range(110, 115)
    assert [note.text for note in small.rig.world.trace.notes if note.fact == strike] == [
        "fault: kill for 5000 ms, because broker1 appended orders-0@2"
    ]
    assert [small.rig.values(number) for number in (2, 3)] == [[b"one", b"two"]] * 2
    assert [answer is not None for answer in small.answers[:2]] == [True, True]
    assert small.answers[2:] in ([], [None]), "the third is not acknowledged"
    small.rig.run_until(lambda: small.rig.node(1).is_running, "the leader is back")


def test_the_append_of_the_dead_leader_was_written() -> None:
    small = Small()
    with small.injecting("0:kill:there:100@append"):
        small.write(b"one", 10)
        small.rig.world.run_for(50 * MILLISECOND_US)
        assert not small.rig.node(1).is_running
        assert b"one" in small.rig.node(1).disk.read("/data/orders-0/00000000000000000000.log")
        assert not any(small.rig.values(number) for number in (2, 3))


@pytest.mark.parametrize(("kind", "arrives"), [("pause", True), ("isolate", True), ("kill", False)])
def test_what_a_process_sends_after_the_event_waits_for_the_fault(kind: str, arrives: bool) -> None:
    """The record of a leader that is cut off, or stands still, reaches its followers late; that of a dead one never."""
    small = Small()
    with small.injecting(f"0:{kind}:there:300@append:broker1"):
        small.write(b"one", 10)
        small.rig.world.run_for(250 * MILLISECOND_US)
        assert [small.rig.values(number) for number in (2, 3)] == [[], []]
        small.rig.world.run_for(100 * MILLISECOND_US)
        assert (b"one" in small.rig.values(2)) is False or arrives
        if arrives:
            small.rig.run_until(lambda: small.rig.values(2) == [b"one"], "it arrives", 2_000)


def test_a_fault_at_another_node_strikes_at_the_event() -> None:
    small = Small()
    with small.injecting("0:pause:broker3:300@append:broker1", "0:partition:there-broker1:300@append"):
        small.write(b"one", 10)
        small.rig.world.run_for(100 * MILLISECOND_US)
    pause, cut = small.strikes()
    assert (pause.fault.node, cut.fault.node, cut.fault.peer) == ("broker3", "broker1", "broker2")
    assert small.rig.values(3) == small.rig.values(2) == []


def test_a_fault_whose_event_does_not_happen_strikes_at_the_next_append() -> None:
    small = Small()
    with small.injecting("0:pause:there:100@roll:any:1:200", "0:kill:broker2:100@append:broker2:1:200"):
        small.write(b"one", 300)
        small.rig.world.run_for(600 * MILLISECOND_US)
    pause, kill = small.strikes()
    assert [(each.fault.node, each.fault.at_ms - small.now_ms in range(300, 320)) for each in (pause, kill)] == [
        ("broker1", True),
        ("broker2", True),
    ]
    assert [note.text.partition("because ")[2] for note in small.rig.world.trace.notes if note.fact == pause] == [
        "broker1 appended orders-0@0 and 200 ms passed without roll"
    ]


def test_a_fault_strikes_although_nothing_happens_at_all() -> None:
    small = Small()
    with small.injecting("0:pause:there:100@roll:any:1:200"):
        small.rig.world.run_for(1_500 * MILLISECOND_US)
    (strike,) = small.strikes()
    assert strike.fault.at_ms - small.now_ms in range(1_190, 1_210)
    assert strike.fault.node in small.rig.cluster.programs


def test_no_fault_waits_after_everything_has_healed() -> None:
    small = Small()
    faults = [fault_of(f"{small.now_ms}:kill:there:100@append")]
    healed = Injector(small.rig.cluster)
    with healed.injecting(faults):
        small.rig.world.run_for(50 * MILLISECOND_US)
        healed.heal()
        small.write(b"one", 10)
        small.rig.world.run_for(200 * MILLISECOND_US)
    assert small.rig.values(3) == [b"one"]
    assert not small.strikes()


def test_an_answer_is_held_back_until_the_next_image() -> None:
    """The leader's AlterPartition is decided, and its metadata arrive first."""
    small = Small()
    rig = small.rig
    with small.injecting("0:hold-answer:broker1:3000:56", "10:kill:broker3:60000"):
        rig.run_until(lambda: 3 not in rig.image().isr, "broker 3 is out of the ISR", 10_000)
        rig.node(3).start()
        rig.run_until(lambda: 3 in rig.image().isr, "broker 3 is back", 10_000)
        rig.world.run_for(100 * MILLISECOND_US)
    told = [note for note in rig.world.trace.notes if "held back" in note.text]
    assert [note.text for note in told] == [
        "the answer of controller1 to AlterPartition is held back",
        "the answer that was held back arrives",
    ]
    assert told[1].time_us - told[0].time_us < 1_000_000, "released by the image, not by the bound"
    rig.await_equal()


def test_an_image_that_is_faster_than_the_request_does_not_let_the_answer_through() -> None:
    small = Small()
    rig = small.rig
    hold = fault_of(f"{small.now_ms}:hold-answer:broker1:3000:56")
    injector = Injector(rig.cluster)
    with injector.injecting([hold]):
        rig.node(3).kill()
        rig.run_until(lambda: "held back" in rig.world.trace.notes[-1].text, "a request is sent", 10_000)
        (held,) = injector._effects.held_answers
        held.on_image("broker1", rig.decided.offset + 1)
        assert rig.world.trace.notes[-1].text.endswith("is held back"), "the answer is not there yet"
        rig.run_until(lambda: rig.world.trace.notes[-1].text.endswith("arrives"), "an image lets it through", 1_000)
    rig.await_equal()


def test_an_answer_is_not_held_back_longer_than_the_fault_lasts() -> None:
    small = Small()
    with small.injecting("0:hold-answer:broker2:300:1"):
        small.write(b"one", 50)
        small.write(b"two", 60)
        small.rig.world.run_for(250 * MILLISECOND_US)
        assert small.rig.values(2) == []
        small.rig.world.run_for(250 * MILLISECOND_US)
    assert small.rig.values(2) == [b"one", b"two"]
    assert not any(isinstance(each, HeldAnswer) for each in small.rig.cluster.network.observers)


def test_an_isolated_node_answers_clients_and_no_node() -> None:
    small = Small()
    with small.injecting("0:isolate:broker1:400"):
        small.write(b"one", 10)
        small.rig.world.run_for(300 * MILLISECOND_US)
        assert small.rig.values(1) == [b"one"], "a client reaches it"
        assert small.rig.values(2) == []
        small.rig.run_until(lambda: small.rig.values(2) == [b"one"], "the cut heals", 3_000)


def test_leadership_goes_away_and_comes_back_within_a_second() -> None:
    small = Small()
    led: list[tuple[int, int]] = []
    with small.injecting("10:away-and-back:broker1:400"):
        for _ in range(100):
            small.rig.run_for(10)
            image = small.rig.image()
            if (image.leader, image.leader_epoch) not in led:
                led.append((image.leader, image.leader_epoch))
    assert [leader for leader, _ in led] in ([1, 2, 1], [1, 3, 1])
    assert led[2][1] == led[0][1] + 2
    assert set(small.rig.image().isr) == {1, 2, 3}


def test_leadership_goes_away_first_when_the_controller_is_slow() -> None:
    """The way back is due before the way there is answered."""
    small = Small()
    network = small.rig.cluster.network
    led: list[int] = []
    for name in ("broker1", "broker2", "broker3"):
        network.direction(name, "controller1").extra_us = 100 * MILLISECOND_US
        network.direction("controller1", name).extra_us = 100 * MILLISECOND_US
    with small.injecting("10:away-and-back:broker1:20"):
        for _ in range(300):
            small.rig.run_for(10)
            leader = small.rig.image().leader
            led += [leader] if led[-1:] != [leader] else []
    assert led in ([1, 2, 1], [1, 3, 1])


# -- runs


def test_a_run_with_tied_faults_is_the_same_again() -> None:
    settings = replace(
        ONE,
        layout=THREE,
        schedule=(fault_of("4000:pause:there:700@append:any:4"), fault_of("5000:hold-answer:broker2:900@append")),
    )
    once, again = run(settings), run(settings)
    assert once.trace_hash == again.trace_hash
    assert not once.problems
    assert len(strikes_in(once.notes)) == 2


def test_looking_for_events_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(ONE, schedule=(fault_of("4000:kill:there:700@append:any:100000:100000000"),))
    looking = run(settings)

    @contextmanager
    def observed(*_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(injector, "observed", observed)
    assert run(settings).trace_hash == looking.trace_hash


@pytest.mark.parametrize("work", WorkKind)
def test_half_of_the_faults_of_nodes_are_tied(work: WorkKind) -> None:
    layout = Layout(brokers=3, controllers=3)
    drawing = Settings(0, layout, work=work, faults_s=120, draws_properties=True, features=tuple(WorkFeature))
    schedules = [schedule_of(replace(drawing, seed=seed)) for seed in range(60)]
    faults = [fault for schedule in schedules for fault in schedule if not fault.kind.value.endswith("-client")]
    tied = [fault for fault in faults if fault.trigger is not None]
    assert 0.4 < len(tied) / len(faults) < 0.6
    assert {fault.trigger.event for fault in tied if fault.trigger} == set(possible(layout, work))
    assert not any(fault.node == THERE for fault in faults if fault.trigger is None or fault.kind is FaultKind.POWER)
    plain = [schedule_of(Settings(seed, layout, work=work, ties_faults=False)) for seed in range(20)]
    assert not any(fault.trigger for schedule in plain for fault in schedule)


# -- the states that events stand for


class Struck(Exception):
    """Ends a run at the first strike of a tied fault."""


class Strike(NamedTuple):
    cluster: Cluster
    node: str
    call: Call

    def decided(self, at: TopicPartition) -> PartitionImage:
        return DecidedMetadata(self.cluster).image().topics_by_name[at.topic].partitions[at.partition]

    def ends_elsewhere(self, at: TopicPartition) -> list[int]:
        others = [node.broker for name, node in self.cluster.nodes.items() if name != self.node]
        found = [broker.replicas.find(*at) for broker in others if broker is not None]
        return [partition.log.log_end_offset for partition in found if partition is not None]

    @property
    def broker(self) -> Any:
        broker = self.cluster.nodes[self.node].broker
        assert broker is not None
        return broker


class Planned(ReplicationRun):
    """A run of the small explorer with these faults."""

    def __init__(self, *specs: str, **properties: Any) -> None:
        super().__init__(5, duration_s=4, ties_faults=False, **properties)
        self._planned = [fault_of(spec) for spec in specs]

    def _draw_faults(self, begin_ms: int, end_ms: int) -> list[Fault]:
        return [fault._replace(at_ms=begin_ms + fault.at_ms) for fault in self._planned]


def planned(*specs: str, **properties: Any) -> Callable[[], object]:
    return Planned(*specs, **properties).execute


def moving() -> None:
    """Adds a replica to a partition of two."""
    rig = Replicated(7)
    rig.create_topic("orders", [[1, 2]])
    for number in range(20):
        rig.produce(b"%d" % number)
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="orders", partitions=[row])
    request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000)
    with Injector(rig.cluster).injecting([fault_of("0:kill:there:100@move")]):
        rig.client.call("broker1", request, AlterPartitionReassignmentsResponse)
        rig.world.run_for(500 * MILLISECOND_US)


def shifting() -> None:
    """Moves a replica to another log directory."""
    rig = Replicated(7, log_dirs="/data,/more")
    rig.create_topic("orders", [[1, 2]])
    rig.produce(b"one")
    replica = rig.node(1).broker.replicas.find("orders", 0)  # type: ignore[union-attr]
    assert replica is not None
    (there,) = {"/data", "/more"} - {root_of(replica.log.directory)}
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="orders", partitions=[0])
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=there, topics=[topic])]
    )
    with Injector(rig.cluster).injecting([fault_of("0:kill:there:100@shift")]):
        rig.client.call("broker1", request, AlterReplicaLogDirsResponse)
        rig.world.run_for(500 * MILLISECOND_US)


def simulated(*specs: str, work: WorkKind = WorkKind.RECORDS, **properties: Any) -> Callable[[], object]:
    layout = Layout(3, 0, {key.replace("_", "."): value for key, value in properties.items()})
    faults = tuple(fault_of(spec) for spec in specs)
    settings = replace(ONE, layout=layout, work=work, faults_s=40, schedule=faults, counts_rare_events=False)
    return Run(settings, checkers=[]).execute


def nobody_has_fetched(strike: Strike) -> bool:
    log, offset = strike.call.subject, strike.call.result.first_offset
    ends = strike.ends_elsewhere(log.topic_partition)
    return log.log_end_offset > offset and len(ends) == 2 and max(ends) <= offset


def is_not_committed(strike: Strike) -> bool:
    raft = strike.broker.quorum.raft
    return bool(raft.is_leader and raft.high_watermark < raft.log_end_offset)


def is_proposed_only(strike: Strike) -> bool:
    leadership, wanted = strike.call.subject, strike.call.arguments[0]
    led = [each for each in strike.broker.replicas.partitions() if each.leadership is leadership]
    decided = set(strike.decided(led[0].topic_partition).isr)
    return leadership.proposed is not None and decided != set(wanted) and decided == set(leadership.isr)


def is_cut(strike: Strike) -> bool:
    log = strike.call.subject
    return bool(log.log_end_offset <= strike.call.arguments[0] < max(strike.ends_elsewhere(log.topic_partition)))


def is_deciding_a_transaction(strike: Strike) -> bool:
    shard, transaction = strike.call.subject, strike.call.arguments[0]
    return bool(transaction.image.is_prepared) and transaction.transactional_id in shard._deliveries


def adds_replicas(strike: Strike) -> bool:
    partition = strike.call.subject
    image = strike.decided(partition.topic_partition)
    return bool(image.adding_replicas) and not set(image.adding_replicas) & set(image.isr)


_TIMES: Mapping[str, Any] = {"broker_session_timeout_ms": "1500", "broker_heartbeat_interval_ms": "300"}
_SHORT: Mapping[str, Any] = {"metadata_log_max_record_bytes_between_snapshots": "1500"}
_CLEANS: Mapping[str, Any] = {
    "log_cleaner_backoff_ms": "500",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_roll_ms": "1000",
}
_SNAPSHOTS: Mapping[str, Any] = {
    "metadata_log_max_record_bytes_between_snapshots": "1000",
    "metadata_log_segment_ms": "1000",
    "metadata_max_retention_bytes": "3000",
    "metadata_max_idle_interval_ms": "100",
}
#: An event -> a run that has it, and the state in which the fault must find the cluster.
STATES: Mapping[FaultEvent, tuple[Callable[[], object], Callable[[Strike], bool]]] = {
    FaultEvent.APPEND: (planned("900:kill:there:300@append"), nobody_has_fetched),
    FaultEvent.DECISION: (
        simulated("3000:kill:broker2:500", "3010:kill:there:300@decision:any:1:9000", **_TIMES),
        is_not_committed,
    ),
    FaultEvent.LEADER: (
        planned("500:kill:broker1:900", "510:pause:there:100@leader:any:1:3000"),
        lambda strike: strike.call.subject.role is Role.LEADER,
    ),
    FaultEvent.ISR_SHRINK: (
        planned("500:pause:broker2:3000", "600:isolate:there:100@isr-shrink:any:1:3000"),
        is_proposed_only,
    ),
    FaultEvent.ISR_GROWTH: (
        planned("300:kill:broker2:200", "510:kill:there:100@isr-growth:any:1:4000"),
        is_proposed_only,
    ),
    FaultEvent.LOG_CUT: (
        planned("300:isolate:broker1:2500", "600:kill:there:100@log-cut:any:1:4000"),
        is_cut,
    ),
    FaultEvent.ROLL: (
        simulated("3000:kill:there:100@roll:any:1:20000", log_roll_ms="1000"),
        lambda strike: len(strike.call.subject.segments) > 1,
    ),
    FaultEvent.COMPACTION: (
        simulated("3000:kill:there:100@compaction:any:1:40000", **_CLEANS),
        lambda strike: strike.call.subject._pass is not None,
    ),
    FaultEvent.SNAPSHOT: (
        planned("300:stop:there:100@snapshot:any:1:4000", "350:kill:broker1:900", **_SHORT),
        lambda strike: strike.call.subject._writing is True,
    ),
    FaultEvent.INSTALL: (
        simulated("3000:kill:broker3:9000", "11900:kill:there:100@install:any:1:9000", **_SNAPSHOTS),
        lambda strike: strike.call.subject._core.log.start_offset >= strike.call.arguments[0].end_offset > 0,
    ),
    FaultEvent.MOVE: (moving, adds_replicas),
    FaultEvent.LOAD: (
        simulated("0:pause:there:100@load:any:1:20000", work=WorkKind.GROUPS),
        lambda strike: not strike.call.subject._stopped,
    ),
    FaultEvent.SHIFT: (shifting, lambda strike: strike.call.arguments[0].stage is MoveStage.REPORTING),
    FaultEvent.PREPARE: (
        simulated("3000:stop:there:100@prepare", work=WorkKind.TRANSACTIONS),
        is_deciding_a_transaction,
    ),
    FaultEvent.REBALANCE: (
        simulated("0:pause:there:100@rebalance:any:1:20000", work=WorkKind.GROUPS),
        lambda strike: strike.call.arguments[0].state is GroupState.PREPARING_REBALANCE,
    ),
    FaultEvent.CONTROLLER: (
        simulated(
            "3000:kill:broker1:500", "5000:kill:broker2:500", "3010:kill:there:100@controller:any:1:9000", **_TIMES
        ),
        lambda strike: strike.broker.quorum.raft.is_leader,
    ),
}


def test_every_event_is_tried() -> None:
    assert set(STATES) == set(FaultEvent)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("event", FaultEvent, ids=lambda event: event.value)
def test_a_fault_finds_the_cluster_in_the_state_of_its_event(
    event: FaultEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, is_that_state = STATES[event]
    calls: list[Call] = []
    found: list[bool] = []
    on_event, strike_after, begin = Injector._on_event, Injector._strike_after, Injector._begin
    latest: list[Call] = []

    def noted(self: Injector, row: Any, call: Call) -> None:
        latest[:] = [call]
        on_event(self, row, call)

    def striking(self: Injector, *arguments: Any) -> None:
        calls.extend(latest)
        strike_after(self, *arguments)

    def begun(self: Injector, fault: Fault, tied: Fault | None = None, cause: str = "") -> None:
        if tied is not None:
            found.append(is_that_state(Strike(self._cluster, fault.node, calls[0])))
            raise Struck
        begin(self, fault, tied, cause)

    monkeypatch.setattr(Injector, "_on_event", noted)
    monkeypatch.setattr(Injector, "_strike_after", striking)
    monkeypatch.setattr(Injector, "_begin", begun)
    with suppress(Struck):
        execute()
    assert found == [True]
