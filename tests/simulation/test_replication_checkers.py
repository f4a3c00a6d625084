"""Planted breaches of replication's promises, each found by its checker, and correct steps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.common.types import TopicPartition
from barnabas.metadata.image import ELR_VERSION, EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.topics import NO_LEADER, RECOVERING, PartitionImage, TopicImage
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.replication.leadership import Leadership
from barnabas.replication.partition import Partition, Role
from barnabas.simulation import scenario
from barnabas.simulation.checkers import NoUncaughtExceptions, Watch
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.history import Violation
from barnabas.simulation.injector import Injector
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import (
    Committed,
    Offsets,
    OneLeader,
    Quorum,
    Replicas,
    State,
    UncleanElections,
)
from barnabas.simulation.replication_decisions import Decisions
from barnabas.simulation.scenario import Run, Settings, run
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.worlds.replicated import CONTROLLER, Replicated, produce_request

TOPIC_ID = bytes(15) + b"\x07"
TP = TopicPartition("orders", 0)
THREE = Layout(brokers=3)
QUIET = Settings(seed=3, layout=THREE, faults_s=8, schedule=(), operations=())


# -- single looks


def node(name: str = "broker1") -> Node:
    return cast(Node, SimpleNamespace(name=name))


def replica(**fields: Any) -> Partition:
    return cast(Partition, SimpleNamespace(topic_partition=TP, topic_id=TOPIC_ID, **fields))


LOG: Any = SimpleNamespace(epochs=SimpleNamespace(latest_epoch=4))


def state(role: Role = Role.LEADER, epoch: int = 4, start: int = 0, hw: int = 5, leo: int = 7) -> State:
    return State(role, epoch, LOG, start, hw, leo)


def test_two_leaders_of_a_partition_in_one_epoch() -> None:
    checker = OneLeader()
    checker.on_replica(node("broker1"), replica(), None, state())
    checker.on_replica(node("broker1"), replica(), None, state(leo=9))
    checker.on_replica(node("broker2"), replica(), None, state(Role.FOLLOWER))
    with pytest.raises(Violation, match="two leaders in one epoch"):
        checker.on_replica(node("broker2"), replica(), None, state())


def test_a_leader_whose_log_does_not_know_its_epoch() -> None:
    with pytest.raises(Violation, match="does not know its epoch"):
        OneLeader().on_replica(node(), replica(), None, state(epoch=5))


def test_offsets_that_are_out_of_order_or_go_back() -> None:
    checker = Offsets()
    checker.on_replica(node(), replica(), state(), state(hw=7))
    checker.on_replica(node(), replica(), state(Role.FOLLOWER), state(Role.FOLLOWER, leo=5))
    for bad in (state(hw=8), state(start=6)):
        with pytest.raises(Violation, match="out of order"):
            checker.on_replica(node(), replica(), None, bad)
    for role in (Role.LEADER, Role.FOLLOWER):
        with pytest.raises(Violation, match="HW went back"):
            checker.on_replica(node(), replica(), state(role), state(role, hw=4))
    with pytest.raises(Violation, match="LEO of a leader went back"):
        checker.on_replica(node(), replica(), state(), state(leo=6))


def test_after_an_unclean_election_a_follower_may_lose_what_was_committed_and_a_leader_not() -> None:
    unclean = UncleanElections()
    unclean.on_image(world_of(partition()), world_of(partition(leader_recovery_state=RECOVERING, partition_epoch=4)))
    assert unclean.topics == {"orders"}
    checker = Offsets(unclean)
    checker.on_replica(node(), replica(), state(Role.FOLLOWER), state(Role.FOLLOWER, hw=4, leo=4))
    with pytest.raises(Violation, match="HW went back"):
        checker.on_replica(node(), replica(), state(), state(hw=4))


# -- decisions


def partition(**changes: Any) -> PartitionImage:
    made = PartitionImage((1, 2, 3), (1, 2, 3), 1, leader_epoch=2, partition_epoch=3, directories=(bytes(16),) * 3)
    return made._replace(**changes)


def world_of(
    decided: PartitionImage,
    *,
    offset: int = 10,
    fenced: tuple[int, ...] = (),
    again: tuple[int, ...] = (),
    **topic: str,
) -> MetadataImage:
    """Returns a world. Brokers in `again` have been registered again; `topic` are configs, with `_` for `.`."""
    image = EMPTY_IMAGE
    for broker_id in (1, 2, 3):
        epoch = 20 if broker_id in again else broker_id
        broker = BrokerImage(broker_id, epoch, bytes(16), (), fenced=broker_id in fenced)
        image = replace(image, brokers=image.brokers.set(broker_id, broker))
    made = TopicImage("orders", TOPIC_ID, (decided,))
    overrides = image.topic_config("orders").update({key.replace("_", "."): value for key, value in topic.items()})
    return replace(
        image,
        offset=offset,
        topics_by_name=image.topics_by_name.set("orders", made),
        topics_by_id=image.topics_by_id.set(TOPIC_ID, made),
        features=image.features.set(ELR_VERSION, 1),
        configs=image.configs.set((TOPIC_RESOURCE, "orders"), overrides),
    )


def step(now: PartitionImage, before: PartitionImage | None = None, **options: Any) -> None:
    """Takes a step from a healthy partition, or from `before`."""
    earlier = world_of(before or partition(), **{key: value for key, value in options.items() if "_" in key})
    Decisions({"min.insync.replicas": "2"}).on_image(earlier, world_of(now, offset=11, **options))


NEXT = partition(partition_epoch=4)


def test_decisions_that_are_right() -> None:
    step(NEXT._replace(isr=(1, 2)), fenced=(3,))
    step(NEXT._replace(isr=(2,), elr=(1,), leader=2, leader_epoch=3), partition(isr=(1, 2)), fenced=(1, 3))
    step(NEXT._replace(isr=(2,), leader=2, leader_epoch=3), partition(isr=(1, 2)), fenced=(1,), again=(1,))
    last = partition(isr=(), leader=NO_LEADER, last_known_elr=(2,))
    unclean = NEXT._replace(isr=(2,), leader=2, leader_epoch=3, leader_recovery_state=RECOVERING)
    step(unclean, last, again=(1, 2, 3))
    step(unclean, partition(isr=(1,)), again=(1,), unclean_leader_election_enable="true")


@pytest.mark.parametrize(
    ("now", "options", "problem"),
    [
        (NEXT._replace(isr=(1, 4)), {}, "not parts of the replicas"),
        (NEXT._replace(isr=(1,), elr=(1, 2)), {}, "not parts of the replicas"),
        (NEXT._replace(isr=(2, 3)), {}, "the leader is not in the ISR"),
        (NEXT, {"fenced": (2,)}, "a fenced broker is in the ISR"),
        (NEXT._replace(isr=(1, 2), elr=(3,)), {}, "an ELR although the ISR is large enough"),
        (partition(isr=(1, 2)), {}, "an epoch does not go forward"),
        (NEXT._replace(leader_epoch=1), {}, "an epoch does not go forward"),
        (NEXT._replace(leader=2), {}, "another leader in the same epoch"),
        (NEXT._replace(isr=(1,)), {"fenced": (2, 3)}, "broker 2 leaves ISR and ELR"),
        (
            NEXT._replace(isr=(2,), leader=2, leader_epoch=3, leader_recovery_state=RECOVERING),
            {"fenced": (1,)},
            "an unclean election that was not allowed",
        ),
    ],
)
def test_decisions_that_are_wrong(now: PartitionImage, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Violation, match=problem):
        step(now, **options)


def test_in_portions_a_broker_leaves_before_it_is_registered_again_and_not_without_that() -> None:
    healthy, alone = world_of(partition()), world_of(NEXT._replace(isr=(1,)), offset=11, fenced=(2, 3))
    back = NEXT._replace(isr=(1, 2), partition_epoch=5)
    decisions = Decisions({"min.insync.replicas": "2"}, in_portions=True)
    decisions.on_image(healthy, alone)
    decisions.on_image(alone, world_of(NEXT._replace(isr=(1,)), offset=12, fenced=(2, 3), again=(2, 3)))
    decisions.on_image(alone, world_of(back, offset=13, again=(2, 3)))
    decisions = Decisions({"min.insync.replicas": "2"}, in_portions=True)
    decisions.on_image(healthy, alone)
    with pytest.raises(Violation, match="broker 2 has left ISR and ELR, and is back as the same incarnation"):
        decisions.on_image(alone, world_of(back, offset=12, again=(3,)))


def test_a_leader_that_waits_for_less_than_the_isr() -> None:
    leadership = Leadership(1, partition(), 0, 0)
    led = replica(role=Role.LEADER, leadership=leadership)
    broker = SimpleNamespace(replicas=SimpleNamespace(find=lambda topic, index: led))
    nodes = {"broker1": SimpleNamespace(name="broker1", is_running=True, broker=broker)}
    checker = Quorum(cast(Any, SimpleNamespace(nodes=nodes)))
    checker.on_image(EMPTY_IMAGE, world_of(partition()))
    leadership.propose((1, 2))
    checker.on_replica(node(), led, None, state(epoch=2))
    leadership.commit_answer((1, 2), 4)
    with pytest.raises(Violation, match="does not wait for all of the ISR"):
        checker.on_replica(node(), led, None, state(epoch=2))


# -- whole runs with something broken on the way


def broken_at(second: int, breaking: Any, settings: Settings = QUIET) -> str:
    """Returns the first problem of a run in which `breaking(run)` is called."""
    one = Run(settings)
    one.world.at(second * 1_000_000, lambda: breaking(one), None, "planted")
    problems = one.execute().problems
    assert problems, "nothing was found"
    return problems[0]


def follower_of(one: Run) -> tuple[Node, Partition]:
    for name, each in one.cluster.nodes.items():
        assert each.broker is not None
        for found in each.broker.replicas.partitions():
            if found.topic_partition.topic == "orders" and found.role is Role.FOLLOWER and found.high_watermark > 3:
                return one.cluster.nodes[name], found
    raise AssertionError("no follower has records")


def stir(one: Run, owner: Node) -> None:
    """Lets the checkers see the planted state, as after an event of the node."""
    process = owner.machine.process
    assert process is not None
    process.enter(lambda: None)


def test_a_candidate_without_what_is_committed() -> None:
    def breaking(one: Run) -> None:
        owner, found = follower_of(one)
        found.log.truncate_to(1)
        found.high_watermark = 1
        stir(one, owner)

    assert "a candidate lacks committed records" in broken_at(7, breaking)


def test_other_records_below_the_hw() -> None:
    def breaking(one: Run) -> None:
        owner, found = follower_of(one)
        end = found.high_watermark
        found.log.truncate_to(end - 1)
        batch = bytearray(encode_batch([Record(0, 1_735_689_600_000, None, b"another", [])]))
        batch[:8] = (end - 1).to_bytes(8, "big")
        batch[12:16] = found.leader_epoch.to_bytes(4, "big")
        found.log.append_as_follower(bytes(batch))
        one.committed.forget_checked(found)
        found.high_watermark = found.log.log_end_offset
        one.committed.on_replica(owner, found, None, state(found.role, hw=found.high_watermark))

    assert "logs differ below the HW" in broken_at(7, breaking)


# -- liveness


def test_nobody_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Injector, "heal", lambda *arguments: None)
    kill = Fault(4_000, FaultKind.KILL, "broker1", duration_ms=900_000)
    outcome = run(Settings(1, faults_s=6, schedule=(kill,), producers=1, consumers=0))
    assert outcome.problems[0].startswith("no progress within"), outcome.problems


@pytest.mark.parametrize("with_core", [True, False])
def test_an_isr_that_does_not_grow_again(with_core: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the cluster does not get on, or, where no part has to, all of it does not become whole."""
    monkeypatch.setattr(Leadership, "enlarged", lambda *arguments: None)
    # The second decision would find the mistake first.
    monkeypatch.setattr(SecondDecisions, "check", lambda *arguments: None)
    if not with_core:
        monkeypatch.setattr(scenario, "core", lambda cluster, *arguments: frozenset(cluster.nodes))
    kill = Fault(4_000, FaultKind.KILL, "broker2", duration_ms=14_000)
    problem = run(replace(QUIET, faults_s=16, schedule=(kill,), producers=1, consumers=0)).problems[0]
    # The promise for the time of a fault notices it first, where a part of the cluster has to continue.
    assert problem.startswith("writes do not continue: clicks-0" if with_core else "not whole within"), problem
    assert with_core or "is not in sync" in problem


def test_brokers_clean_a_compacted_log_each_for_itself() -> None:
    """A record that the cleaner of one replica removed differs from no other replica's."""
    rig = Replicated(1, 3, (), controllers=1, log_cleaner_backoff_ms="200")
    committed = Committed(rig.cluster)
    Watch(rig.cluster, [NoUncaughtExceptions(), Replicas(CONTROLLER, [committed])])
    often = {"cleanup_policy": "compact", "segment_ms": "500", "min_cleanable_dirty_ratio": "0.01"}
    rig.create_topic("orders", [[1, 2, 3]], **often)
    for number in range(12):
        at_ms = 1_735_689_600_000 + 400 * number
        records = [Record(delta, at_ms, key, b"value", []) for delta, key in enumerate((b"%d" % number, b"key"))]
        request = produce_request(rig.topic_id(), 0, bytes(encode_batch(records)))
        response = rig.client.call("broker1", request, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0
        rig.run_for(400)
    rig.run_for(2_000)
    assert len(rig.values(1)) < 24, "the cleaner has removed records"
    for number in (3, 1):
        rig.node(number).kill()
        rig.node(number).start()
        rig.run_until(lambda: rig.node(3).broker is not None and rig.settled(), "it is back")
    assert committed.ends[TopicPartition("orders", 0), rig.topic_id()] == 24
