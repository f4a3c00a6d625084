"""The explanation of a whole topic as text: what several partitions have in common is stated once.

Two sentences or events are the same if they differ only in offsets and delays, and are at most a second apart; they are
merged to one with the ranges of these numbers and times. Replicas with the same sentence for the same partitions are
merged too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.cli.explain_story import (
    Event,
    Explanation,
    Statement,
    event_text,
    leader_text,
    on_leaderless,
    on_preferred,
    why_leader,
    why_member,
)
from barnabas.monitor.merged_texts import WITHIN_MS, merged, skeleton
from barnabas.monitor.texts import at, ids

_REPLICA: Final = re.compile(r"Replica (\d+) is ")


@dataclass(slots=True)
class _Group:
    """A sentence that is the same for several partitions."""

    first_ms: int | None
    last_ms: int | None
    texts: list[str]
    partitions: list[int] = field(default_factory=list)

    def text(self) -> str:
        return merged(self.texts)

    def time(self) -> str:
        if self.first_ms is None or self.last_ms is None:
            return ""
        return at(self.first_ms) if self.first_ms == self.last_ms else f"{at(self.first_ms)} to {at(self.last_ms)}"


def lines_of(explanations: Sequence[Explanation], since_ms: int = 0) -> list[str]:
    """Returns the text about all partitions of a topic. `explanations` has one for each, and at least one."""
    every = [each.present.partition for each in explanations]
    lines = [f"{explanations[0].present.topic}: {len(every)} partitions"]
    lines += [f"  {_label(group.partitions, every)}: {group.text()}" for group in _states(explanations)]
    lines.append("")
    lines += _sentences(explanations, every, lambda each: [why_leader(each)])
    lines += _sentences(
        explanations,
        every,
        lambda each: [Statement(one, None, "") for one in [*on_preferred(each), *on_leaderless(each)]],
    )
    lines += _members(explanations, every)
    lines += _sentences(
        explanations,
        every,
        lambda each: [
            Statement(one, None, "")
            for one in dict.fromkeys(f"Root cause: {cause}." for cause in each.root_causes.values())
        ],
    )
    behind = [each.present.partition for each in explanations if not each.is_current]
    if behind:
        whom = _label(behind, every)
        lines += ["", f"The last event about {whom} differs from the metadata; the journal may be behind."]
    happened = _happened(explanations, every, since_ms)
    return [*lines, "", "What happened:", *happened] if happened else lines


def _states(explanations: Sequence[Explanation]) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for each in explanations:
        present = each.present
        out = f", out of sync {ids(present.out_of_sync)}" if present.out_of_sync else ""
        who = f"{leader_text(present.leader)}, replicas {ids(present.replicas)}"
        text = f"{who}, in sync {ids(sorted(present.isr))}{out}"
        groups.setdefault(text, _Group(None, None, [text])).partitions.append(present.partition)
    return list(groups.values())


def _sentences(
    explanations: Sequence[Explanation], every: list[int], statements: Callable[[Explanation], Iterable[Statement]]
) -> list[str]:
    groups = _grouped((each.present.partition, one) for each in explanations for one in statements(each))
    return [_sentence(what, group, every) for what, group in groups]


def _members(explanations: Sequence[Explanation], every: list[int]) -> list[str]:
    """Returns the sentences about replicas; replicas with the same sentence for the same partitions share one."""
    groups = _grouped(
        (each.present.partition, why_member(each, replica))
        for each in explanations
        for replica in sorted(each.present.replicas)
    )
    shared: dict[tuple[str, str, str, tuple[int, ...]], list[int]] = {}
    found: dict[tuple[str, str, str, tuple[int, ...]], _Group] = {}
    for what, group in groups:
        match = _REPLICA.match(what)
        assert match is not None
        key = (what[match.end() :], group.time(), group.text(), tuple(group.partitions))
        shared.setdefault(key, []).append(int(match[1]))
        found[key] = group
    lines = []
    for key, replicas in shared.items():
        subject = f"Replica {replicas[0]} is" if len(replicas) == 1 else f"Replicas {ids(sorted(replicas))} are"
        lines.append(_sentence(f"{subject} {key[0]}", found[key], every))
    return lines


def _sentence(what: str, group: _Group, every: list[int]) -> str:
    since = f" since {group.time()}" if group.time() else ""
    return f"{_label(group.partitions, every)}: {what}{since}{group.text()}"


def _grouped(statements: Iterable[tuple[int, Statement]]) -> list[tuple[str, _Group]]:
    """Returns each statement with the partitions for which it holds, for the same reason and since the same time."""
    found: list[tuple[str, _Group]] = []
    open_groups: dict[tuple[str, str], list[_Group]] = {}
    for partition, (what, time_ms, why) in statements:
        candidates = open_groups.setdefault((what, skeleton(why)), [])
        group = next((each for each in candidates if _is_near(each, time_ms)), None)
        if group is None:
            group = _Group(time_ms, time_ms, [])
            candidates.append(group)
            found.append((what, group))
        _add(group, time_ms, why)
        group.partitions.append(partition)
    return found


def _happened(explanations: Sequence[Explanation], every: list[int], since_ms: int) -> list[str]:
    """Returns the events of all partitions in their order; an event that several partitions share appears once."""
    events: dict[str, tuple[Event, list[int]]] = {}
    for each in explanations:
        for event in each.history:
            if event["time_ms"] >= since_ms:
                events.setdefault(event["id"], (event, []))[1].append(each.present.partition)
    # The order of the changes; events of brokers have no offset and stay at their time.
    ordered = sorted(events.values(), key=lambda item: (item[0]["time_ms"], item[0].get("metadata_offset", -1)))
    groups: list[tuple[_Group, bool]] = []
    latest: dict[str, _Group] = {}
    for event, partitions in ordered:
        text, time_ms = event_text(_sorted_isr(event)), int(event["time_ms"])
        own = "partition" in event
        key = f"{own} {skeleton(text)}"
        group = latest.get(key) if own else None
        if group is None or not _is_near(group, time_ms) or set(partitions) & set(group.partitions):
            group = latest[key] = _Group(time_ms, time_ms, [])
            groups.append((group, own))
        _add(group, time_ms, text)
        group.partitions.extend(partitions)
    return [
        f"  {group.time()}  {f'{_label(sorted(group.partitions), every)}: ' if own else ''}{group.text()}"
        for group, own in groups
    ]


def _sorted_isr(event: Event) -> Event:
    """Returns the event with its ISRs sorted: the order in an ISR has no meaning, and differs between partitions."""

    def state(value: Mapping[str, Any]) -> dict[str, Any]:
        return {**value, "isr": sorted(value["isr"])}

    if "partition" not in event or "before" not in event or "after" not in event:
        return event
    return {**event, "before": state(event["before"]), "after": state(event["after"])}


def _add(group: _Group, time_ms: int | None, text: str) -> None:
    group.texts.append(text)
    if time_ms is not None:
        group.first_ms = time_ms if group.first_ms is None else min(group.first_ms, time_ms)
        group.last_ms = time_ms if group.last_ms is None else max(group.last_ms, time_ms)


def _is_near(group: _Group, time_ms: int | None) -> bool:
    if time_ms is None or group.first_ms is None:
        return time_ms is None and group.first_ms is None
    return abs(time_ms - group.first_ms) <= WITHIN_MS


def _label(partitions: Sequence[int], every: Sequence[int]) -> str:
    """Returns a label for these partitions: "all partitions", "partition 3" or "partitions 0-2,5"."""
    if len(partitions) == len(every):
        return "all partitions"
    if len(partitions) == 1:
        return f"partition {partitions[0]}"
    ranges: list[list[int]] = []
    for number in partitions:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return "partitions " + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
