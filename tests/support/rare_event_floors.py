"""The floors of rare events: in how many of 200 seeds of all kinds each event happens at least.

python -m tests.support.rare_event_floors       measures the floors again, and writes them (half an hour)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.simulation.event_coverage import EventCoverage
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature

FLOORS_FILE: Final = Path(__file__).parent.parent / "data" / "rare-event-floors.json"
#: The share of its measured rate that an event must keep.
_SHARE: Final = 0.3


@dataclass(frozen=True)
class Kind:
    """A kind of runs, and the number of its seeds among the 200."""

    layout: Layout
    work: WorkKind
    seeds: int

    def runs(self) -> Iterator[Settings]:
        for seed in range(1, self.seeds + 1):
            yield Settings(
                seed=seed,
                layout=self.layout,
                work=self.work,
                draws_properties=True,
                features=tuple(WorkFeature),
            )


KINDS: Final = (
    Kind(Layout(brokers=3), WorkKind.RECORDS, 60),
    Kind(Layout(brokers=3, controllers=3), WorkKind.RECORDS, 20),
    Kind(Layout(), WorkKind.RECORDS, 20),
    Kind(Layout(brokers=3, zookeeper=True), WorkKind.RECORDS, 40),
    Kind(Layout(brokers=3), WorkKind.TRANSACTIONS, 30),
    Kind(Layout(brokers=3), WorkKind.GROUPS, 30),
)


def count_runs() -> Mapping[str, int]:
    """Returns in how many of the runs of all kinds each event happens."""
    coverage = EventCoverage()
    for kind in KINDS:
        for settings in kind.runs():
            coverage.add(run(settings).rare_events)
    return {row.name: row.runs for row in coverage.rows()}


def floor_of(runs: float) -> int:
    """Returns the floor of an event that was seen in this many of 200 runs."""
    return int(runs * _SHARE)


def read_floors() -> dict[str, int]:
    floors: dict[str, int] = json.loads(FLOORS_FILE.read_text())
    return floors


def write_floors(runs: Mapping[str, float]) -> None:
    floors = {name: floor_of(seen) for name, seen in sorted(runs.items()) if floor_of(seen) > 0}
    FLOORS_FILE.write_text(json.dumps(floors, indent=1) + "\n")


if __name__ == "__main__":
    write_floors(count_runs())
