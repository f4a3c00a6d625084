"""Requests that a client sends directly to the active controller, whose decisions are not committed in time."""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker, WiredClient
from tests.unit.broker.test_forwarding import change, creation, hold_back_commits

from barnabas.broker.requests.decided_requests import DecidedRequest
from barnabas.common.continuations import plain
from barnabas.common.errors import ErrorCode
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse


def connect_to_controller(wired: WiredBroker) -> WiredClient:
    client = wired.connect()
    client.core = wired.broker.dispatcher("CONTROLLER").connect(client.link, "/127.0.0.1", "CONTROLLER")
    return client


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(0, 5_000), (8_000, 8_000), (2**31 - 1, 30_000)])
def test_a_decision_that_is_not_committed_is_answered_after_the_requests_own_timeout(
    timeout_ms: int, waits_ms: int
) -> None:
    wired = WiredBroker()
    client = connect_to_controller(wired)
    hold_back_commits(wired)
    begin_ms = wired.host.clock.now_ms()
    created = client.call(creation(timeout_ms), 7, CreateTopicsResponse, within_ms=60_000)
    assert [each.error_code for each in created.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert waits_ms <= wired.host.clock.now_ms() - begin_ms < waits_ms + 200
    assert wired.closes.causes == []


def test_requests_without_a_timeout_wait_for_half_a_minute() -> None:
    wired = WiredBroker()
    wired.create_topic("orders")
    client = connect_to_controller(wired)
    hold_back_commits(wired)
    begin_ms = wired.host.clock.now_ms()
    changed = client.call(change(), 1, IncrementalAlterConfigsResponse, within_ms=60_000)
    assert [each.error_code for each in changed.responses] == [ErrorCode.REQUEST_TIMED_OUT]
    assert 30_000 <= wired.host.clock.now_ms() - begin_ms < 30_200


def test_pipelined_requests_are_answered_once_each_and_in_order() -> None:
    wired = WiredBroker()
    client = connect_to_controller(wired)
    release = hold_back_commits(wired)
    sent = [client.send(creation(timeout_ms), 7) for timeout_ms in (20_000, 5_000, 30_000)]
    wired.host.time.run_for(6_000)
    assert client.received() == [], "an answer waits for those before it"
    release()
    wired.host.time.run_for(60_000)
    received = client.received()
    assert [correlation_id for correlation_id, _ in received] == sent
    codes = [row.error_code for _, answer in received for row in answer.topics]  # type: ignore[attr-defined]
    assert codes == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert wired.closes.causes == []


def test_a_late_decision_takes_effect_and_is_not_answered_again() -> None:
    wired = WiredBroker()
    client = connect_to_controller(wired)
    release = hold_back_commits(wired)
    client.call(creation(5_000), 7, CreateTopicsResponse, within_ms=60_000)
    release()
    wired.host.time.run_for(60_000)
    assert "orders" in wired.broker.metadata.image.topics_by_name
    assert client.received() == []


def timers_of_decisions(wired: WiredBroker) -> int:
    callbacks = [plain(timer.callback)[0] for _, _, timer in wired.host.time._heap if timer.callback is not None]
    return sum(isinstance(getattr(callback, "__self__", None), DecidedRequest) for callback in callbacks)


def test_no_timer_is_left_when_the_answer_was_sent_or_the_client_has_left() -> None:
    wired = WiredBroker()
    client = connect_to_controller(wired)
    release = hold_back_commits(wired)
    for _ in range(3):
        client.send(creation(30_000), 7)
    assert timers_of_decisions(wired) == 3
    release()
    wired.host.time.run_for(1_000)
    assert timers_of_decisions(wired) == 0
    assert len(client.received()) == 3
    hold_back_commits(wired)
    client.send(change(), 1)
    assert timers_of_decisions(wired) == 1
    client.core.closed()
    assert timers_of_decisions(wired) == 0


def test_they_are_the_requests_that_brokers_forward() -> None:
    decided = {key for key, offer in CONTROLLER_APIS.items() if offer.is_decided}
    assert {key for key, offer in BROKER_APIS.items() if offer.is_forwarded} < decided
    assert not any(offer.is_decided for offer in BROKER_APIS.values())
