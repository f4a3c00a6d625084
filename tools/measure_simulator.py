"""The speed of the simulator: virtual seconds for each CPU second of one process, over fixed seeds.

    PYTHONPATH=src python tools/measure_simulator.py [KIND...]

A run counts from its beginning to its end, with warm-up and audit, and all checkers are on. The printed hashes of the
traces show whether two versions of the code simulate the same.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind
from barnabas.simulation.world import SECOND_US
from barnabas.simulation.worlds.replication_explorer import ReplicationRun

_RECORDS = Settings(0, Layout(brokers=3), draws_properties=True, records_per_s=None)
_FULL_LOAD = replace(_RECORDS, faults_s=15, kinds=(), operations=(), draws_properties=False, records_per_s=200.0)


class Measured(NamedTuple):
    virtual_s: float
    cpu_s: float
    events: int
    trace: str


def _simulate(settings: Settings, seed: int) -> Measured:
    outcome = run(replace(settings, seed=seed))
    return Measured(outcome.virtual_s, outcome.cpu_s, outcome.events, outcome.trace_hash)


def _replicate(seed: int) -> Measured:
    began_s = time.process_time()
    replication = ReplicationRun(seed)
    replication.execute()
    world = replication.world
    cpu_s = time.process_time() - began_s
    return Measured(world.now_us / SECOND_US, cpu_s, world.trace.count, world.trace.hexdigest())


_KINDS: dict[str, tuple[Sequence[int], Callable[[int], Measured]]] = {
    "records": (range(1, 9), lambda seed: _simulate(_RECORDS, seed)),
    "transactions": (range(1, 5), lambda seed: _simulate(replace(_RECORDS, work=WorkKind.TRANSACTIONS), seed)),
    "groups": (range(1, 5), lambda seed: _simulate(replace(_RECORDS, work=WorkKind.GROUPS), seed)),
    "full-load": (range(1, 4), lambda seed: _simulate(_FULL_LOAD, seed)),
    "replication": (range(1, 13), _replicate),
}


def main(kinds: Sequence[str]) -> None:
    for kind in kinds or _KINDS:
        seeds, measure = _KINDS[kind]
        speeds = []
        for seed in seeds:
            found = measure(seed)
            speeds.append(found.virtual_s / found.cpu_s)
            print(
                f"{kind} {seed}: {found.virtual_s:.0f} s in {found.cpu_s:.2f} s, {found.events} events, "
                f"{found.trace}, {speeds[-1]:.1f} times real time",
                flush=True,
            )
        print(f"{kind}: min {min(speeds):.1f}, median {statistics.median(speeds):.1f}, max {max(speeds):.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
