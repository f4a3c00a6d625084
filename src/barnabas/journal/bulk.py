"""Packing of a large decision: events of up to 200 of its partitions each (`common.bulk_events`).

A decision about 40,000 partitions makes few different transitions from one state to another. The kinds of a transition,
and usually its cause, are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from barnabas.common.bulk_events import ROWS_MAX
from barnabas.common.types import uuid_to_text
from barnabas.controller.requests.result import Cause
from barnabas.journal.causes import EventCause, cause_of_partition
from barnabas.journal.partition_changes import changes_of, partition_before, seen_fields, shown_partition
from barnabas.metadata.image import MetadataDelta
from barnabas.metadata.topics import PartitionImage, TopicDelta

#: A decision that changes more partitions is packed.
UNPACKED_MAX: Final = 50

Fields = dict[str, Any]
#: Everything in a change except the partition, its epochs and its directories.
_Key = tuple[object, ...]


def is_large(delta: MetadataDelta) -> bool:
    """Returns whether a decision is packed. That depends on the metadata log alone."""
    count = 0
    for topic in delta.changed_topics.values():
        count += len(topic.changed_partitions)
        if count > UNPACKED_MAX:
            return True
    return False


class _Transition(NamedTuple):
    """A transition: None for `fields` if it does not change a leader, ISR or replica set."""

    fields: Fields | None
    cause: EventCause


class BulkEvents:
    """The bulk events of one decision. `min_isr` returns the setting of a topic."""

    def __init__(self, delta: MetadataDelta, whole: EventCause, cause: Cause | None, min_isr: Callable[[str], int]):
        self._delta = delta
        self._whole = whole
        self._cause = cause
        self._min_isr = min_isr
        self._transitions: dict[_Key, _Transition] = {}

    def fields(self) -> Iterator[Fields]:
        """Yields the fields of each event."""
        draft = _Draft()
        for topic in self._delta.changed_topics.values():
            yield from self._add_topic(topic, draft)
        if draft.partition:
            yield draft.fields()

    def _add_topic(self, topic: TopicDelta, draft: _Draft) -> Iterator[Fields]:
        is_begun = False
        identity: list[Any] = []
        for index, after in topic.changed_partitions.items():
            before = partition_before(topic, index)
            if before is None:
                continue
            key = _key(before, after)
            transition = self._transitions.get(key)
            if transition is None:
                transition = self._transitions[key] = self._transition(before, after)
            if transition.fields is None:
                continue
            if len(draft.partition) == ROWS_MAX:
                yield draft.fields()
                draft.clear()
                is_begun = False
            if not is_begun:
                is_begun = True
                identity = [topic.name, uuid_to_text(topic.topic_id), self._min_isr(topic.name), 0]
                draft.topics.append(identity)
            identity[3] += 1
            draft.add(index, after, key, transition.fields)
            if self._cause is not None and self._cause.isr_reasons:
                self._add_own(topic, index, before, after, transition, draft)

    def _add_own(
        self,
        topic: TopicDelta,
        index: int,
        before: PartitionImage,
        after: PartitionImage,
        transition: _Transition,
        draft: _Draft,
    ) -> None:
        found = cause_of_partition(self._whole, self._cause, (topic.topic_id, index), before, after)
        own: Fields = {}
        if found.text != transition.cause.text:
            own["text"] = found.text
        if found.seen is not None:
            own["seen"] = seen_fields(found.seen)
        if own:
            draft.own[str(len(draft.partition) - 1)] = own

    def _transition(self, before: PartitionImage, after: PartitionImage) -> _Transition:
        """Returns what all partitions with this transition share. Leaders' reports about single partitions are left
        out: the key that is passed belongs to no partition.
        """
        changes = changes_of(before, after, self._whole.code)
        cause = cause_of_partition(self._whole, self._cause, (b"", -1), before, after)
        if not changes:
            return _Transition(None, cause)
        fields: Fields = {
            "changes": changes,
            "before": _without_epochs(shown_partition(before)),
            "after": _without_epochs(shown_partition(after)),
            "leader_epochs": after.leader_epoch - before.leader_epoch,
            "partition_epochs": after.partition_epoch - before.partition_epoch,
        }
        if cause.code != self._whole.code:
            fields["cause"] = cause.code
        if cause.text != self._whole.text:
            fields["text"] = cause.text
        return _Transition(fields, cause)


class _Draft:
    """An event, row by row."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.topics: list[list[Any]] = []
        self.transitions: list[Fields] = []
        self.partition: list[int] = []
        self.own: dict[str, Fields] = {}
        self._numbers: dict[_Key, int] = {}
        self._transition: list[int] = []
        self._leader_epoch: list[int] = []
        self._partition_epoch: list[int] = []

    def add(self, index: int, after: PartitionImage, key: _Key, transition: Fields) -> None:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.transitions)
            self.transitions.append(transition)
        self.partition.append(index)
        self._transition.append(number)
        self._leader_epoch.append(after[3])
        self._partition_epoch.append(after[4])

    def fields(self) -> Fields:
        found: Fields = {
            "topics": self.topics,
            "transitions": self.transitions,
            "partition": self.partition,
            "transition": self._transition,
            "leader_epoch": self._leader_epoch,
            "partition_epoch": self._partition_epoch,
        }
        return found | {"own": self.own} if self.own else found


def _key(before: PartitionImage, after: PartitionImage) -> _Key:
    """Returns the key of a transition. The slices leave out the epochs and the directories."""
    return before[:3], before[6:], after[:3], after[6:], after[3] - before[3], after[4] - before[4]


def _without_epochs(shown: Fields) -> Fields:
    return {name: value for name, value in shown.items() if name not in ("leader_epoch", "partition_epoch")}
