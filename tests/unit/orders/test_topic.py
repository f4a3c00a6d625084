"""A topic is described although some brokers do not know it yet."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.orders import topic
from barnabas.orders.errors import OrdersError


class Admin:
    """An admin client each of whose requests the next broker answers: whether it knows `orders`."""

    def __init__(self, *knows: bool) -> None:
        self._knows = list(knows)

    def _known(self) -> bool:
        return self._knows.pop(0) if len(self._knows) > 1 else self._knows[0]

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"orders": None} if self._known() else {})

    def describe_topics(self, names: Any, request_timeout: float) -> dict[str, Future[Any]]:
        future: Future[Any] = Future()
        if self._known():
            partition = SimpleNamespace(id=0, replicas=[1, 2, 3])
            future.set_result(SimpleNamespace(topic_id="a+/b", partitions=[partition]))
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"orders": future}

    def describe_configs(self, resources: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        future: Future[Any] = Future()
        future.set_result({})
        return {resources[0]: future}


@pytest.mark.parametrize("knows", [(True,), (False, True), (True, False, True), (False, True, False, False, True)])
def test_a_broker_that_does_not_know_the_topic_is_not_the_last_to_be_asked(knows: tuple[bool, ...]) -> None:
    facts = topic.describe(Admin(*knows), "orders")  # type: ignore[arg-type]
    assert facts.topic_id == "a-_b"
    assert facts.replicas == 3


def test_one_that_nobody_knows_of_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "_NEW_TOPIC_TIMEOUT_S", 0.2)
    with pytest.raises(OrdersError, match="there is no topic orders"):
        topic.describe(Admin(False), "orders")  # type: ignore[arg-type]
