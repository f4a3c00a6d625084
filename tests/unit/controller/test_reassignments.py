"""Reassignments as decisions: begun, changed, completed by an ISR change, cancelled, listed, and refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.controller_world import ControllerWorld
from tests.support.finished import finished
from tests.support.isr_requests import set_isr

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests import reassignments
from barnabas.metadata.image import ELR_VERSION, METADATA_VERSION, TOPIC_RESOURCE
from barnabas.metadata.topics import MIGRATING_DIRECTORY, NO_LEADER, RECOVERED, RECOVERING, UNASSIGNED_DIRECTORY
from barnabas.metadata.versions import V_3_6_IV2
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

Answer = tuple[int, str | None]
OK: Answer = (0, None)


@pytest.fixture
def world() -> ControllerWorld:
    """Brokers 1 to 6; `t` on 1, 2, 3, led by 1; without ELR."""
    return make_world()


def make_world(*, elr: bool = False) -> ControllerWorld:
    world = ControllerWorld(features={ELR_VERSION: int(elr)})
    for broker_id in range(1, 7):
        world.add_broker(broker_id)
    world.create_assigned("t", [1, 2, 3])
    return world


def move(
    world: ControllerWorld, target: Sequence[int] | None, *, topic: str = "t", index: int = 0, factor: bool = True
) -> Answer:
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=index, replicas=None if target is None else list(target)
    )
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor,
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[wanted])],
    )
    response = world.apply(reassignments.alter_reassignments(world.view(), request, "User:test"))
    assert (response.error_code, response.allow_replication_factor_change) == (0, factor)
    row = response.responses[0].partitions[0]
    return row.error_code, row.error_message


def state(world: ControllerWorld) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = world.partition("t")
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def test_a_move_goes_by_adding_and_then_removing(world: ControllerWorld) -> None:
    assert move(world, [4, 2, 3]) == OK
    assert state(world) == ((4, 2, 3, 1), (4,), (1,))
    assert world.partition("t").isr == (1, 2, 3)
    epoch = world.partition("t").leader_epoch
    set_isr(world, [1, 2, 3, 4])
    partition = world.partition("t")
    assert state(world) == ((4, 2, 3), (), ())
    assert partition.isr == (2, 3, 4)
    # The old leader went: the first of the new order leads, and removal raises the epoch.
    assert (partition.leader, partition.leader_epoch) == (4, epoch + 1)
    assert len(partition.directories) == 3
    assert UNASSIGNED_DIRECTORY not in partition.directories


def test_growing_ends_when_all_are_in_sync(world: ControllerWorld) -> None:
    epoch = world.partition("t").leader_epoch
    assert move(world, [1, 2, 3, 4, 5]) == OK
    assert state(world) == ((1, 2, 3, 4, 5), (4, 5), ())
    set_isr(world, [1, 2, 3, 4])
    assert state(world) == ((1, 2, 3, 4, 5), (4, 5), ())
    set_isr(world, [1, 2, 3, 4, 5])
    assert state(world) == ((1, 2, 3, 4, 5), (), ())
    # No replica was removed, so none needs fencing.
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (1, epoch)


def test_shrinking_among_those_in_sync_ends_at_once_and_fences_the_removed(world: ControllerWorld) -> None:
    epoch = world.partition("t").leader_epoch
    assert move(world, [1, 3]) == OK
    partition = world.partition("t")
    assert state(world) == ((1, 3), (), ())
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 3), 1, epoch + 1)


def test_shrinking_away_the_leader_moves_the_leadership(world: ControllerWorld) -> None:
    assert move(world, [3, 2]) == OK
    partition = world.partition("t")
    assert (partition.replicas, partition.leader, set(partition.isr)) == ((3, 2), 3, {2, 3})


def test_another_order_is_no_move(world: ControllerWorld) -> None:
    epoch = world.partition("t").leader_epoch
    assert move(world, [3, 1, 2]) == OK
    partition = world.partition("t")
    assert state(world) == ((3, 1, 2), (), ())
    assert (partition.leader, partition.leader_epoch) == (1, epoch)


def test_the_same_replicas_change_nothing(world: ControllerWorld) -> None:
    epoch = world.partition("t").partition_epoch
    assert move(world, [1, 2, 3]) == OK
    assert world.partition("t").partition_epoch == epoch


def test_it_does_not_end_while_one_that_stays_is_out_of_sync(world: ControllerWorld) -> None:
    """The rule is Kafka 4.1's: earlier versions waited only for the added replicas."""
    world.fence(3)
    assert move(world, [4, 2, 3]) == OK
    set_isr(world, [1, 2, 4])
    assert state(world) == ((4, 2, 3, 1), (4,), (1,))
    world.unfence(3)
    set_isr(world, [1, 2, 3, 4])
    assert state(world) == ((4, 2, 3), (), ())


def test_a_second_target_takes_the_place_of_the_first(world: ControllerWorld) -> None:
    move(world, [4, 2, 3])
    assert move(world, [5, 2, 3]) == OK
    assert state(world) == ((5, 2, 3, 1, 4), (5,), (1, 4))
    set_isr(world, [1, 2, 3, 5])
    assert state(world) == ((5, 2, 3), (), ())


def test_a_second_target_may_keep_what_was_to_be_removed(world: ControllerWorld) -> None:
    """Kafka would keep `removing [1]` here and take 1 away at the end."""
    move(world, [4, 2, 3])
    assert move(world, [4, 2, 3, 1]) == OK
    assert state(world) == ((4, 2, 3, 1), (4,), ())
    set_isr(world, [1, 2, 3, 4])
    assert state(world) == ((4, 2, 3, 1), (), ())


def test_going_back_by_naming_the_first_replicas(world: ControllerWorld) -> None:
    move(world, [4, 2, 3])
    assert move(world, [1, 2, 3]) == OK
    assert state(world) == ((1, 2, 3), (), ())


@pytest.mark.parametrize("added_is_in_sync", [False, True])
def test_cancelling_takes_the_added_away_again(world: ControllerWorld, added_is_in_sync: bool) -> None:
    move(world, [4, 5, 3])
    if added_is_in_sync:
        set_isr(world, [1, 2, 3, 4])
    epoch = world.partition("t").leader_epoch
    assert move(world, None) == OK
    partition = world.partition("t")
    assert state(world) == ((3, 1, 2), (), ())
    assert partition.isr == (1, 2, 3)
    assert (partition.leader, partition.leader_epoch) == (1, epoch + 1)


def test_nothing_to_cancel(world: ControllerWorld) -> None:
    answer = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    assert move(world, None) == answer


def test_a_dead_target_can_be_cancelled(world: ControllerWorld) -> None:
    """Guard G28."""
    move(world, [4, 2, 3])
    world.fence(4)
    assert move(world, None) == OK
    assert state(world) == ((2, 3, 1), (), ())
    assert world.partition("t").leader == 1


def test_a_dead_source_does_not_keep_it_from_ending(world: ControllerWorld) -> None:
    """Guard G28."""
    move(world, [4, 2, 3])
    world.fence(1)
    assert world.partition("t").leader == 2
    set_isr(world, [2, 3, 4])
    assert state(world) == ((4, 2, 3), (), ())


def only_the_added_is_in_sync(world: ControllerWorld) -> None:
    move(world, [4, 5])
    set_isr(world, [1, 2, 3, 4])
    for broker_id in (1, 2, 3):
        world.fence(broker_id)
    assert world.partition("t").isr == (4,)


def test_cancelling_must_not_lose_records_unless_that_is_allowed(world: ControllerWorld) -> None:
    only_the_added_is_in_sync(world)
    world.unfence(2)
    text = "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
    assert move(world, None) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    assert world.partition("t").leader == 4
    world.configure(TOPIC_RESOURCE, "t", "unclean.leader.election.enable", "true")
    assert move(world, None) == OK
    partition = world.partition("t")
    assert (partition.replicas, partition.leader, partition.isr) == ((1, 2, 3), 2, (2,))
    assert partition.leader_recovery_state == RECOVERING


def test_cancelling_keeps_eligible_leaders() -> None:
    """No replica is in sync, but the remaining ones have all committed records: the election is not unclean."""
    world = make_world(elr=True)
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "2")
    move(world, [4, 2, 3])
    for broker_id in (3, 2, 1):
        world.fence(broker_id)
    assert (world.partition("t").isr, world.partition("t").elr) == ((), (1, 2))
    assert move(world, None) == OK
    partition = world.partition("t")
    assert (partition.replicas, partition.isr, partition.elr, partition.leader) == ((2, 3, 1), (), (1, 2), NO_LEADER)
    world.unfence(2)
    assert (world.partition("t").leader, world.partition("t").leader_recovery_state) == (2, RECOVERED)


def test_who_is_removed_is_no_eligible_leader_any_more() -> None:
    world = make_world(elr=True)
    world.configure(TOPIC_RESOURCE, "t", "min.insync.replicas", "3")
    assert move(world, [1]) == OK
    assert (world.partition("t").replicas, world.partition("t").elr) == ((1,), ())


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ([], "The manual partition assignment includes an empty replica list."),
        ([1, 9], "The manual partition assignment includes broker 9, but no such broker is registered."),
        ([1, 2, 1], "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_refused_targets(world: ControllerWorld, target: list[int], text: str) -> None:
    before = world.image
    assert move(world, target) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    assert world.image.topics_by_name == before.topics_by_name


def test_what_is_not_there(world: ControllerWorld) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(world, [1], topic="u") == (unknown, "Unable to find a topic named u.")
    for index in (1, 2, -1):
        assert move(world, [1], index=index) == (unknown, f"Unable to find partition t:{index}.")


def test_the_replication_factor_may_be_held_fast(world: ControllerWorld) -> None:
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(world, [1, 2], factor=False) == (refused, "The replication factor is changed from 3 to 2")
    assert move(world, [4, 5, 6], factor=False) == OK
    # There are six replicas now, three of which are being removed.
    assert move(world, [4, 5], factor=False) == (refused, "The replication factor is changed from 3 to 2")
    assert move(world, [1, 2, 6], factor=False) == OK


def test_what_is_under_way_is_listed(world: ControllerWorld) -> None:
    world.create_assigned("u", [1], [2], [3])
    move(world, [4, 2, 3])
    move(world, [5], topic="u", index=1)
    assert listed(world, None) == {("t", 0): ([4, 2, 3, 1], [4], [1]), ("u", 1): ([5, 2], [5], [2])}
    assert listed(world, {"u": [0, 1, 7], "v": [0]}) == {("u", 1): ([5, 2], [5], [2])}
    set_isr(world, [1, 2, 3, 4])
    assert set(listed(world, None)) == {("u", 1)}


def listed(
    world: ControllerWorld, requested: dict[str, list[int]] | None
) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    topic_of = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    topics = (
        None if requested is None else [topic_of(name=name, partition_indexes=ids) for name, ids in requested.items()]
    )
    response = finished(reassignments.list_reassignments(world.image, ListPartitionReassignmentsRequest(topics=topics)))
    assert (response.error_code, response.error_message) == (0, None)
    return {
        (topic.name, row.partition_index): (row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in response.topics
        for row in topic.partitions
    }


def test_a_move_before_directories_had_ids_names_none() -> None:
    world = ControllerWorld(features={METADATA_VERSION: V_3_6_IV2, ELR_VERSION: 0})
    for broker_id in range(1, 6):
        world.add_broker(broker_id)
    world.create_assigned("t", [1, 2, 3])
    assert move(world, [4, 5]) == OK
    assert world.partition("t").replicas == (4, 5, 1, 2, 3)
    set_isr(world, [1, 2, 3, 4, 5])
    assert world.partition("t").replicas == (4, 5)
    assert world.partition("t").directories == (MIGRATING_DIRECTORY,) * 2
