"""Rates of new connections, by listener and address, under the names of Kafka's socket-server-metrics (KIP-612)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import UNTYPED, Family, Sample

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_PREFIX: Final = "kafka_server_socket_server_metrics_"
#: The number of addresses that are shown: those that connect most often.
_ADDRESSES_MAX: Final = 100


def collect(broker: Broker) -> Iterator[Family]:
    now_ms = broker.host.clock.now_ms()
    roles = list(dict.fromkeys(broker.connection_limits.values()))
    listeners = [each for limits in roles for each in limits.listeners()]
    by_address: dict[str, float] = {}
    for limits in roles:
        for address, rate in limits.address_rates(now_ms):
            by_address[address] = max(rate, by_address.get(address, 0.0))
    busiest = sorted(by_address.items(), key=lambda item: (-item[1], item[0]))[:_ADDRESSES_MAX]
    if roles:
        # A controller in the same process has a socket server of its own in Kafka, without a name of its own here.
        rate = sum(limits.rate.per_second(now_ms) for limits in roles)
        text = "New connections per second of all listeners to which the limit of the broker applies"
        yield Family(f"{_PREFIX}broker_connection_accept_rate", UNTYPED, text, [Sample((), rate)])
    yield Family(
        "kafka_network_acceptor_acceptorblockedpercent_count",
        UNTYPED,
        "Nanoseconds for which a listener accepted no connection because of a limit",
        [Sample((("listener", each.name),), each.blocked_ms * 1_000_000) for each in listeners],
    )
    yield Family(
        f"{_PREFIX}connection_accept_rate",
        UNTYPED,
        "New connections per second of a listener, or of an address with a quota",
        [Sample((("listener", each.name),), each.rate.per_second(now_ms)) for each in listeners]
        + [Sample((("ip", address),), rate) for address, rate in busiest],
    )
    yield Family(
        f"{_PREFIX}connection_accept_throttle_time",
        UNTYPED,
        "Average time, in milliseconds, for which a listener paused because of a creation rate",
        [Sample((("listener", each.name),), each.throttle_times.average(now_ms) or 0.0) for each in listeners],
    )
    yield Family(
        f"{_PREFIX}ip_connection_accept_throttle_time",
        UNTYPED,
        "Average time, in milliseconds, for which connections of addresses above their quota were delayed",
        [Sample((("listener", each.name),), each.ip_throttle_times.average(now_ms) or 0.0) for each in listeners],
    )
