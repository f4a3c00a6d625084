"""`barnabas transactions`: shows transactions and aborts hanging ones, as Kafka's kafka-transactions tool does
(KIP-664).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from barnabas.cli import output
from barnabas.cli.contexts import choice
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, INT64_MAX, Bootstrap, ClientProperty, Json
from barnabas.cli.transactions_view import ClusterRequests, Described, ProducerState
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure

app = typer.Typer(help="Show transactions, and abort hanging ones", no_args_is_help=True)

_PARTITION: Final = typer.Argument(metavar="TOPIC-PARTITION")
#: The default limit of brokers for the duration of a transaction.
_TIMEOUT_MINUTES: Final = 15


@app.command(name="list")
def list_all(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only transactions in this state: Ongoing, Empty, ...; repeatable"),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", min=0, max=INT64_MAX, help="Only transactions of this producer id; repeatable"),
    ] = None,
    open_for: Annotated[
        int | None,
        typer.Option("--open-for", metavar="MS", help="Only transactions that have been open for longer than this"),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that this regular expression matches as a whole")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """List transactional ids with their coordinators, producers and states"""
    found = ClusterRequests(bootstrap, properties).listed(
        states=state or (),
        producer_ids=producer_id or (),
        open_for_ms=-1 if open_for is None else open_for,
        pattern=pattern,
    )
    _show(["transactional_id", "coordinator", "producer_id", "state"], found, as_json)


@app.command()
def describe(
    transactional_id: Annotated[list[str], typer.Argument(metavar="ID...")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show transactional ids: state, timeout, start time and partitions"""
    found = ClusterRequests(bootstrap, properties).describe(transactional_id)
    columns = ["transactional_id", "coordinator", "producer_id", "producer_epoch", "state", "timeout_ms", "open_ms"]
    now_ms = round(time.time() * 1000)
    rows = [(*one[:6], _age(one, now_ms), [str(partition) for partition in one.partitions]) for one in found]
    _show([*columns, "partitions"], rows, as_json)


def _age(one: Described, now_ms: int) -> int | None:
    return now_ms - one.start_ms if one.state == "Ongoing" else None


@app.command()
def producers(
    partition: Annotated[str, _PARTITION],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show the producers of a partition, and where their open transactions begin"""
    view, wanted = ClusterRequests(bootstrap, properties), _parse(partition)
    _show(_PRODUCER_COLUMNS, [_producer_row(one) for one in view.producers(_led(view, wanted))], as_json)


_PRODUCER_COLUMNS: Final = [
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_timestamp_ms",
    "start_offset",
]


def _producer_row(one: ProducerState) -> tuple[object, ...]:
    return (str(one.partition), *one[1:6], None if one.start_offset < 0 else one.start_offset)


@app.command(name="find-hanging")
def find_hanging(
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=INT32_MAX, help="Only this partition of --topic")
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", min=0, max=INT32_MAX, help="Only partitions that this broker leads"),
    ] = None,
    older_than: Annotated[
        int,
        typer.Option("--older-than", metavar="MINUTES", help="Only transactions without a write for longer than this"),
    ] = _TIMEOUT_MINUTES,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator"""
    if partition is not None and topic is None:
        raise Failure("--partition needs --topic")
    view = ClusterRequests(bootstrap, properties)
    looked_at = {
        each: leader
        for each, leader in view.leaders(topic).items()
        if partition in (None, each.partition) and broker in (None, leader)
    }
    if partition is not None and not looked_at and broker is None:
        raise Failure(f"{TopicPartition(topic or '', partition)} does not exist, or has no leader")
    before_ms = round(time.time() * 1000) - older_than * 60_000
    old = [one for one in view.producers(looked_at) if one.start_offset >= 0 and one.last_timestamp_ms <= before_ms]
    listed = view.listed(producer_ids=sorted({one.producer_id for one in old})) if old else []
    found = hanging(old, view.describe([one.transactional_id for one in listed]))
    _show(_PRODUCER_COLUMNS, [_producer_row(one) for one in found], as_json)
    if found and not as_json:
        output.say("abort one with: barnabas transactions abort PARTITION --start-offset N --execute")


def hanging(open_producers: Sequence[ProducerState], transactions: Sequence[Described]) -> list[ProducerState]:
    """Returns the transactions that are open in a partition although their coordinator has no open or ending
    transaction there.
    """
    known = {
        (one.producer_id, partition)
        for one in transactions
        if one.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        for partition in one.partitions
    }
    return [one for one in open_producers if (one.producer_id, one.partition) not in known]


@app.command()
def abort(
    partition: Annotated[str, _PARTITION],
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", min=0, max=INT64_MAX, help="First offset of the transaction, as find-hanging shows it"
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            "--producer-id", min=0, max=INT64_MAX, help="Producer of the transaction, instead of --start-offset"
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the change; without it, only show the change")
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Abort a hanging transaction in one partition; the records of a transaction that is still open are lost"""
    if (start_offset is None) == (producer_id is None):
        raise Failure("give exactly one of --start-offset and --producer-id")
    view, wanted = ClusterRequests(bootstrap, properties), _parse(partition)
    found = [
        one
        for one in view.producers(_led(view, wanted))
        if one.start_offset >= 0 and (one.start_offset == start_offset or one.producer_id == producer_id)
    ]
    if not found:
        raise Failure(f"no such open transaction in {wanted}")
    (one,) = found
    what = f"transaction of producer {one.producer_id} in {wanted} from offset {one.start_offset} on"
    if execute:
        choice.warn_if_production(f"aborts the {what}")
        view.abort(wanted, one.producer_id, one.producer_epoch, max(one.coordinator_epoch, 0))
    if as_json:
        shown = dict(zip(_PRODUCER_COLUMNS, _producer_row(one), strict=True))
        output.show_json({**shown, "aborted": execute})
    elif execute:
        output.say_done(f"aborted the {what}")
    else:
        output.say(f"would abort the {what}; add --execute to apply the change")


def _led(view: ClusterRequests, partition: TopicPartition) -> dict[TopicPartition, int]:
    leader = view.leaders(partition.topic).get(partition)
    if leader is None:
        raise Failure(f"{partition} does not exist, or has no leader")
    return {partition: leader}


def _parse(text: str) -> TopicPartition:
    topic, dash, index = text.rpartition("-")
    if not dash or not topic or not index.isdigit():
        raise Failure(f"{text}: expected TOPIC-PARTITION, such as orders-3")
    return TopicPartition(topic, int(index))


def _show(columns: Sequence[str], rows: Sequence[Sequence[Any]], as_json: bool) -> None:
    if as_json:
        output.show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.show_table([name.replace("_", " ") for name in columns], rows)
