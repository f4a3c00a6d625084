"""A request for a change is answered, or its connection ends, within its time, whatever happens to the controllers."""

from __future__ import annotations

import pytest
from tests.support.admin_world import AdminWorld

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.world import MILLISECOND_US

#: An election takes less than 3 s; with an intact network nothing waits much longer than that.
WAIT_MS_MAX = 6_000


def run(seed: int) -> AdminWorld:
    world = AdminWorld(seed)
    world.begin()
    world.run_requests(40_000)
    world.heal()
    world.world.run_for(45_000 * MILLISECOND_US)
    return world


@pytest.mark.parametrize("seed", range(8))
def test_every_request_is_answered_in_time(seed: int) -> None:
    world = run(seed)
    assert not world.overdue()
    answered = [requested for requested in world.requested if requested.answer is not None]
    assert len(answered) > len(world.requested) // 4


def check_waits_around_pauses(seed: int) -> None:
    world = AdminWorld(seed)
    world.begin()
    world.run_around_pauses(40_000)
    world.heal()
    world.world.run_for(22_000 * MILLISECOND_US)
    late = [str(requested) for requested in world.requested if world.waited_ms(requested) > WAIT_MS_MAX]
    assert not late, f"seed {seed}"
    answered = [requested for requested in world.requested if requested.answer is not None]
    assert len(answered) > len(world.requested) // 2


@pytest.mark.parametrize("seed", range(4))
def test_nothing_waits_for_a_controller_that_was_just_paused_woken_or_deposed(seed: int) -> None:
    check_waits_around_pauses(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 300))
def test_nothing_waits_for_such_a_controller_in_many_seeds(seed: int) -> None:
    check_waits_around_pauses(seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_paused_controller_is_not_waited_for(seed: int) -> None:
    """The paused controller keeps its connections. The broker learns of its successor from the others, and sends
    requests to that one: within the fetch timeout of the voters or its own request timeout (2 s each), and an election.
    """
    world = AdminWorld(seed, Layout(2, 3, {"auto.create.topics.enable": "false"}))
    world.begin()
    world.world.run_for((3_000 + world.chance.randrange(1_000)) * MILLISECOND_US)
    active = world.active()
    assert active is not None
    world.cluster.nodes[active].machine.pause()
    world.world.run_for(world.chance.randrange(1_500) * MILLISECOND_US)
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    requested = world.call("broker1", CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    world.run_until(lambda: requested.is_over, 6_000)
    assert isinstance(requested.answer, CreateTopicsResponse)
    assert [row.error_code for row in requested.answer.topics] == [ErrorCode.NONE]
