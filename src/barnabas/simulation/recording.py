"""The history of a run's clients in the operations of `barnabas check`, whose rules check it during the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.histories import Judge
from barnabas.histories.anomalies import Finding
from barnabas.histories.operations import from_fields
from barnabas.simulation.history import Place, Problem, Spot


class Recording:
    """A recorded history. Operations come in the order of the world's time. `process`: one instance of a client."""

    def __init__(self) -> None:
        self.judge = Judge()
        self._lines = 0

    def note(self, process: str, kind: str, f: str, **fields: Any) -> None:
        """Records an operation. `kind`: invoke, ok, fail or info; `f` and its fields as in docs/check.md."""
        self._lines += 1
        body = {"process": process, "type": kind, "f": f, **fields}
        self.judge.take(from_fields(self._lines, body))

    def sends(self, process: str, place: Place, value: str) -> None:
        self.note(process, "invoke", "send", topic=place[0], partition=place[1], value=value)

    def sent(self, process: str, place: Place, value: str, offset: int) -> None:
        self.note(process, "ok", "send", topic=place[0], partition=place[1], value=value, offset=offset)

    def polled(self, process: str, records: dict[Place, list[tuple[int, str]]]) -> None:
        """Records a poll: the offsets and values that it returned, in order, for each partition."""
        rows = {f"{topic}-{index}": [list(record) for record in given] for (topic, index), given in records.items()}
        self.note(process, "ok", "poll", records=rows)

    def drained(self, process: str, places: Sequence[Place]) -> None:
        self.note(process, "ok", "drained", partitions=[f"{topic}-{index}" for topic, index in places])

    def problems(self) -> list[Problem]:
        return [
            Problem(f"{found.kind.value}: {found.text}", _spots(found))
            for found in self.judge.verdict().findings
            if not found.note
        ]


def _spots(found: Finding) -> tuple[Spot, ...]:
    return () if found.offset is None else (((found.topic, found.partition), found.offset),)
