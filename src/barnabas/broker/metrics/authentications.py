"""Authentications on listeners with SASL, by listener, under the names of Kafka's socket-server-metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import COUNTER, UNTYPED, Family, Sample

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_PREFIX: Final = "kafka_server_socket_server_metrics_"
#: (metric, attribute of ListenerCounts, help)
_METRICS: Final = (
    ("successful_authentication_total", "succeeded", "Connections that logged in"),
    ("failed_authentication_total", "failed", "Connections whose log-in failed"),
    ("successful_reauthentication_total", "succeeded_renewals", "Sessions that were renewed"),
    ("failed_reauthentication_total", "failed_renewals", "Sessions whose renewal failed"),
    (
        "successful_authentication_no_reauth_total",
        "without_renewal",
        "Connections that logged in and cannot renew their session",
    ),
    ("expired_connections_killed_count", "expired", "Connections closed because their session had ended"),
)


def collect(broker: Broker) -> Iterator[Family]:
    counts = list(broker.services.log_in_counts)
    if not counts:
        return
    for name, attribute, text in _METRICS:
        samples = [Sample((("listener", listener),), getattr(each, attribute)) for listener, each in counts]
        kind = COUNTER if name.endswith("_total") else UNTYPED
        yield Family(f"{_PREFIX}{name}", kind, text, samples)
