"""The tables as DuckDB sees them: every table is a view, Parquet or Delta, even before its first row.

orders  order_lines  revenue_by_store_hour  household_daily  quarantine     the orders pipeline's
batches                                                                     its commits
leader_spans  leader_share  elections  troubles  recovery  partitions       the health pipeline's, after its run
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from barnabas.orders.proof import TableCounts
from barnabas.pipelines.commits import CommitLog, Identity, identity_of_tables
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.tables import TABLES, Table

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HEALTH = "health"
_TRIES = 30
_PAUSE_S = 0.1
_ROWS_SQL = """
SELECT o.order_id, coalesce(l.lines, 0)::BIGINT, coalesce(l.cents, 0)::BIGINT
FROM orders o LEFT JOIN (
  SELECT order_id, count(*) AS lines, sum(amount * 100) AS cents FROM order_lines GROUP BY order_id
) l USING (order_id)
"""


def connect(tables: Path) -> DuckDBPyConnection:
    """Returns an in-memory connection with all views.

    Raises:
        PipelineError: there are no tables.
    """
    identity = Identity.read(identity_of_tables(tables))
    health = sorted((tables / HEALTH).glob("*.parquet"))
    if identity is None and not health:
        raise PipelineError(
            f"there are no tables in {tables}",
            "run `barnabas pipeline orders` first, or choose the directory with --tables",
        )
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    if identity is not None:
        for table in TABLES:
            _view(connection, tables, table, identity.sink)
        connection.register("batches", _batches(tables))
    for file in health:
        connection.execute(f"CREATE VIEW {_name(file.stem)} AS SELECT * FROM read_parquet({_text(str(file))})")
    return connection


def run(tables: Path, sql: str) -> pa.Table:
    """Returns the rows of one SELECT over complete batches: it runs again if a batch was being published meanwhile.

    After 30 tries (a driver crashed before it finished, or batches follow each other without a pause) the last rows are
    returned.

    Raises:
        PipelineError: there are no tables, or DuckDB refuses the query.
    """
    for tries_left in reversed(range(_TRIES)):
        before = _published(tables)
        try:
            found = _run(tables, sql)
        except PipelineError:
            # Reading a file that is being replaced can also fail.
            if (before is not None and before == _published(tables)) or not tries_left:
                raise
        else:
            if (before is not None and before == _published(tables)) or not tries_left:
                return found
        time.sleep(_PAUSE_S)
    raise AssertionError("the last try has returned or raised")


def _published(tables: Path) -> int | None:
    """Returns the number of the last batch, 0 if there is none; None while its files are being moved."""
    last = CommitLog(tables).last()
    if last is None:
        return 0
    return None if (tables / last.staging).exists() else last.number


def _run(tables: Path, sql: str) -> pa.Table:
    connection = connect(tables)
    try:
        relation = connection.sql(sql)
        if relation is None:
            raise PipelineError("the query has no rows to show", "write one SELECT")
        return relation.to_arrow_table()
    except duckdb.Error as error:
        raise PipelineError(str(error).strip().splitlines()[0], _views(connection)) from error


def rows_of(source: DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a query as Python values. DuckDB itself needs pytz for times with a zone."""
    return arrow_rows(source.sql(sql).to_arrow_table())


def arrow_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def table_counts(tables: Path) -> TableCounts:
    """Returns the contents of the tables, for the proof against ledger and log."""
    connection = connect(tables)
    orders = connection.sql(_ROWS_SQL).fetchall()
    quarantined = connection.sql("SELECT reason, count(*) FROM quarantine GROUP BY reason").fetchall()
    last = CommitLog(tables).last()
    return TableCounts.of(orders, quarantined, 0 if last is None else last.total.duplicates)


def _view(connection: DuckDBPyConnection, tables: Path, table: Table, sink: str) -> None:
    directory = tables / table.name
    if sink == "delta" and (directory / "_delta_log").exists():
        from deltalake import DeltaTable

        connection.register(table.name, DeltaTable(str(directory)).to_pyarrow_dataset())
        return
    pattern = "day=*/*.parquet" if table.by_day else "*.parquet"
    if next(directory.glob(pattern), None) is None:
        day = [pa.field("day", pa.date32())] if table.by_day else []
        connection.register(table.name, pa.schema([*table.schema, *day]).empty_table())
        return
    files = f"read_parquet({_text(str(directory / pattern))}, hive_partitioning = {str(table.by_day).lower()})"
    connection.execute(f"CREATE VIEW {_name(table.name)} AS SELECT * FROM {files}")


def _batches(tables: Path) -> pa.Table:
    """Returns the table of batches: one row for each commit of the orders pipeline."""
    commits = CommitLog(tables).all()
    time = pa.timestamp("ms", tz="UTC")
    return pa.table(
        {
            "batch": pa.array([commit.number for commit in commits], pa.int64()),
            "started": pa.array([commit.started_ms for commit in commits], time),
            "recorded": pa.array([commit.recorded_ms for commit in commits], time),
            "records": pa.array([commit.batch.read for commit in commits], pa.int64()),
            "orders": pa.array([commit.batch.orders for commit in commits], pa.int64()),
            "duplicates": pa.array([commit.batch.duplicates for commit in commits], pa.int64()),
            "quarantined": pa.array([sum(commit.batch.quarantined.values()) for commit in commits], pa.int64()),
        }
    )


def _views(connection: DuckDBPyConnection) -> str:
    names = connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall()
    return "the tables are " + ", ".join(name for (name,) in names)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
