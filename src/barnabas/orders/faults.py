"""Faults of real streams, injected on purpose: the same seed always gives the same faults.

The faults of an order are drawn from hash(seed, order id) alone, never from the clock or from earlier records. So a
replay that continues after a crash creates the same records in the same order.

    order       one good order, sent when its event time comes
    late        the only copy of a good order, sent minutes to hours of event time late; its event time is unchanged
    duplicate   the application sends a good order a second time, later
    malformed   an extra record that breaks a rule of `event`, in addition to the order it was derived from
    oversized   an extra record larger than the topic allows: refused, never acknowledged
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.orders.books import Order

ORDER, LATE, DUPLICATE, MALFORMED, OVERSIZED = "order", "late", "duplicate", "malformed", "oversized"
KINDS = (ORDER, LATE, DUPLICATE, MALFORMED, OVERSIZED)
#: The kinds that carry a good order for the first time.
FIRST_KINDS = frozenset({ORDER, LATE})

_MINUTE_MS = 60_000
LATE_MIN_MS, LATE_MAX_MS = 5 * _MINUTE_MS, 360 * _MINUTE_MS
DUPLICATE_MIN_MS, DUPLICATE_MAX_MS = 1_000, 120 * _MINUTE_MS

_MASK = 2**64 - 1
_PARTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of the orders, 0 to 1, that get each fault; the seed chooses the orders."""

    duplicates: float = 0.0
    late: float = 0.0
    malformed: float = 0.0
    oversized: float = 0.0
    seed: int = 0


class Send(NamedTuple):
    """A record to be sent; (order_id, kind) identifies it within a replay."""

    order_id: int
    kind: str
    key: bytes
    value: bytes
    #: The record's timestamp: always the order's event time.
    timestamp_ms: int
    #: The event time at which the record is sent.
    due_ms: int
    line_count: int
    total_cents: int
    #: The rule that a malformed record breaks.
    reason: str | None = None


def sends(orders: Iterable[Order], faults: Faults, oversized_bytes: int) -> Iterator[Send]:
    """Yields all records of a replay in the order of sending. An oversized value has `oversized_bytes`."""
    waiting: list[tuple[int, int, Send]] = []
    number = 0
    for order in orders:
        while waiting and waiting[0][0] <= order.timestamp_ms:
            yield heapq.heappop(waiting)[2]
        for send in _sends_of(order, faults, oversized_bytes):
            if send.due_ms == order.timestamp_ms:
                yield send
            else:
                number += 1
                heapq.heappush(waiting, (send.due_ms, number, send))
    while waiting:
        yield heapq.heappop(waiting)[2]


def _sends_of(order: Order, faults: Faults, oversized_bytes: int) -> Iterator[Send]:
    drawn = _mixed(faults.seed, order.order_id)
    late, duplicate, malformed, oversized = (drawn >> shift & (_PARTS - 1) for shift in (0, 16, 32, 48))
    details = _mixed(faults.seed + 1, order.order_id)
    due_ms, kind = order.timestamp_ms, ORDER
    if late < faults.late * _PARTS:
        due_ms += _within(details & 0xFFFFF, LATE_MIN_MS, LATE_MAX_MS)
        kind = LATE
    first = Send(
        order.order_id,
        kind,
        order.key,
        order.value,
        order.timestamp_ms,
        due_ms,
        order.line_count,
        order.total_cents,
    )
    yield first
    if duplicate < faults.duplicates * _PARTS:
        delay_ms = _within(details >> 20 & 0xFFFFF, DUPLICATE_MIN_MS, DUPLICATE_MAX_MS)
        yield first._replace(kind=DUPLICATE, due_ms=due_ms + delay_ms)
    extra = first._replace(due_ms=order.timestamp_ms)
    if malformed < faults.malformed * _PARTS:
        reason, spoil = _SPOILT[(details >> 40) % len(_SPOILT)]
        value = spoil(order.value)
        yield extra._replace(kind=MALFORMED, value=value, line_count=0, total_cents=0, reason=reason)
    if oversized < faults.oversized * _PARTS:
        yield extra._replace(kind=OVERSIZED, value=order.value.ljust(oversized_bytes))


def _within(drawn: int, low_ms: int, high_ms: int) -> int:
    """Returns a time between `low_ms` and `high_ms`, in proportion to `drawn`, a random number of 20 bits."""
    return low_ms + (high_ms - low_ms) * drawn // 0xFFFFF


def _mixed(seed: int, order_id: int) -> int:
    """Returns 64 pseudo-random bits, the same on every machine (the mixer of SplitMix64)."""
    value = (seed * 0x9E3779B97F4A7C15 + order_id) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def _changed(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def spoil(value: bytes) -> bytes:
        document = json.loads(value)
        change(document)
        return json.dumps(document, separators=(",", ":")).encode()

    return spoil


#: (the rule to break, the change that makes a good value break it)
_SPOILT: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("not_json", lambda value: value[: len(value) * 2 // 3]),
    ("wrong_type", _changed(lambda order: order.update(store_id=f"store {order['store_id']}"))),
    ("negative_quantity", _changed(lambda order: order["lines"][0].update(quantity=-1))),
    ("missing_field", _changed(lambda order: order.pop("order_id"))),
    ("not_utf8", lambda value: value[:20] + b"\xff\xfe" + value[20:]),
    ("wrong_total", _changed(lambda order: order.update(total=order["total"] + 1.0))),
    ("no_lines", _changed(lambda order: order.update(lines=[]))),
    ("negative_amount", _changed(lambda order: order["lines"][-1].update(amount=-0.01))),
)
