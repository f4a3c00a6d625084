"""The records of a replay depend on orders, shares and seed alone. A replay that is killed at any point, any number of
times, ends with the same records in log and ledger as one that was never killed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.support.memory_replay import MemoryCluster

from barnabas.orders.books import Order
from barnabas.orders.event import problem
from barnabas.orders.faults import (
    DUPLICATE_MAX_MS,
    DUPLICATE_MIN_MS,
    FIRST_KINDS,
    LATE_MAX_MS,
    LATE_MIN_MS,
    Faults,
    Send,
    sends,
)
from barnabas.orders.ledger import read_ledger
from barnabas.orders.proof import prove

_LINE = (
    b'{"product_id":1,"quantity":1,"amount":0.5,'
    b'"retail_discount":0.0,"coupon_discount":0.0,"coupon_match_discount":0.0}'
)
_SIZE = 2_000


def order(order_id: int, timestamp_ms: int) -> Order:
    head = b'{"order_id":%d,"customer_id":9,"store_id":3,"event_time":"2017-01-01T11:53:26Z","lines":[' % order_id
    return Order(order_id, b"9", head + _LINE + b'],"total":0.5}', timestamp_ms, 1, 50)


@st.composite
def streams(draw: st.DrawFn) -> list[Order]:
    gaps = draw(st.lists(st.integers(0, 3_600_000), max_size=60))
    first_id = draw(st.integers(1, 10**12))
    made, now_ms = [], 1_483_228_800_000
    for number, gap_ms in enumerate(gaps):
        now_ms += gap_ms
        made.append(order(first_id + number * 7, now_ms))
    return made


shares = st.floats(0, 1)
faults = st.builds(Faults, shares, shares, shares, shares, st.integers(0, 2**40))


@given(streams(), faults)
@settings(max_examples=30)
def test_the_same_seed_makes_the_same_records(orders: list[Order], chosen: Faults) -> None:
    assert list(sends(orders, chosen, _SIZE)) == list(sends(iter(orders), replace(chosen), _SIZE))


@given(streams(), faults, st.data())
@settings(max_examples=30)
def test_an_order_meets_its_fault_whatever_was_before_it(
    orders: list[Order], chosen: Faults, data: st.DataObject
) -> None:
    """Cut at the front or the back: each order that is left has the records it had."""
    begin = data.draw(st.integers(0, len(orders)))
    end = data.draw(st.integers(begin, len(orders)))
    kept = {each.order_id for each in orders[begin:end]}
    whole = [send for send in sends(orders, chosen, _SIZE) if send.order_id in kept]
    assert sorted(sends(orders[begin:end], chosen, _SIZE)) == sorted(whole)


@given(streams(), faults)
@settings(max_examples=30)
def test_every_order_is_sent_once_for_the_first_time_and_in_the_order_of_the_plan(
    orders: list[Order], chosen: Faults
) -> None:
    planned = list(sends(orders, chosen, _SIZE))
    assert [send.due_ms for send in planned] == sorted(send.due_ms for send in planned)
    assert len({(send.order_id, send.kind) for send in planned}) == len(planned)
    firsts = Counter(send.order_id for send in planned if send.kind in FIRST_KINDS)
    assert firsts == Counter(each.order_id for each in orders)
    first_due = {send.order_id: send.due_ms for send in planned if send.kind in FIRST_KINDS}
    for send in planned:
        _judge(send, first_due[send.order_id])


def _judge(send: Send, first_due_ms: int) -> None:
    if send.kind == "order":
        assert send.due_ms == send.timestamp_ms
    elif send.kind == "late":
        assert LATE_MIN_MS <= send.due_ms - send.timestamp_ms <= LATE_MAX_MS
    elif send.kind == "duplicate":
        assert DUPLICATE_MIN_MS <= send.due_ms - first_due_ms <= DUPLICATE_MAX_MS
    elif send.kind == "oversized":
        assert len(send.value) == _SIZE
    assert problem(send.value) == send.reason
    assert (send.kind == "malformed") == (send.reason is not None)


@given(st.integers(0, 2**40))
@settings(max_examples=6)
def test_shares_are_what_was_asked_for(seed: int) -> None:
    orders = [order(31_198_570_044 + 13 * number, 1_483_228_800_000 + number * 1000) for number in range(4_000)]
    kinds = Counter(send.kind for send in sends(orders, Faults(0.05, 0.1, 0.02, 0.01, seed), _SIZE))
    for kind, share in (("duplicate", 0.05), ("late", 0.1), ("malformed", 0.02), ("oversized", 0.01)):
        expected = 4_000 * share
        # Six standard deviations.
        assert abs(kinds[kind] - expected) < 6 * (expected * (1 - share)) ** 0.5


@given(streams(), faults, st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 40)), max_size=4))
@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_a_replay_killed_anywhere_goes_on_without_loss_or_doubling(
    orders: list[Order], chosen: Faults, kills: list[tuple[int, int, int]]
) -> None:
    """A kill is (number of polls, number of records that the broker wrote without an acknowledgement, number of bytes
    that are missing from the ledger's last line).
    """
    with MemoryCluster(orders, max_message_bytes=_SIZE - 1) as cluster:
        for polls, unheard, cut_bytes in kills:
            cluster.run_and_kill(chosen, polls, unheard, cut_bytes)
        done = cluster.run(chosen)
        ledger = read_ledger(cluster.ledger)
        planned = list(sends(orders, chosen, _SIZE))
        assert done.finished
        assert Counter((entry.order_id, entry.kind) for entry in ledger.entries) == Counter(
            (send.order_id, send.kind) for send in planned
        )
        assert {entry.kind for entry in ledger.refused()} <= {"oversized"}
        proof = prove(ledger, cluster.records())
        assert proof.balanced, proof.examples()
        assert proof.log_records == sum(send.kind != "oversized" for send in planned)
