"""The transitions of a bulk event as columns, compared with the states of many partitions at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from barnabas.monitor.columns import UNKNOWN, BoolArray, IntArray, States, packed


class Transitions:
    """The states before and after in a bulk event, as columns by transition."""

    def __init__(self, event: Mapping[str, Any], width: int) -> None:
        steps = event["transitions"]
        lists = [each[side][name] for each in steps for side in ("before", "after") for name in ("isr", "replicas")]
        self.width = max(width, max(map(len, lists), default=0))
        self.steps = np.array([each["leader_epochs"] for each in steps], np.int32)
        self.before = _Side([each["before"] for each in steps], self.width)
        self.after = _Side([each["after"] for each in steps], self.width)


class _Side:
    def __init__(self, states: list[Mapping[str, Any]], width: int) -> None:
        self.leader = np.array([each["leader"] for each in states], np.int32)
        self.isr = np.sort(packed([each["isr"] for each in states], width), axis=1)
        self.replicas = packed([each["replicas"] for each in states], width)

    def agrees(self, numbers: IntArray, epochs: IntArray, states: States, places: IntArray) -> BoolArray:
        """Returns which rows have this state: leader, epoch, ISR in any order, and replicas."""
        width = self.isr.shape[1]
        found: BoolArray = (states.leader[places] == self.leader[numbers]) & (states.leader_epoch[places] == epochs)
        found &= (np.sort(_wide(states.isr[places], width), axis=1) == self.isr[numbers]).all(axis=1)
        found &= (_wide(states.replicas[places], width) == self.replicas[numbers]).all(axis=1)
        return found


def _wide(lists: IntArray, width: int) -> IntArray:
    if lists.shape[1] == width:
        return lists
    found = np.full((len(lists), width), UNKNOWN, np.int32)
    found[:, : lists.shape[1]] = lists
    return found
