"""The score of `explain`: faults with known causes, and how often `explain` names them.

    --only explain [--rounds N] [--minutes M]      N seeds of each kind (default 20, quick 1), at most M minutes

Two worker processes run one case at a time each. Up to ten seeds are run with real processes as well. Cases that
`bench/results` has are not run again, except with --quick: remove the file to measure anew. The report is
`docs/explain-score.md`.
"""

from __future__ import annotations

import concurrent.futures
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import explain_processes
import report
from explain_cases import QUIET, Case, case
from explain_driver import SCORING_SEED, Unsettled, pair_of
from explain_kept import NAME, Job, KeptCases
from explain_kinds import KINDS, UNSEEN
from explain_metrics import abstentions, accuracy_at, of_causes, quantile, sure_and_wrong
from explain_report import page
from explain_truth import AFTER_10_S, AFTER_HEALING, UNKNOWN, Truth
from targets import ROOT
from workloads import Experiment, Goal, Metric

_WORKERS: Final = 2
_TUNING_SEEDS: Final = 3
_QUIET_HOURS: Final = 0.5
_SAVED_AFTER_S: Final = 60
_PROCESS_ROUNDS: Final = 10
_PROCESS_MINUTES: Final = 60

EXPLAIN = Experiment(
    "explain",
    (
        Metric("explain_10_s", "{rounds} seeds of each kind: right after 10 s", "%", Goal(at_least=90, absolute=True)),
        Metric("explain_healed", "right after healing", "%", Goal(at_least=97, absolute=True)),
        Metric("explain_f1_least", "the least F1 of a cause, after healing", "%", Goal(at_least=85, absolute=True)),
        Metric("explain_wrong", "certain and wrong, after healing", "%", Goal(at_most=1, absolute=True)),
        Metric(
            "explain_unseen", "unseen kinds: unknown or nothing, after healing", "%", Goal(at_least=90, absolute=True)
        ),
        Metric("explain_abstained", "no cause answered, after healing", "%"),
        Metric("explain_p50_s", "time to explanation, p50", "s"),
    ),
    {"rounds": 20, "minutes": 240},
    {"rounds": 1},
)


def jobs(seeds: Sequence[int]) -> Iterator[Job]:
    """Yields the cases, seed by seed, so that every kind has as many when the time is over; quiet times come last."""
    for seed in seeds:
        yield from ((kind, seed) for kind in (*KINDS, *UNSEEN, pair_of(seed)))
    yield from ((f"{QUIET}:{_QUIET_HOURS}", seed) for seed in seeds)


def _run(job: Job) -> Case | None:
    try:
        return case(*job)
    except Unsettled:
        return None
    finally:
        gc.collect()  # A simulated cluster is one large cycle, of 300 MB after half an hour.


def measure(wanted: Sequence[Job], kept: KeptCases, minutes: float) -> list[Case]:
    """Runs the cases that are not kept, until all are done or the time is over. Those whose cluster does not become
    whole are left out.
    """
    end = time.monotonic() + minutes * 60
    queue = kept.missing(wanted)
    live: dict[concurrent.futures.Future[Case | None], Job] = {}
    saved = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(_WORKERS) as pool:
        while True:
            while len(live) < 2 * _WORKERS and time.monotonic() < end and (job := next(queue, None)) is not None:
                live[pool.submit(_run, job)] = job
            if not live:
                kept.save()
                return kept.of(wanted)
            for future in concurrent.futures.wait(live, return_when=concurrent.futures.FIRST_COMPLETED).done:
                kept.add(live.pop(future), future.result())
            if time.monotonic() > saved + _SAVED_AFTER_S:
                saved = time.monotonic()
                kept.save()


def values_of(cases: Sequence[Case]) -> dict[str, float]:
    single = [each for each in cases if each.kind in KINDS]
    unseen = [each for each in cases if each.kind in UNSEEN]
    soon = [each.answered(AFTER_10_S) for each in single]
    late = [each.answered(AFTER_HEALING) for each in single]
    silent = [each.answered(AFTER_HEALING) for each in unseen]
    return {
        "explain_10_s": 100 * accuracy_at(soon, 1).value,
        "explain_healed": 100 * accuracy_at(late, 1).value,
        "explain_f1_least": 100 * min(row.f1 for row in of_causes(late)),
        "explain_wrong": 100 * sure_and_wrong(late).value,
        "explain_unseen": 100 * abstentions(each._replace(truths=_KNOWN) for each in silent).value,
        "explain_abstained": 100 * abstentions(late).value,
        "explain_p50_s": quantile((each.explained_ms for each in single if each.explained_ms is not None), 0.5) / 1_000,
    }


#: A truth that is not "unknown": an abstention is only counted where there is a cause.
_KNOWN: Final = (Truth(f"not {UNKNOWN}", "", 0, 0),)


def table(experiment: Experiment) -> report.Table:
    return report.Table(
        "Explain",
        f"Seeds of each kind: {experiment.options['rounds']}, simulated, none of them used for the rules. "
        "docs/explain-score.md has all figures.",
        experiment.metrics,
    )


def run(
    experiment: Experiment,
    values: report.Values,
    results: Path,
    out: Path = ROOT / "docs" / "explain-score.md",
) -> None:
    print("explain: the score", flush=True)
    rounds, minutes = int(experiment.options["rounds"]), float(experiment.options["minutes"])
    begun = time.monotonic()
    kept = KeptCases(results / NAME)
    tuning = measure(
        [(kind, seed) for seed in range(1, 1 + min(rounds, _TUNING_SEEDS)) for kind in KINDS], kept, minutes
    )
    left = minutes - (time.monotonic() - begun) / 60
    scoring = measure(list(jobs(range(SCORING_SEED, SCORING_SEED + rounds))), kept, left)
    scoring += explain_processes.measure(kept, min(rounds, _PROCESS_ROUNDS), _PROCESS_MINUTES)
    out.write_text(page(out.read_text() if out.exists() else "", scoring, tuning), encoding="utf-8")
    for metric in experiment.metrics:
        report.record(values, metric, "barnabas", values_of(scoring)[metric.name])
    print(f"  {len(scoring)} cases, took {time.monotonic() - begun:.0f} s", flush=True)
