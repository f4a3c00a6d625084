"""Table of the writes of our brokers in the 36 steps (`golden_steps`) that differ from the recorded ones on purpose.

A leader epoch is compared by its increase since the previous write of the same path, so that a missing write is one
difference, and not one in every later step. docs/differences.md has the reasons at length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.golden_writes import (
    Differences,
    Run,
    Write,
    WritesOfSteps,
    differences,
    recorded_tree,
    recorded_writes,
    seen_tree,
    seen_writes,
)

_LEADER_EPOCH: Final = re.compile(r'"leader_epoch":\+?(\d+)')
_ORDERS: Final = "/brokers/topics/orders/partitions/{}/state"


def state(leader: int, isr: Sequence[int], *, rise: int = 1) -> Write:
    """Returns the write of a state by the fourth controller."""
    members = ",".join(map(str, isr))
    data = f'{{"controller_epoch":4,"leader":{leader},"version":1,"leader_epoch":+{rise},"isr":[{members}]}}'
    return "set", data


class Deviation(NamedTuple):
    """The writes of a step, by the number of the step and by path, instead of those recorded."""

    reason: str
    step: str
    writes: Mapping[str, Sequence[Write]]


_SAME_TARGET: Final = "a reassignment to the target that it has already changes nothing"
_END_OF_A_MOVE: Final = "the end of a reassignment is one write of the state"
_DELETED: Final = "a topic that is being deleted loses its leaders in one write; its ISRs stay as they are"

#: A deviation that is not listed: a controller that becomes active writes a new leader immediately
#: (`_without_passing_losses`).
DEVIATIONS: Final = (
    Deviation(
        "a reassignment that only removes replicas is over with its first write",
        "27",
        {
            "/brokers/topics/orders": [
                (
                    "set",
                    '{"partitions":{"0":[0,1,2],"1":[1,2],"2":[2,0,1],"3":[0,2,1],"4":[1,0,2],"5":[2,1,0]},'
                    '"topic_id":"ID","adding_replicas":{},"removing_replicas":{},"version":3}',
                )
            ],
            _ORDERS.format(1): [state(1, [1, 2])],
        },
    ),
    Deviation(_SAME_TARGET, "28", {"/brokers/topics/orders": [], _ORDERS.format(1): []}),
    Deviation(
        f"{_SAME_TARGET}; {_END_OF_A_MOVE}",
        "28",
        {
            "/brokers/topics/duo/partitions/0/state": [state(1, [1, 0])],
            "/brokers/topics/solo/partitions/0/state": [state(1, [1])],
        },
    ),
    Deviation(
        _END_OF_A_MOVE,
        "30",
        {
            _ORDERS.format(1): [state(1, [1, 2]), state(1, [1, 2, 0])],
            "/brokers/topics/solo/partitions/0/state": [state(1, [1]), state(0, [0])],
        },
    ),
    Deviation(
        _DELETED,
        "32",
        {
            _ORDERS.format(0): [state(0, [0, 2]), state(-1, [0, 2])],
            _ORDERS.format(1): [state(2, [2, 0]), state(-1, [2, 0])],
            _ORDERS.format(2): [state(2, [0, 2]), state(-1, [0, 2])],
            _ORDERS.format(3): [state(0, [0, 2]), state(-1, [0, 2])],
            _ORDERS.format(4): [state(0, [0, 2]), state(-1, [0, 2])],
            _ORDERS.format(5): [state(2, [0, 2]), state(-1, [0, 2])],
        },
    ),
)


def write_differences(run: Run, folder: Path) -> Differences:
    """Returns the paths whose writes are neither those recorded nor those of the table. `folder` has the server's
    logs.
    """
    recorded, seen = recorded_writes(), _with_rises(seen_writes(run, folder))
    expected = _with_rises(recorded)
    found: Differences = {}
    for step in run.trees:
        wanted = _without_passing_losses(expected[step])
        for deviation in DEVIATIONS:
            if step.startswith(deviation.step):
                wanted = _replaced(wanted, deviation.writes)
        found.update(differences(step, wanted, seen[step]))
    return found


def tree_differences(run: Run) -> Differences:
    """Returns the znodes that differ from the recorded ones, except leader epochs, data versions, and the paths of the
    table from the first step with another write. The contents of those paths follow from their writes.
    """
    found: Differences = {}
    deviating: set[str] = set()
    for step in run.trees:
        for deviation in DEVIATIONS:
            if step.startswith(deviation.step):
                deviating.update(deviation.writes)
        trees = (recorded_tree(step), seen_tree(run, step))
        one, other = (
            {path: [_without_epoch(znode.data)] for path, znode in tree.items() if not _is_of(path, deviating)}
            for tree in trees
        )
        found.update(differences(step, one, other))
    return found


def _without_passing_losses(paths: Mapping[str, list[Write]]) -> dict[str, list[Write]]:
    """Returns the writes without the states that an activation leaves leaderless for a moment: leader -1, followed in
    the same step by a leader.
    """
    return {path: _without_passing_loss(writes) for path, writes in paths.items()}


def _without_passing_loss(writes: list[Write]) -> list[Write]:
    match [json.loads(_without_epoch(data) or "{}")["leader"] for _, data in writes if data and '"leader":' in data]:
        case [-1, leader] if leader >= 0:
            return writes[1:]
    return writes


def _with_rises(steps: WritesOfSteps) -> WritesOfSteps:
    """Returns the writes with each leader epoch replaced by its increase since the previous write of the path."""
    epochs: dict[str, int] = {}

    def told(path: str, write: Write) -> Write:
        kind, data = write
        found = _LEADER_EPOCH.search(data or "")
        if found is None:
            return write
        epoch = int(found[1])
        before = epochs.get(path, epoch) if kind == "set" else 0
        epochs[path] = epoch
        return kind, _LEADER_EPOCH.sub(f'"leader_epoch":+{epoch - before}', data or "")

    return {
        step: {path: [told(path, write) for write in writes] for path, writes in paths.items()}
        for step, paths in steps.items()
    }


def _replaced(paths: Mapping[str, list[Write]], instead: Mapping[str, Sequence[Write]]) -> dict[str, list[Write]]:
    found = {path: writes for path, writes in paths.items() if not _is_of(path, instead)}
    return found | {path: list(writes) for path, writes in instead.items() if writes}


def _is_of(path: str, paths: Iterable[str]) -> bool:
    """Returns whether a path is one of these. The name of a sequence of znodes stands for all of them."""
    return any(path == other or (other.endswith("_") and path.startswith(other)) for other in paths)


def _without_epoch(data: str | None) -> str | None:
    return data if data is None else _LEADER_EPOCH.sub('"leader_epoch":0', data)
