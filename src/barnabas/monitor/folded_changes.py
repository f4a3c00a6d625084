"""The changes of partitions as lines: many partitions of a topic that changed for the same cause share one line.

The loss of a broker changes all fifty partitions of `__consumer_offsets`; a line for each would hide everything else.
JSON output is not folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.monitor.changes import Change
from barnabas.monitor.lines import change_line
from barnabas.monitor.merged_texts import WITHIN_MS, merged, skeleton
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.texts import at, leader_name

#: Fewer partitions than this have one line each, which has more details.
FOLDED_FROM: Final = 4


class ChangeLine(NamedTuple):
    """A line about one change, or about several of one topic. `severity` is the highest severity of these changes."""

    text: str
    severity: Severity


def change_lines(changes: Iterable[Change]) -> list[ChangeLine]:
    """Returns the lines about these changes, in the order of the first change of each line."""
    groups: list[list[Change]] = []
    latest: dict[tuple[str, str | None], list[Change]] = {}
    partitions: set[tuple[int, str]] = set()
    for change in changes:
        key = _key(change)
        group = None if key is None else latest.get(key)
        if (
            group is None
            or abs(change.time_ms - group[0].time_ms) > WITHIN_MS
            # A line contains at most one change of each partition.
            or (id(group), change.subject) in partitions
        ):
            group = []
            groups.append(group)
            if key is not None:
                latest[key] = group
        group.append(change)
        partitions.add((id(group), change.subject))
    return [line for group in groups for line in _lines(group)]


def _key(change: Change) -> tuple[str, str | None] | None:
    """Returns the key by which changes share a line; None for a change that has a separate line."""
    if change.topic is None or change.before is None or change.after is None:
        return None
    return change.topic, None if change.cause is None else skeleton(change.cause)


def _lines(group: Sequence[Change]) -> list[ChangeLine]:
    if len(group) < FOLDED_FROM:
        return [ChangeLine(change_line(change), change.severity) for change in group]
    severity = max(change.severity for change in group)
    level = "ok" if severity is Severity.OK else severity.name
    kinds = Counter(change.kind for change in group)
    what = ", ".join(_share(kind, count, len(group)) for kind, count in kinds.items())
    states = [
        (change.before, change.after) for change in group if change.before is not None and change.after is not None
    ]
    line = f"{at(group[0].time_ms)}  {level:<8}  {group[0].topic}: {len(group)} partitions  {what}: "
    line += ", ".join(_moves(states))
    causes = [change.cause for change in group if change.cause is not None]
    return [ChangeLine(f"{line}, because {merged(causes)}" if causes else line, severity)]


def _moves(states: Sequence[tuple[PartitionState, PartitionState]]) -> list[str]:
    """Returns the changes of the partitions in words; each part names the number of partitions unless it holds for
    all.
    """
    total = len(states)
    leaders = Counter((was.leader, now.leader) for was, now in states if was.leader != now.leader)
    left = Counter(replica for was, now in states for replica in sorted(set(was.isr) - set(now.isr)))
    joined = Counter(replica for was, now in states for replica in sorted(set(now.isr) - set(was.isr)))
    replicas = sum(was.replicas != now.replicas for was, now in states)
    min_isr = Counter(
        (was.min_isr_in_force, now.min_isr_in_force)
        for was, now in states
        if was.min_isr_in_force != now.min_isr_in_force
    )
    again = sum(was.leader == now.leader and was.leader_epoch != now.leader_epoch for was, now in states)
    present = Counter(
        now.state for was, now in states if was.severity != now.severity or now.severity is not Severity.OK
    )
    return [
        *(
            _share(f"leader {leader_name(old)} -> {leader_name(new)}", count, total)
            for (old, new), count in sorted(leaders.items())
        ),
        *([_share("a new epoch of the same leader", again, total)] if again else ()),
        *([_share("other replicas", replicas, total)] if replicas else ()),
        *(_share(f"{replica} left the ISR", count, total) for replica, count in sorted(left.items())),
        *(_share(f"{replica} joined the ISR", count, total) for replica, count in sorted(joined.items())),
        *(_share(f"min ISR {old} -> {new}", count, total) for (old, new), count in sorted(min_isr.items())),
        *(_share(f"now {state}", count, total) for state, count in present.items()),
    ]


def _share(text: str, count: int, total: int) -> str:
    return text if count == total else f"{text} ({count})"
