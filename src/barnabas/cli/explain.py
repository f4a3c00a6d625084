"""`barnabas explain`: explains a partition's leader and ISR from `__cluster_events`."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli import clients, explain_story, explain_topic, lines, output
from barnabas.cli.explain_story import Event, Present
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, At, Bootstrap, ClientProperty, HistoryOption, Json
from barnabas.common.bulk_events import Choice, is_bulk, unpacked
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure

_BATCH = 1_000
_NO_PARTITIONS: Final = frozenset[int]()
_NO_JOURNAL = (
    f"This cluster has no journal ({EVENTS_TOPIC}): either nothing that needs an explanation has happened "
    "since its topics were created, or it keeps none."
)


def explain(
    partition: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC[-PARTITION]", help="A partition (orders-3), or a topic for all of its partitions"
        ),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, max=INT32_MAX, help="Show the history of this broker instead")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Show all events since then: 10m, 2h, or a date")
    ] = None,
    at: At = None,
    history: HistoryOption = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Explain why a partition has its leader and its ISR, with times and causes"""
    if (partition is None) == (broker is None):
        raise Failure("name a partition (orders-3), a topic, or --broker N")
    if at is not None or history is not None:
        views = importlib.import_module("barnabas.cli.history_views")
        views.explain_at(at, history, partition, since, as_json=as_json)
        return
    since_ms = 0 if since is None else lines.parse_time(since, round(time.time() * 1000))
    client = clients.consumer(bootstrap, properties, _settings())
    try:
        if partition is not None:
            _explain_partitions(client, partition, since_ms, as_json)
        else:
            assert broker is not None, "give only one of them"
            _explain_broker(client, broker, since_ms, as_json)
    except KafkaException as error:
        raise clients.failure(error, "cannot explain") from error
    finally:
        client.close()


def _settings() -> dict[str, object]:
    return {
        "group.id": f"barnabas-explain-{os.getpid()}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }


def _explain_partitions(client: Consumer, name: str, since_ms: int, as_json: bool) -> None:
    presents, has_journal = _presents(client, name)
    topic, wanted = presents[0].topic, frozenset(present.partition for present in presents)
    events = (
        explain_story.distinct(_events(client, lambda other: wanted if other == topic else _NO_PARTITIONS))
        if has_journal
        else []
    )
    explanations = [explain_story.explain(present, events) for present in presents]
    if as_json:
        found = [{**each.to_json(), "journal": has_journal} for each in explanations]
        for shown in found:
            shown["history"] = [event for event in shown["history"] if event["time_ms"] >= since_ms]
        output.show_json(found[0] if "-" in name and len(found) == 1 else found)
        return
    if len(explanations) == 1:
        print("\n".join(explain_story.lines_of(explanations[0], since_ms)))
    else:
        print("\n".join(explain_topic.lines_of(explanations, since_ms)))
    if not has_journal:
        output.say(_NO_JOURNAL)


def _explain_broker(client: Consumer, broker: int, since_ms: int, as_json: bool) -> None:
    has_journal = clients.has_journal(client)
    events = explain_story.distinct(_events(client, lambda _: None)) if has_journal else []
    if as_json:
        output.show_json([event for event in events if event.get("broker") == broker and event["time_ms"] >= since_ms])
        return
    lines = explain_story.broker_lines(broker, events, since_ms)
    print("\n".join(lines) if lines else f"The journal has no event about broker {broker}.")
    if not has_journal:
        output.say(_NO_JOURNAL)


def _presents(client: Consumer, name: str) -> tuple[list[Present], bool]:
    """Returns the requested partitions, and whether there is a journal. A topic can itself be named `orders-3`."""
    topics = client.list_topics(timeout=clients.TIMEOUT_S).topics
    topic, dash, number = name.rpartition("-")
    wanted: int | None = None
    if name in topics:
        topic = name
    elif dash and number.isdigit():
        wanted = int(number)
    else:
        topic = name
    if topic not in topics:
        raise Failure(f"there is no topic {topic}", "`barnabas topics list` shows the existing ones")
    partitions = topics[topic].partitions
    if wanted is not None and wanted not in partitions:
        raise Failure(f"{topic} has no partition {wanted}; it has {len(partitions)}")
    chosen = sorted(partitions) if wanted is None else [wanted]
    presents = []
    for index in chosen:
        found = partitions[index]
        presents.append(Present(topic, index, found.leader, tuple(found.replicas), tuple(found.isrs)))
    return presents, EVENTS_TOPIC in topics


def _events(client: Consumer, choose: Choice) -> Iterator[Event]:
    """Returns all events of the journal; of bulk events, those of the chosen partitions. Records that are not events,
    or of a later schema, are skipped.
    """
    client.assign([TopicPartition(EVENTS_TOPIC, 0, 0)])
    quiet_since = time.monotonic()
    while True:
        messages = client.consume(_BATCH, timeout=0.2)
        for message in messages:
            error = message.error()
            if error is None:
                event = _parsed(message.value())
                if event is not None and is_bulk(event):
                    yield from unpacked(event, choose)
                elif event is not None:
                    yield event
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)
        if messages:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > clients.TIMEOUT_S:
            raise Failure(f"{EVENTS_TOPIC} cannot be read: no answer within {clients.TIMEOUT_S:.0f} s")


def _parsed(value: bytes | str | None) -> Event | None:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"id", "kind", "time_ms", "text"} <= event.keys() else None
