"""The demo's verdict: only equal books balance, and the auditor notices what a broker must not do."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from barnabas.cli.audit import Audit
from barnabas.cli.demo import is_balanced
from barnabas.orders.books import Books

BOOKS = Books(orders=10, lines=50, sales_cents=12_345)


def consumed(order_id: int, timestamp_ms: int, *, key: bytes = b"900", partition: int = 0) -> SimpleNamespace:
    value = json.dumps({"order_id": order_id, "lines": [{"amount": 0.29}, {"amount": 1.1}], "total": 99.0}).encode()
    return SimpleNamespace(key=key, value=value, timestamp=timestamp_ms, partition=partition)


def test_equal_books_balance() -> None:
    assert is_balanced(BOOKS, replace(BOOKS), replace(BOOKS), 0)


@pytest.mark.parametrize("change", [{"orders": 9}, {"lines": 51}, {"sales_cents": 12_344}, {"duplicates": 1}])
def test_any_difference_on_any_side_does_not(change: dict[str, int]) -> None:
    other = replace(BOOKS, **change)  # type: ignore[arg-type]
    assert not is_balanced(other, BOOKS, BOOKS, 0)
    assert not is_balanced(BOOKS, other, BOOKS, 0)
    assert not is_balanced(BOOKS, BOOKS, other, 0)


def test_broken_order_does_not_balance() -> None:
    assert not is_balanced(BOOKS, BOOKS, BOOKS, 1)


def test_auditor_adds_up_lines_and_does_not_trust_totals() -> None:
    audit = Audit()
    audit.enter(consumed(1, 1000))
    audit.enter(consumed(2, 2000, partition=3))
    assert audit.books == Books(orders=2, lines=4, sales_cents=278)
    assert audit.records_by_partition == {0: 1, 3: 1}
    assert audit.out_of_order == 0


def test_auditor_notices_duplicates_and_broken_order_of_a_household() -> None:
    audit = Audit()
    audit.enter(consumed(1, 2000))
    audit.enter(consumed(1, 2000))
    audit.enter(consumed(2, 1000, key=b"901"))
    assert (audit.books.orders, audit.books.duplicates, audit.out_of_order) == (2, 1, 0)
    audit.enter(consumed(3, 1999))
    assert audit.out_of_order == 1
