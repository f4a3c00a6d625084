"""The journal of a cluster in ZooKeeper mode: its events, their causes and their order over two controllers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.zookeeper_brokers import Brokers

from barnabas.common.types import EVENTS_TOPIC
from barnabas.simulation.worlds.replicated import log_values


def events(brokers: Brokers) -> list[dict[str, Any]]:
    """Returns what the leader of the journal has, each event once."""
    for broker in brokers.brokers:
        replica = broker.replicas.find(EVENTS_TOPIC, 0)
        if replica is not None and replica.leadership is not None:
            found = [json.loads(value) for _, value in log_values(replica) if value is not None]
            return list({event["id"]: event for event in found}.values())
    return []


def about(found: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [event for event in found if event.get("topic") == "orders" and event.get("partition") == index]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_leader_and_a_killed_controller_are_explained(seed: int) -> None:
    brokers = Brokers(seed)
    killed = min({1, 2, 3} - {brokers.controller_id()})
    (image, *_) = brokers.images()
    led = next(index for index, each in enumerate(image.topics_by_name["orders"].partitions) if each.leader == killed)
    brokers.kill(killed)
    brokers.run_for(10_000)
    found = events(brokers)
    (change,) = about(found, led)
    assert (change["kind"], change["cause"], change["actor"]) == ("leader-change", "process-ended", "controller")
    assert change["before"]["leader"] == killed
    assert change["after"]["leader"] != killed
    assert change["text"] == f"broker {killed} is gone: no process listens at its address"
    assert "inferred" not in change
    created = next(event for event in found if event.get("topic") == "orders")
    assert (created["kind"], created["actor"]) == ("topic-created", "User:ANONYMOUS")
    assert all(leader > 0 for leader in created["leaders"])
    assert [event["epoch"] for event in found if event["kind"] == "controller-change"] == [1]
    brokers.release(killed)
    brokers.run_until(brokers.is_whole, 60_000)
    brokers.run_for(2_000)
    assert [event["kind"] for event in about(events(brokers), led)] == ["leader-change", "isr-expand"]
    assert about(events(brokers), led)[-1]["cause"] == "follower-caught-up"

    controller = brokers.controller_id()
    brokers.kill(controller)
    brokers.run_until(lambda: brokers.is_taken_over(controller), 30_000)
    brokers.run_for(10_000)
    found = events(brokers)
    offsets = [event["metadata_offset"] for event in found if "metadata_offset" in event]
    assert offsets == sorted(offsets)
    assert [event["epoch"] for event in found if event["kind"] == "controller-change"] == [1, 2]
    assert not [event for event in found if event["kind"] == "journal-gap"]
    gone = [event for event in found if event["kind"] == "broker-unregistered"]
    assert [(event["broker"], event["cause"]) for event in gone] == [
        (killed, "process-ended"),
        (controller, "process-ended"),
    ]
