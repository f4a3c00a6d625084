"""The time line of a run as text: lines without their repetitions, and partitions in words.

A node in trouble can report the same message hundreds of times. A repetition is folded into the line of the first one:
the same node and the same text, except for numbers. After a fact of a machine (a fault, a start) its messages get new
lines. Facts themselves are folded in two cases: starts that fail one after the other, and partitions for which the same
is decided at the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.metadata.topics import RECOVERING, PartitionImage
from barnabas.simulation.facts import PartitionDecided
from barnabas.simulation.world import SECOND_US, Note, ProcessState, format_time

#: A repetition after a longer silence begins a line of its own.
_SILENCE_US: Final = 30 * SECOND_US
#: A failed start within this time after the last one counts as a repetition.
_NEXT_START_US: Final = 5 * SECOND_US
#: Numbers that can differ between repetitions: not those of a name, such as broker1, orders-0 or broker 2.
_NUMBER: Final = re.compile(r"(?<![\w-])(?<!broker )(?<!node )\d[\d.:,]*")


class Line(NamedTuple):
    """A line of the time line, with the number of its occurrences and the time of the last one."""

    note: Note
    times: int
    last_us: int
    #: Whether the texts of the repetitions have other numbers than the first one.
    varies: bool

    @property
    def text(self) -> str:
        if self.times == 1:
            return self.note.text
        varying = ", with other numbers" if self.varies else ""
        return f"{self.note.text} ({self.times} times until {short_time(self.last_us)}{varying})"

    def __str__(self) -> str:
        return str(self.note._replace(text=self.text))


def short_time(time_us: int) -> str:
    """Formats 3_723_004_005 as "1:02:03"."""
    return format_time(time_us).partition(".")[0]


def machine_of(name: str) -> str:
    """Returns the machine of a process: broker1 for broker1.2."""
    return name.partition(".")[0]


def fold(notes: Iterable[Note]) -> list[Line]:
    """Returns the lines of a time line without repetitions, in the order of their first occurrence."""
    folder = _Folder()
    for note in notes:
        if isinstance(note.fact, PartitionDecided):
            folder.take_decision(note)
        elif isinstance(note.fact, ProcessState):
            folder.take_step(note)
        else:
            folder.take(note)
    return folder.lines


class _Folder:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        #: Machine -> (process, text without numbers) -> index of the line that takes repetitions.
        self._open: dict[str, dict[tuple[str, str], int]] = {}
        #: Machine -> indices of its last two steps: a start and the end of the process.
        self._steps: dict[str, list[int]] = {}
        #: (time, decision) of the latest decisions -> index of their line.
        self._decided: dict[tuple[int, str], int] = {}

    def take(self, note: Note) -> None:
        machine = machine_of(note.node)
        if note.fact is not None:
            self._forget(machine)
            self._add(note)
            return
        open_lines = self._open.setdefault(machine, {})
        key = (note.node, _shape(note))
        index = open_lines.get(key)
        if index is not None and note.time_us - self.lines[index].last_us <= _SILENCE_US:
            self._repeat(index, note)
        else:
            open_lines[key] = self._add(note)

    def take_step(self, note: Note) -> None:
        """Adds a start, an end or a pause of a process. A start that equals the last one counts as a repetition of
        it.
        """
        steps = self._steps.get(note.node, [])
        if len(steps) > 1:
            before = self.lines[steps[0]]
            is_soon = note.time_us - before.last_us <= _NEXT_START_US
            if is_soon and before.note.fact is note.fact and _shape(before.note) == _shape(note):
                self._repeat(steps[0], note)
                self._steps[note.node] = [steps[1], steps[0]]
                return
        self._open.pop(note.node, None)
        self._steps[note.node] = [*steps[-1:], self._add(note)]

    def take_decision(self, note: Note) -> None:
        """Takes a decision about a partition: one line names all partitions for which the same is decided."""
        name, _, what = note.text.partition(": ")
        key = (note.time_us, what)
        index = self._decided.get(key)
        if index is None:
            self._decided = {each: at for each, at in self._decided.items() if each[0] == note.time_us}
            self._decided[key] = self._add(note)
            return
        names, _, _ = self.lines[index].note.text.partition(": ")
        joined = self.lines[index].note._replace(text=f"{names}, {name}: {what}")
        self.lines[index] = self.lines[index]._replace(note=joined)

    def _forget(self, machine: str) -> None:
        self._open.pop(machine, None)
        self._steps.pop(machine, None)

    def _add(self, note: Note) -> int:
        self.lines.append(Line(note, 1, note.time_us, varies=False))
        return len(self.lines) - 1

    def _repeat(self, index: int, note: Note) -> None:
        first, times, _, varies = self.lines[index]
        self.lines[index] = Line(first, times + 1, note.time_us, varies or note.text != first.text)


def _shape(note: Note) -> str:
    """Returns the text without the numbers that can differ between repetitions."""
    return _NUMBER.sub("#", note.text)


def partition_text(partition: PartitionImage) -> str:
    """Returns the state of a partition in words: "leader 2, ISR 2,1 of 3,2,1, epoch 3"."""
    leader = f"leader {partition.leader}" if partition.has_leader else "no leader"
    parts = [leader, f"ISR {_ids(partition.isr)} of {_ids(partition.replicas)}", f"epoch {partition.leader_epoch}"]
    named = (
        ("ELR", partition.elr),
        ("last known", partition.last_known_elr),
        ("adding", partition.adding_replicas),
        ("removing", partition.removing_replicas),
    )
    parts += [f"{name} {_ids(ids)}" for name, ids in named if ids]
    if partition.leader_recovery_state == RECOVERING:
        parts.append("recovering from an unclean election")
    return ", ".join(parts)


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids)) or "nobody"
