"""KIP-73 with three brokers: throttled replicas are copied no faster than the rate, and completely."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.common.types import EVENTS_TOPIC
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.worlds.replicated import Replicated, batch_of, log_values, produce_request

_TOPIC, _BROKER = 2, 4
RATE = 100_000
VALUE = bytes(10_000)


def configure(world: Replicated, resource_type: int, name: str, **values: str | None) -> None:
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value
        )
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=rows
    )
    node = f"broker{name}" if resource_type == _BROKER and name else "broker1"
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = world.client.call(node, request, IncrementalAlterConfigsResponse)
    assert [row.error_code for row in response.responses] == [0], response


def behind(size_bytes: int) -> Replicated:
    """Returns a world in which broker 3 is down and misses this much of `orders`, which broker 1 leads."""
    world = Replicated(replica_fetch_max_bytes="30000")
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="1")
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    world.await_isr([1, 2])
    request = produce_request(world.topic_id(), 0, batch_of(VALUE))
    for _ in range(size_bytes // len(VALUE)):
        answer = world.client.call("broker1", request, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return world


def copied_bytes(world: Replicated) -> int:
    return world.partition(3).log.log_end_offset * len(VALUE)


def runs(world: Replicated, number: int) -> bool:
    broker = world.node(number).broker
    return broker is not None and broker.replicas.find("orders", 0) is not None


SIDES = {
    "leader": {"leader_replication_throttled_rate": str(RATE)},
    "follower": {"follower_replication_throttled_rate": str(RATE)},
}


@pytest.mark.parametrize(
    ("side", "listed", "name"),
    [("leader", "*", ""), ("leader", "0:1,7:2", "1"), ("follower", "*", ""), ("follower", "7:2,0:3", "")],
)
def test_a_returning_replica_catches_up_at_the_rate(side: str, listed: str, name: str) -> None:
    """`name`: whose rate it is, a broker's or all brokers'."""
    world = behind(1_000_000)
    configure(world, _TOPIC, "orders", **{f"{side}_replication_throttled_replicas": listed})
    configure(world, _BROKER, name, **SIDES[side])
    world.cluster.allow_start("broker3")
    world.run_until(lambda: runs(world, 3), "broker 3 runs")
    begin_us, before = world.world.now_us, copied_bytes(world)
    while 3 not in world.image().isr:
        world.run_for(500)
        elapsed_s = (world.world.now_us - begin_us) / 1e6
        copied = copied_bytes(world) - before
        assert copied <= RATE * (elapsed_s + 1) + 60_000, f"{copied} bytes in {elapsed_s} s"
        assert elapsed_s < 30, "it does not end"
    assert (world.world.now_us - begin_us) / 1e6 > 6, "nothing held it back"
    world.await_equal()


def test_who_is_in_sync_is_not_held_back_and_others_are_not() -> None:
    """Broker 2 is in sync; broker 3 is not named."""
    world = behind(1_000_000)
    configure(world, _TOPIC, "orders", follower_replication_throttled_replicas="0:2")
    configure(world, _BROKER, "", **SIDES["follower"], leader_replication_throttled_rate="1")
    world.cluster.allow_start("broker3")
    begin_us = world.world.now_us
    world.await_isr([1, 2, 3])
    assert world.world.now_us - begin_us < 5_000_000
    for _ in range(20):
        assert world.produce(VALUE)[0] == 0


def test_the_end_of_the_throttle_is_felt_at_once() -> None:
    """The configuration is changed as by `verify` of a reassignment."""
    world = behind(1_000_000)
    configure(world, _TOPIC, "orders", leader_replication_throttled_replicas="*")
    configure(world, _BROKER, "", leader_replication_throttled_rate="1000")
    world.cluster.allow_start("broker3")
    world.run_for(8_000)
    assert 3 not in world.image().isr
    assert copied_bytes(world) < 200_000
    configure(world, _BROKER, "", leader_replication_throttled_rate=None)
    begin_us = world.world.now_us
    world.await_isr([1, 2, 3])
    assert world.world.now_us - begin_us < 3_000_000
    world.run_for(4_000)
    told = [event for event in journal(world) if event["kind"] == "throttled"]
    assert [(event["broker"], event["side"], "end_ms" in event) for event in told] == [
        (1, "leader", False),
        (1, "leader", True),
    ], "the leader says that its quota was exhausted, and when that ended"
    assert told[1]["duration_ms"] > 5_000


def journal(world: Replicated) -> list[dict[str, Any]]:
    """Returns the events of the cluster's journal."""
    log = world.partition(world.leader(EVENTS_TOPIC), EVENTS_TOPIC)
    return [json.loads(value) for _, value in log_values(log) if value is not None]
