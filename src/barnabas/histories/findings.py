"""The rules that need the whole history, and the messages about violations.

A second offset of a record is noticed while the history is read (`KnownTopic.put` in `known.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.histories.anomalies import NOTES, Finding, Kind
from barnabas.histories.known import Client, Gap, KnownTopic, Outcome, PartitionLog, Position, Stage, Transaction, Write
from barnabas.histories.operations import Process


def of_logs(logs: Iterable[PartitionLog]) -> Iterator[Finding]:
    """Reports log offsets at which two different values were seen."""
    for log in logs:
        for offset, others in sorted(log.conflicts.items()):
            writes = [log.at[offset], *others]
            values = tuple(write.value for write in writes)
            first = log.at[offset]
            lines = sorted({line for line in (first.end_line, first.read_line, *others.values()) if line})
            text = f"{at(log, offset)} is {' and '.join(repr(value) for value in values)}"
            yield _finding(Kind.INCONSISTENT_OFFSETS, log, offset, values, text, tuple(lines))


def of_writes(topics: Iterable[KnownTopic]) -> Iterator[Finding]:
    for topic in topics:
        writes: Iterable[Write] = topic.writes.values()
        if topic.unordered:
            writes = sorted(writes, key=lambda write: write.line)
        last: dict[tuple[Process, PartitionLog], Write] = {}
        for write in writes:
            if write.read_line:
                yield from _wrong_read(topic, write)
            if write.outcome is Outcome.ACKED and not write.vague:
                if not write.read_line:
                    yield from _not_read(topic, write)
                if write.log is not None and write.offset is not None:
                    key = (write.process, write.log)
                    if key in last:
                        yield from _order(write.log, last[key], write)
                    last[key] = write
        for write, places in topic.moved.items():
            if not write.vague:
                yield _twice(topic, write, places)


def _wrong_read(topic: KnownTopic, write: Write) -> Iterator[Finding]:
    if write.outcome is Outcome.UNSENT:
        text = f"{write.value!r} was read at {_place(topic, write)}, but never sent"
        yield _of_write(Kind.UNWRITTEN_READ, topic, write, text, (write.read_line,))
    elif write.outcome is Outcome.FAILED:
        text = f"{write.value!r} was read at {_place(topic, write)}, but its send by {write.process} failed"
        yield _of_write(Kind.ABORTED_READ, topic, write, text, (*write.lines, write.read_line))


def _not_read(topic: KnownTopic, write: Write) -> Iterator[Finding]:
    """Reports acked records that were never read."""
    log, offset = write.log, write.offset
    if log is None or log.deleted or not write.committed:
        return
    if log.begin and (offset is None or offset < log.begin):
        return
    acked = f"{write.value!r} of {write.process} was acked at {_place(topic, write)}"
    if offset is not None and offset < log.high:
        text = f"{acked} and never read, although {at(log, log.high)} was"
        yield _of_write(Kind.LOST_WRITE, topic, write, text, (*write.lines, log.high_line))
    elif (offset is not None and offset in log.conflicts) or offset == log.high:
        text = f"{acked} but never read: another record has that offset"
        yield _of_write(Kind.LOST_WRITE, topic, write, text, (*write.lines, log.high_line))
    elif log.drained:
        text = f"{acked} but missing when {log.topic}-{log.partition} was read to its end"
        yield _of_write(Kind.UNSEEN, topic, write, text, write.lines)
    else:
        yield _of_write(Kind.UNSEEN, topic, write, f"{acked} and never read", write.lines)._replace(note=True)


def _order(log: PartitionLog, before: Write, after: Write) -> Iterator[Finding]:
    """Reports two records of one producer whose order in the log differs from the order in which they were sent."""
    assert before.offset is not None
    assert after.offset is not None
    inner = before.transaction is not None and before.transaction is after.transaction
    lines = (*before.lines, *after.lines)
    values = (before.value, after.value)
    if after.offset <= before.offset:
        kind = Kind.INT_NONMONOTONIC_SEND if inner else Kind.NONMONOTONIC_SEND
        text = (
            f"{after.process} sent {before.value!r}, then {after.value!r}, but they are at "
            f"{at(log, before.offset)} and @{after.offset}"
        )
        idempotent = before.idempotent and after.idempotent
        yield _finding(kind, log, after.offset, values, text, lines)._replace(note=not idempotent)
    elif inner and after.offset > before.offset + 1:
        skipped = log.between(before.offset, after.offset)
        if skipped:
            text = f"{after.process} sent {before.value!r} and {after.value!r} in one transaction, but between them"
            text += f" there is {log.at[skipped[0]].value!r} at {at(log, skipped[0])}"
            yield _finding(Kind.INT_SEND_SKIP, log, skipped[0], values, text, lines)


def _twice(topic: KnownTopic, write: Write, places: dict[tuple[int, int], int]) -> Finding:
    also = " and ".join(f"{topic.name}-{partition}@{offset}" for partition, offset in sorted(places))
    text = f"{write.value!r} is at {_place(topic, write)} and at {also}"
    lines = {line for line in (*write.lines, write.read_line, *places.values()) if line}
    found = _of_write(Kind.DUPLICATE, topic, write, text, tuple(sorted(lines)))
    return found._replace(note=not write.idempotent)


def of_transactions(transactions: Iterable[Transaction]) -> Iterator[Finding]:
    """Reports reads of records whose transaction was aborted, or whose commit was not yet requested."""
    for transaction in transactions:
        for write, log, offset, line, early in transaction.reads:
            lines = (transaction.line, *write.lines, line)
            if transaction.stage is Stage.ABORTED:
                text = f"{write.value!r} was read at {at(log, offset)}, but {write.process} aborted its transaction"
                yield _finding(Kind.ABORTED_READ, log, offset, (write.value,), text, lines)
            elif early:
                text = f"{write.value!r} was read at {at(log, offset)} before {write.process} requested its commit"
                yield _finding(Kind.PRECOMMITTED_READ, log, offset, (write.value,), text, lines)


def of_gaps(gaps: Iterable[Gap]) -> Iterator[Finding]:
    """Reports skipped records. Offsets that a consumer did not receive are gaps of the log, unless a record with that
    offset is known.
    """
    for client, log, before, after, inner in gaps:
        if log.deleted:
            continue
        skipped = [log.at[offset] for offset in log.between(before.offset, after.offset) if offset >= log.begin]
        missed = [write for write in skipped if write.committed and write.log is log and write.offset is not None]
        if missed:
            kind = Kind.INT_POLL_SKIP if inner else Kind.POLL_SKIP
            text = f"{client.name} was given {at(log, before.offset)} and then @{after.offset}, and between them "
            text += f"{'is' if len(missed) == 1 else f'are {len(missed)} records, the first'} {missed[0].value!r}"
            text += f" at @{missed[0].offset}"
            values = tuple(write.value for write in missed[:10])
            yield _finding(kind, log, missed[0].offset, values, text, (before.line, after.line))


def went_back(client: Client, log: PartitionLog, before: Position, after: Position, inner: bool) -> Finding:
    kind = Kind.INT_NONMONOTONIC_POLL if inner else Kind.NONMONOTONIC_POLL
    text = f"{client.name} was given {at(log, before.offset)} and then @{after.offset}"
    values = (log.at[after.offset].value,)
    return _finding(kind, log, after.offset, values, text, (before.line, after.line))


def at(log: PartitionLog, offset: int) -> str:
    return f"{log.topic}-{log.partition}@{offset}"


def _place(topic: KnownTopic, write: Write) -> str:
    if write.log is None:
        return f"an unknown position in {topic.name}"
    return at(write.log, write.offset) if write.offset is not None else f"{topic.name}-{write.log.partition}"


def _of_write(kind: Kind, topic: KnownTopic, write: Write, text: str, lines: tuple[int, ...]) -> Finding:
    partition = write.log.partition if write.log is not None else -1
    return Finding(kind, topic.name, partition, write.offset, (write.value,), text, lines, note=kind in NOTES)


def _finding(
    kind: Kind, log: PartitionLog, offset: int | None, values: tuple[object, ...], text: str, lines: tuple[int, ...]
) -> Finding:
    return Finding(kind, log.topic, log.partition, offset, values, text, lines, note=kind in NOTES)
