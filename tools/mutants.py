"""Mutation testing: faults of one line are put into a copy of the product, and worlds and tests must notice them.

    python tools/mutants.py                        draws 200 mutants with seed 1; continues where it was interrupted
    python tools/mutants.py --minutes 60           stops after this much CPU time
    python tools/mutants.py --again survivors      tries again what nothing killed (or `worlds`: what no world killed)
    python tools/mutants.py --mutant ID            one mutant, by its id or the beginning of it
    python tools/mutants.py --stage worlds         runs one stage alone
    python tools/mutants.py --list                 prints the draw
    python tools/mutants.py --measure              measures again what each world and each test executes
    python tools/mutants.py --as-measured          uses the last measurement, without the tests that have changed
    python tools/mutants.py --report               writes docs/mutants.md

docs/mutants.md describes how it works, and has the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mutation import report
from mutation.campaign import Budgets, Campaign
from mutation.candidates import PACKAGES, Mutant, all_mutants, draw
from mutation.measured import Measured
from mutation.results import SITUATIONS, TESTS, WORLDS, Result, Results, Verdicts
from mutation.shadow import Shadow

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build" / "mutants"
RESULTS: Final = ROOT / "tests" / "data" / "mutants.jsonl"
#: A sample that was tried against worlds alone.
FRESH: Final = ROOT / "tests" / "data" / "mutants-worlds.jsonl"
VERDICTS: Final = Path(__file__).parent / "mutation" / "verdicts.toml"
PAGE: Final = ROOT / "docs" / "mutants.md"
_COUNT: Final = 200
_STAGES: Final = (WORLDS, TESTS, SITUATIONS)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description="Mutation testing of the product")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the draw (1)")
    parser.add_argument("--count", type=int, default=_COUNT, help="how many mutants are drawn (200)")
    parser.add_argument("--only", choices=PACKAGES, action="append", help="draw from this package alone")
    parser.add_argument("--mutant", default="", help="run one mutant, by its id or the beginning of it")
    parser.add_argument("--again", choices=("survivors", "worlds"), help="try survivors again, or the worlds")
    parser.add_argument("--stage", choices=_STAGES, action="append", help="run this stage alone (all three)")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this CPU time")
    parser.add_argument("--worlds", type=float, default=Budgets.worlds_s, help="CPU seconds of the worlds (40)")
    parser.add_argument("--tests", type=float, default=Budgets.tests_s, help="CPU seconds of the tests (30)")
    parser.add_argument("--situations", type=float, default=Budgets.situations_s, help="CPU seconds of situations (60)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--list", action="store_true", help="print the draw, and run nothing")
    parser.add_argument("--measure", action="store_true", help="measure again what worlds and tests execute")
    parser.add_argument("--as-measured", action="store_true", help="use the last measurement, without changed tests")
    parser.add_argument("--report", action="store_true", help="write docs/mutants.md from the results")
    return parser.parse_args(arguments)


def prepare(measure: bool = False, as_measured: bool = False) -> tuple[Shadow, Measured]:
    """Makes the copy, and measures the worlds and tests that were not measured yet, unless the last measurement is to
    be used unchanged.
    """
    shadow = Shadow(ROOT, BUILD / "tree")
    print("mutants: copying the repository", flush=True)
    shadow.refresh()
    measured = Measured(ROOT, BUILD, shadow)
    if as_measured:
        return shadow, measured
    worlds = measured.world_names()
    if names := worlds if measure else measured.not_measured(worlds):
        print(f"mutants: measuring what {len(names)} worlds execute (about 6 minutes for all)", flush=True)
        measured.measure_worlds(names, is_everything=names == worlds)
    if files := measured.test_files() if measure else measured.stale_files():
        print(f"mutants: measuring what {len(files)} test files execute (about 20 minutes for all)", flush=True)
        measured.measure_tests(files)
    return shadow, measured


def plan(options: argparse.Namespace, results: Results) -> list[tuple[Mutant, Sequence[str]]]:
    """Returns the mutants that are to be run, with the stages."""
    mutants = list(all_mutants(ROOT, options.only or PACKAGES))
    stages = tuple(options.stage or _STAGES)
    if options.mutant:
        return [(each, stages) for each in mutants if each.name.startswith(options.mutant)]
    if options.again:
        by_name = {each.name: each for each in mutants}
        chosen = {result.name: _again(options.again, result) for result in results if result.name in by_name}
        equivalent = {name for name, verdict in Verdicts(VERDICTS).items() if verdict.equivalent}
        return [(by_name[name], stages) for name, stages in chosen.items() if stages and name not in equivalent]
    drawn = draw(ROOT, mutants, options.seed, options.count)
    return [(each, stages) for each in drawn if each.name not in results.by_name or options.list]


def _again(what: str, result: Result) -> Sequence[str]:
    if what == "worlds":
        return () if result.killed_by(WORLDS) else (WORLDS,)
    return () if result.kills else _STAGES


def run(options: argparse.Namespace) -> int:
    """Runs the planned mutants; one that was interrupted begins again the next time."""
    results = Results(options.results)
    planned = plan(options, results)
    if options.list:
        for mutant, _ in planned:
            print(f"{mutant.name}\n    {mutant.before} -> {mutant.after}")
        return 0
    shadow, measured = prepare(options.measure, options.as_measured)
    campaign = Campaign(shadow, measured, Budgets(options.worlds, options.tests, options.situations))
    spent_s = 0.0
    for number, (mutant, stages) in enumerate(planned, 1):
        if options.minutes and spent_s > options.minutes * 60:
            print(f"mutants: {options.minutes:g} minutes are over; {len(planned) - number + 1} mutants are left")
            break
        result = campaign.run(mutant, stages, results.by_name.get(mutant.name))
        spent_s += sum(stage.cpu_s for stage in result.stages.values())
        results.add(result)
        print(f"{number}/{len(planned)} {mutant.name}: {_summary(result)}", flush=True)
    results.compact()
    if options.results == RESULTS:
        write_page()
    return 0


def page() -> str:
    verdicts = Verdicts(VERDICTS)
    fresh = Results(FRESH)
    return report.page(Results(RESULTS), verdicts, verdicts.note, verdicts.unseen, fresh, verdicts.fresh_note)


def write_page() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"mutants: wrote {PAGE.relative_to(ROOT)}")


def _summary(result: Result) -> str:
    texts = [
        f"{name} {stage.by or ('survived' if stage.reached_by else 'not executed')} ({stage.cpu_s:.0f} s)"
        for name, stage in result.stages.items()
    ]
    return "; ".join(texts)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.report:
        write_page()
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
