"""Authentications on listeners with SASL or TLS, by listener, under the names of Kafka's socket-server-metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, UNTYPED, Family, Sample

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_PREFIX: Final = "kafka_server_socket_server_metrics_"
#: (metric, attribute of ListenerCounts, help)
_METERS: Final = (
    ("successful_authentication", "successes", "Connections that logged in, or completed TLS without a log-in"),
    ("failed_authentication", "failures", "Connections whose log-in or TLS handshake failed"),
    ("successful_reauthentication", "renewals", "Sessions that were renewed"),
    ("failed_reauthentication", "renewal_failures", "Sessions whose renewal failed"),
)


def collect(broker: Broker) -> Iterator[Family]:
    counts = list(broker.services.log_in_counts)
    if not counts:
        return
    for name, attribute, text in _METERS:
        meters = [(listener, getattr(each, attribute)) for listener, each in counts]
        yield _family(f"{name}_total", COUNTER, text, [(listener, meter.total) for listener, meter in meters])
        rates = [(listener, meter.per_second()) for listener, meter in meters]
        yield _family(f"{name}_rate", UNTYPED, f"{text}, per second", rates)
    yield _family(
        "successful_authentication_no_reauth_total",
        COUNTER,
        "Authenticated connections that cannot renew their session",
        [(listener, each.unrenewed) for listener, each in counts],
    )
    yield _family(
        "expired_connections_killed_count",
        UNTYPED,
        "Connections closed because their session had ended",
        [(listener, each.expired) for listener, each in counts],
    )
    latencies = [(listener, each.latencies_ms() or (nan, nan)) for listener, each in counts]
    for index, name in enumerate(("avg", "max")):
        values = [(listener, found[index]) for listener, found in latencies]
        yield _family(f"reauthentication_latency_{name}", UNTYPED, "The time that renewals took, in ms", values)


def _family(name: str, kind: str, text: str, values: Sequence[tuple[str, float]]) -> Family:
    return Family(_PREFIX + name, kind, text, [Sample((("listener", listener),), value) for listener, value in values])
