"""`barnabas consume TOPIC`: prints records as lines on stdout. It assigns partitions itself and commits nothing, or
joins the group that --group names.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from barnabas.cli import clients, lines, output
from barnabas.cli.consume_group import Membership, OwnAssignment, Reading
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT64_MAX, Bootstrap, ClientProperty
from barnabas.embedded.failures import Failure

_BATCH = 1000

StartOffset = Annotated[
    int | None,
    typer.Option(
        "--offset", "-o", help="Start at this offset; -10 is ten before the end", min=-INT64_MAX, max=INT64_MAX
    ),
]


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable")
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", "-a", help="Start at the oldest record")] = False,
    offset: StartOffset = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Start at this time: milliseconds, 2017-01-31T12:00, or 10m (ago)")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            help="Join this group, continue at its offsets and commit what was printed. Without a committed offset, "
            "start at the end, or with --from-beginning at the oldest record",
        ),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at the end instead of waiting for more records")
    ] = False,
    max_records: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records")] = None,
    show: Annotated[
        str,
        typer.Option(
            "--show",
            "-s",
            metavar="FIELD,...",
            help="Fields to print before the value: topic, partition, offset, timestamp, key, headers; or all",
        ),
    ] = "",
    null: Annotated[str, typer.Option(help="Text to print for null")] = "null",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, with all fields")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Print records, one per line: new records as they arrive, or records from a given position"""
    place = _Place(partition or [], from_beginning, offset, since)
    place.check(group)
    fields = _fields(show)
    client = clients.consumer(bootstrap, properties, _settings(group, from_beginning=from_beginning))
    try:
        known = _partitions(client, topic)
        total = None
        reading: Reading
        if group is None:
            start = _start(client, topic, known, place)
            reading = OwnAssignment(client, start)
            total = _expected(client, start) if exit_at_end and not sys.stdout.isatty() else None
        else:
            reading = Membership(client, topic)
        _print(_records(client, reading, exit_at_end, max_records), total, fields, null, as_json)
    except KafkaException as error:
        raise clients.failure(error, f"cannot read {topic}") from error
    except KeyboardInterrupt:
        pass
    finally:
        client.close()


class _Place(NamedTuple):
    """The partitions to read and the start positions that the command line asks for."""

    partitions: list[int]
    from_beginning: bool
    offset: int | None
    since: str | None

    def check(self, group: str | None) -> None:
        if sum((self.from_beginning, self.offset is not None, self.since is not None)) > 1:
            raise Failure("give only one of --from-beginning, --offset and --since")
        if group is not None and (self.partitions or self.offset is not None or self.since is not None):
            raise Failure(
                "a group assigns partitions and offsets itself: --partition, --offset and --since exclude --group"
            )


def _settings(group: str | None, *, from_beginning: bool) -> dict[str, Any]:
    reset = "error" if group is None else "earliest" if from_beginning else "latest"
    return {
        "group.id": group or f"barnabas-consume-{os.getpid()}",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }


def _fields(show: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in show.split(",") if name.strip())
    if names == {"all"}:
        return frozenset(lines.FIELDS)
    unknown = sorted(names.difference(lines.FIELDS))
    if unknown:
        raise Failure(f"--show {', '.join(unknown)}: the fields are {', '.join(lines.FIELDS)}, or all")
    return names


def _partitions(client: Consumer, topic: str) -> set[int]:
    metadata = client.list_topics(topic, timeout=clients.TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise Failure(f"cannot read {topic}: {clients.reason(metadata.error)}")
    return set(metadata.partitions)


def _start(client: Consumer, topic: str, known: set[int], place: _Place) -> list[TopicPartition]:
    """Returns each partition with the offset to begin at, which lies within the log."""
    missing = sorted(set(place.partitions) - known)
    if missing:
        raise Failure(f"{topic} has no partition {missing[0]}; it has {len(known)}")
    chosen = sorted(set(place.partitions) or known)
    if place.since is not None:
        when = lines.parse_time(place.since, round(time.time() * 1000))
        requested = [TopicPartition(topic, number, when) for number in chosen]
        return [_checked(found) for found in client.offsets_for_times(requested, timeout=clients.TIMEOUT_S)]
    start = []
    for number in chosen:
        low, high = client.get_watermark_offsets(TopicPartition(topic, number), timeout=clients.TIMEOUT_S)
        offset = place.offset
        wanted = low if place.from_beginning else high if offset is None else high + offset if offset < 0 else offset
        start.append(TopicPartition(topic, number, min(max(wanted, low), high)))
    return start


def _checked(found: TopicPartition) -> TopicPartition:
    if found.error is not None:
        raise Failure(f"cannot look up the timestamp in {found.topic}-{found.partition}: {clients.reason(found.error)}")
    return found


def _expected(client: Consumer, start: list[TopicPartition]) -> int:
    """Returns the number of offsets between the start and the end."""
    total = 0
    for each in start:
        _, high = client.get_watermark_offsets(each, timeout=clients.TIMEOUT_S)
        total += high - each.offset if 0 <= each.offset <= high else 0
    return total


def _records(
    client: Consumer, reading: Reading, exit_at_end: bool, max_records: int | None
) -> Iterator[lines.IncomingRecord | None]:
    """Yields records as they arrive, and None whenever the buffered output must be written."""
    left = sys.maxsize if max_records is None else max_records
    while left:
        messages = client.consume(min(_BATCH, left), timeout=0.2)
        next_offsets: dict[int, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                left -= 1
                record = _record(message)
                yield record
                next_offsets[record.partition] = record.offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                reading.reached_end(message.partition() or 0)
                next_offsets[message.partition() or 0] = message.offset() or 0
            else:
                raise KafkaException(error)
        yield None
        reading.printed(next_offsets)
        if exit_at_end and reading.is_at_end:
            return


def _record(message: Message) -> lines.IncomingRecord:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers()
    return lines.IncomingRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms,
        timestamp_type=kind,
        key=message.key(),
        value=message.value(),
        headers=headers or [],
    )


def _print(
    records: Iterator[lines.IncomingRecord | None],
    total: int | None,
    fields: frozenset[str],
    null: str,
    as_json: bool,
) -> None:
    started = time.monotonic()
    count = 0
    with output.progress("records") as progress:
        task = progress.add_task("reading", total=total, rate="") if total is not None else None
        for record in records:
            if record is None:
                sys.stdout.flush()
                continue
            text = lines.to_json(record) if as_json else lines.to_text(record, fields, null)
            sys.stdout.write(text + "\n")
            count += 1
            if task is not None and count % _BATCH == 0:
                progress.update(task, completed=count, rate=output.rate(count, time.monotonic() - started, "records"))
    sys.stdout.flush()
