"""The changes of very many partitions by one version, as columns: an object for each of 40,000 takes seconds.

    packed = PackedChanges(change_set, layout)
    packed.cause, packed.causes          the cause of each row, by its number; -1 while it is not known
    packed.changes(places)               some rows as `Change`
    packed.in_parts()                    all of them, some topics at a time

`Course` makes them for readers that can take them; every other reader gets a `Change` for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple

import numpy as np

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Change, Event, is_visible, partition_change
from barnabas.monitor.columns import UNKNOWN, BoolArray, IntArray, LongArray, States, without_match
from barnabas.monitor.delta import TopicName
from barnabas.monitor.ladder import SeverityArray, severities
from barnabas.monitor.table import values_of

#: Changed partitions of one version from which on they are packed.
PACKED_FROM: Final = 1_000
_PART_ROWS: Final = 500
#: The kinds, by their number in `kinds`.
KINDS: Final = (
    "offline",
    "online",
    "leader-change",
    "isr-change",
    "isr-shrink",
    "isr-expand",
    "replicas-changed",
    "leader-epoch",
    "min-isr-changed",
)


class Cause(NamedTuple):
    """The events that led to a state, oldest first, as far as they are shown."""

    texts: tuple[str, ...]
    #: The code of each event; None if it has none.
    codes: tuple[str | None, ...]
    time_ms: int

    @property
    def text(self) -> str:
        return "; then ".join(dict.fromkeys(self.texts))

    @property
    def known_codes(self) -> tuple[str, ...]:
        return tuple(code for code in self.codes if code is not None)

    def after(self, earlier: Cause) -> Cause:
        """Returns this cause with an earlier one before it."""
        return Cause((*earlier.texts, *self.texts), (*earlier.codes, *self.codes), self.time_ms)

    def events(self) -> tuple[Event, ...]:
        """Returns what a `Change` needs of the events."""
        return tuple(
            {"text": text, "cause": code, "time_ms": self.time_ms, "kind": ""}
            for text, code in zip(self.texts, self.codes, strict=True)
        )


class PackedChanges:
    """The changed rows of a version that views show. `layout` is that of the table then."""

    def __init__(self, change_set: ChangeSet, layout: int) -> None:
        visible: BoolArray = is_visible(change_set)
        self.time_ms = change_set.time_ms
        #: By row, because changes of several versions can be joined.
        self.times: LongArray = np.full(int(np.count_nonzero(visible)), change_set.time_ms, np.int64)
        self.layout = layout
        self.topics = change_set.topics
        self.rows: IntArray = change_set.rows[visible]
        self.before = change_set.before.take(visible)
        self.after = change_set.after.take(visible)
        self.silent_before, self.silent_after = change_set.silent_before, change_set.silent_after
        self.cause: IntArray = np.full(len(self.rows), UNKNOWN, np.int32)
        self.causes: list[Cause] = []
        self._numbers: dict[Cause, int] = {}
        self._kinds: IntArray | None = None
        self._severities: SeverityArray | None = None
        #: Rows that were looked up in a part of the journal, by their keys, in order.
        self._order: tuple[LongArray, IntArray] | None = None

    def fits(self, earlier: PackedChanges, topics: Mapping[int, TopicName]) -> bool:
        """Whether the changes can be visible together with those of an earlier version, and of others with `topics`."""
        is_same = all(topics.get(number, identity) == identity for number, identity in self.topics.items())
        return is_same and (self.silent_before, self.silent_after) == (earlier.silent_before, earlier.silent_after)

    @staticmethod
    def joined(parts: Sequence[PackedChanges]) -> PackedChanges:
        """Returns the changes of several versions that fit, oldest first."""
        if len(parts) == 1:
            return parts[0]
        found = copy(parts[-1])
        width = max(each.after.width for each in parts)
        found.topics = {number: identity for each in parts for number, identity in each.topics.items()}
        found.layout = parts[0].layout if len({each.layout for each in parts}) == 1 else UNKNOWN
        found.rows = np.concatenate([each.rows for each in parts])
        found.times = np.concatenate([each.times for each in parts])
        found.before = States.joined([each.before for each in parts], width)
        found.after = States.joined([each.after for each in parts], width)
        found.causes, found._numbers, found._order = [], {}, None
        found._kinds = found._severities = None
        found.cause = np.concatenate([each.causes_as(found) for each in parts])
        return found

    def causes_as(self, other: PackedChanges) -> IntArray:
        """Returns the cause of each row by the numbers of other changes."""
        numbers = np.array([*map(other.number_of, self.causes), UNKNOWN], np.int32)
        found: IntArray = numbers[self.cause]
        return found

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unexplained(self) -> int:
        return int(np.count_nonzero(self.cause == UNKNOWN))

    def number_of(self, cause: Cause) -> int:
        found = self._numbers.get(cause)
        if found is None:
            found = self._numbers[cause] = len(self.causes)
            self.causes.append(cause)
        return found

    def severities(self) -> SeverityArray:
        """Returns the severities of the new states."""
        if self._severities is None:
            self._severities = severities(self.after, self.silent_after)
        return self._severities

    def kinds(self) -> IntArray:
        """Returns the number of each row's kind: the most important difference, as `Change.kind` names it."""
        if self._kinds is None:
            self._kinds = self._found_kinds()
        return self._kinds

    def _found_kinds(self) -> IntArray:
        was, now = self.before, self.after
        left, joined = _lost(was.isr, now.isr), _lost(now.isr, was.isr)
        has_other_leader = was.leader != now.leader
        found: IntArray = np.select(
            [
                has_other_leader & (now.leader == UNKNOWN),
                has_other_leader & (was.leader == UNKNOWN),
                has_other_leader,
                left & joined,
                left,
                joined,
                (was.replicas != now.replicas).any(axis=1),
                was.leader_epoch != now.leader_epoch,
            ],
            list(range(len(KINDS) - 1)),
            len(KINDS) - 1,
        ).astype(np.int32)
        return found

    def changes(self, places: Iterable[int]) -> Iterator[Change]:
        """Yields some rows, by their place here, as changes with their causes."""
        chosen = np.array(list(places), np.int32)
        before = values_of(self.before.take(chosen), self.topics, self.silent_before)
        after = values_of(self.after.take(chosen), self.topics, self.silent_after)
        for place, was, now in zip(chosen.tolist(), before, after, strict=True):
            number = int(self.cause[place])
            cause = None if number == UNKNOWN else self.causes[number]
            events = () if cause is None else cause.events()
            yield partition_change(was, now, int(self.times[place]) if cause is None else cause.time_ms, events)

    def in_parts(self) -> Iterator[list[Change]]:
        """Yields all rows as changes, ordered by topic and partition. A part has whole topics, and about
        `_PART_ROWS` rows, so that objects of very many rows do not exist at once.
        """
        topics = self.after.topic
        numbers = sorted(np.unique(topics).tolist(), key=lambda number: self.topics[number].name)
        ranks = np.zeros(max(numbers, default=0) + 1, np.int32)
        ranks[numbers] = np.arange(len(numbers), dtype=np.int32)
        order = np.lexsort((self.after.partition, ranks[topics]))
        ends = np.flatnonzero(np.diff(topics[order], append=UNKNOWN)) + 1
        begin = 0
        for end in ends.tolist():
            if end - begin >= _PART_ROWS or end == len(order):
                yield list(self.changes(order[begin:end].tolist()))
                begin = end

    def find(self, topics: IntArray, partitions: IntArray) -> IntArray:
        """Returns the places of these partitions, by the numbers of their topics; -1 where one did not change."""
        if self._order is None:
            keys = _keys(self.after.topic, self.after.partition)
            order = np.argsort(keys, kind="stable").astype(np.int32)
            self._order = (keys[order], order)
        keys, order = self._order
        wanted = _keys(topics, partitions)
        places = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        found: IntArray = np.where((topics != UNKNOWN) & (keys[places] == wanted), order[places], UNKNOWN)
        return found.astype(np.int32)

    def numbers_by_name(self) -> dict[str, int]:
        return {identity.name: number for number, identity in self.topics.items()}


def _keys(topics: IntArray, partitions: IntArray) -> LongArray:
    found: LongArray = topics.astype(np.int64) << 32 | partitions.astype(np.int64)
    return found


def _lost(one: IntArray, other: IntArray) -> BoolArray:
    """Returns which rows have a member that the other list lacks."""
    found: BoolArray = np.any(without_match(one, other), axis=1)
    return found
