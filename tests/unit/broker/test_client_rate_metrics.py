"""The metrics of clients with quotas."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker

from barnabas.broker.metrics import client_rates
from barnabas.broker.throttling.client_throttles import Client, ClientThrottles
from barnabas.metadata.security import QuotaEntity

SHOWN = 5


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> WiredBroker:
    """Returns a broker with a quota for each user and client id."""
    monkeypatch.setattr(client_rates, "_SHOWN_MAX", SHOWN)
    wired = WiredBroker()
    services = wired.broker.services
    services.throttles = ClientThrottles(wired.broker.config, wired.host.clock)
    entity: QuotaEntity = (("client-id", None), ("user", None))
    services.throttles.follow({entity: {"producer_byte_rate": 1e9}})
    return wired


def shown(wired: WiredBroker) -> list[tuple[str, str, float]]:
    family = next(each for each in client_rates.collect(wired.broker) if each.name == "kafka_server_produce_byte_rate")
    return [(dict(each.labels)["user"], dict(each.labels)["client_id"], each.value) for each in family.samples]


def produced(wired: WiredBroker, user: str, client_id: str, size_bytes: int) -> None:
    throttles = wired.broker.services.throttles
    assert throttles is not None
    throttles.produced(Client(user, client_id), size_bytes)


def test_a_client_with_many_ids_does_not_fill_the_metrics(wired: WiredBroker) -> None:
    for number in range(50):
        produced(wired, "alice", f"app-{number:02}", 100 + number)
    assert [client_id for _, client_id, _ in shown(wired)] == [f"app-{number}" for number in range(45, 50)]


def test_users_are_encoded_as_in_kafka(wired: WiredBroker) -> None:
    produced(wired, "CN=a b,O=~*", "app", 100)
    assert [user for user, _, _ in shown(wired)] == ["CN%3Da%20b%2CO%3D%7E%2A"]
