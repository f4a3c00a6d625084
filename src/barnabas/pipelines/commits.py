"""The commit log of a directory of tables: one small JSON file for each applied batch.

A batch counts from the moment its commit is in `_commits/`, not before: all of its files are staged by then, and the
commit lists each with its final path. The later steps (moving files, Delta's own commits) can be repeated as often as a
driver crashes between them; the earlier ones leave only staged files, which are deleted.

A commit contains the next offset to apply of every partition. So a record is applied once even if the checkpoint is
lost, or replaced by one whose batches have other boundaries: skipping by batch id alone would lose data there. The
batch id is kept too, bound to the id that Spark gave the query in its checkpoint: a checkpoint that is ahead of the
tables (one of them was restored from a copy) is refused.

Numbers have no gaps, and a commit's file is created by a link that fails if the file exists: of two drivers on the same
tables, only one gets the number.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from barnabas.pipelines.errors import PipelineError

COMMITS = "_commits"
STAGING = "_staging"
_IDENTITY = "_tables.json"
_LOCK = "_lock"
_NUMBER_DIGITS = 12
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class TableFile:
    """A staged file and its final path, both relative to the directory of the tables."""

    table: str
    staged: str
    path: str
    rows: int
    size_bytes: int
    day: str | None = None
    #: Delta's statistics of the columns, as JSON.
    stats: str = "{}"
    #: The file whose rows are all contained in this one; in Parquet tables it has the same path.
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The part of one partition that has been applied to the tables."""

    next_offset: int
    #: The greatest event time seen, in ms; None before the first good order.
    event_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Books:
    """Records read, by outcome: read = orders + duplicates + everything in quarantine."""

    read: int = 0
    orders: int = 0
    lines: int = 0
    sales_cents: int = 0
    duplicates: int = 0
    quarantined: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Books) -> Books:
        reasons = sorted({*self.quarantined, *other.quarantined})
        return Books(
            self.read + other.read,
            self.orders + other.orders,
            self.lines + other.lines,
            self.sales_cents + other.sales_cents,
            self.duplicates + other.duplicates,
            {reason: self.quarantined.get(reason, 0) + other.quarantined.get(reason, 0) for reason in reasons},
        )

    @property
    def balanced(self) -> bool:
        return self.read == self.orders + self.duplicates + sum(self.quarantined.values())


@dataclass(frozen=True, slots=True)
class Commit:
    """One applied batch."""

    number: int
    query_id: str
    batch_id: int
    #: The start of the batch and the time of its commit, by the driver's clock.
    started_ms: int
    recorded_ms: int
    #: partition -> [first offset, offset after the last] of the batch's records.
    ranges: Mapping[int, tuple[int, int]]
    progress: Mapping[int, Progress]
    batch: Books
    total: Books
    files: tuple[TableFile, ...]
    staging: str

    def to_json(self) -> str:
        return json.dumps({"v": _FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Commit:
        document: dict[str, Any] = json.loads(text)
        if document.pop("v") != _FORMAT:
            raise PipelineError("the tables were written by a newer version of Barnabas")
        document["ranges"] = {int(key): (first, end) for key, (first, end) in document["ranges"].items()}
        document["progress"] = {int(key): Progress(**value) for key, value in document["progress"].items()}
        for name in ("batch", "total"):
            document[name] = Books(**document[name])
        document["files"] = tuple(TableFile(**file) for file in document["files"])
        return cls(**document)


class CommitLog:
    """The commits of one directory of tables; `create` makes the directory if it is missing."""

    def __init__(self, tables: Path) -> None:
        self.tables = tables
        self._commits = tables / COMMITS

    def create(self) -> None:
        self._commits.mkdir(parents=True, exist_ok=True)

    def last(self) -> Commit | None:
        """Returns the last commit, found by bisection: numbers have no gaps, so a million names need not be listed."""
        number, step = 0, 1
        while self._file(number + step).exists():
            number += step
            step *= 2
        while step > 1:
            step //= 2
            if self._file(number + step).exists():
                number += step
        return self.read(number) if number else None

    def read(self, number: int) -> Commit:
        return Commit.from_json(self._file(number).read_text())

    def all(self) -> list[Commit]:
        """Returns all commits in order. Each is one small file: after a long run of a stream there are many."""
        last = self.last()
        return [self.read(number) for number in range(1, 1 + (0 if last is None else last.number))]

    def append(self, commit: Commit) -> Commit:
        """Writes a commit durably, and returns it with the time of its commit.

        Raises:
            PipelineError: another driver was first.
        """
        commit = replace(commit, recorded_ms=time.time_ns() // 1_000_000)
        draft = self._commits / f".{commit.number}-{uuid.uuid4().hex}"
        try:
            with draft.open("w") as file:
                file.write(commit.to_json())
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, self._file(commit.number))
            except FileExistsError as error:
                raise _another_driver(self.tables) from error
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self._commits)
        return commit

    def staging(self, number: int) -> str:
        """Returns a directory for the staged files of one attempt at this commit, relative to that of the tables."""
        return f"{STAGING}/{number}-{uuid.uuid4().hex[:12]}"

    def clear_staging(self) -> None:
        """Deletes the files that earlier attempts left. The last commit must have been finished."""
        shutil.rmtree(self.tables / STAGING, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self._commits / f"{number:0{_NUMBER_DIGITS}}.json"


def sync_directory(directory: Path) -> None:
    """Makes new names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _another_driver(tables: Path) -> PipelineError:
    return PipelineError(
        f"another pipeline is writing to {tables}", "stop it first, or choose another directory with --tables"
    )


class Lock:
    """The lock of the one driver that can write to the tables; the system releases it when the process ends."""

    def __init__(self, tables: Path) -> None:
        self._descriptor = os.open(tables / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise _another_driver(tables) from error

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the tables: written once, and compared at every later start of a pipeline."""

    id: str
    topic: str
    topic_id: str | None
    sink: str

    @classmethod
    def read(cls, file: Path) -> Identity | None:
        try:
            return cls(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
        draft.write_text(json.dumps(asdict(self)))
        os.replace(draft, file)


def identity_of_tables(tables: Path) -> Path:
    return tables / _IDENTITY


def identity_of_checkpoint(checkpoint: Path) -> Path:
    """Returns the identity's path, next to the checkpoint's own files; Spark ignores it."""
    return checkpoint / "barnabas.json"
