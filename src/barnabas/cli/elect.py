"""`barnabas elect`: leader elections on request, in the arguments and JSON of Kafka's kafka-leader-election tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import ElectionType, KafkaError, TopicPartition

from barnabas.cli.clients import TIMEOUT_S, admin_client, reason, result
from barnabas.cli.failures import Failure
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty


class Kind(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


_KINDS = {Kind.PREFERRED: ElectionType.PREFERRED, Kind.UNCLEAN: ElectionType.UNCLEAN}


def elect(
    kind: Annotated[
        Kind,
        typer.Option("--type", "--election-type", help="unclean may lose records: for partitions without a leader."),
    ],
    topic: Annotated[str | None, typer.Option("--topic", help="With --partition.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Of --topic.")] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path-to-json-file", help='{"partitions": [{"topic": "orders", "partition": 0}, ...]}'),
    ] = None,
    everything: Annotated[bool, typer.Option("--all-topic-partitions", help="All that need it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Elect leaders: the preferred ones, or unclean ones where nobody may lead."""
    if (topic is not None) + (path is not None) + everything != 1:
        raise Failure("name one of --topic with --partition, --path-to-json-file, --all-topic-partitions")
    if (topic is None) != (partition is None):
        raise Failure("--topic and --partition belong together")
    asked: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        asked = [TopicPartition(topic, partition)]
    elif path is not None:
        asked = read_partitions(path)
    admin = admin_client(bootstrap, properties)
    future = admin.elect_leaders(_KINDS[kind], asked, request_timeout=TIMEOUT_S)
    _show(kind, result(future, f"cannot hold the {kind.value} election"))


def read_partitions(path: Path) -> list[TopicPartition]:
    """Failure if the file is not there or not of that form."""
    try:
        document = json.loads(path.read_text())
        found = [TopicPartition(str(row["topic"]), int(row["partition"])) for row in document["partitions"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path}: no list of partitions ({error!r})") from error
    if not found:
        raise Failure(f"{path}: no partitions in it")
    if len({(each.topic, each.partition) for each in found}) < len(found):
        raise Failure(f"{path}: a partition is named twice")
    return found


def _show(kind: Kind, answers: dict[TopicPartition, Any]) -> None:
    done: list[str] = []
    needless: list[str] = []
    failed: list[str] = []
    for each, error in sorted(answers.items(), key=lambda item: (item[0].topic, item[0].partition)):
        name = f"{each.topic}-{each.partition}"
        code = _code(error)
        if code is None:
            done.append(name)
        elif code == KafkaError.ELECTION_NOT_NEEDED:
            needless.append(name)
        else:
            failed.append(f"{name}: {reason(error if isinstance(error, KafkaError) else error.args[0])}")
    _line(f"Successfully completed leader election ({kind.name}) for partitions", done)
    _line("Valid replica already elected for partitions", needless)
    if not answers:
        print("no partition needs an election")
    if failed:
        raise Failure(f"{len(failed)} replica(s) could not be elected", "\n".join(failed))


def _code(error: Any) -> int | None:
    if error is None:
        return None
    found = error if isinstance(error, KafkaError) else error.args[0]
    return int(found.code()) or None


def _line(text: str, names: Sequence[str]) -> None:
    if names:
        print(f"{text} {', '.join(names)}")
