"""A request for a change is answered, or its connection ends, within its time, whatever happens to the controllers."""

from __future__ import annotations

import pytest
from tests.support.admin_world import AdminWorld

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.world import MILLISECOND_US

#: An election takes less than 3 s; with an intact network nothing waits much longer than that.
WAIT_MS_MAX = 6_000
#: The same for a request at a node that has a connection to every working voter, after any faults: a link that failed
#: before is noticed within 2 s, the voters can need a second election, and the node looks for the leader.
WELL_MS_MAX = 10_000


def run(seed: int) -> AdminWorld:
    world = AdminWorld(seed)
    world.begin()
    world.run_requests(40_000)
    world.heal()
    world.world.run_for(45_000 * MILLISECOND_US)
    return world


def check_waits(seed: int) -> float:
    """Checks one run, and returns the share of its requests that were answered."""
    world = run(seed)
    assert not world.overdue()
    late = [str(requested) for requested in world.requested if requested.well_us > WELL_MS_MAX * MILLISECOND_US]
    assert not late, f"seed {seed}"
    return sum(requested.answer is not None for requested in world.requested) / len(world.requested)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "seed",
    [
        *range(8),
        100008,  # requests wait for 30 s at a broker that is cut off, and for 16 s at another without a majority
    ],
)
def test_every_request_is_answered_in_time(seed: int) -> None:
    assert check_waits(seed) > 0.25


@pytest.mark.full
@pytest.mark.parametrize("first", range(10_000, 11_000, 50))
def test_every_request_is_answered_in_time_in_many_seeds(first: int) -> None:
    # Some seeds have no majority most of the time: 10110 answers 37 of its 198 requests.
    shares = [check_waits(seed) for seed in range(first, first + 50)]
    assert sum(shares) / len(shares) > 0.5


@pytest.mark.parametrize("seed", range(2))
def test_a_decision_that_no_majority_can_confirm_is_answered_in_time(seed: int) -> None:
    """One voter is dead, and another one fetches but has no space: the controller leads, and commits nothing."""
    world = AdminWorld(seed, Layout(3, 0, {"auto.create.topics.enable": "false"}))
    world.begin()
    world.world.run_for(5_000 * MILLISECOND_US)
    active = world.active()
    assert active is not None
    killed, full = (node for node in world.cluster.nodes if node != active)
    now_ms = world.world.now_us // MILLISECOND_US + 1
    world.injector.schedule(
        [
            Fault(now_ms, FaultKind.KILL, killed, "", 100_000, 0),
            Fault(now_ms, FaultKind.FULL_DISK, full, "", 100_000, 0),
        ]
    )
    world.world.run_for(500 * MILLISECOND_US)
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    for port in (9092, 9093):
        for timeout_ms in (0, 60_000):
            world.call(active, CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), port)
    world.world.run_for(60_000 * MILLISECOND_US)
    assert world.active() == active, "it still leads"
    for requested in world.requested:
        assert isinstance(requested.answer, CreateTopicsResponse), str(requested)
        assert [row.error_code for row in requested.answer.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert not world.overdue()


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
