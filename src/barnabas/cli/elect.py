"""`barnabas elect`: requests leader elections, with the arguments and JSON of Kafka's kafka-leader-election tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.cli.clients import TIMEOUT_S, admin_client
from barnabas.cli.contexts import choice
from barnabas.cli.controller_requests import ask_controller
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, Bootstrap, ClientProperty
from barnabas.common.errors import ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


class ElectionKind(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


#: The values of `election_type` in ElectLeaders.
_KINDS: Final = {ElectionKind.PREFERRED: 0, ElectionKind.UNCLEAN: 1}


class _Row(NamedTuple):
    name: str
    code: ErrorCode
    text: str | None


def elect(
    kind: Annotated[
        ElectionKind,
        typer.Option(
            "--type",
            "--election-type",
            help="preferred, or unclean for partitions without a leader; unclean can lose records",
        ),
    ],
    topic: Annotated[str | None, typer.Option("--topic", help="Topic of --partition")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=INT32_MAX, help="Partition of --topic")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path-to-json-file", help='{"partitions": [{"topic": "orders", "partition": 0}, ...]}'),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all-topic-partitions", help="All partitions that need an election")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Elect preferred leaders, or unclean leaders for partitions without one"""
    if (topic is not None) + (path is not None) + everything != 1:
        raise Failure("give exactly one of: --topic with --partition, --path-to-json-file, --all-topic-partitions")
    if (topic is None) != (partition is None):
        raise Failure("--topic and --partition must be given together")
    requested: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        requested = [TopicPartition(topic, partition)]
    elif path is not None:
        requested = read_partitions(path)
    admin = admin_client(bootstrap, properties)
    if kind is ElectionKind.UNCLEAN:
        choice.warn_if_production("elects unclean leaders, which can lose records")
    rows = hold(admin, kind, requested)
    _show(kind, rows)


def hold(admin: AdminClient, kind: ElectionKind, requested: list[TopicPartition] | None) -> list[_Row]:
    """Requests the election of leaders for the partitions in `requested`, or for all partitions if it is None, and
    returns the results. It uses its own connection: `elect_leaders` of confluent-kafka raises SystemError with any
    timeout.
    """
    by_topic: dict[str, list[int]] = {}
    for each in requested or ():
        by_topic.setdefault(each.topic, []).append(each.partition)
    topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=ids) for name, ids in by_topic.items()]
    request = ElectLeadersRequest(
        election_type=_KINDS[kind],
        topic_partitions=None if requested is None else topics,
        timeout_ms=int(TIMEOUT_S * 1_000),
    )
    answer = ask_controller(admin, request, 2, ElectLeadersResponse)
    rows = [
        _Row(f"{topic.topic}-{row.partition_id}", ErrorCode(row.error_code), row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]
    if answer.error_code and not rows:
        raise Failure(f"cannot hold the {kind.value} election: {ErrorCode(answer.error_code).name}")
    return rows


def read_partitions(path: Path) -> list[TopicPartition]:
    """Reads the partitions of a JSON file. Raises Failure if the file is missing or malformed."""
    try:
        document = json.loads(path.read_text())
        found = [TopicPartition(str(row["topic"]), int(row["partition"])) for row in document["partitions"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path}: not a list of partitions ({error!r})") from error
    if not found:
        raise Failure(f"{path}: the list of partitions is empty")
    if len({(each.topic, each.partition) for each in found}) < len(found):
        raise Failure(f"{path}: a partition is listed twice")
    return found


def _show(kind: ElectionKind, rows: Sequence[_Row]) -> None:
    _line(
        f"Successfully completed leader election ({kind.name}) for partitions",
        [row.name for row in rows if row.code is ErrorCode.NONE],
    )
    _line(
        "Valid replica already elected for partitions",
        [row.name for row in rows if row.code is ErrorCode.ELECTION_NOT_NEEDED],
    )
    failed = [row for row in rows if row.code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)]
    if not rows:
        print("no partition needs an election")
    if failed:
        lines = [f"{row.name}: {row.text or row.code.name} ({row.code.name})" for row in failed]
        raise Failure(f"{len(failed)} replica(s) could not be elected", "\n".join(lines))


def _line(text: str, names: Sequence[str]) -> None:
    if names:
        print(f"{text} {', '.join(sorted(names))}")
