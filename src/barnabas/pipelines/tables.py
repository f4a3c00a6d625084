"""The tables of the orders pipeline: their columns, and the layout of each in files.

Every day of event time is a directory (`day=2017-01-01`). Growing tables get a file for each day of each batch.
Aggregates have one file for each day, which contains everything known of the day and is replaced by each batch that
adds to it: late data updates them. `_order_ids`, an aggregate in this sense, holds the ids for deduplication.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

MONEY = pa.decimal128(14, 2)
TIME = pa.timestamp("us", tz="UTC")
DISCOUNTS = ("retail_discount", "coupon_discount", "coupon_match_discount")


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `day` is not a column: it is in the directory's name."""

    name: str
    schema: pa.Schema
    by_day: bool = True
    #: The columns that identify a row of an aggregate; its other columns are sums.
    keys: tuple[str, ...] = ()
    #: Whether the table is internal: users do not read it, and it is always Parquet, whatever the sink.
    internal: bool = False

    @property
    def aggregate(self) -> bool:
        return bool(self.keys)

    def directory(self, day: str | None) -> str:
        return f"{self.name}/day={day}" if day is not None else self.name


ORDERS = Table(
    "orders",
    pa.schema(
        [
            ("order_id", pa.int64()),
            ("customer_id", pa.int64()),
            ("store_id", pa.int64()),
            ("event_time", TIME),
            ("line_count", pa.int32()),
            ("total", MONEY),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
        ]
    ),
)
ORDER_LINES = Table(
    "order_lines",
    pa.schema(
        [
            ("order_id", pa.int64()),
            ("line", pa.int32()),
            ("customer_id", pa.int64()),
            ("store_id", pa.int64()),
            ("event_time", TIME),
            ("product_id", pa.int64()),
            ("quantity", pa.int64()),
            ("amount", MONEY),
            *((name, MONEY) for name in DISCOUNTS),
        ]
    ),
)
_SUMS = [("orders", pa.int64()), ("lines", pa.int64()), ("revenue", MONEY), *((name, MONEY) for name in DISCOUNTS)]
REVENUE_BY_STORE_HOUR = Table(
    "revenue_by_store_hour", pa.schema([("store_id", pa.int64()), ("hour", TIME), *_SUMS]), keys=("store_id", "hour")
)
HOUSEHOLD_DAILY = Table("household_daily", pa.schema([("customer_id", pa.int64()), *_SUMS]), keys=("customer_id",))
QUARANTINE = Table(
    "quarantine",
    pa.schema(
        [
            ("reason", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", TIME),
            ("key", pa.binary()),
            ("value", pa.binary()),
        ]
    ),
    by_day=False,
)
ORDER_IDS = Table("_order_ids", pa.schema([("order_id", pa.int64())]), keys=("order_id",), internal=True)

TABLES = (ORDERS, ORDER_LINES, REVENUE_BY_STORE_HOUR, HOUSEHOLD_DAILY, QUARANTINE)


def current_file(tables: Path, table: Table, day: str) -> Path | None:
    """Returns the newest file of an aggregate's day. Delta also keeps the older files; their names are in ascending
    order.
    """
    return max((tables / table.directory(day)).glob("*.parquet"), default=None)


def file_name(table: Table, sink: str, number: int, part: int) -> str:
    """Returns a file's name, the same in every attempt at a commit of this number."""
    if table.aggregate and (sink == "parquet" or table.internal):
        return "day.parquet"
    return f"{number:012}-{part:05}.parquet"
