"""The model of a leader's log and of a follower, for the small world of a fetcher."""

from __future__ import annotations

from dataclasses import dataclass, field

SHORTEST_PAUSE_MS = 20
#: (offset, last epoch, log start offset, leader epoch)
Position = tuple[int, int, int, int]


@dataclass
class LeaderLog:
    """The leader's log: (epoch, base offset, count) of each batch."""

    batches: list[tuple[int, int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    committed: int = 0

    def append(self, epoch: int, count: int) -> None:
        self.batches.append((epoch, self.end, count))
        self.end += count

    def cut(self, offset: int) -> None:
        """Removes the batches from the one with this offset on, as another leader's log that never had them."""
        self.batches = [each for each in self.batches if each[1] + each[2] <= offset]
        self.end = max([self.start, *(base + count for _, base, count in self.batches)])
        self.committed = min(self.committed, self.end)

    def delete_before(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each[1] + each[2] > offset]
        self.start = offset

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to this one, and its end; -1 if there is none."""
        known = [each for each in self.batches if each[0] <= epoch]
        if not known:
            return -1, -1
        later = [base for found, base, _ in self.batches if found > known[-1][0]]
        return known[-1][0], min(later, default=self.end)


@dataclass
class Follower:
    """The fetcher's knowledge of one partition, as it must be."""

    epoch: int
    is_fenced: bool = False
    is_in_sync: bool = False
    resume_ms: int = 0
    backoff_ms: int = SHORTEST_PAUSE_MS
    #: (offset, last epoch, log start offset, leader epoch) in the leader's session.
    told: Position | None = None
