"""The severities of many partitions as array operations; `severity` says what they mean."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from barnabas.monitor.columns import UNKNOWN, IntArray, States
from barnabas.monitor.severity import Severity

SeverityArray = NDArray[np.uint8]


def min_isr_in_force(states: States) -> IntArray:
    """Returns `min.insync.replicas`, at most the number of replicas; Kafka's default if it is unknown."""
    count = np.maximum(1, (states.replicas != UNKNOWN).sum(axis=1, dtype=np.int32))
    found: IntArray = np.minimum(np.where(states.min_isr > 0, states.min_isr, 1), count)
    return found


def severities(states: States, silent: Collection[int] = ()) -> SeverityArray:
    """Returns the severity of each partition. `silent` are the brokers that do not answer."""
    mute = np.array(sorted(silent), np.int32)
    members = states.isr != UNKNOWN
    is_leaderless = states.leader == UNKNOWN
    if len(mute):
        members &= ~np.isin(states.isr, mute)
        is_leaderless = is_leaderless | np.isin(states.leader, mute)
    in_sync = members.sum(axis=1)
    replicas = (states.replicas != UNKNOWN).sum(axis=1)
    needed = min_isr_in_force(states)
    found = np.full(len(states), Severity.NOTICE, np.uint8)
    found[in_sync == needed] = Severity.WARNING
    found[in_sync >= replicas] = Severity.OK
    found[in_sync < needed] = Severity.ERROR
    found[is_leaderless] = Severity.CRITICAL
    return found
