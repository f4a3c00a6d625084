"""The score of `explain` with real processes: fault after fault in one cluster, in an order by seed.

python bench/explain_processes.py FILE ROUNDS MINUTES [KIND...]      keeps the cases in the file
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from explain_cases import Case, case_of
from explain_kept import KeptCases
from explain_process_kinds import KINDS, possible
from explain_real_cluster import Processes, now_ms
from explain_report import PROCESSES
from explain_truth import Episode, Truth

_SEED: Final = 1_000
_LASTS_S: Final = 14.0


def run(kind: str, seed: int, processes: Processes) -> Case:
    since_ms = now_ms()
    processes.journal.clear()
    processes.waiting.clear()
    time.sleep(1)
    begin_ms = now_ms()
    struck = KINDS[kind](processes)
    try:
        processes.watch(since_ms, _LASTS_S)
    finally:
        struck.end()
    truth = Truth(struck.cause, struck.component, begin_ms, now_ms())
    processes.watch_until_whole(since_ms)
    journal = sorted(processes.journal.values(), key=lambda read: read[0])
    return case_of(Episode(PROCESSES + kind, seed, (truth,), now_ms(), journal, (), processes.waiting))


def measure(kept: KeptCases, rounds: int, minutes: float, kinds: Sequence[str] = ()) -> list[Case]:
    """Runs the cases that are not kept, until all are done or the time is over."""
    end = time.monotonic() + minutes * 60
    jobs = [(PROCESSES + kind, seed) for seed in range(_SEED, _SEED + rounds) for kind in kinds or KINDS]
    for seed in range(_SEED, _SEED + rounds):
        missing = {kind.removeprefix(PROCESSES) for kind, number in kept.missing(jobs) if number == seed}
        if missing and time.monotonic() < end:
            _measure_one(kept, seed, missing, end)
    return kept.of(jobs)


def _measure_one(kept: KeptCases, seed: int, kinds: set[str], end: float) -> None:
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder), seed) as processes:
        processes.warm_up()
        for kind in possible(processes):
            if kind in kinds and time.monotonic() < end:
                case = run(kind, seed, processes)
                kept.add((case.kind, seed), case)
                kept.save()
                first = case.answers[-1][:1]
                print(f"  {case.kind} {seed}: {case.truths[0].component}; answered {first}", flush=True)


if __name__ == "__main__":
    measure(KeptCases(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
