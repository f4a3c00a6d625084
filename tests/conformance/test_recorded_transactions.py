"""A transaction in every version, as Apache Kafka 4.1.0 answered it: the same requests get the same answers.

The recording's sweep client ran a separate transaction for each version (init, partitions, offsets of a group, end),
and once used an unknown transactional id. Producer ids are random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.recorded_frames import recorded
from tests.support.wired import WiredBroker, WiredClient

from barnabas.common.errors import ErrorCode
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.index import request_class, response_class

INIT, ADD, ADD_OFFSETS, END, COMMIT_OFFSETS = 22, 24, 25, 26, 28
ORDER = [INIT, ADD, ADD_OFFSETS, COMMIT_OFFSETS, END]


def id_of(request: Any) -> str | None:
    if getattr(request, "v3_and_below_transactional_id", ""):
        return str(request.v3_and_below_transactional_id)
    if getattr(request, "transactions", None):
        return str(request.transactions[0].transactional_id)
    return getattr(request, "transactional_id", None)


ALL = recorded(*ORDER)
#: The transactions that the recording has from their beginning; others are kept in part.
WHOLE = sorted(request.transactional_id for key, _, request, r in ALL if key == INIT and r.error_code == 0)
UNKNOWN = [frame for frame in ALL if id_of(frame[2]) == "sweep-none"]


@pytest.fixture
def client() -> WiredClient:
    wired = WiredBroker(
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        transaction_state_log_num_partitions="1",
    )
    wired.create_topic("orders", 6)
    client = wired.connect()
    for key_type in (0, 1):
        for _ in range(20):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            if client.call(request, 6, FindCoordinatorResponse).coordinators[0].error_code == ErrorCode.NONE:
                break
            wired.host.time.run_for(50)
    return client


def replaced(message: Message, version: int, ids: dict[int, int], encode_as: type[Message]) -> Any:
    """Returns the message with this run's producer ids instead of the recorded ones."""
    again = codec.decode(encode_as, version, bytes(codec.encode(message, version)))[0]
    for name in ("producer_id", "v3_and_below_producer_id"):
        if hasattr(again, name):
            setattr(again, name, ids.get(getattr(again, name), getattr(again, name)))
    for transaction in getattr(again, "transactions", ()):
        transaction.producer_id = ids.get(transaction.producer_id, transaction.producer_id)
    return again


def call(client: WiredClient, key: int, version: int, request: Any) -> Any:
    call: Callable[..., Message] = client.call
    return call(request, version, response_class(key))


@pytest.mark.parametrize("name", WHOLE)
def test_a_transaction_is_answered_as_kafka_answered_it(client: WiredClient, name: str) -> None:
    frames = sorted((frame for frame in ALL if id_of(frame[2]) == name), key=lambda frame: ORDER.index(frame[0]))
    assert [frame[0] for frame in frames][:1] == [INIT]
    ids: dict[int, int] = {}
    for key, version, request, response in frames:
        answer = call(client, key, version, replaced(request, version, ids, request_class(key)))
        if key == INIT:
            ids[response.producer_id] = answer.producer_id
        expected = replaced(response, version, ids, response_class(key))
        assert codec.encode(answer, version) == codec.encode(expected, version), (key, version)


@pytest.mark.parametrize(("key", "version", "requested", "response"), UNKNOWN)
def test_an_unknown_id_is_answered_as_kafka_answered_it(
    client: WiredClient, key: int, version: int, requested: Any, response: Any
) -> None:
    assert codec.encode(call(client, key, version, requested), version) == codec.encode(response, version)


def test_every_version_is_in_the_recording() -> None:
    assert {key: {version for k, version, *_ in UNKNOWN if k == key} for key in (ADD_OFFSETS, END, COMMIT_OFFSETS)} == {
        ADD_OFFSETS: set(range(5)),
        END: set(range(6)),
        COMMIT_OFFSETS: set(range(6)),
    }
    assert len(WHOLE) >= 3
