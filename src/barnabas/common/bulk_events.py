"""An event of the journal about many partitions of one decision, as its writer packs it and its readers unpack it.

    topics          [[name, id, min ISR, rows], ...]; the rows of a topic follow each other
    transitions     [{changes, before, after, leader_epochs, partition_epochs, cause?, text?}, ...]; what equal changes
                    have in common, and by how much they raised the epochs
    partition, transition, leader_epoch, partition_epoch
                    one number for each row; the epochs are those after the change
    own             {row: {text?, seen?}}, what the partition's leader reported

`unpacked` gives the events of single partitions: field for field those that a small decision is written with.
docs/explain.md describes both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

BULK_KIND: Final = "partitions-changed"
#: The largest number of partitions in one event.
ROWS_MAX: Final = 200

_SHARED: Final = ("v", "time_ms", "metadata_offset", "node", "actor", "inferred")
_EPOCHS: Final = ("leader_epoch", "partition_epoch")

Event = dict[str, Any]
#: Chooses the partitions of a topic: returns None for all of them, or the wanted ones.
Choice = Callable[[str], frozenset[int] | None]


def is_bulk(event: Mapping[str, Any]) -> bool:
    return bool(event["kind"] == BULK_KIND)


def unpacked(event: Mapping[str, Any], choose: Choice | None = None) -> Iterator[Event]:
    """Yields the event of each partition, in order; with `choose`, of the chosen ones only."""
    begin = 0
    for each in event["topics"]:
        name, count = each[0], each[3]
        wanted = None if choose is None else choose(name)
        topic = topic_fields(event, each)
        for row in range(begin, begin + count) if wanted is None or wanted else ():
            if wanted is None or event["partition"][row] in wanted:
                yield row_event(event, row, topic)
        begin += count


def row_event(event: Mapping[str, Any], row: int, topic: Mapping[str, Any]) -> Event:
    """Returns the event of one row. `topic` has the fields that all rows of its topic share."""
    transition, partition = event["transitions"][event["transition"][row]], event["partition"][row]
    epochs = {name: event[name][row] for name in _EPOCHS}
    before = transition["before"] | {name: epochs[name] - transition[f"{name}s"] for name in _EPOCHS}
    after = transition["after"] | epochs
    own = event.get("own", {}).get(str(row), {})
    subject = f"{topic['topic']}-{partition}"
    return {
        **topic,
        "id": f"{event['metadata_offset']}:{subject}",
        "kind": transition["changes"][0],
        "changes": transition["changes"],
        "partition": partition,
        "min_isr": min(topic["min_isr"], len(after["replicas"])),
        "before": before,
        "after": after,
        "cause": transition.get("cause", event["cause"]),
        "text": own.get("text", transition.get("text", event["text"])),
        **({"seen": own["seen"]} if "seen" in own else {}),
    }


def topic_fields(event: Mapping[str, Any], topic: Sequence[Any]) -> Event:
    """Returns the fields that all rows of one of the event's topics share."""
    name, topic_id, min_isr, _ = topic
    return {key: event[key] for key in _SHARED if key in event} | {
        "topic": name,
        "topic_id": topic_id,
        "min_isr": min_isr,
    }
