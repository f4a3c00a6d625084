"""Limits of connections: what each one refuses, delays or closes, as Kafka's `ConnectionQuotas` does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from barnabas.broker.quota_following import make_connection_limits
from barnabas.broker.throttling.connection_limits import (
    ConnectionLimits,
    ConnectionThrottled,
    Slot,
    TooManyConnections,
)
from barnabas.common.config import BrokerConfig

LISTENERS = "INTERNAL://localhost:9092,EXTERNAL://localhost:9094,CONTROLLER://localhost:9093"
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": LISTENERS,
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "log.dirs": "/data",
}
IP = "10.0.0.1"


class World:
    """A node's limits, changed as its configuration is."""

    def __init__(self, **properties: str) -> None:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        self.config = BrokerConfig.from_properties(PROPERTIES | given)
        by_listener = make_connection_limits(self.config)
        self.limits = by_listener["EXTERNAL"]
        self.controllers = by_listener["CONTROLLER"]
        assert by_listener["INTERNAL"] is self.limits
        assert self.controllers is not self.limits

    def set(self, **values: str) -> None:
        named = {name.replace("_", "."): value for name, value in values.items()}
        assert self.config.update_dynamic(named, {}) == []

    def open(self, count: int = 1, listener: str = "EXTERNAL", address: str = IP, now_ms: int = 0) -> list[Slot]:
        made = []
        for _ in range(count):
            assert self.limits.arrive(listener, now_ms) == 0
            assert self.limits.has_slot(listener)
            slot = self.limits.take(listener, address, now_ms)
            assert isinstance(slot, Slot), slot
            made.append(slot)
        return made


def counts(limits: ConnectionLimits) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
    return limits.total, limits.counts(), {each.name: each.count for each in limits.listeners()}


def test_without_limits_connections_are_counted() -> None:
    world = World()
    slots = world.open(3) + world.open(2, "INTERNAL", "::1")
    assert counts(world.limits) == (5, {IP: 3, "::1": 2}, {"INTERNAL": 2, "EXTERNAL": 3})
    for slot in slots + slots:  # A slot is released once.
        slot.release()
    assert counts(world.limits) == (0, {}, {"INTERNAL": 0, "EXTERNAL": 0})


def test_a_listener_at_its_limit_has_no_slot_until_a_connection_closes() -> None:
    world = World(listener_name_external_max_connections="2")
    notified: list[bool] = []
    world.limits.when_free(lambda: notified.append(world.limits.has_slot("EXTERNAL")))
    first, _ = world.open(2)
    assert not world.limits.has_slot("EXTERNAL")
    assert world.limits.has_slot("INTERNAL")
    first.release()
    assert notified == [True]


def test_the_limit_of_the_broker_holds_for_all_listeners_but_the_inter_broker_one() -> None:
    world = World(max_connections="3")
    exceeded: list[int] = []
    world.limits.when_exceeded(lambda: exceeded.append(world.limits.excess))
    (slot, *_) = world.open(2)
    world.open(1, "INTERNAL")
    assert not world.limits.has_slot("EXTERNAL")
    assert world.limits.has_slot("INTERNAL")
    assert exceeded == []
    world.open(1, "INTERNAL")
    assert exceeded == [1]
    slot.release()
    assert world.limits.excess == 0
    world.open(1, "INTERNAL")
    # The limit holds for each listener as well: the inter-broker listener has its own three.
    assert not world.limits.has_slot("INTERNAL")
    assert world.controllers.has_slot("CONTROLLER")


def test_the_only_listener_of_a_broker_is_not_protected() -> None:
    config = BrokerConfig.from_properties(
        PROPERTIES
        | {
            "listeners": "INTERNAL://localhost:9092,CONTROLLER://localhost:9093",
            "max.connections": "1",
        }
    )
    limits = make_connection_limits(config)["INTERNAL"]
    assert isinstance(limits.take("INTERNAL", IP, 0), Slot)
    assert not limits.has_slot("INTERNAL")
    assert not limits.is_protected("INTERNAL")


def test_inter_broker_connections_alone_are_no_excess() -> None:
    world = World(max_connections="2", listener_name_internal_max_connections="9")
    world.open(5, "INTERNAL")
    assert world.limits.excess == 0
    assert not world.limits.has_slot("EXTERNAL")


def test_an_address_has_its_limit_or_that_of_its_override() -> None:
    world = World(
        max_connections_per_ip="2", max_connections_per_ip_overrides="10.0.0.9:1,[2001:DB8::0:1]:0, localhost:3"
    )
    (slot, _) = world.open(2)
    assert world.limits.take("EXTERNAL", IP, 0) == TooManyConnections(2)
    assert world.limits.take("INTERNAL", IP, 0) == TooManyConnections(2)
    slot.release()
    world.open(1)
    world.open(1, address="10.0.0.9")
    assert world.limits.take("EXTERNAL", "10.0.0.9", 0) == TooManyConnections(1)
    assert world.limits.take("EXTERNAL", "2001:db8::1", 0) == TooManyConnections(0)
    assert world.limits.unknown_names() == ["localhost"]
    world.limits.resolved("localhost", ["127.0.0.1", "::1"])
    assert world.limits.unknown_names() == []
    world.open(3, address="127.0.0.1")
    assert world.limits.take("EXTERNAL", "127.0.0.1", 0) == TooManyConnections(3)
    assert world.limits.total == 6


def test_limits_change_while_the_node_runs() -> None:
    world = World()
    freed: list[bool] = []
    exceeded: list[int] = []
    world.open(4)
    world.limits.when_free(lambda: freed.append(world.limits.has_slot("EXTERNAL")))
    world.limits.when_exceeded(lambda: exceeded.append(world.limits.excess))
    world.set(max_connections="1")
    assert exceeded == [3]
    world.set(max_connections="9", listener_name_external_max_connections="4")
    assert freed == [False, False]
    world.set(listener_name_external_max_connections="5")
    assert freed == [False, False, True]
    world.set(max_connections_per_ip="4")
    assert world.limits.take("EXTERNAL", IP, 0) == TooManyConnections(4)
    world.set(max_connections_per_ip_overrides=f"{IP}:5")
    world.open(1)
    world.set()
    world.open(9)


def test_a_listener_above_its_rate_rests_at_most_one_window() -> None:
    world = World(listener_name_external_max_connection_creation_rate="2")
    # Eleven windows of a second, ten of which count from the beginning: 20 connections are within the rate of 2.
    world.open(20)
    assert world.limits.arrive("EXTERNAL", 0) == 500
    assert world.limits.arrive("EXTERNAL", 0) == 1_000
    assert [world.limits.arrive("EXTERNAL", 0) for _ in range(9)] == [1_000] * 9
    assert world.limits.arrive("INTERNAL", 0) == 0
    (internal, external) = world.limits.listeners()
    assert internal.throttle_times.average(0) is None
    assert external.throttle_times.average(0) == pytest.approx(10_500 / 11)
    world.set(listener_name_external_max_connection_creation_rate="4")
    assert world.limits.arrive("EXTERNAL", 0) == 0


def test_the_rate_of_the_broker_holds_for_all_listeners_but_the_inter_broker_one() -> None:
    world = World(max_connection_creation_rate="2", listener_name_internal_max_connection_creation_rate="100")
    world.open(20)
    assert world.limits.arrive("EXTERNAL", 0) == 500
    world.open(50, "INTERNAL")
    assert world.limits.arrive("EXTERNAL", 11_000) == 0


def test_a_rate_of_zero_rests_the_longest_time() -> None:
    world = World(listener_name_external_max_connection_creation_rate="0")
    assert world.limits.arrive("EXTERNAL", 0) == 1_000


def test_an_address_above_its_quota_is_held_and_not_counted() -> None:
    world = World()
    world.limits.follow({(("ip", IP),): {"connection_creation_rate": 1.0}})
    world.open(10)
    assert world.limits.arrive("EXTERNAL", 0) == 0
    assert world.limits.take("EXTERNAL", IP, 0) == ConnectionThrottled(1_000)
    world.open(5, address="10.0.0.2")
    (_, external) = world.limits.listeners()
    assert (world.limits.total, external.count) == (15, 15)
    assert external.ip_throttle_times.average(0) == 1_000
    # Refused connections are not in the rates, of the listener and of the broker either.
    assert external.rate.total(0) == world.limits.rate.total(0) == 15
    assert dict(world.limits.address_rates(0)) == {IP: 1.0}
    world.open(1, now_ms=11_000)
    world.limits.follow({(("ip", IP),): {"connection_creation_rate": None}})
    world.open(30)
    assert dict(world.limits.address_rates(0)) == {}


def test_addresses_without_a_quota_of_their_own_have_the_default_each() -> None:
    world = World()
    world.limits.follow(
        {(("ip", None),): {"connection_creation_rate": 1.0}, (("ip", "0:0::1"),): {"connection_creation_rate": 2.0}}
    )
    world.open(10, address="10.0.0.2")
    world.open(20, address="::1")
    for address in ("10.0.0.2", "::1"):
        assert isinstance(world.limits.take("EXTERNAL", address, 0), ConnectionThrottled)
    world.open(10, address="10.0.0.3")


def test_rates_of_many_addresses_are_forgotten() -> None:
    world = World()
    world.limits.follow({(("ip", None),): {"connection_creation_rate": 5.0}})
    for number in range(30_000):
        slot = world.limits.take("EXTERNAL", f"10.1.{number >> 8}.{number & 255}", number * 20)
        assert isinstance(slot, Slot)
        slot.release()
    assert len(list(world.limits.address_rates(600_000))) <= 11_000 / 20
    assert len(world.limits._rates) < 3_000


def test_listeners_that_wait_get_free_slots_in_turn() -> None:
    properties = {"listeners": LISTENERS + ",OTHER://localhost:9095", "max.connections": "4"}
    protocols = {"listener.security.protocol.map": PROPERTIES["listener.security.protocol.map"] + ",OTHER:PLAINTEXT"}
    limits = make_connection_limits(BrokerConfig.from_properties(PROPERTIES | properties | protocols))["OTHER"]
    slots: list[Slot] = []
    served: list[str] = []

    def serve(listener: str) -> None:
        if limits.has_slot(listener):
            slot = limits.take(listener, IP, 0)
            assert isinstance(slot, Slot)
            slots.append(slot)
            served.append(listener)

    for _ in range(4):
        serve("EXTERNAL")
    served.clear()
    for listener in ("EXTERNAL", "OTHER"):
        limits.when_free(partial(serve, listener))
    for _ in range(10):
        slots.pop(0).release()
    assert (served.count("EXTERNAL"), served.count("OTHER")) == (5, 5)
