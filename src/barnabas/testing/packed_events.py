"""Events of single partitions, packed as a controller packs those of a large decision (`common.bulk_events`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, Final

from barnabas.common.bulk_events import BULK_KIND, ROWS_MAX

Event = dict[str, Any]

_EPOCHS: Final = ("leader_epoch", "partition_epoch")
_SHARED: Final = ("v", "time_ms", "metadata_offset", "node", "inferred", "cause", "actor", "text")


def packed(events: Iterable[Event], rows_max: int = ROWS_MAX) -> Iterator[Event]:
    """Yields bulk events in place of the partitions' events of one decision, and the other events as they are. All
    partitions of a topic have the same setting of min ISR.
    """
    for decision, group in groupby(events, _decision):
        if decision is None:
            yield from group
            continue
        number = 0
        while some := list(islice(group, rows_max)):
            yield _packed(some, number)
            number += 1


def _decision(event: Event) -> int | None:
    return int(event["metadata_offset"]) if "partition" in event and "before" in event else None


def _packed(events: list[Event], number: int) -> Event:
    first = events[0]
    bulk: Event = {key: first[key] for key in _SHARED if key in first}
    bulk |= {"kind": BULK_KIND, "id": f"{first['metadata_offset']}:partitions:{number}", "topics": [], "own": {}}
    bulk |= {name: [] for name in ("transitions", "partition", "transition", *_EPOCHS)}
    topics = bulk["topics"]
    for row, event in enumerate(events):
        if not topics or topics[-1][0] != event["topic"]:
            topics.append([event["topic"], event["topic_id"], event.get("min_isr", 1), 0])
        topics[-1][3] += 1
        transition = _transition(event)
        if transition not in bulk["transitions"]:
            bulk["transitions"].append(transition)
        bulk["transition"].append(bulk["transitions"].index(transition))
        bulk["partition"].append(event["partition"])
        for name in _EPOCHS:
            bulk[name].append(event["after"][name])
        own = {key: event[key] for key in ("text", "seen") if key in event and event[key] != first.get(key)}
        if own:
            bulk["own"][str(row)] = own
    return bulk


def _transition(event: Event) -> Event:
    before, after = event["before"], event["after"]
    return {
        "changes": event.get("changes", [event["kind"]]),
        "before": {key: value for key, value in before.items() if key not in _EPOCHS},
        "after": {key: value for key, value in after.items() if key not in _EPOCHS},
        **{f"{name}s": after[name] - before[name] for name in _EPOCHS},
        "cause": event["cause"],
    }
