"""`barnabas explain` and `barnabas monitor` at a moment of a history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.cli import explain_story, explain_topic, output
from barnabas.cli.explain_story import Event, Present
from barnabas.cli.history import opened, show_past
from barnabas.embedded.failures import Failure
from barnabas.history.past_table import PastTable
from barnabas.history.reader import History
from barnabas.monitor.changes import Change
from barnabas.monitor.lines import EXIT_CODES
from barnabas.monitor.partition_state import PartitionState

_NO_CAUSE: Final = "the history has no cause"
_BROKER_KINDS: Final = {"broker-gone": "broker-fenced", "broker-there": "broker-unfenced"}


def both(when: str | None, file: Path | None) -> tuple[str, Path]:
    """Returns the two options. Raises Failure if one is missing."""
    if file is None:
        raise Failure("--at needs --history FILE", "`barnabas history record FILE` writes one")
    if when is None:
        raise Failure("--history needs --at TIME", "`barnabas history show` shows all changes")
    return when, file


def monitor_at(when: str | None, file: Path | None, topic: str | None, *, every: bool, as_json: bool) -> int:
    """Prints one moment. Returns the exit code that `--check` has for it."""
    moment, path = both(when, file)
    with opened(path) as history:
        table = history.at(moment)
        if topic is not None:
            table = table.only(topic)
            if not len(table):
                raise Failure(f"there was no topic {topic} at that time")
        show_past(table, every=every, as_json=as_json)
        return EXIT_CODES[table.severity]


def explain_at(when: str | None, file: Path | None, name: str | None, since: str | None, *, as_json: bool) -> None:
    """Explains the state of a partition, or of all partitions of a topic, at a moment of the history."""
    moment, path = both(when, file)
    if name is None:
        raise Failure(
            "--at explains a partition or a topic",
            "`barnabas history show FILE --broker N` shows the changes of a broker",
        )
    with opened(path) as history:
        table = history.at(moment)
        since_ms = 0 if since is None else history.time_of(since)
        presents = _presents(table, name)
        events = [_events(history, table, present) for present in presents]
        explanations = [explain_story.explain(*each) for each in zip(presents, events, strict=True)]
    if as_json:
        shown = [each.to_json() for each in explanations]
        output.show_json(shown[0] if len(shown) == 1 else shown)
        return
    if table.gap is not None:
        print(f"nothing was recorded at this time ({table.gap}); this is the last state before it")
    if len(explanations) == 1:
        print("\n".join(explain_story.lines_of(explanations[0], since_ms)))
    else:
        print("\n".join(explain_topic.lines_of(explanations, since_ms)))


def _presents(table: PastTable, name: str) -> list[Present]:
    """Returns the requested partitions. A topic can itself be named `orders-3`."""
    topic, dash, number = name.rpartition("-")
    rows = table.topics.by_name[name].rows if name in table.topics.by_name else None
    if rows is None and dash and number.isdigit():
        row = table.row_of(topic, int(number))
        if row is not None:
            return [_present(table.state(row))]
    if rows is None:
        raise Failure(f"there was no {name} at that time", "`barnabas history at` lists the partitions of that time")
    return [_present(state) for state in table.values(rows.tolist())]


def _present(state: PartitionState) -> Present:
    return Present(state.topic, state.partition, state.leader, state.replicas, state.isr)


def _events(history: History, table: PastTable, present: Present) -> Sequence[Event]:
    """Returns the changes of a partition and of all brokers up to the moment of `table`, as events of a journal."""
    changes = [
        *(change for change in history.partition(present.topic, present.partition) if change.kind != "begin"),
        *history.events_of_nodes(until_ms=table.asked_ms),
    ]
    until = [change for change in changes if change.time_ms <= table.asked_ms]
    found = []
    for number, change in enumerate(sorted(until, key=lambda change: change.time_ms)):
        found += [{"id": str(number), **event} for event in _as_event(change)]
    return found


def _as_event(change: Change) -> Iterator[Event]:
    event: Event = {
        "kind": _BROKER_KINDS.get(change.kind, change.kind),
        "time_ms": change.time_ms,
        "text": change.cause or _NO_CAUSE,
        "cause": change.events[-1].get("cause") if change.events else None,
    }
    if change.before is not None and change.after is not None:
        sides = {"before": _side(change.before), "after": _side(change.after)}
        yield event | _of_topic(change) | {"partition": change.after.partition} | sides
    elif change.created:
        first = change.created[0]
        rows = {
            "first_partition": first.partition,
            "partitions": len(change.created),
            "leaders": [state.leader for state in change.created],
            "isrs": [list(state.isr) for state in change.created],
        }
        yield event | _of_topic(change) | rows
    elif change.kind in _BROKER_KINDS:
        yield event | {"broker": change.broker}


def _of_topic(change: Change) -> dict[str, Any]:
    return {"topic": change.topic, "topic_id": change.topic_id.hex()}


def _side(state: PartitionState) -> dict[str, Any]:
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "replicas": list(state.replicas),
    }
