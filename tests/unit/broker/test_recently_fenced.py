"""Fenced brokers that Metadata still lists: those that were lost without a controlled shutdown, for three seconds."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.simulation.worlds.replicated import Replicated


def listed(world: Replicated, number: int) -> tuple[set[int], set[int]]:
    """Returns the listed brokers, and the leaders."""
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="orders")])
    answer = world.client.call(f"broker{number}", wanted, MetadataResponse)
    rows = answer.topics[0].partitions
    assert not world.controller.metadata.image.brokers[answer.controller_id].fenced
    return {broker.node_id for broker in answer.brokers}, {row.leader_id for row in rows}


@pytest.fixture
def world() -> Replicated:
    world = Replicated()
    world.create_topic("orders", [[1, 2, 3]])
    return world


def fenced(world: Replicated) -> bool:
    return all(world.broker(number).metadata.image.brokers[1].fenced for number in (2, 3))


def test_a_broker_that_was_killed_is_listed_for_a_while_and_leads_nothing(world: Replicated) -> None:
    world.cluster.prevent_start("broker1")
    world.node(1).kill()
    world.run_until(lambda: fenced(world), "it is fenced")
    for number in (2, 3):
        brokers, leaders = listed(world, number)
        assert brokers == {1, 2, 3}
        assert leaders <= {2, 3}
    world.run_for(3_000)
    for number in (2, 3):
        assert listed(world, number)[0] == {2, 3}


def test_one_that_is_back_is_listed_as_it_is_now(world: Replicated) -> None:
    world.node(1).kill()
    world.run_until(lambda: fenced(world), "it is fenced")
    world.run_until(lambda: not world.broker(2).metadata.image.brokers[1].fenced, "it is back")
    assert listed(world, 2)[0] == {1, 2, 3}
    world.run_for(3_000)
    assert listed(world, 2)[0] == {1, 2, 3}


def test_one_that_stopped_in_order_is_not_listed(world: Replicated) -> None:
    world.cluster.prevent_start("broker1")
    world.node(1).stop()
    world.run_until(lambda: fenced(world), "it is fenced")
    assert listed(world, 2)[0] == {2, 3}
