"""Moves, cancellations, failures, returns and ISR changes in any order: the state of a partition after each of them,
and the end of a move once all its replicas exist and are in sync.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.controller_world import ControllerWorld
from tests.support.isr_requests import set_isr

from barnabas.controller.requests import elections, reassignments
from barnabas.metadata.image import ELR_VERSION, TOPIC_RESOURCE
from barnabas.metadata.topics import RECOVERED, PartitionImage
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest

BROKERS = range(1, 6)
Step = tuple[str, tuple[int, ...]]

_ids = st.lists(st.sampled_from(list(BROKERS)), min_size=1, max_size=4, unique=True).map(tuple)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("move"), _ids),
        st.tuples(st.just("cancel"), st.just(())),
        st.tuples(st.just("fence"), st.sampled_from(list(BROKERS)).map(lambda broker_id: (broker_id,))),
        st.tuples(st.just("unfence"), st.sampled_from(list(BROKERS)).map(lambda broker_id: (broker_id,))),
        st.tuples(st.just("isr"), _ids),
        st.tuples(st.just("elect"), st.just(())),
    ),
    max_size=25,
)


def make_world(*, elr: bool) -> ControllerWorld:
    world = ControllerWorld(features={ELR_VERSION: int(elr)})
    for broker_id in BROKERS:
        world.add_broker(broker_id)
    world.create_assigned("t", [1, 2, 3])
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    return world


def take(world: ControllerWorld, step: Step) -> None:
    kind, ids = step
    partition = world.partition("t")
    if kind in ("move", "cancel"):
        alter(world, ids if kind == "move" else None)
    elif kind == "fence":
        if not world.image.brokers[ids[0]].fenced:
            world.fence(ids[0])
    elif kind == "unfence":
        if world.image.brokers[ids[0]].fenced:
            world.unfence(ids[0])
    elif kind == "isr":
        active = [each for each in partition.replicas if each in ids and world.view().is_active(each)]
        if partition.has_leader:
            set_isr(world, sorted({*active, partition.leader}))
    else:
        request = ElectLeadersRequest(election_type=elections.PREFERRED, topic_partitions=None)
        world.apply(elections.elect_leaders(world.view(), request, "User:test"))


def alter(world: ControllerWorld, target: tuple[int, ...] | None) -> int:
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=0, replicas=None if target is None else list(target)
    )
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[row])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    response = world.apply(reassignments.alter_reassignments(world.view(), request, "User:test"))
    return response.responses[0].partitions[0].error_code


def check(before: PartitionImage, after: PartitionImage, world: ControllerWorld, *, elr: bool) -> None:
    replicas = set(after.replicas)
    assert replicas
    assert len(after.replicas) == len(replicas) == len(after.directories)
    assert set(after.adding_replicas) <= replicas
    assert set(after.removing_replicas) <= replicas
    assert not set(after.adding_replicas) & set(after.removing_replicas)
    assert set(after.isr) <= replicas
    assert set(after.elr) <= replicas - set(after.isr)
    if not elr:
        assert after.isr
        assert not after.elr
    if after.has_leader:
        assert after.leader in after.isr
        assert world.view().is_active(after.leader)
    assert after.leader_recovery_state == RECOVERED
    assert after.leader_epoch >= before.leader_epoch
    if after.leader != before.leader or not set(before.replicas) <= replicas:
        # Removed replicas' fetches and the old leader are fenced.
        assert after.leader_epoch > before.leader_epoch
    if after != before:
        assert after.partition_epoch > before.partition_epoch


@pytest.mark.parametrize("elr", [False, True])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=_steps)
def test_any_order(elr: bool, steps: list[Step]) -> None:
    world = make_world(elr=elr)
    for step in steps:
        before = world.partition("t")
        take(world, step)
        check(before, world.partition("t"), world, elr=elr)
    target = world.partition("t")
    wanted = tuple(each for each in target.replicas if each not in target.removing_replicas)
    for broker_id in BROKERS:
        take(world, ("unfence", (broker_id,)))
    take(world, ("isr", tuple(BROKERS)))
    partition = world.partition("t")
    assert partition.has_leader
    assert (partition.replicas, set(partition.isr)) == (wanted, set(wanted))
    assert not partition.adding_replicas
    assert not partition.removing_replicas
