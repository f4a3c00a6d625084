"""Orders as events, and the books that must balance: what both sides of the demo share, without the data set.

One event is one basket: key = household, timestamp = time of the transaction,

    {"order_id": 31198570044, "customer_id": 900, "store_id": 330, "event_time": "2017-01-01T11:53:26Z",
     "lines": [{"product_id": 1095275, "quantity": 1, "amount": 0.5, "retail_discount": 0.0,
                "coupon_discount": 0.0, "coupon_match_discount": 0.0}], "total": 0.5}

Money is summed in cents, so that sums can be compared for equality.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Order:
    """One basket, ready to be sent."""

    order_id: int
    key: bytes
    value: bytes
    timestamp_ms: int
    line_count: int
    total_cents: int


@dataclass(slots=True)
class Books:
    """What one side has seen. Two sides agree when their books are equal."""

    orders: int = 0
    lines: int = 0
    sales_cents: int = 0
    #: Orders seen once more; they are not counted above.
    duplicates: int = 0
    _seen: set[int] = field(default_factory=set, repr=False, compare=False)

    def enter(self, order_id: int, line_count: int, total_cents: int) -> None:
        if order_id in self._seen:
            self.duplicates += 1
            return
        self._seen.add(order_id)
        self.orders += 1
        self.lines += line_count
        self.sales_cents += total_cents

    @property
    def sales(self) -> str:
        return f"{self.sales_cents // 100:,}.{self.sales_cents % 100:02d}"


def enter_value(books: Books, value: bytes) -> None:
    """One consumed order into the books: the lines are counted and added up again, the stated total is not trusted."""
    document = json.loads(value)
    lines = document["lines"]
    books.enter(document["order_id"], len(lines), sum(cents(line["amount"]) for line in lines))


def cents(amount: float) -> int:
    """Exact: every amount in the data set has two decimal places."""
    return round(amount * 100)
