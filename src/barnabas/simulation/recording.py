"""The history of a run's clients in the operations of `barnabas check`, whose rules check it during the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from barnabas.histories import Judge
from barnabas.histories.anomalies import Finding
from barnabas.histories.operations import from_fields
from barnabas.simulation.history import Place, Problem, Spot, spot_text
from barnabas.simulation.world import Note

_BEGINS: Final = "begins a transaction"
_STEPS: Final = {
    ("ok", "begin"): _BEGINS,
    ("invoke", "commit"): "commits",
    ("ok", "commit"): "has committed",
    ("fail", "commit"): "could not commit",
    ("info", "commit"): "does not know whether it has committed",
    ("invoke", "abort"): "aborts",
    ("ok", "abort"): "has aborted",
    ("fail", "abort"): "could not abort",
    ("info", "abort"): "does not know whether it has aborted",
}


class Recording:
    """A recorded history. Operations come in the order of the world's time. `process`: one instance of a client."""

    def __init__(self, now_us: Callable[[], int] = lambda: 0) -> None:
        self.judge = Judge()
        self._now_us = now_us
        self._lines = 0
        #: Value -> what happened to it, process -> the steps of its transactions: for the courses of records.
        self._of_values: dict[str, list[Note]] = {}
        self._steps: dict[str, list[Note]] = {}
        self._at: dict[Spot, str] = {}

    def note(self, process: str, kind: str, f: str, **fields: Any) -> None:
        """Records an operation. `kind`: invoke, ok, fail or info; `f` and its fields as in docs/check.md."""
        self._lines += 1
        body = {"process": process, "type": kind, "f": f, **fields}
        self.judge.take(from_fields(self._lines, body))
        step = _STEPS.get((kind, f))
        if step is not None:
            self._steps.setdefault(process, []).append(Note(self._now_us(), process, step))

    def sends(self, process: str, place: Place, value: str) -> None:
        sends = Note(self._now_us(), process, f"sends {value} to {place[0]}-{place[1]}")
        self._of_values.setdefault(value, []).append(sends)
        self.note(process, "invoke", "send", topic=place[0], partition=place[1], value=value)

    def sent(self, process: str, place: Place, value: str, offset: int) -> None:
        is_answered = Note(self._now_us(), process, f"is answered: {value} is at {spot_text((place, offset))}")
        self._of_values.setdefault(value, []).append(is_answered)
        self._at[place, offset] = value
        self.note(process, "ok", "send", topic=place[0], partition=place[1], value=value, offset=offset)

    def polled(self, process: str, records: dict[Place, list[tuple[int, str]]]) -> None:
        """Records a poll: the offsets and values that it returned, in order, for each partition."""
        rows = {f"{topic}-{index}": [list(record) for record in given] for (topic, index), given in records.items()}
        self.note(process, "ok", "poll", records=rows)

    def drained(self, process: str, places: Sequence[Place]) -> None:
        self.note(process, "ok", "drained", partitions=[f"{topic}-{index}" for topic, index in places])

    def problems(self) -> list[Problem]:
        return [
            Problem(f"{found.kind.value}: {found.text}", _spots(found), self.notes(found.values))
            for found in self.judge.verdict().findings
            if not found.note
        ]

    def notes(self, values: Sequence[Any]) -> tuple[Note, ...]:
        """Returns what clients know of these values, and the steps of the transactions in which they were sent."""
        found: set[Note] = set()
        for value in values:
            of_value = self._of_values.get(value, []) if isinstance(value, str) else []
            found.update(of_value)
            for note in of_value:
                found.update(self._transaction_around(note.node, note.time_us))
        return tuple(sorted(found, key=lambda note: note.time_us))

    def notes_at(self, spot: Spot) -> tuple[Note, ...]:
        """Returns what clients know of the record that was acknowledged at an offset."""
        return self.notes([self._at[spot]] if spot in self._at else [])

    def _transaction_around(self, process: str, time_us: int) -> Iterator[Note]:
        """Yields the steps of the transaction that a process has at this time: from its beginning to the next one."""
        steps = self._steps.get(process, [])
        begins = [note.time_us for note in steps if note.text == _BEGINS]
        first_us = max((at_us for at_us in begins if at_us <= time_us), default=0)
        next_us = min((at_us for at_us in begins if at_us > time_us), default=None)
        for note in steps:
            if first_us <= note.time_us and (next_us is None or note.time_us < next_us):
                yield note


def _spots(found: Finding) -> tuple[Spot, ...]:
    return () if found.offset is None else (((found.topic, found.partition), found.offset),)
