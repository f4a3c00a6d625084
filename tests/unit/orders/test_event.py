"""The rules of an order: each has events that break it, and the first broken rule is the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.orders import event
from barnabas.orders.event import LINE_FIELDS, ORDER_FIELDS, REASONS, RULES, parse, problem


def good(**changes: Any) -> dict[str, Any]:
    line = {
        "product_id": 1095275,
        "quantity": 1,
        "amount": 0.5,
        "retail_discount": 0.0,
        "coupon_discount": 0.0,
        "coupon_match_discount": 0.0,
    }
    order = {
        "order_id": 31198570044,
        "customer_id": 900,
        "store_id": 330,
        "event_time": "2017-01-01T11:53:26Z",
        "lines": [line, {**line, "amount": 1.29}],
        "total": 1.79,
    }
    return {**order, **changes}


def line(**changes: Any) -> list[dict[str, Any]]:
    return [{**good()["lines"][0], **changes}]


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in good().items() if key != name}


BROKEN: list[tuple[str, bytes | None]] = [
    ("no_value", None),
    ("no_value", b""),
    ("not_utf8", b'{"order_id": "\xff"}'),
    ("not_json", encoded(good())[:-1]),
    ("not_json", encoded(good()) + b"x"),
    ("not_json", encoded(good(total=float("nan")))),
    ("not_json", encoded([good()])),
    ("not_json", b"[" * 100_000),
    *(("missing_field", encoded(without(field.name))) for field in ORDER_FIELDS),
    *(("missing_field", encoded(good(**{field.name: None}))) for field in ORDER_FIELDS),
    *(("missing_field", encoded(good(lines=line(**{field.name: None}), total=0.5))) for field in LINE_FIELDS),
    ("wrong_type", encoded(good(order_id="31198570044"))),
    ("wrong_type", encoded(good(order_id=1.0))),
    ("wrong_type", encoded(good(order_id=True))),
    ("wrong_type", encoded(good(store_id=2**63))),
    ("wrong_type", encoded(good(lines={"0": 1}))),
    ("wrong_type", encoded(good(lines=[1]))),
    ("wrong_type", encoded(good(lines=line(quantity=1.5)))),
    ("wrong_type", encoded(good(lines=line(product_id=2**63)))),
    ("wrong_type", encoded(good(lines=line(amount="0.5")))),
    ("wrong_type", encoded(good(lines=line(amount=False)))),
    ("wrong_type", encoded(good()).replace(b"1.79", b"1e999")),
    ("wrong_type", encoded(good()).replace(b"1.29", b"1e999")),
    *(
        ("wrong_type", encoded(good(event_time=text)))
        for text in ("2017-01-01", "2017-02-30T11:53:26Z", "2017-01-01 11:53:26Z", "2017-01-01T11:53:26+01:00", "", 5)
    ),
    ("no_lines", encoded(good(lines=[], total=0.0))),
    ("negative_quantity", encoded(good(lines=line(quantity=-1), total=0.5))),
    ("negative_amount", encoded(good(lines=line(amount=-0.5), total=-0.5))),
    ("negative_amount", encoded(good(lines=line(coupon_discount=-0.01), total=0.5))),
    ("wrong_total", encoded(good(total=1.8))),
    ("wrong_total", encoded(good(total=-1.79))),
]


@pytest.mark.parametrize(("reason", "value"), BROKEN)
def test_what_breaks_a_rule_has_its_reason(reason: str, value: bytes | None) -> None:
    assert problem(value) == reason


def test_every_rule_has_a_case() -> None:
    assert [rule.reason for rule in RULES] == list(dict.fromkeys(reason for reason, _ in BROKEN)) == list(REASONS)


def test_the_first_broken_rule_is_the_reason() -> None:
    assert problem(encoded(good(lines=line(quantity=-1, amount=-1.0), total="x"))) == "wrong_type"
    assert problem(encoded(good(lines=line(quantity=-1, amount=-1.0), total=7.0))) == "negative_quantity"


def test_a_good_order_is_added_up_from_its_lines() -> None:
    assert parse(encoded(good())) == (31198570044, 2, 179)


@pytest.mark.parametrize(
    "document",
    [
        good(lines=line(quantity=0), total=0.5),
        good(lines=line(amount=0.0), total=0.0),
        good(lines=line(amount=1), total=1),
        good(note="from a newer writer"),
        good(order_id=-(2**63)),
    ],
)
def test_what_is_no_fault(document: dict[str, Any]) -> None:
    assert problem(encoded(document)) is None


def test_the_quick_reading_and_the_rules_agree() -> None:
    """The quick one may pass an order on to the rules, but never judge otherwise."""
    document = good()
    assert event._parse_valid(document) == event._by_rules(document)
    for reason, value in BROKEN:
        if reason not in ("no_value", "not_utf8", "not_json"):
            assert value is not None
            assert event._parse_valid(json.loads(value)) is None
