"""The anomalies of a history. The names are those of Jepsen's Kafka workload where it has one.

Some findings are notes: worth knowing, and allowed. Writes of transactions interleave in Kafka, so a transaction can
skip over records of another one (`int-send-skip`), and cycles of only write-write dependencies (G0) are not searched
for. An acked record that was never read is an anomaly only if the log is known to have been read to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Kind(StrEnum):
    #: An acked record that was never read, below one that was read.
    LOST_WRITE = "lost-write"
    #: An acked record that was never read, above all that was read, or in a log without any reader.
    UNSEEN = "unseen"
    #: A record of a send that failed, or of a transaction that was aborted, was read (G1a).
    ABORTED_READ = "aborted-read"
    #: A record of a transaction was read before its commit was requested.
    PRECOMMITTED_READ = "precommitted-read"
    #: A record was read from a partition to which it was never sent.
    UNWRITTEN_READ = "unwritten-read"
    #: One offset of a log had two values.
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    #: One value had two offsets.
    DUPLICATE = "duplicate"
    #: Acked records of one producer are in another order than they were sent; INT: of one transaction.
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    #: Another transaction's record lies between two records of one transaction in a log.
    INT_SEND_SKIP = "int-send-skip"
    #: A consumer received an offset again or an older one; INT: within one poll.
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    #: A consumer did not receive a record between two others; INT: within one poll.
    POLL_SKIP = "poll-skip"
    INT_POLL_SKIP = "int-poll-skip"


#: Findings that are reported but are not faults.
NOTES: Final = frozenset({Kind.INT_SEND_SKIP})

#: How many findings of one kind are kept; all are counted.
KEPT: Final = 1000


class Finding(NamedTuple):
    """A broken guarantee, or a note, that a history shows. `lines` are the lines of the history that show it, in order;
    `note` means that it is allowed.
    """

    kind: Kind
    topic: str
    partition: int
    #: The first offending offset; None if it is unknown.
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
    """The result of judging a history. `counts` describes the contents of the history. `anomalies` and `notes` count
    each kind; `findings` has the first ones.
    """

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
        """Returns the verdict with these kinds as notes."""
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
