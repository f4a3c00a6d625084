"""Detection of copies of one order under different days in a batch: no task sees both copies, because a task processes
whole days.

All copies of an order are the same event, so a producer that keeps the contract never causes this. The staged files of
each batch are checked nevertheless; if there are such copies, the batch runs again without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.pipelines.tables import ORDERS

_DAY_US = 86_400_000_000


def copies_across_days(
    tables: Path, summaries: Iterable[Mapping[str, Any]], lookback_days: int
) -> frozenset[tuple[int, int]]:
    """Returns (partition, offset) of each staged order whose id also belongs to an earlier record in the log, staged
    under another day.
    """
    staged = [file["staged"] for each in summaries for file in each["files"] if file["table"] == ORDERS.name]
    if len(staged) < 2:
        return frozenset()
    columns = ["order_id", "event_time", "partition", "offset"]
    orders = pa.concat_tables([pq.ParquetFile(tables / name).read(columns) for name in staged])
    ids, counts = np.unique(orders["order_id"].to_numpy(), return_counts=True)
    doubled = ids[counts > 1]
    if not len(doubled):
        return frozenset()
    rows = orders.filter(pa.array(np.isin(orders["order_id"].to_numpy(), doubled)))
    found = set()
    days_of: dict[int, list[int]] = {}
    for row in rows.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist():
        day = int(row["event_time"].timestamp() * 1_000_000 // _DAY_US)
        days = days_of.setdefault(row["order_id"], [])
        if any(abs(day - other) <= lookback_days for other in days):
            found.add((row["partition"], row["offset"]))
        else:
            days.append(day)
    return frozenset(found)
