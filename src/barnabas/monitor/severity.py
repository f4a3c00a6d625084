"""The severity of a partition's state.

    CRITICAL  offline            no broker leads it: it can be neither written nor read
              leader silent      its leader does not answer, whatever the metadata says
    ERROR     under min ISR      writes with acks=all are refused
    WARNING   at min ISR         one more loss, and they are refused; only if a replica is already missing
    NOTICE    under-replicated   a replica is out of sync

min ISR is `min.insync.replicas`, at most the number of replicas. A partition with all replicas in sync is healthy even
at its min ISR (one replica, or min ISR = replicas). A broker that does not answer does not count as in sync.

`ladder.severities` computes it for many partitions, as arrays: the live table uses that. `PartitionState.severity` is
the same rule for one partition.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Severity(IntEnum):
    """The severity of a state; higher is worse."""

    OK = 0
    NOTICE = 1
    WARNING = 2
    ERROR = 3
    CRITICAL = 4


#: The name of a partition's state by severity.
STATES: Final = {
    Severity.OK: "in sync",
    Severity.NOTICE: "under-replicated",
    Severity.WARNING: "at min ISR",
    Severity.ERROR: "under min ISR",
    Severity.CRITICAL: "offline",
}
