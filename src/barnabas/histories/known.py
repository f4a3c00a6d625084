"""The state of each record, partition log, topic, transaction and process, as the history shows it.

A million records must fit: a `Write` is small, and everything else is per partition, process or transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import IntEnum
from typing import NamedTuple

from barnabas.histories.operations import Process, Value


class Outcome(IntEnum):
    """The outcome of a send."""

    #: The record was read, but not sent yet according to the history.
    UNSENT = 0
    SENT = 1
    ACKED = 2
    FAILED = 3
    #: The client does not know whether the record was written.
    UNKNOWN = 4


class Stage(IntEnum):
    """The stage of a transaction."""

    OPEN = 0
    #: The commit was requested; its result is not known (yet).
    COMMITTING = 1
    COMMITTED = 2
    ABORTED = 3


class Read(NamedTuple):
    write: Write
    log: PartitionLog
    offset: int
    line: int
    #: Whether the record was read before the commit was requested.
    early: bool


class Transaction:
    """A transaction of one producer, from its beginning on."""

    __slots__ = ("line", "read", "reads", "stage")

    def __init__(self, line: int) -> None:
        self.line = line
        self.stage = Stage.OPEN
        #: Whether a consumer with read_committed received a record of the transaction.
        self.read = False
        #: The reads before the transaction was known to be committed.
        self.reads: list[Read] = []

    @property
    def shown(self) -> bool:
        return self.read and self.stage is not Stage.ABORTED


class Write:
    """A record. `line` 0: not sent yet; `read_line` 0: never read. `vague`: sent while its topic was being deleted, so
    that it can be in either topic of that name.
    """

    __slots__ = (
        "end_line",
        "era",
        "idempotent",
        "line",
        "log",
        "offset",
        "outcome",
        "process",
        "read_line",
        "transaction",
        "vague",
        "value",
    )

    def __init__(self, value: Value, era: int) -> None:
        self.value = value
        self.era = era
        self.process: Process = ""
        self.outcome = Outcome.UNSENT
        self.line = 0
        self.end_line = 0
        self.read_line = 0
        self.log: PartitionLog | None = None
        self.offset: int | None = None
        self.transaction: Transaction | None = None
        self.idempotent = True
        self.vague = False

    @property
    def committed(self) -> bool:
        """Whether readers must get the record."""
        if self.vague:
            return False
        transaction = self.transaction
        # An undecided transaction counts as committed once any of its records was read.
        if transaction is not None and transaction.stage is not Stage.COMMITTED and not transaction.shown:
            return False
        return self.outcome is Outcome.ACKED or self.read_line > 0

    @property
    def lines(self) -> tuple[int, ...]:
        return tuple(sorted({self.line, self.end_line} - {0}))


class PartitionLog:
    """One partition of one topic id. Records below `begin` were deleted on purpose. `high` is the greatest offset that
    was read. `drained`: a reader reached its end after all writes.
    """

    __slots__ = (
        "_offsets",
        "at",
        "begin",
        "conflicts",
        "deleted",
        "drained",
        "high",
        "high_line",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.at: dict[int, Write] = {}
        #: Offset -> the other records that were seen at it, with the lines.
        self.conflicts: dict[int, dict[Write, int]] = {}
        self.begin = 0
        self.high = -1
        self.high_line = 0
        self.deleted = False
        self.drained = False
        self._offsets: list[int] | None = None

    def put(self, offset: int, write: Write, line: int) -> None:
        there = self.at.get(offset)
        if there is None:
            self.at[offset] = write
        elif there is not write:
            self.conflicts.setdefault(offset, {}).setdefault(write, line)

    def between(self, low: int, high: int) -> list[int]:
        """Returns the known offsets between `low` and `high`, without these two. It is valid only when the history is
        complete.
        """
        if self._offsets is None or len(self._offsets) != len(self.at):
            self._offsets = sorted(self.at)
        return self._offsets[bisect_right(self._offsets, low) : bisect_left(self._offsets, high)]


class KnownTopic:
    """A topic name. After each deletion, a topic of that name has new logs."""

    __slots__ = ("changing", "era", "logs", "moved", "name", "unordered", "writes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.writes: dict[Value, Write] = {}
        self.era = 0
        self.logs: dict[tuple[int, int], PartitionLog] = {}
        #: Records seen at another place than the first one, and where: (partition, offset) -> line.
        self.moved: dict[Write, dict[tuple[int, int], int]] = {}
        #: Whether a deletion was requested and the topic has not been created again.
        self.changing = False
        #: Whether the order of `writes` differs from the order of the sends.
        self.unordered = False

    def log(self, partition: int, era: int) -> PartitionLog:
        key = (partition, era)
        found = self.logs.get(key)
        if found is None:
            found = self.logs[key] = PartitionLog(self.name, partition)
        return found

    def put(self, write: Write, partition: int, offset: int, line: int) -> PartitionLog:
        """Records that an operation showed the record at that position."""
        log = write.log
        if log is None or log.partition != partition:
            log = self.log(partition, write.era)
        if write.offset is None and (write.log is None or write.log is log):
            write.offset = offset
            write.log = log
        elif write.offset != offset or write.log is not log:
            self.moved.setdefault(write, {}).setdefault((partition, offset), line)
        log.put(offset, write, line)
        return log

    def begin_deletion(self) -> None:
        """Begins a deletion. Sends in flight can end up in either topic."""
        self.changing = True
        for (_, era), log in self.logs.items():
            log.deleted = log.deleted or era == self.era
        for write in self.writes.values():
            if write.outcome is Outcome.SENT:
                write.vague = True
        self.era += 1


class Position(NamedTuple):
    offset: int
    line: int


class Client:
    """A process of the history: a producer, a consumer, or both."""

    __slots__ = ("committed_only", "name", "positions", "transaction")

    def __init__(self, name: Process) -> None:
        self.name = name
        self.transaction: Transaction | None = None
        self.positions: dict[PartitionLog, Position] = {}
        self.committed_only = True


class Gap(NamedTuple):
    """A place where a consumer received one record, and then one that does not directly follow it."""

    client: Client
    log: PartitionLog
    before: Position
    after: Position
    #: Whether both positions belong to one poll.
    inner: bool
