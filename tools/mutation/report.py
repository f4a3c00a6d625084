"""The page docs/mutants.md: how many mutants each test or world killed, which mutants survived and why, and a table of
all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from mutation.candidates import PACKAGES
from mutation.field_operators import NAMES as FIELD_OPERATORS
from mutation.results import SITUATIONS, TESTS, WORLDS, Result, Verdict

_HEAD: Final = """\
# Mutants

A mutant is a copy of the repository with one small fault in `replication`, `controller`, `raft`, `storage`,
`coordinators` or `broker`. `make mutants` runs the simulated worlds and the fast tests against one mutant after
another: a mutant that none of them notices shows a gap in the tests. `python tools/mutants.py --report` writes this
page from [the results](../tests/data/mutants.jsonl) and [the verdicts on survivors](../tools/mutation/verdicts.toml).

```
make mutants                                 draws 200 mutants with seed 1; continues where it was interrupted
make mutants ARGS="--minutes 60"             stops after an hour of CPU time
make mutants ARGS="--count 400 --seed 2"     draws 400 with seed 2; the first 200 are those of a draw of 200
make mutants ARGS="--again survivors"        runs the surviving mutants again
make mutants ARGS="--again worlds"           runs the worlds again against mutants that no world killed
make mutants ARGS="--mutant ID"              runs one mutant, given by its id or the beginning of the id
make mutants ARGS="--measure"                measures again which functions each world and each test executes
make mutants ARGS=--as-measured              uses the last measurement, without the tests that have changed
make mutants ARGS=--report                   writes this page
```

## What runs against a mutant

| stage | what | CPU budget |
|---|---|---|
| worlds | seeds of the simulator's worlds: the quorum (also with damaged disks), storage under power failures, the \
explorers of replication, transactions, security and ZooKeeper mode, one log in memory, logs with damaged files, \
coordinators, a controller, a broker, a leader, a fetcher and moves in memory, \
and `barnabas simulate` with all layouts, kinds and features of work, 25 s of faults each | 40 s |
| tests | `tests/unit`, `tests/property`, `tests/conformance`, without the long ones | 30 s |
| situations | `tests/simulation`: whole clusters in virtual time, one situation at a time; only if neither worlds \
nor tests killed the mutant | 60 s |

A stage runs the worlds or tests that execute the mutated function, the cheapest first, and ends with the first failure.
Which functions a world or a test executes is measured on the unmutated code. A failure counts only if the same world or
test passes without the mutant. Complaints about long turns of a broker do not count, because they depend on the
machine. Every mutant goes through both worlds and tests. Seconds are CPU time of the whole process, with its start.

A mutant is named by module, function, operator, number within the function, and a hash of the function and the change.
The draw takes packages and operators in turn. Within an operator the order depends on the seed and the names, so that
few mutants of a draw change when the code changes.

## Operators

Operators for replicated systems: {field}. They are described in
[`field_operators.py`](../tools/mutation/field_operators.py).

Usual operators: {usual} ([`usual_operators.py`](../tools/mutation/usual_operators.py)).
"""


@dataclass(frozen=True)
class Count:
    """How many of some mutants were killed."""

    of: int
    killed: int
    by_worlds: int
    by_tests: int
    reached: int

    @staticmethod
    def of_results(results: Sequence[Result]) -> Count:
        return Count(
            len(results),
            sum(bool(each.kills) for each in results),
            sum(each.killed_by(WORLDS) is not None for each in results),
            sum(each.killed_by(TESTS) is not None for each in results),
            sum(WORLDS in each.stages and each.stages[WORLDS].reached_by > 0 for each in results),
        )

    def cells(self) -> str:
        shares = (_share(part, self.of) for part in (self.killed, self.by_worlds, self.by_tests, self.reached))
        return f"{self.of} | {' | '.join(shares)}"


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.0f} %)" if whole else "-"


def page(
    results: Iterable[Result],
    verdicts: Mapping[str, Verdict],
    note: str,
    unseen: Mapping[str, str] | None = None,
    fresh: Iterable[Result] = (),
    fresh_note: str = "",
) -> str:
    """Returns the page. `note`: how the results were made; `unseen`: why no world finds a mutant; `fresh` and
    `fresh_note`: a sample that was tried against worlds alone, and how it was made.
    """
    tried = list(results)
    counted = [each for each in tried if not _verdict(verdicts, each).equivalent]
    operators = sorted({each.operator for each in tried})
    usual = [name for name in operators if name not in FIELD_OPERATORS]
    head = _HEAD.format(field=_names(FIELD_OPERATORS), usual=_names(usual))
    parts = [
        head,
        *_numbers(tried, counted, note, _mended(counted, verdicts)),
        *_fresh(list(fresh), fresh_note),
        *_survivors(tried, verdicts),
        *_unseen(counted, unseen or {}),
        *_table(tried, verdicts),
    ]
    return "\n".join(parts) + "\n"


def _names(operators: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in operators)


def _verdict(verdicts: Mapping[str, Verdict], result: Result) -> Verdict:
    return verdicts.get(result.name, Verdict())


def _mended(counted: Sequence[Result], verdicts: Mapping[str, Verdict]) -> int:
    """Returns how many mutants were killed only after a person had extended the tests for them."""
    return sum(bool(each.kills and _verdict(verdicts, each).mended) for each in counted)


def _numbers(tried: Sequence[Result], counted: Sequence[Result], note: str, mended: int) -> list[str]:
    count = Count.of_results(counted)
    first = count.killed - mended
    of_kills = [min(stage.cpu_s for stage in each.kills) for each in counted if each.kills]
    of_worlds = [stage.cpu_s for each in counted if (stage := each.killed_by(WORLDS)) is not None]
    lines = [
        "## Numbers",
        "",
        f"{len(tried)} mutants were tried; {len(tried) - len(counted)} of them are equivalent and do not count. {note}",
        "",
        "| | goal | found |",
        "|---|---|---|",
        f"| killed by anything | 95 % | {_share(count.killed, count.of)} of {count.of} |",
        f"| the same before tests were added for survivors | | {_share(first, count.of)} of {count.of} |",
        f"| killed by worlds alone | 75 % | {_share(count.by_worlds, count.of)} of {count.of} |",
        f"| killed by fast tests | | {_share(count.by_tests, count.of)} of {count.of} |",
        f"| function executed by a world | | {_share(count.reached, count.of)} of {count.of} |",
        f"| killed by worlds, of those executed | | {_share(count.by_worlds, count.reached)} of {count.reached} |",
    ]
    if of_kills:
        lines.append(f"| CPU time until the first kill, median | 60 s | {median(of_kills):.1f} s |")
    if of_worlds:
        lines.append(f"| CPU time until a world kills, median | | {median(of_worlds):.1f} s |")
    lines += ["", *_by("package", counted, lambda each: each.package, PACKAGES)]
    return [*lines, "", *_by("operator", counted, lambda each: each.operator)]


def _fresh(results: Sequence[Result], note: str) -> list[str]:
    """Returns the section on a sample that was tried against worlds alone, and to which nothing was tuned."""
    if not results:
        return []
    count = Count.of_results(results)
    lines = ["", "## An independent sample, with worlds alone", "", note, ""]
    lines += [
        "| | mutants |",
        "|---|---|",
        f"| tried | {count.of} |",
        f"| function executed by a world | {_share(count.reached, count.of)} |",
        f"| killed by worlds | {_share(count.by_worlds, count.of)} |",
        f"| killed by worlds, of those executed | {_share(count.by_worlds, count.reached)} |",
        "",
        "| mutant | change | worlds |",
        "|---|---|---|",
    ]
    rows = sorted(results, key=lambda each: (PACKAGES.index(each.package), each.name))
    return lines + [f"| {_code(each.name)} | {_change(each)} | {_cell(each, WORLDS)} |" for each in rows]


def _by(
    title: str, results: Sequence[Result], key: Callable[[Result], str], order: Sequence[str] | None = None
) -> list[str]:
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for each in results:
        groups[key(each)].append(each)
    lines = [
        f"| {title} | mutants | killed | by worlds | by fast tests | executed by a world |",
        "|---|---|---|---|---|---|",
    ]
    names = order if order is not None else sorted(groups)
    return lines + [f"| {name} | {Count.of_results(groups[name]).cells()} |" for name in names if name in groups]


def _survivors(tried: Sequence[Result], verdicts: Mapping[str, Verdict]) -> list[str]:
    equivalent = [(each, text) for each in tried if (text := _verdict(verdicts, each).equivalent)]
    mended = [(each, text) for each in tried if (text := _verdict(verdicts, each).mended)]
    left = [each for each in tried if not each.kills and not _verdict(verdicts, each).equivalent]
    lines = ["", "## Survivors", ""]
    lines += _listed("Equivalent mutants, without an observable difference:", equivalent)
    lines += _listed(
        "Mutants that survived at first, and led to a test, a checker, a simulated fault or an event:", mended
    )
    return lines + _listed(
        "Mutants that still survive:", [(each, _verdict(verdicts, each).open or "not examined yet") for each in left]
    )


def _unseen(counted: Sequence[Result], reasons: Mapping[str, str]) -> list[str]:
    """Returns the section on mutants that no world finds, grouped by reason, the most frequent first."""
    missed = [each for each in counted if WORLDS in each.stages and each.killed_by(WORLDS) is None]
    groups: defaultdict[str, list[Result]] = defaultdict(list)
    for each in missed:
        groups[reasons.get(each.name, "not examined yet")].append(each)
    lines = ["## Not found by worlds", ""]
    for reason, results in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        lines += [f"- {reason} ({len(results)}): {', '.join(_code(each.name) for each in results)}"]
    return [*lines, ""] if missed else []


def _listed(title: str, rows: Sequence[tuple[Result, str]]) -> list[str]:
    if not rows:
        return []
    lines = [title, "", "| mutant | change | |", "|---|---|---|"]
    return [*lines, *(f"| {_code(each.name)} | {_change(each)} | {text} |" for each, text in rows), ""]


def _table(tried: Sequence[Result], verdicts: Mapping[str, Verdict]) -> list[str]:
    lines = [
        "## All mutants",
        "",
        "A dash means that the mutant survived the stage. The number is the CPU time of the stage, in seconds.",
        "",
    ]
    lines += ["| mutant | change | worlds | tests | situations |", "|---|---|---|---|---|"]
    for each in sorted(tried, key=lambda each: (PACKAGES.index(each.package), each.name)):
        equivalent = " (equivalent)" if _verdict(verdicts, each).equivalent else ""
        cells = " | ".join(_cell(each, stage) for stage in (WORLDS, TESTS, SITUATIONS))
        lines.append(f"| {_code(each.name)}{equivalent} | {_change(each)} | {cells} |")
    return lines


def _cell(result: Result, name: str) -> str:
    stage = result.stages.get(name)
    if stage is None:
        return ""
    if stage.by is None:
        return f"- ({stage.cpu_s:.0f})" if stage.reached_by else "not executed"
    return f"{_short(stage.by)} ({stage.cpu_s:.0f})"


def _short(by: str) -> str:
    file, _, test = by.partition("::")
    return f"{file.rpartition('/')[2].removesuffix('.py')}: {test.partition('[')[0]}" if test else by


def _change(result: Result) -> str:
    return f"line {result.line}: {_code(result.before)} → {_code(result.after)}"


def _code(text: str) -> str:
    text = re.sub(r"`", "'", text).replace("|", "\\|")
    return f"`{text}`"
