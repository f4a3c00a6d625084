"""Patterns of topics and of transactional ids are those of RE2, as Kafka's are those of RE2/J."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.wired import WiredBroker, WiredClient

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.patterns import PatternError, matcher
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("or", "or", "orders"),
        ("or.*", "orders", "xorders"),
        ("(?i)ORDERS", "orders", "order"),
        ("a|bc", "bc", "abc"),
        (r"\pL+-[[:digit:]]", "ä-1", "1-1"),
        ("", "", "a"),
    ],
)
def test_all_of_a_name_has_to_match(pattern: str, matching: str, other: str) -> None:
    assert matcher(pattern)(matching)
    assert not matcher(pattern)(other)


@pytest.mark.parametrize("pattern", ["(", "a**", r"(a)\1", "a(?=b)", "(?<!a)b", "a{1001}", "[z-a]"])
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        matcher(pattern)


def test_no_pattern_stops_the_broker() -> None:
    """Backtracking would take longer than the age of the universe."""
    assert not matcher("(a|aa)+$")("a" * 5_000 + "b")
    assert not matcher("((a*)*)*b")("a" * 5_000)


def call(client: WiredClient, version: int = 2, **filters: Any) -> ListTransactionsResponse:
    return client.call(ListTransactionsRequest(**filters), version, ListTransactionsResponse)


def test_transactions_are_listed_by_pattern_state_producer_and_age() -> None:
    wired = WiredBroker(
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        transaction_state_log_num_partitions="1",
    )
    wired.create_topic("orders")
    client = wired.connect()
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["pay-1"])
    client.call(find, 4, FindCoordinatorResponse)  # creates the topic
    wired.host.time.run_for(1_000)
    producers: dict[str, int] = {}
    for name in ("pay-1", "pay-2", "ship-1"):
        for _ in range(50):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            begun = client.call(request, 4, InitProducerIdResponse)
            if begun.error_code == ErrorCode.NONE:
                break
            wired.host.time.run_for(100)
        assert begun.error_code == ErrorCode.NONE
        producers[name] = begun.producer_id
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0])
    opened = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="pay-2",
        v3_and_below_producer_id=producers["pay-2"],
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )
    client.call(opened, 3, AddPartitionsToTxnResponse)
    wired.host.time.run_for(5_000)

    def names(version: int = 2, **filters: Any) -> list[str]:
        answer = call(client, version, **filters)
        assert answer.error_code == ErrorCode.NONE
        return sorted(one.transactional_id for one in answer.transaction_states)

    assert names() == names(0) == ["pay-1", "pay-2", "ship-1"]
    assert names(transactional_id_pattern="pay-.") == ["pay-1", "pay-2"]
    assert names(transactional_id_pattern="pay") == []
    assert names(transactional_id_pattern="") == ["pay-1", "pay-2", "ship-1"]
    assert names(1, state_filters=["Ongoing"], duration_filter=4_000) == ["pay-2"]
    assert names(1, state_filters=["Ongoing"], duration_filter=60_000) == []
    assert names(producer_id_filters=[producers["ship-1"]], transactional_id_pattern=".*-1") == ["ship-1"]
    unknown = call(client, state_filters=["Unheard"])
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["Unheard"], [])
    assert call(client, transactional_id_pattern="pay-(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
