"""The order event: its fields and rules as plain data, and their only implementation in Python.

One event is one basket: the key is the household, the record's timestamp is the time of the transaction.

    {"order_id": 31198570044, "customer_id": 900, "store_id": 330, "event_time": "2017-01-01T11:53:26Z",
     "lines": [{"product_id": 1095275, "quantity": 1, "amount": 0.5, "retail_discount": 0.0,
                "coupon_discount": 0.0, "coupon_match_discount": 0.0}], "total": 0.5}

A reader of orders derives its schema from ORDER_FIELDS and LINE_FIELDS, and quarantines an event that breaks a rule
under the rule's reason. The rules are tried in the order listed: an event has one reason, that of the first rule it
breaks. Fields that are not listed are ignored: a newer writer can add some.

Money is compared in cents: every amount has at most two decimal places. A quantity of 0 and an amount of 0 are valid;
the published data has both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal, NamedTuple, NoReturn

#: Field -> type: long is a 64-bit integer, double a finite number, time a text as TIME_FORMAT, lines a list of
#: LINE_FIELDS.
FieldType = Literal["long", "double", "time", "lines"]
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an order or of a line of an order. It must be present and not null."""

    name: str
    type: FieldType
    meaning: str


LINE_FIELDS = (
    Field("product_id", "long", "the product"),
    Field("quantity", "long", "pieces; of fuel and the like, units of volume"),
    Field("amount", "double", "paid for the line, in dollars"),
    Field("retail_discount", "double", "taken off by the store's own discount, in dollars"),
    Field("coupon_discount", "double", "taken off by a maker's coupon, in dollars"),
    Field("coupon_match_discount", "double", "what the store added to the coupon, in dollars"),
)
ORDER_FIELDS = (
    Field("order_id", "long", "the basket; the same in every copy of an order"),
    Field("customer_id", "long", "the household; also the key of the record, as text"),
    Field("store_id", "long", "the store"),
    Field("event_time", "time", "when the basket was paid, UTC; also the record's timestamp"),
    Field("lines", "lines", "what was bought, at least one line"),
    Field("total", "double", "the sum of the lines' amounts, in dollars"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on an event. `fields` are the fields concerned: of the order, or `lines.NAME`; empty for the value as
    a whole.
    """

    reason: str
    fields: tuple[str, ...]
    meaning: str


_MONEY = ("amount", "retail_discount", "coupon_discount", "coupon_match_discount")
_ALL = tuple(field.name for field in ORDER_FIELDS) + tuple(f"lines.{field.name}" for field in LINE_FIELDS)

RULES = (
    Rule("no_value", (), "the value is present and has at least one byte"),
    Rule("not_utf8", (), "the value is UTF-8"),
    Rule("not_json", (), "the value is one JSON object"),
    Rule("missing_field", _ALL, "every field is present and is not null"),
    Rule("wrong_type", _ALL, "every field has its type"),
    Rule("no_lines", ("lines",), "there is at least one line"),
    Rule("negative_quantity", ("lines.quantity",), "no quantity is below 0"),
    Rule("negative_amount", tuple(f"lines.{name}" for name in _MONEY), "no amount or discount is below 0"),
    Rule("wrong_total", ("total", "lines.amount"), "the total is the sum of the lines' amounts, to the cent"),
)
REASONS = tuple(rule.reason for rule in RULES)


_DOUBLE_MAX = 1e300
_FLOATS = frozenset({float})
_ORDER_VALUES = itemgetter(*(field.name for field in ORDER_FIELDS))
_LINE_VALUES = itemgetter(*(field.name for field in LINE_FIELDS))


class Parsed(NamedTuple):
    """The totals of a valid order."""

    order_id: int
    line_count: int
    total_cents: int


class Broken(Exception):
    """The exception for a value that breaks a rule."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def problem(value: bytes | None) -> str | None:
    """Returns the reason of the first rule that the value breaks; None for a good order."""
    try:
        parse(value)
    except Broken as broken:
        return broken.reason
    return None


def parse(value: bytes | None) -> Parsed:
    """Returns the totals of a valid order, computed from its lines.

    Raises:
        Broken: the value breaks a rule; it contains the reason of the first one.
    """
    document = _document(value)
    return _parse_valid(document) or _by_rules(document)


def _parse_valid(document: dict[str, Any]) -> Parsed | None:
    """Parses a valid order in one pass, as most orders are valid. Returns None if the value must be checked rule by
    rule.
    """
    try:
        order_id, customer_id, store_id, event_time, lines, total = _ORDER_VALUES(document)
        total_cents = 0
        for product_id, quantity, *money in map(_LINE_VALUES, lines):
            if type(product_id) is not int or type(quantity) is not int or not _FLOATS.issuperset(map(type, money)):
                return None
            if product_id not in _LONG or quantity not in _LONG:
                return None
            if quantity < 0 or min(money) < 0 or max(money) > _DOUBLE_MAX:
                return None
            total_cents += round(money[0] * 100)
    except (KeyError, TypeError):
        return None
    if not type(order_id) is type(customer_id) is type(store_id) is int or type(lines) is not list or not lines:
        return None
    if not (order_id in _LONG and customer_id in _LONG and store_id in _LONG):
        return None
    if type(total) is not float or abs(total) > _DOUBLE_MAX or round(total * 100) != total_cents:
        return None
    if not _has_type(event_time, "time"):
        return None
    return Parsed(order_id, len(lines), total_cents)


def _by_rules(document: dict[str, Any]) -> Parsed:
    lines = document.get("lines")
    every_line = lines if isinstance(lines, list) else []
    if any(document.get(field.name) is None for field in ORDER_FIELDS):
        raise Broken("missing_field")
    for line in every_line:
        if isinstance(line, dict) and any(line.get(field.name) is None for field in LINE_FIELDS):
            raise Broken("missing_field")
    if not all(_has_type(document[field.name], field.type) for field in ORDER_FIELDS):
        raise Broken("wrong_type")
    for line in every_line:
        if not isinstance(line, dict) or not all(_has_type(line[field.name], field.type) for field in LINE_FIELDS):
            raise Broken("wrong_type")
    if not every_line:
        raise Broken("no_lines")
    if any(line["quantity"] < 0 for line in every_line):
        raise Broken("negative_quantity")
    if any(line[name] < 0 for line in every_line for name in _MONEY):
        raise Broken("negative_amount")
    total_cents = sum(cents(line["amount"]) for line in every_line)
    if cents(document["total"]) != total_cents:
        raise Broken("wrong_total")
    return Parsed(document["order_id"], len(every_line), total_cents)


def cents(amount: float) -> int:
    """Returns the exact amount in cents: every amount in the data set has two decimal places."""
    return round(amount * 100)


def _document(value: bytes | None) -> dict[str, Any]:
    if not value:
        raise Broken("no_value")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise Broken("not_utf8") from error
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Broken("not_json") from error
    if not isinstance(document, dict):
        raise Broken("not_json")
    return document


def _refuse(_constant: str) -> NoReturn:
    """Refuses NaN and Infinity, which Python would read: they are not JSON."""
    raise ValueError


def _has_type(value: Any, wanted: FieldType) -> bool:
    kind = type(value)
    if wanted == "long":
        return kind is int and value in _LONG
    if wanted == "double":
        return (kind is float and abs(value) <= _DOUBLE_MAX) or (kind is int and value in _LONG)
    if wanted == "lines":
        return kind is list
    return kind is str and _is_time(value)


def _is_time(text: str) -> bool:
    """Returns whether the text has TIME_FORMAT. `strptime` would take ten times as long."""
    if len(text) != 20 or not text.isascii() or text[10] != "T" or text[19] != "Z":
        return False
    try:
        return datetime.fromisoformat(text[:19]) is not None
    except ValueError:
        return False
