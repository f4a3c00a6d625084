"""The moves of a commit's files to their final paths. Every step can be repeated from any point.

Parquet: each staged file is renamed to its final path; an aggregate's file replaces the previous one. A file that is no
longer staged has already been moved. Delta: the files are moved in the same way, under names that are never used again,
and then each table gets one Delta commit with its new and replaced files. That commit contains the ids of the query and
of the batch as an app transaction, so that it is written once, and has the number and the offset ranges in its
metadata.

The staging directory is deleted last: while it exists, the commit is unfinished. A reader of plain Parquet can see a
half-published batch during the renames, but each file is complete; Delta's readers see a table before or after.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from barnabas.pipelines import steps
from barnabas.pipelines.commits import Commit, TableFile, sync_directory
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.tables import TABLES, Table


def create_tables(directory: Path, sink: str) -> None:
    """Creates the tables that a reader finds before the first batch: nothing for Parquet, empty tables for Delta."""
    if sink != "delta":
        return
    for table in TABLES:
        DeltaTable.create(
            str(directory / table.name),
            _delta_schema(table),
            mode="ignore",
            partition_by=["day"] if table.by_day else None,
        )


def finish(directory: Path, commit: Commit | None, sink: str) -> None:
    """Completes the last commit; returns immediately if it is complete."""
    if commit is None or not (directory / commit.staging).exists():
        return
    for file in commit.files:
        _move(directory, file)
        steps.reached("moved")
    for place in sorted({(directory / file.path).parent for file in commit.files}):
        sync_directory(place)
    if sink == "delta":
        for table in TABLES:
            files = [file for file in commit.files if file.table == table.name]
            if files:
                _commit_to_delta(directory, table, files, commit)
                steps.reached("published")
    shutil.rmtree(directory / commit.staging)


def _move(directory: Path, file: TableFile) -> None:
    target = directory / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(directory / file.staged, target)
    except FileNotFoundError as error:
        if not target.exists():
            raise PipelineError(
                f"{target} and its staged file are missing",
                "they were removed by hand; remove the tables and the checkpoint to rebuild both",
            ) from error


def app_id(commit: Commit) -> str:
    """Returns the id of Delta's app transaction, bound to the checkpoint by the id that Spark keeps in it."""
    return f"barnabas-orders-{commit.query_id}"


def _commit_to_delta(directory: Path, table: Table, files: list[TableFile], commit: Commit) -> None:
    delta = DeltaTable(str(directory / table.name))
    done = delta.transaction_version(app_id(commit))
    if done is not None and done >= commit.batch_id:
        return
    actions: list[AddAction | RemoveAction] = []
    for file in files:
        values = {"day": file.day} if table.by_day else {}
        if file.replaces is not None:
            path = _inside(table, file.replaces)
            actions.append(RemoveAction(path, True, commit.recorded_ms, partition_values=values))
        path = _inside(table, file.path)
        actions.append(AddAction(path, file.size_bytes, values, commit.recorded_ms, True, file.stats))
    delta.create_write_transaction(
        actions,
        mode="append",
        schema=_delta_schema(table),
        partition_by=["day"] if table.by_day else None,
        commit_properties=CommitProperties(
            custom_metadata={
                "barnabas.commit": str(commit.number),
                "barnabas.offsets": json.dumps(dict(commit.ranges)),
            },
            app_transactions=[Transaction(app_id(commit), commit.batch_id)],
        ),
    )


def _inside(table: Table, path: str) -> str:
    return path.removeprefix(f"{table.name}/")


def _delta_schema(table: Table) -> pa.Schema:
    return table.schema.append(pa.field("day", pa.date32())) if table.by_day else table.schema


def check_visible(directory: Path, commit: Commit) -> None:
    """Checks that the driver sees the workers' files.

    Raises:
        PipelineError: a worker writes to its own disk.
    """
    for file in commit.files:
        if not (directory / file.staged).exists():
            raise PipelineError(
                f"a worker wrote {file.staged}, but the driver does not see it below {directory}",
                "on a cluster the tables must be in a directory that all machines share",
            )
