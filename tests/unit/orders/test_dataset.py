"""The orders of the published data set: whole baskets, exact money, the known sums of the data set."""

from __future__ import annotations

import json
import re

import pytest

from barnabas.orders.books import Books
from barnabas.orders.dataset import OrderData
from barnabas.orders.event import cents


@pytest.fixture(scope="module")
def two_weeks() -> OrderData:
    return OrderData(2)


def test_orders_add_up_to_the_columns(two_weeks: OrderData) -> None:
    books = Books()
    for order in two_weeks.orders():
        books.enter(order.order_id, order.line_count, order.total_cents)
    assert books == two_weeks.books()
    assert books.orders == 3_301
    assert books.lines == 35_176


def test_the_whole_year_has_its_published_sums() -> None:
    assert OrderData(53).books() == Books(orders=155_848, lines=1_469_307, sales_cents=459_603_958)


def test_events_come_in_order_of_time_and_say_what_they_were_made_from(two_weeks: OrderData) -> None:
    orders = list(two_weeks.orders())
    times = [order.timestamp_ms for order in orders]
    assert times == sorted(times)
    first = json.loads(orders[0].value)
    assert orders[0].key == b"900"
    assert orders[0].timestamp_ms == 1_483_271_606_000
    assert first["event_time"] == "2017-01-01T11:53:26Z"
    assert (first["order_id"], first["customer_id"], first["store_id"]) == (31198570044, 900, 330)
    assert first["lines"] == [
        {
            "product_id": 1095275,
            "quantity": 1,
            "amount": 0.5,
            "retail_discount": 0.0,
            "coupon_discount": 0.0,
            "coupon_match_discount": 0.0,
        }
    ]
    assert first["total"] == 0.5


def enter_value(books: Books, value: bytes) -> None:
    """Enters one consumed order: adds its lines up again, without trusting the stated total."""
    document = json.loads(value)
    lines = document["lines"]
    books.enter(document["order_id"], len(lines), sum(cents(line["amount"]) for line in lines))


def test_consumed_orders_make_the_same_books(two_weeks: OrderData) -> None:
    books = Books()
    for order in two_weeks.orders():
        enter_value(books, order.value)
    assert books == two_weeks.books()


def test_a_duplicate_is_noticed_and_not_counted_twice() -> None:
    books = Books()
    books.enter(1, 2, 350)
    books.enter(1, 2, 350)
    assert (books.orders, books.lines, books.sales_cents, books.duplicates) == (1, 2, 350, 1)
    assert books != Books(orders=1, lines=2, sales_cents=350)


def test_sales_are_shown_with_two_places() -> None:
    assert Books(sales_cents=459_603_958).sales == "4,596,039.58"
    assert Books(sales_cents=5).sales == "0.05"


def test_amounts_are_written_to_the_cent() -> None:
    """Order 31833823621 has a line of 1.776357e-15 in the data set; the week holds it."""
    finer = re.compile(rb"e-|\.\d{3}|-0\.0[,}]")
    orders = [order for order in OrderData(7).orders() if order.order_id >= 31833823621]
    assert orders
    assert not [order.order_id for order in orders if finer.search(order.value)]
