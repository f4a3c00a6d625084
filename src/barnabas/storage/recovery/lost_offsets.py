"""Offsets that a log has lost, and the file that records them.

    barnabas-lost-offsets    in a partition's directory: a version, a number of lines, and per line
                             "start end state": offsets from `start` to before `end`; state 0 until it is decided what
                             to do, 1 once this replica continues without them

A range is recorded when it is found and stays until the log is truncated below it. A range of state 0 makes the replica
leave ISR and ELR at the next startup too. One of state 1 does not, but fetches in it fail with CORRUPT_MESSAGE. A log
without losses has no such file. Apache Kafka ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.common.host import Disk
from barnabas.storage.checkpoints import CheckpointError, decode_lines, encode_lines, number, write_atomically

LOST_OFFSETS_FILE: Final = "barnabas-lost-offsets"
_FOUND, _ACCEPTED = "0", "1"


class Hole(NamedTuple):
    """A range of offsets from `start` to before `end`."""

    start: int
    end: int

    @property
    def text(self) -> str:
        return f"{self.start}" if self.end == self.start + 1 else f"{self.start} to {self.end - 1}"


class Damage(NamedTuple):
    """The losses that were found when a log was opened and about which nothing has been decided."""

    holes: tuple[Hole, ...]
    expected_end: int
    actual_end: int
    causes: tuple[str, ...]

    @property
    def text(self) -> str:
        lost = sum(hole.end - hole.start for hole in self.holes)
        ranges = ", ".join(hole.text for hole in self.holes)
        causes = "; ".join(self.causes)
        return (
            f"{lost} offsets are lost ({ranges}): the log ends at {self.actual_end} "
            f"instead of {self.expected_end}; {causes}"
        )


class KnownHoles(NamedTuple):
    """The content of the file `barnabas-lost-offsets`."""

    found: tuple[Hole, ...] = ()
    accepted: tuple[Hole, ...] = ()


class Losses(NamedTuple):
    """The lost offsets of a log, as found when the log was opened."""

    #: Ranges without which this replica continues.
    accepted: tuple[Hole, ...] = ()
    damage: Damage | None = None
    #: Gaps as compaction leaves them, in a log that has no record of being compacted.
    suspected: tuple[Hole, ...] = ()
    #: The log start offset if the first records of the log were lost: their range is still part of the log.
    starts_at: int = 1 << 63
    #: Further messages for the broker's log.
    notes: tuple[str, ...] = ()


def read_lost(disk: Disk, directory: str) -> KnownHoles:
    """Reads the file of lost offsets. Raises OSError, CheckpointError."""
    path = f"{directory}/{LOST_OFFSETS_FILE}"
    holes: dict[str, list[Hole]] = {_FOUND: [], _ACCEPTED: []}
    for start, end, state in decode_lines(path, disk.read(path), 3):
        hole = Hole(number(path, start), number(path, end))
        if state not in holes or not 0 <= hole.start < hole.end:
            raise CheckpointError(path, f"{start} {end} {state} is not a range of offsets with a state")
        holes[state].append(hole)
    return KnownHoles(merge(holes[_FOUND]), merge(holes[_ACCEPTED]))


def write_lost(disk: Disk, directory: str, known: KnownHoles) -> None:
    """Writes the file of lost offsets, or removes it if no offset is lost. Raises OSError."""
    path = f"{directory}/{LOST_OFFSETS_FILE}"
    lines = [
        *(f"{start} {end} {_FOUND}" for start, end in known.found),
        *(f"{start} {end} {_ACCEPTED}" for start, end in known.accepted),
    ]
    if lines:
        write_atomically(disk, path, encode_lines(lines))
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_dir(directory)


def merge(holes: Iterable[Hole]) -> tuple[Hole, ...]:
    """Returns the same offsets in order, with the fewest possible ranges."""
    found: list[Hole] = []
    for hole in sorted(holes):
        if hole.start >= hole.end:
            continue
        if found and hole.start <= found[-1].end:
            found[-1] = Hole(found[-1].start, max(found[-1].end, hole.end))
        else:
            found.append(hole)
    return tuple(found)


def subtract(holes: Iterable[Hole], taken: Sequence[Hole]) -> tuple[Hole, ...]:
    """Returns the offsets of `holes` that are not in `taken`."""
    left = list(merge(holes))
    for start, end in taken:
        left = [
            part
            for hole in left
            for part in (Hole(hole.start, min(hole.end, start)), Hole(max(hole.start, end), hole.end))
            if part.start < part.end
        ]
    return merge(left)


def clip(holes: Iterable[Hole], start: int, end: int) -> tuple[Hole, ...]:
    """Returns the offsets of `holes` from `start` to before `end`."""
    return merge(Hole(max(hole.start, start), min(hole.end, end)) for hole in holes)


def hole_at(holes: Iterable[Hole], offset: int) -> Hole | None:
    """Returns the range that contains `offset`."""
    return next((hole for hole in holes if hole.start <= offset < hole.end), None)
