"""The proof: compares the acknowledged records with the contents of the log and of the tables.

Three independent sides: the ledger (what the brokers acknowledged), the log (read from beginning to end by a consumer,
which adds up each order line by line), the tables (what a pipeline derived from the log). They balance if

    every acknowledged record is in the log at its offset, with its content     else it is lost, or changed
    every other record in the log is accounted for                              else it is doubled
    each good order of the log is one row, with its lines and cents             else it is lost or doubled
    each bad event of the log is in quarantine under its reason                 else it is lost or doubled
    good records of the log = rows + duplicates removed + good ones set aside

A record in the log without an acknowledgement is not a fault: a producer that crashed can have written it. It is
accounted for if it is the copy of an order that was sent again after a crash (`again` in the ledger), or an order that
the ledger does not contain at all (`never_acknowledged`). A second copy of an acknowledged order that was not sent
again is `doubled`: a retry was written twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.orders import topic as topics
from barnabas.orders import topic_reader
from barnabas.orders.books import Books, dollars
from barnabas.orders.errors import OrdersError
from barnabas.orders.event import REASONS, Broken, Parsed, parse
from barnabas.orders.faults import KINDS
from barnabas.orders.ledger import Contents, Entry, read_ledger
from barnabas.orders.topic_reader import Record

_EXAMPLES = 5
_RULES = frozenset(REASONS)


@dataclass(slots=True)
class TableCounts:
    """The contents of the tables. `order_rows`: the number of rows of each order id (1 if correct)."""

    order_rows: Counter[int]
    lines: int
    sales_cents: int
    #: Bad events by the reason of their rule, and good ones that were set aside (too late, ...) by any other reason.
    quarantined: dict[str, int]
    duplicates_removed: int

    @classmethod
    def of(
        cls,
        orders: Iterable[tuple[int, int, int]],
        quarantined: Iterable[tuple[str, int]] | Mapping[str, int] = (),
        duplicates_removed: int = 0,
    ) -> TableCounts:
        """Counts the rows of two queries: (order_id, lines, cents) of each order, and (reason, count) of quarantine."""
        counts = cls(Counter(), 0, 0, dict(quarantined), duplicates_removed)
        for order_id, lines, cents in orders:
            counts.order_rows[order_id] += 1
            counts.lines += lines
            counts.sales_cents += cents
        return counts


@dataclass(slots=True)
class Side:
    """The differences between two sides: the numbers of records that are lost, doubled or changed."""

    lost: int = 0
    doubled: int = 0
    changed: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        if len(self.examples) < _EXAMPLES:
            self.examples.append(what)


@dataclass(slots=True)
class Proof:
    """The totals of all sides, and their differences. `lines` is for people, `plain` for programs."""

    topic: str
    #: Whether the replay has sent everything.
    is_complete: bool
    acknowledged: dict[str, int]
    acknowledged_books: Books
    refused: int
    longest_pause_ms: int | None = None
    log_records: int = 0
    log_books: Books = field(default_factory=Books)
    #: Bad events in the log by the rule that they break.
    log_broken: Counter[str] = field(default_factory=Counter)
    again: int = 0
    never_acknowledged: int = 0
    foreign: int = 0
    log: Side = field(default_factory=Side)
    tables: Side | None = None
    table_counts: TableCounts | None = None

    @property
    def balanced(self) -> bool:
        sides = [self.log] if self.tables is None else [self.log, self.tables]
        return not any(side.lost or side.doubled or side.changed for side in sides)

    @property
    def lost(self) -> int:
        return self.log.lost + (self.tables.lost if self.tables else 0)

    @property
    def doubled(self) -> int:
        return self.log.doubled + (self.tables.doubled if self.tables else 0)

    def lines(self) -> list[tuple[str, str, str]]:
        """Returns the lines of the proof as (name of the count, number, details)."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.acknowledged.items() if count)
        books, found = self.acknowledged_books, self.log_books
        rows = [
            ("orders acknowledged", f"{books.orders:,}", f"{books.lines:,} lines, {dollars(books.sales_cents)}"),
            ("records acknowledged", f"{sum(self.acknowledged.values()):,}", kinds),
            ("refused", f"{self.refused:,}", "larger than the topic allows" if self.refused else ""),
            ("records in the log", f"{self.log_records:,}", f"{found.orders:,} orders, {dollars(found.sales_cents)}"),
            ("bad events in the log", f"{self.log_broken.total():,}", _reasons(self.log_broken)),
        ]
        if self.again:
            rows.append(("sent again after a crash", f"{self.again:,}", "copies that the application sent"))
        if self.never_acknowledged:
            rows.append(
                ("never acknowledged", f"{self.never_acknowledged:,}", "in the log, from a producer that crashed")
            )
        if self.foreign:
            rows.append(("from other writers", f"{self.foreign:,}", "not from this replay"))
        if self.table_counts is not None:
            rows += _table_lines(self.table_counts)
        if self.longest_pause_ms is not None:
            rows.append(("longest pause", f"{self.longest_pause_ms:,} ms", "without an acknowledgement"))
        changed = self.log.changed + (self.tables.changed if self.tables else 0)
        if changed:
            rows.append(("changed", f"{changed:,}", "present, but different from what was sent"))
        return [*rows, ("lost", f"{self.lost:,}", ""), ("doubled", f"{self.doubled:,}", "")]

    def examples(self) -> list[str]:
        return self.log.examples + (self.tables.examples if self.tables else [])

    def plain(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "balanced": self.balanced,
            "complete": self.is_complete,
            "topic": self.topic,
            "acknowledged": {**self.acknowledged, **_books(self.acknowledged_books)},
            "refused": self.refused,
            "log": {"records": self.log_records, **_books(self.log_books), "broken": dict(self.log_broken)},
            "sent_again_after_crash": self.again,
            "never_acknowledged": self.never_acknowledged,
            "foreign": self.foreign,
            "lost": self.lost,
            "doubled": self.doubled,
            "changed": self.log.changed + (self.tables.changed if self.tables else 0),
            "longest_pause_ms": self.longest_pause_ms,
            "examples": self.examples(),
        }
        if self.table_counts is not None:
            document["tables"] = {
                "orders": self.table_counts.order_rows.total(),
                "lines": self.table_counts.lines,
                "sales_cents": self.table_counts.sales_cents,
                "quarantined": self.table_counts.quarantined,
                "duplicates_removed": self.table_counts.duplicates_removed,
            }
        return document


def verify(
    path: Path, bootstrap: str, tables: TableCounts | None = None, settings: Mapping[str, Any] | None = None
) -> Proof:
    """Compares the ledger in `path` with its topic at `bootstrap`, and with the tables if they are given.

    Raises:
        OrdersError: there is no ledger or no topic, the topic was created again, or the brokers do not answer.
    """
    ledger = read_ledger(path)
    assert ledger.begin is not None
    facts = topics.describe(topics.admin_client(bootstrap, dict(settings or {})), ledger.topic)
    if facts.topic_id != ledger.begin["topic_id"]:
        raise OrdersError(
            f"topic {facts.name} is not the topic of the ledger: it was deleted and created again",
            "all acknowledged orders were deleted with the old topic; replay into a new ledger",
        )
    return prove(ledger, topic_reader.read(bootstrap, facts.name, ledger.start_offsets, settings or {}), tables)


def prove(ledger: Contents, records: Iterable[Record], tables: TableCounts | None = None) -> Proof:
    """Compares ledger, log and tables, and returns the proof. `records`: the log from the ledger's start offsets to its
    end.
    """
    acknowledged = Counter(entry.kind for entry in ledger.acknowledged())
    proof = Proof(
        topic=ledger.topic,
        is_complete=ledger.end is not None,
        acknowledged={kind: acknowledged[kind] for kind in KINDS},
        acknowledged_books=ledger.books(),
        refused=sum(1 for _ in ledger.refused()),
        longest_pause_ms=ledger.end["longest_pause_ms"] if ledger.end else None,
    )
    good = _compare_log(proof, ledger, records)
    if tables is not None:
        _compare_tables(proof, good, tables)
    return proof


def _compare_log(proof: Proof, ledger: Contents, records: Iterable[Record]) -> set[int]:
    """Compares ledger and log, and returns the ids of the good orders in the log."""
    missing: dict[tuple[int, int], Entry] = {(entry.partition, entry.offset): entry for entry in ledger.acknowledged()}
    doubled = len(list(ledger.acknowledged())) - len(missing)
    if doubled:
        proof.log.changed += doubled
        proof.log.note(f"{doubled} acknowledgements repeat an offset of another one")
    copies: dict[int, bool] = {}
    for line in ledger.acknowledged():
        copies[line.order_id] = copies.get(line.order_id, False) or line.again or line.found
    seen: set[int] = set()
    for record in records:
        proof.log_records += 1
        parsed, reason = _read(proof, record)
        if parsed is not None:
            seen.add(parsed.order_id)
        entry = missing.pop((record.partition, record.offset), None)
        where = f"{proof.topic}-{record.partition} offset {record.offset}"
        if entry is None:
            _account(proof, where, None if parsed is None else parsed.order_id, copies)
            continue
        sent = None if entry.reason else (entry.order_id, entry.lines, entry.total_cents)
        if parsed != sent or reason != entry.reason:
            proof.log.changed += 1
            proof.log.note(
                f"{where}: the record is not order {entry.order_id} ({entry.kind}), which was acknowledged there"
            )
    for entry in missing.values():
        proof.log.lost += 1
        proof.log.note(
            f"order {entry.order_id} ({entry.kind}) is not at {proof.topic}-{entry.partition} offset {entry.offset}"
        )
    return seen


def _read(proof: Proof, record: Record) -> tuple[Parsed | None, str | None]:
    """Adds the record to the counts of the log. Returns the totals of a valid order, or the reason why the record is
    invalid.
    """
    try:
        parsed = parse(record.value)
    except Broken as broken:
        proof.log_broken[broken.reason] += 1
        return None, broken.reason
    proof.log_books.enter(*parsed)
    return parsed, None


def _account(proof: Proof, where: str, order_id: int | None, copies: Mapping[int, bool]) -> None:
    """Classifies a record of the log that no line of the ledger names."""
    if order_id is None:
        proof.foreign += 1
    elif order_id not in copies:
        proof.never_acknowledged += 1
    elif copies[order_id]:
        proof.again += 1
    else:
        proof.log.doubled += 1
        proof.log.note(f"order {order_id} is in the log a second time: {where}")


def _compare_tables(proof: Proof, good: set[int], tables: TableCounts) -> None:
    """Compares log and tables: rows by id, sums, quarantine by reason, and the total of all."""
    side = proof.tables = Side()
    proof.table_counts = tables
    set_aside = sum(count for reason, count in tables.quarantined.items() if reason not in _RULES)
    absent = [order_id for order_id in good if order_id not in tables.order_rows]
    side.lost += max(0, len(absent) - set_aside)
    if side.lost:
        side.note(f"in the log but not in the tables: order {', '.join(map(str, sorted(absent)[:_EXAMPLES]))}")
    for order_id, rows in tables.order_rows.items():
        if order_id not in good:
            side.changed += 1
            side.note(f"order {order_id} is in the tables but not in the log")
        elif rows > 1:
            side.doubled += rows - 1
            side.note(f"order {order_id} has {rows} rows in the tables")
    for reason in sorted(proof.log_broken.keys() | (tables.quarantined.keys() & _RULES)):
        wanted, found = proof.log_broken[reason], tables.quarantined.get(reason, 0)
        if wanted != found:
            side.lost += max(0, wanted - found)
            side.doubled += max(0, found - wanted)
            side.note(f"{reason}: {wanted} in the log, {found} in quarantine")
    _compare_sums(proof, side, tables, set_aside)


def _compare_sums(proof: Proof, side: Side, tables: TableCounts, set_aside: int) -> None:
    books = proof.log_books
    if not set_aside and not side.lost and not side.doubled:
        sums = (("lines", books.lines, tables.lines), ("cents", books.sales_cents, tables.sales_cents))
        for name, wanted, found in sums:
            if wanted != found:
                side.changed += 1
                side.note(f"{name}: {wanted:,} in the log, {found:,} in the tables")
    good_records = books.orders + books.duplicates
    accounted = tables.order_rows.total() + tables.duplicates_removed + set_aside
    if good_records != accounted:
        side.lost += max(0, good_records - accounted - side.lost)
        side.doubled += max(0, accounted - good_records - side.doubled)
        side.note(
            f"{good_records:,} good records in the log, but {tables.order_rows.total():,} rows + "
            f"{tables.duplicates_removed:,} duplicates removed + {set_aside:,} set aside"
        )


def _table_lines(tables: TableCounts) -> list[tuple[str, str, str]]:
    sums = f"{tables.lines:,} lines, {dollars(tables.sales_cents)}"
    return [
        ("rows in the tables", f"{tables.order_rows.total():,}", sums),
        ("quarantined", f"{sum(tables.quarantined.values()):,}", _reasons(tables.quarantined)),
        ("duplicates removed", f"{tables.duplicates_removed:,}", ""),
    ]


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))


def _books(books: Books) -> dict[str, int]:
    return {
        "orders": books.orders,
        "lines": books.lines,
        "sales_cents": books.sales_cents,
        "duplicates": books.duplicates,
    }
