"""Requests to the authorizer and the number of its rules, under Kafka's names (KIP-877, KIP-1119).

The authorizer itself only counts, so that an authorization costs nothing more. A rate is computed at a scrape, from the
counts at an earlier scrape, about a minute before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.metrics import UNTYPED, Family, Sample

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

_PREFIX: Final = "kafka_server_plugins_"


def collect(broker: Broker) -> Iterator[Family]:
    authorizer = broker.authorizer
    if authorizer is None:
        return
    role = "broker" if broker.config.is_broker else "controller"
    name_of_class = broker.config.str_of("authorizer.class.name").rpartition(".")[2]
    labels = (("config", "authorizer.class.name"), ("class", name_of_class), ("role", role))
    allowed, denied = authorizer.rates.per_minute(broker.host.clock.now_ms(), authorizer.counts)
    for name, text, value in (
        ("acls_total_count", "Rules", float(len(authorizer.index))),
        ("authorization_request_rate_per_minute", "Questions per minute", allowed + denied),
        ("authorization_allowed_rate_per_minute", "Authorization checks per minute that were allowed", allowed),
        ("authorization_denied_rate_per_minute", "Authorization checks per minute that were denied", denied),
    ):
        yield Family(f"{_PREFIX}{name}", UNTYPED, text, [Sample(labels, value)])
