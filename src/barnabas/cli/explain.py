"""`barnabas explain`: explains a partition's leader and ISR from `__cluster_events`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import typer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.cli import clients, explain_story, explain_topic, lines, output
from barnabas.cli.explain_now import Now, is_well
from barnabas.cli.explain_pause import BEFORE_MS, outages
from barnabas.cli.explain_story import Explanation, Present
from barnabas.cli.incident import answer_lines, causes_of
from barnabas.cli.journal_reader import FIRST_LOOK_MS, JournalReader, JournalSession
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT32_MAX, At, Bootstrap, ClientProperty, HistoryOption, Json
from barnabas.common.types import EVENTS_TOPIC
from barnabas.embedded.failures import Failure
from barnabas.monitor import texts

_NO_PARTITIONS: Final = frozenset[int]()
_INCIDENT_MS: Final = 15 * 60_000
_NO_JOURNAL = (
    f"This cluster has no journal ({EVENTS_TOPIC}): either nothing that needs an explanation has happened "
    "since its topics were created, or it keeps none."
)


def explain(
    partition: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC[-PARTITION]", help="A partition (orders-3), or a topic for all its partitions"),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, max=INT32_MAX, help="Show the history of this broker instead")
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Show all present problems, with their causes and remedies")
    ] = False,
    incident: Annotated[
        bool, typer.Option("--incident", help="Show the causes of everything since --since (default: 15m)")
    ] = False,
    pause: Annotated[
        str | None,
        typer.Option("--pause", metavar="TOPIC", help="Show why clients of this topic paused, at the time of --at"),
    ] = None,
    lasted: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="The duration of the pause: 4s; with --pause")
    ] = "10s",
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Read only the events since this time: 10m, 2h, or a date"),
    ] = None,
    at: At = None,
    history: HistoryOption = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Explain why a partition has its leader and its ISR, with times and causes"""
    if [partition is not None, broker is not None, now, incident, pause is not None].count(True) != 1:
        raise Failure("name a partition (orders-3), a topic, --broker N, --now, --incident or --pause TOPIC")
    if pause is None and (at is not None or history is not None):
        views = importlib.import_module("barnabas.cli.history_views")
        views.explain_at(at, history, partition, since, as_json=as_json)
        return
    if pause is not None and (at is None or history is not None):
        raise Failure("--pause TOPIC needs --at TIME, and reads the journal of a cluster, not a history")
    now_ms = round(time.time() * 1000)
    since_ms = lines.parse_time(since, now_ms) if since is not None else None
    admin = clients.admin_client(bootstrap, properties)

    def answer(session: JournalSession) -> JournalReader:
        if now:
            return _explain_now(admin, session, since_ms, as_json)
        if incident:
            return _explain_incident(session, since_ms or now_ms - _INCIDENT_MS, as_json)
        if pause is not None and at is not None:
            from_ms = lines.parse_time(at, now_ms)
            return _explain_pause(admin, session, pause, from_ms, from_ms - lines.parse_time(lasted, 0), as_json)
        if partition is not None:
            return _explain_partitions(admin, session, partition, since_ms, as_json)
        assert broker is not None, "give only one of them"
        return _explain_broker(session, broker, since_ms, as_json)

    _answer(answer, bootstrap, properties)


def _answer(
    answer: Callable[[JournalSession], JournalReader], bootstrap: str, properties: Iterable[str] | None
) -> None:
    """Shows an answer, and says what is missing in it."""
    try:
        with JournalSession(bootstrap, properties) as session:
            journal = answer(session)
            for sentence in session.silence():
                output.say(sentence)
    except KafkaException as error:
        raise clients.failure(error, "cannot explain") from error
    journal.check()


def _explain_partitions(
    admin: AdminClient, session: JournalSession, name: str, since_ms: int | None, as_json: bool
) -> JournalReader:
    presents = _presents(admin, name)
    has_journal = session.reading.has_journal
    topic, wanted = presents[0].topic, frozenset(present.partition for present in presents)
    journal = JournalReader(session, lambda other: wanted if other == topic else _NO_PARTITIONS)
    explanations: list[Explanation] = []

    def explained() -> bool:
        explanations[:] = [explain_story.explain(present, journal.events) for present in presents]
        return all(each.is_complete for each in explanations)

    _read(journal, since_ms, explained, has_journal)
    shown_ms = since_ms or 0
    if as_json:
        found = [{**each.to_json(), "journal": has_journal} for each in explanations]
        for shown in found:
            shown["history"] = [event for event in shown["history"] if event["time_ms"] >= shown_ms]
            shown["read_since_ms"] = journal.begin_ms
        output.show_json(found[0] if "-" in name and len(found) == 1 else found)
        return journal
    if len(explanations) == 1:
        print("\n".join(explain_story.lines_of(explanations[0], shown_ms)))
    else:
        print("\n".join(explain_topic.lines_of(explanations, shown_ms)))
    if since_ms is not None and not all(each.is_complete for each in explanations):
        output.say(f"Only events since {texts.at(since_ms)} were read: older causes are unknown.")
    if not has_journal:
        output.say(_NO_JOURNAL)
    return journal


def _explain_broker(session: JournalSession, broker: int, since_ms: int | None, as_json: bool) -> JournalReader:
    has_journal = session.reading.has_journal
    journal = JournalReader(session, lambda _: None)
    _read(journal, since_ms, lambda: any(event.get("broker") == broker for event in journal.events), has_journal)
    shown_ms = since_ms or 0
    if as_json:
        events = [event for event in journal.events if event.get("broker") == broker and event["time_ms"] >= shown_ms]
        output.show_json(events)
        return journal
    lines = explain_story.broker_lines(broker, journal.events, shown_ms)
    print("\n".join(lines) if lines else f"The journal has no event about broker {broker}.")
    if not has_journal:
        output.say(_NO_JOURNAL)
    return journal


def _explain_now(admin: AdminClient, session: JournalSession, since_ms: int | None, as_json: bool) -> JournalReader:
    topics = admin.list_topics(timeout=clients.TIMEOUT_S).topics
    presents = [
        Present(name, index, found.leader, tuple(found.replicas), tuple(found.isrs))
        for name, topic in sorted(topics.items())
        for index, found in sorted(topic.partitions.items())
    ]
    unwell = [present for present in presents if not is_well(present)]
    wanted: dict[str, set[int]] = {}
    for present in unwell:
        wanted.setdefault(present.topic, set()).add(present.partition)
    journal = JournalReader(session, lambda topic: frozenset(wanted.get(topic, ())))
    has_journal = session.reading.has_journal
    _read(journal, since_ms, lambda: Now(unwell, journal.events).is_complete, has_journal)
    troubles = Now(unwell, journal.events).troubles()
    if as_json:
        output.show_json([trouble.to_json() for trouble in troubles])
        return journal
    print("\n".join(line for trouble in troubles for line in trouble.lines()) if troubles else "All is well.")
    if not has_journal:
        output.say(_NO_JOURNAL)
    return journal


def _explain_incident(session: JournalSession, since_ms: int, as_json: bool) -> JournalReader:
    has_journal = session.reading.has_journal
    journal = JournalReader(session, lambda _: None)
    if has_journal:
        journal.read_since(since_ms)
    else:
        journal.wait_only(since_ms)
    causes = causes_of(journal.events)
    if as_json:
        output.show_json([cause.to_json() for cause in causes])
        return journal
    print("\n".join(answer_lines(causes)))
    if not has_journal:
        output.say(_NO_JOURNAL)
    return journal


def _explain_pause(
    admin: AdminClient, session: JournalSession, topic: str, from_ms: int, to_ms: int, as_json: bool
) -> JournalReader:
    topics = admin.list_topics(timeout=clients.TIMEOUT_S).topics
    if topic not in topics:
        raise Failure(f"there is no topic {topic}", "`barnabas topics list` shows the existing ones")
    journal = JournalReader(session, lambda other: None if other == topic else _NO_PARTITIONS)
    if session.reading.has_journal:
        journal.read_since(from_ms - BEFORE_MS)
    found = outages(topic, journal.events, from_ms, to_ms)
    if as_json:
        output.show_json([outage.to_json() for outage in found])
        return journal
    nothing = f"No partition of {topic} lost its leader, or had too few in-sync replicas, in this period."
    print("\n".join(line for outage in found for line in outage.lines(topic)) if found else nothing)
    if not session.reading.has_journal:
        output.say(_NO_JOURNAL)
    return journal


def _read(journal: JournalReader, since_ms: int | None, is_answered: Callable[[], bool], has_journal: bool) -> None:
    """Reads the journal since a time; without one, the last day, and the rest if the question is not answered then."""
    if has_journal:
        journal.read_since(round(time.time() * 1000) - FIRST_LOOK_MS if since_ms is None else since_ms)
    if not is_answered() and has_journal and since_ms is None and journal.problem is None:
        journal.read_the_rest()
        is_answered()


def _presents(admin: AdminClient, name: str) -> list[Present]:
    """Returns the requested partitions. A topic can itself be named `orders-3`."""
    topics = admin.list_topics(timeout=clients.TIMEOUT_S).topics
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
    return presents
