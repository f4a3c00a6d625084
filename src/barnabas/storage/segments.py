"""The segments of one log in the order of their base offsets, and the services that a log needs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from barnabas.common.host import Disk
from barnabas.records.append_rules import DEFAULT_LIMITS, LoopBudget, RecordLimits
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.health import SLOW_S, WriteHealth
from barnabas.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class LogServices:
    """The services that all logs of a broker share."""

    disk: Disk
    wall_ms: Callable[[], int]
    #: Returns a random integer below the bound, 0 for 0: spreads the rolling of segments over time.
    pick_jitter: Callable[[int], int]
    descriptors: Descriptors
    #: Limits for new batches, and the time on the loop for validating records; without a budget it is unlimited.
    limits: RecordLimits = DEFAULT_LIMITS
    budget: LoopBudget | None = None
    #: A clock for the duration of appends, in seconds; needed only with `health`.
    now_s: Callable[[], float] = lambda: 0.0
    health: WriteHealth | None = None

    def append_took(self, log_directory: str, took_s: float) -> None:
        """Records the duration of an append to this log."""
        health = self.health
        if health is not None and (took_s >= SLOW_S or health.is_counting):
            health.append_took(log_directory.rpartition("/")[0], round(took_s * 1000))


class Segments:
    """The segments of one log, at least one once the log is open; the last is the active one. Segment n ends where n+1
    begins.
    """

    __slots__ = ("_all", "_services", "active", "bases", "directory")

    #: The last segment, to which batches are appended; a plain attribute, because every append reads it.
    active: Segment

    def __init__(self, services: LogServices, directory: str, base_offsets: Iterable[int]) -> None:
        self._services = services
        self.directory = directory
        self._set([self._make(offset) for offset in sorted(base_offsets)])

    def _make(self, base_offset: int) -> Segment:
        services = self._services
        return Segment(services.disk, self.directory, base_offset, services.wall_ms(), services.descriptors)

    def _set(self, segments: list[Segment]) -> None:
        self._all = segments
        self.bases = [segment.base_offset for segment in segments]
        if segments:
            self.active = segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, place: int) -> Segment:
        return self._all[place]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._all)

    def place_of(self, offset: int) -> int:
        """Returns the index of the segment that contains `offset`; 0 if the offset is before the first segment."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[Segment]:
        """Returns the segments that can contain records at or above `offset`."""
        return self._all[self.place_of(offset) :]

    def add(self, base_offset: int) -> Segment:
        """Adds a new active segment."""
        assert not self.bases or base_offset > self.bases[-1], "segments follow each other"
        segment = self._make(base_offset)
        segment.create()
        self._set([*self._all, segment])
        return segment

    def begin(self) -> None:
        """Adds the first segment of a log without records, at offset 0; the first append creates its files."""
        assert not self._all, "a log begins once"
        segment = self._make(0)
        segment.has_files = False
        self._set([segment])

    def replace(self, replaced: Sequence[Segment]) -> Segment:
        """Replaces these neighbours by one segment with the base offset of the first; its files exist already."""
        segment = self._make(replaced[0].base_offset)
        segment.open_clean()
        place = self._all.index(replaced[0])
        self._set([*self._all[:place], segment, *self._all[place + len(replaced) :]])
        return segment

    def drop(self, victims: Iterable[Segment]) -> list[str]:
        """Removes segments and renames their files to `.deleted`. Returns the files, which the caller removes later."""
        files: list[str] = []
        for segment in tuple(victims):
            self._set([kept for kept in self._all if kept is not segment])
            files += segment.mark_deleted()
        return files

    def release(self) -> None:
        for segment in self._all:
            segment.release()

    def moved(self, directory: str) -> None:
        self.directory = directory
        for segment in self._all:
            segment.moved(directory)
