"""The floors of rare events: in how many of 200 seeds of all kinds each event happens at least.

    python -m tests.support.rare_event_floors FILE [SEEDS [FIRST]]    runs seeds, each of which becomes a line of FILE
    python -m tests.support.rare_event_floors FILE show               prints the rarest events of a file, and failures
    python -m tests.support.rare_event_floors FILE write              writes the floors anew

Seeds that FILE has are not run again. Whole clusters and small worlds have their shares of every 200 seeds, so that
1,000 seeds are five times as many of each kind.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.raft.rot import RottenWorld, rotten
from tests.simulation.test_power_failures import fail_everywhere
from tests.support.broker_explorer import BrokerExplorer
from tests.support.classic_explorer import ClassicExplorer
from tests.support.controller_explorer import ControllerExplorer
from tests.support.fetcher_explorer import FetcherExplorer
from tests.support.group_explorer import GroupExplorer
from tests.support.leader_explorer import LeaderExplorer
from tests.support.move_explorer import MoveExplorer
from tests.support.offset_explorer import OffsetExplorer
from tests.support.session_explorer import SessionExplorer
from tests.support.transaction_explorer import TransactionExplorer
from tests.support.zookeeper_files_explorer import ZookeeperFilesExplorer

from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.event_coverage import EventCoverage
from barnabas.simulation.history import Violation
from barnabas.simulation.rare_event_table import RARE_EVENTS
from barnabas.simulation.rare_events import counted
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature
from barnabas.simulation.worlds.damaged_files import DamagedFiles
from barnabas.simulation.worlds.one_log import OneLog
from barnabas.simulation.worlds.small_worlds import WorldKind, WorldSettings, run_world

FLOORS_FILE: Final = Path(__file__).parent.parent / "data" / "rare-event-floors.json"
_SEEDS: Final = 200
#: The runs are short, because these reach more in the same CPU time: each has a warm-up, a recovery and an audit.
_FAULTS_S: Final = 30
#: The share of its measured rate that an event must keep.
_SHARE: Final = 0.3


class Kind(NamedTuple):
    """A kind of runs of whole clusters, and the number of its seeds among the 200."""

    layout: Layout
    work: WorkKind
    seeds: int

    def settings(self, seed: int) -> Settings:
        return Settings(
            seed=seed,
            layout=self.layout,
            work=self.work,
            faults_s=_FAULTS_S,
            records_per_s=None,
            draws_properties=True,
            features=tuple(WorkFeature),
        )


KINDS: Final[Mapping[str, Kind]] = {
    "three brokers": Kind(Layout(brokers=3), WorkKind.RECORDS, 24),
    "controllers": Kind(Layout(brokers=3, controllers=3), WorkKind.RECORDS, 8),
    "one broker": Kind(Layout(), WorkKind.RECORDS, 10),
    "zookeeper mode": Kind(Layout(brokers=3, zookeeper=True), WorkKind.RECORDS, 16),
    "transactional work": Kind(Layout(brokers=3), WorkKind.TRANSACTIONS, 4),
    "groups": Kind(Layout(brokers=3), WorkKind.GROUPS, 10),
}
SMALL: Final[Mapping[WorldKind, int]] = {
    WorldKind.REPLICATION: 26,
    WorldKind.QUORUM: 14,
    WorldKind.ZOOKEEPER: 16,
    WorldKind.TRANSACTIONS: 10,
}


def _storage(seed: int) -> None:
    fail_everywhere([list(Fate)[seed % len(Fate)]], every=17 - seed % 5)


#: Worlds in memory: quorum nodes on damaged disks, power failures of logs, damaged files, one log, and parts of a
#: broker, a controller, a coordinator or a ZooKeeper server that a model checks.
IN_MEMORY: Final[Mapping[str, tuple[Callable[[int], object], int]]] = {
    "rot": (lambda seed: RottenWorld(rotten(seed)).run(), 3),
    "storage": (_storage, 2),
    "files": (lambda seed: DamagedFiles(seed).run(), 3),
    "one log": (lambda seed: OneLog(seed).run(), 5),
    "broker": (lambda seed: BrokerExplorer(seed).run(), 5),
    "leader": (lambda seed: LeaderExplorer(seed).run(), 4),
    "fetcher": (lambda seed: FetcherExplorer(seed).run(), 4),
    "moves": (lambda seed: MoveExplorer(seed).run(), 6),
    "controller": (lambda seed: ControllerExplorer(seed).run(), 6),
    "coordinator": (lambda seed: GroupExplorer(seed).run(), 4),
    "classic groups": (lambda seed: ClassicExplorer(seed).run(), 4),
    "offsets": (lambda seed: OffsetExplorer(seed).run(), 3),
    "transaction coordinator": (lambda seed: TransactionExplorer(seed).run(), 4),
    "znode sessions": (lambda seed: SessionExplorer(seed).run(), 5),
    "zookeeper files": (lambda seed: ZookeeperFilesExplorer(seed).run(), 4),
}


class Reached(NamedTuple):
    """The events of one seed, and its problem, "" for none."""

    events: Mapping[str, int]
    problem: str
    cpu_s: float


def names(seeds: int, first: int = 1) -> Iterator[tuple[str, int]]:
    """Yields the kind and number of each of so many seeds. The kinds alternate, so that the first seeds cover all of
    them."""
    counts = {name: kind.seeds for name, kind in KINDS.items()}
    counts |= {kind.value: count for kind, count in SMALL.items()} | {name: each[1] for name, each in IN_MEMORY.items()}
    shares = [(number / count, name) for name, count in counts.items() for number in range(count * seeds // _SEEDS)]
    counted: dict[str, int] = {}
    for _, name in sorted(shares):
        seed = counted[name] = counted.get(name, first - 1) + 1
        yield name, seed


def reach(name: str, seed: int) -> Reached:
    """Runs one seed."""
    if name in KINDS:
        outcome = run(KINDS[name].settings(seed))
        return Reached(outcome.rare_events, next(iter(outcome.problems), ""), outcome.cpu_s)
    if name in IN_MEMORY:
        began_s, problem = time.process_time(), ""
        with counted(RARE_EVENTS) as counts:
            try:
                IN_MEMORY[name][0](seed)
            except (Violation, AssertionError) as broken:
                problem = str(broken) or type(broken).__name__
        return Reached(dict(counts), problem, time.process_time() - began_s)
    small = run_world(WorldSettings(WorldKind(name), seed))
    return Reached(small.rare_events, small.problem or "", small.cpu_s)


def rows_of(found: Iterable[Reached]) -> Mapping[str, int]:
    """Returns in how many of the seeds each event happened."""
    coverage = EventCoverage()
    for each in found:
        coverage.add(each.events)
    return {event.name: coverage.runs_with(event.name) for event in RARE_EVENTS}


def count_runs(seeds: int = _SEEDS) -> Mapping[str, int]:
    """Returns in how many seeds each event happens. Raises AssertionError for a seed that breaks a promise."""

    def kept(name: str, seed: int) -> Reached:
        reached = reach(name, seed)
        assert not reached.problem, f"{name} {seed}: {reached.problem}"
        return reached

    return rows_of(kept(*each) for each in names(seeds))


def floor_of(runs: float) -> int:
    """Returns the floor of an event that was seen in this many of 200 runs."""
    return int(runs * _SHARE)


def read_floors() -> dict[str, int]:
    floors: dict[str, int] = json.loads(FLOORS_FILE.read_text())
    return floors


def write_floors(runs: Mapping[str, float]) -> None:
    floors = {name: floor_of(seen) for name, seen in sorted(runs.items()) if floor_of(seen) > 0}
    FLOORS_FILE.write_text(json.dumps(floors, indent=1) + "\n")


def _lines(path: Path) -> dict[tuple[str, int], Reached]:
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text().splitlines())
    return {(row["kind"], row["seed"]): Reached(row["events"], row["problem"], row["cpu_s"]) for row in rows}


def _collect(path: Path, seeds: int, first: int) -> None:
    known = _lines(path)
    with path.open("a") as file:
        for name, seed in names(seeds, first):
            if (name, seed) in known:
                continue
            reached = reach(name, seed)
            row = reached._asdict() | {"kind": name, "seed": seed}
            row["events"] = {event: times for event, times in reached.events.items() if times}
            file.write(json.dumps(row) + "\n")
            file.flush()
            if reached.problem:
                print(f"{name} {seed}: {reached.problem}")


def _show(path: Path) -> None:
    found = _lines(path)
    runs = rows_of(found.values())
    print(f"{len(found)} seeds, {sum(each.cpu_s for each in found.values()):.0f} s of CPU time")
    for (name, seed), reached in found.items():
        if reached.problem:
            print(f"failed: {name} {seed}: {reached.problem}")
    for name, count in sorted(runs.items(), key=lambda row: row[1]):
        if count < len(found) / 50:
            print(f"{count:4}  {name}")


def _main(path: Path, what: str = str(_SEEDS), first: str = "1") -> None:
    if what == "show":
        _show(path)
    elif what == "write":
        found = _lines(path)
        runs = rows_of(found.values())
        write_floors({name: count * _SEEDS / len(found) for name, count in runs.items()})
    else:
        _collect(path, int(what), int(first))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
