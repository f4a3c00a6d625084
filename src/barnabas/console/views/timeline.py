"""The time line: the events of a cluster, filtered, the newest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.console.occurrences import Occurrence, Occurrences

LIMIT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class TimelineQuestion:
    from_ms: int | None = None
    to_ms: int | None = None
    q: str = ""
    kinds: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()
    severities: frozenset[str] = frozenset()
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    before: int | None = None
    limit: int = 200

    def matches(self, event: Occurrence) -> bool:
        return (
            (self.from_ms is None or event.time_ms >= self.from_ms)
            and (self.to_ms is None or event.time_ms <= self.to_ms)
            and (not self.kinds or event.kind in self.kinds)
            and (not self.causes or not self.causes.isdisjoint(event.shown["codes"]))
            and (not self.severities or event.severity.name.lower() in self.severities)
            and (self.topic is None or event.topic == self.topic)
            and (self.partition is None or event.shown["partition"] == self.partition)
            and (self.broker is None or event.broker == self.broker)
            and (not self.q or self.q.lower() in event.text)
        )


def timeline(occurrences: Occurrences, question: TimelineQuestion) -> dict[str, Any]:
    """Returns the events that match. Kinds are counted as if none were chosen, and so are causes: others can be chosen
    instead.
    """
    matching = _matching(occurrences, question)
    of_any_kind, of_any_cause = replace(question, kinds=frozenset()), replace(question, causes=frozenset())
    older = [event for event in matching if question.before is None or event.id < question.before]
    shown = older[-min(question.limit, LIMIT_MAX) :]
    return {
        "events": [event.shown for event in reversed(shown)],
        "total": len(matching),
        "oldest_ms": occurrences.events[0].time_ms if occurrences.events else None,
        "is_cut": occurrences.is_cut,
        "kinds": occurrences.kinds(matching if not question.kinds else _matching(occurrences, of_any_kind)),
        "causes": _causes(matching if not question.causes else _matching(occurrences, of_any_cause)),
        "minutes": occurrences.minutes(question.from_ms or 0),
    }


def _matching(occurrences: Occurrences, question: TimelineQuestion) -> list[Occurrence]:
    return [event for event in occurrences.events if question.matches(event)]


def _causes(events: Sequence[Occurrence]) -> dict[str, int]:
    codes = (event.shown["codes"] for event in events)
    return dict(Counter(code for own in codes for code in (own if len(own) <= 1 else set(own))).most_common())


def new_events(events: Sequence[Occurrence], question: TimelineQuestion) -> Iterator[dict[str, Any]]:
    """Yields the events that match, oldest first."""
    return (event.shown for event in events if question.matches(event))
