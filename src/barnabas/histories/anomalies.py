"""What can be wrong with a history. Names are those of Jepsen's Kafka workload where it has one.

Some findings are notes: worth to be known, and allowed. Writes of transactions interleave in Kafka, so a transaction
may skip over records of another one (`int-send-skip`), and cycles of write-write dependencies alone (G0) are not looked
for. What was acked and never read is an anomaly only where somebody says that the log was read to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Kind(StrEnum):
    #: An acked record that nobody read, below one that was read.
    LOST_WRITE = "lost-write"
    #: An acked record that nobody read, above all that was read, or in a log without any reader.
    UNSEEN = "unseen"
    #: A record of a send that failed, or of a transaction that was aborted, was read (G1a).
    ABORTED_READ = "aborted-read"
    #: A record of a transaction was read before its commit was asked for.
    PRECOMMITTED_READ = "precommitted-read"
    #: A record was read that nobody sent there.
    UNWRITTEN_READ = "unwritten-read"
    #: One offset of a log had two values.
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    #: One value had two offsets.
    DUPLICATE = "duplicate"
    #: Acked records of one producer stand in another order than they were sent; INT: of one transaction.
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    #: Between two records of one transaction in a log there is another one's.
    INT_SEND_SKIP = "int-send-skip"
    #: A consumer was given an offset again or an older one; INT: within one poll.
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    #: A consumer was not given a record between two that it was given; INT: within one poll.
    POLL_SKIP = "poll-skip"
    INT_POLL_SKIP = "int-poll-skip"


#: Told, and no fault.
NOTES: Final = frozenset({Kind.INT_SEND_SKIP})

#: So many findings of one kind are kept; all are counted.
KEPT: Final = 1000


class Finding(NamedTuple):
    """One of them. `lines` are those of the history that show it, in their order; `note`: allowed here."""

    kind: Kind
    topic: str
    partition: int
    #: The first offending offset; None where nobody was told one.
    offset: int | None
    values: tuple[Any, ...]
    text: str
    lines: tuple[int, ...]
    note: bool = False

    def as_json(self) -> dict[str, Any]:
        fields = self._asdict()
        return {**fields, "kind": self.kind.value, "values": list(self.values), "lines": list(self.lines)}


@dataclass(slots=True)
class Verdict:
    """`counts`: what the history holds. `anomalies` and `notes`: how many of each kind; `findings` names the first
    ones."""

    counts: dict[str, int]
    anomalies: dict[Kind, int] = field(default_factory=dict)
    notes: dict[Kind, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        return not self.anomalies

    def add(self, finding: Finding) -> None:
        counted = self.notes if finding.note else self.anomalies
        counted[finding.kind] = counted.get(finding.kind, 0) + 1
        if counted[finding.kind] <= KEPT:
            self.findings.append(finding)

    def allow(self, kinds: Iterable[Kind]) -> Verdict:
        """The same, with these kinds as notes."""
        allowed = frozenset(kinds)
        notes = dict(self.notes)
        for kind in allowed & self.anomalies.keys():
            notes[kind] = notes.get(kind, 0) + self.anomalies[kind]
        return Verdict(
            counts=self.counts,
            anomalies={kind: count for kind, count in self.anomalies.items() if kind not in allowed},
            notes=notes,
            findings=[each._replace(note=True) if each.kind in allowed else each for each in self.findings],
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "valid": self.valid,
            "counts": self.counts,
            "anomalies": {kind.value: count for kind, count in sorted(self.anomalies.items())},
            "notes": {kind.value: count for kind, count in sorted(self.notes.items())},
            "findings": [finding.as_json() for finding in self.findings],
        }
