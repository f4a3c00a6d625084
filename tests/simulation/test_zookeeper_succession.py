"""Brokers in ZooKeeper mode whose processes are killed, one or two of three: the time until others lead, with the
default session timeout of 18 s, in virtual time.
"""

from __future__ import annotations

import pytest
from tests.support.zookeeper_brokers import Brokers

from barnabas.simulation.world import MILLISECOND_US

_SOON_MS = 500


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> Brokers:
    return Brokers(request.param)


SEEDS = pytest.mark.parametrize("brokers", [1, 2, 3], indirect=True)


@SEEDS
def test_a_leader_that_is_killed_is_replaced_at_once(brokers: Brokers) -> None:
    killed = min({1, 2, 3} - {brokers.controller_id()})
    brokers.kill(killed)
    assert brokers.run_until(lambda: brokers.is_taken_over(killed), 30_000) <= _SOON_MS


@SEEDS
def test_a_controller_that_is_killed_is_succeeded_at_once(brokers: Brokers) -> None:
    killed = brokers.controller_id()
    brokers.kill(killed)
    assert brokers.run_until(lambda: brokers.is_taken_over(killed), 30_000) <= _SOON_MS
    assert brokers.active()[0].controller.controller_epoch == 2


@SEEDS
def test_a_controller_and_a_leader_that_are_killed_together_are_replaced_at_once(brokers: Brokers) -> None:
    controller = brokers.controller_id()
    killed = (controller, min({1, 2, 3} - {controller}))
    brokers.kill(*killed)
    assert brokers.run_until(lambda: brokers.is_taken_over(*killed), 30_000) <= _SOON_MS


@SEEDS
def test_a_broker_that_starts_again_within_its_session_waits_for_it_and_serves_nothing(brokers: Brokers) -> None:
    """G35: its znode is that of the last process until the session ends; it gets no role before its own."""
    killed = brokers.controller_id()
    brokers.kill(killed)
    brokers.run_until(lambda: brokers.is_taken_over(killed), 30_000)
    brokers.release(killed)
    brokers.run_for(5_000)
    node = brokers.cluster.nodes[f"broker{killed}"]
    assert node.is_running
    assert node.broker is not None
    assert node.broker.side.broker_epoch == -1
    assert not node.broker.metadata.image.topics_by_name
    assert all(killed not in image.brokers for image in brokers.images())
    brokers.run_until(brokers.is_whole, 30_000)


@SEEDS
def test_a_paused_controller_stays_until_its_session_ends(brokers: Brokers) -> None:
    paused = brokers.controller_id()
    machine = brokers.cluster.machine(f"broker{paused}")
    machine.pause()
    begin_us = brokers.world.now_us
    brokers.run_until(lambda: len(brokers.active()) == 2, 30_000)
    assert brokers.world.now_us - begin_us > 10_000 * MILLISECOND_US
    machine.resume()
    brokers.run_until(brokers.is_whole, 30_000)
