"""The totals of orders that must balance: counts and sums of the orders that one side has seen, which can be compared
for equality.

Money is summed in cents. An order that a side sees twice is counted once, and as a duplicate.
"""

from __future__ import annotations

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
    """The totals of one side: the ledger, the log or the tables. Two sides agree if their totals are equal."""

    orders: int = 0
    lines: int = 0
    sales_cents: int = 0
    #: Orders that were seen again; they are not counted above.
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
        return dollars(self.sales_cents)


def dollars(sum_cents: int) -> str:
    """Formats cents as dollars: 459603958 -> "4,596,039.58"."""
    whole, rest = divmod(abs(sum_cents), 100)
    return f"{'-' if sum_cents < 0 else ''}{whole:,}.{rest:02d}"
