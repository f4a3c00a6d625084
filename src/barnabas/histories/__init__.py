"""Judgement of recorded histories: what clients of any Kafka-compatible cluster requested, received and read.

operations     one line of a history, as docs/check.md describes it
known          the state of each record, partition log, topic, transaction and process, as the history shows it
judge          takes operations one by one; the verdict at the end
anomalies      the kinds of broken guarantees, and their names

The rules are those of Jepsen's Kafka workload, with Kafka's own guarantees where that workload must guess.
No I/O. Imports no other package. Begin with `operations.py`, then `judge.py`.
"""

from __future__ import annotations

from barnabas.histories.anomalies import Finding, Kind, Verdict
from barnabas.histories.judge import Judge, judge
from barnabas.histories.operations import Malformed, Operation, parse

__all__ = ["Finding", "Judge", "Kind", "Malformed", "Operation", "Verdict", "judge", "parse"]
