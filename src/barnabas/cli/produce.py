"""`barnabas produce TOPIC`: turns lines from a file or stdin into records."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from rich.progress import Progress

from barnabas.cli import clients, lines, output
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, Bootstrap, ClientProperty, key_values
from barnabas.embedded.failures import Failure

_SHOWN_ERRORS = 5


@dataclass(slots=True)
class DeliveryCounts:
    """Counts the records that the brokers acknowledged or refused."""

    records: int = 0
    size_bytes: int = 0
    failed: int = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.records += 1
            self.size_bytes += len(message)
            return
        self.failed += 1
        if self.failed <= _SHOWN_ERRORS:
            output.say(f"not delivered: {clients.reason(error)}")


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to write to")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read lines from this file instead of stdin")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Text between key and value in each line")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable"),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=INT32_MAX, help="Partition of every record; default: by key"),
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Timestamp of every record: milliseconds, 2017-01-31T12:00, or 10m (ago)")
    ] = None,
    null: Annotated[str | None, typer.Option(help="Text that stands for null as a key or value")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Read JSON lines, as `consume --json` prints them")] = False,
    by_key: Annotated[
        bool, typer.Option("--by-key", help="Ignore the partitions in JSON lines; choose them by key")
    ] = False,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd")] = "none",
    acks: Annotated[str, typer.Option(help="Acknowledgements to wait for: all, 1 or 0")] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Write one record per input line and wait for the acknowledgements"""
    if as_json and key_separator is not None:
        raise Failure("--json lines contain their keys: omit --key-separator")
    defaults = lines.OutgoingRecord(
        value=None,
        key=None if key is None else key.encode(),
        headers=[(name, value.encode()) for name, value in key_values(header or [], "--header").items()],
        partition=partition,
        timestamp_ms=None if timestamp is None else lines.parse_time(timestamp, round(time.time() * 1000)),
    )
    delivery = DeliveryCounts()
    client = clients.producer(bootstrap, properties, _settings(compression, acks, delivery))
    started = time.monotonic()
    with _input(file) as (stream, size_bytes), output.progress("lines") as progress:
        read = _watched(stream, size_bytes, progress)
        parse = lines.from_json if as_json else lambda line: lines.from_text(line, separator=key_separator, null=null)
        with contextlib.suppress(KeyboardInterrupt):
            for number, line in enumerate(read, 1):
                try:
                    record = _complete(parse(line), defaults, by_key)
                except ValueError as error:
                    client.flush()
                    raise Failure(f"line {number}: {error}") from error
                _send(client, topic, record)
        left = client.flush(60.0)
    _report(topic, delivery, left, time.monotonic() - started)


def _settings(compression: str, acks: str, delivery: DeliveryCounts) -> dict[str, Any]:
    return {
        "compression.type": compression,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "linger.ms": 5,
        "on_delivery": delivery,
    }


def _complete(record: lines.OutgoingRecord, defaults: lines.OutgoingRecord, by_key: bool) -> lines.OutgoingRecord:
    """Adds the command line's options to a record. Fields of the input line override them; headers are added to those
    of the line.
    """
    return replace(
        record,
        key=defaults.key if record.key is None else record.key,
        headers=defaults.headers + record.headers,
        partition=defaults.partition if by_key or record.partition is None else record.partition,
        timestamp_ms=defaults.timestamp_ms if record.timestamp_ms is None else record.timestamp_ms,
    )


def _send(client: Producer, topic: str, record: lines.OutgoingRecord) -> None:
    chosen: dict[str, Any] = {}
    if record.partition is not None:
        chosen["partition"] = record.partition
    if record.timestamp_ms is not None:
        chosen["timestamp"] = record.timestamp_ms
    while True:
        try:
            client.produce(topic, record.value, record.key, headers=list(record.headers) or None, **chosen)
        except BufferError:
            client.poll(0.1)
        except KafkaException as error:
            raise clients.failure(error, f"cannot produce to {topic}") from error
        else:
            client.poll(0)
            return


@contextlib.contextmanager
def _input(file: Path | None) -> Iterator[tuple[TextIO, int | None]]:
    """Returns the lines to read, and their size in bytes if that is known."""
    if file is None:
        if sys.stdin.isatty():
            output.say("type one record per line; Ctrl-D ends")
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        yield sys.stdin, None
        return
    try:
        stream = file.open(encoding="utf-8", errors="surrogateescape", newline="\n")
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from error
    with stream:
        yield stream, os.fstat(stream.fileno()).st_size


def _watched(stream: Iterable[str], size_bytes: int | None, progress: Progress) -> Iterator[str]:
    """Yields lines without their line ends; updates the progress bar if the total size is known."""
    if size_bytes is None:
        for line in stream:
            yield line.rstrip("\n")
        return
    started = time.monotonic()
    task = progress.add_task("reading", total=size_bytes, rate="")
    done = 0
    for number, line in enumerate(stream, 1):
        done += len(line)
        if number % 1000 == 0:
            speed = output.rate(number, time.monotonic() - started, "lines")
            progress.update(task, completed=done, rate=speed)
        yield line.rstrip("\n")


def _report(topic: str, delivery: DeliveryCounts, left: int, elapsed_s: float) -> None:
    if delivery.failed or left:
        raise Failure(
            f"not delivered to {topic}: {delivery.failed + left}; delivered: {delivery.records}"
            + (f" ({left} without an answer in time)" if left else "")
        )
    output.say_done(
        f"{output.counted(delivery.records, 'record')} ({output.size(delivery.size_bytes)}) to {topic} "
        f"in {elapsed_s:.2f} s, {output.rate(delivery.records, elapsed_s, 'records')}"
    )
