"""A campaign: each mutant runs against worlds, then fast tests, then, if both miss it, tests of situations.

worlds        runs of the simulator with random faults, by seed (`mutation.worlds`)
tests         tests/unit, tests/property, tests/conformance
situations    tests/simulation: whole clusters in virtual time, one situation at a time

Only what executes the mutated function is run, the cheapest first, each stage up to its budget of CPU time; it ends
with the first that fails. What fails must pass without the mutant.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mutation.candidates import Mutant
from mutation.measured import Reaching
from mutation.results import SITUATIONS, WORLDS, Result, Stage
from mutation.shadow import Ended, Shadow

SITUATION_TESTS: Final = "tests/simulation/"
#: Additional time for the start of a process; and the factor by which a mutant can be slower than the unmutated code.
_START_S: Final = 20
_SLOWER: Final = 3
#: How much longer than its CPU time a process may take on a busy machine.
_BUSY: Final = 8
#: The additional CPU time of a test from another file, for its imports.
_FILE_S: Final = 0.3
_TESTS_MAX: Final = 300


@dataclass(frozen=True)
class Budgets:
    """CPU seconds of each stage."""

    worlds_s: float = 40.0
    tests_s: float = 30.0
    situations_s: float = 60.0


class Known(Protocol):
    """The knowledge about worlds and tests: `Measured`, or a short list from another source."""

    @property
    def is_current(self) -> bool: ...
    def has(self, name: str) -> bool: ...
    def worlds(self, place: str) -> Sequence[Reaching]: ...
    def tests(self, place: str) -> Sequence[Reaching]: ...


class Campaign:
    def __init__(self, shadow: Shadow, measured: Known, budgets: Budgets) -> None:
        self._shadow, self._measured, self._budgets = shadow, measured, budgets
        #: Whether the test or world that killed a mutant passes without it.
        self._passes: dict[str, bool] = {}

    def run(self, mutant: Mutant, stages: Sequence[str], known: Result | None = None) -> Result:
        """Runs stages against the mutant. `known`: its last result, whose killers are tried first."""
        result = Result.of(mutant)
        for stage in stages:
            if stage == SITUATIONS and result.kills:
                continue
            last = known.killed_by(stage) if known is not None else None
            first = last.by if last is not None and last.by is not None else ""
            result.stages[stage] = self._stage(stage, mutant, first)
        return result

    def _stage(self, stage: str, mutant: Mutant, first: str) -> Stage:
        if stage == WORLDS:
            reaching = self._measured.worlds(mutant.place)
            return self._try(
                _Worlds(self._shadow, self._budgets.worlds_s), mutant, fair(reaching), first, len(reaching)
            )
        is_situation = stage == SITUATIONS
        tests = self._measured.tests(mutant.place)
        fitting = [each for each in tests if each.name.startswith(SITUATION_TESTS) == is_situation]
        budget_s = self._budgets.situations_s if is_situation else self._budgets.tests_s
        chosen = affordable(mutant.package, fitting, budget_s)
        return self._try(_Tests(self._shadow), mutant, chosen, first, len(fitting))

    def _try(
        self, kind: _Worlds | _Tests, mutant: Mutant, planned: list[Reaching], first: str, reached_by: int
    ) -> Stage:
        """Runs the planned tests until one fails that passes without the mutant."""
        planned = sorted(planned, key=lambda each: each.name != first)
        spent_s = 0.0
        while planned:
            with self._shadow.mutated(mutant):
                ended = kind.run(planned, spent_s)
            spent_s += ended.cpu_s
            kill = kind.kill(ended)
            if kill is None:
                break
            by, found = kill
            if self._passes_without(kind, by, planned):
                return Stage(by, found, round(spent_s, 1), reached_by)
            planned = [each for each in planned if not _is_of(each, by)]
        return Stage(None, None, round(spent_s, 1), reached_by)

    def _passes_without(self, kind: _Worlds | _Tests, by: str, planned: list[Reaching]) -> bool:
        """Returns whether the failed test passes on the unmutated code, as it did if it was measured there."""
        if by not in self._passes:
            is_known = self._measured.is_current and self._measured.has(by)
            alone = [each for each in planned if _is_of(each, by)]
            kill = None if is_known else kind.kill(kind.run(alone or planned[:1], 0.0))
            if kill is not None and not alone:
                raise RuntimeError(f"the test also fails without a mutant: {': '.join(kill)}")
            self._passes[by] = kill is None
        return self._passes[by]


class _Worlds:
    """The stage of worlds: how they are run, and the finding that killed a mutant."""

    def __init__(self, shadow: Shadow, budget_s: float) -> None:
        self._shadow, self._budget_s = shadow, budget_s

    def run(self, planned: Sequence[Reaching], spent_s: float) -> Ended:
        budget_s = self._budget_s - spent_s
        arguments = [str(budget_s), *(f"{each.name}:{each.cpu_s}" for each in planned)]
        cpu_s_max = max(budget_s, 0) * _SLOWER + _START_S
        return self._shadow.run("mutation.worlds", arguments, cpu_s_max=cpu_s_max, wall_s_max=cpu_s_max * _BUSY)

    def kill(self, ended: Ended) -> tuple[str, str] | None:
        last = _last(ended, "by")
        if not last:
            return ("a world", "it does not end") if ended.is_overdue else ("the start", ended.errors.strip()[-200:])
        return None if last["found"] is None else (last["by"], last["found"])


class _Tests:
    """A stage of tests: how they are run, and the one that killed a mutant."""

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow

    def run(self, planned: Sequence[Reaching], spent_s: float) -> Ended:
        cpu_s_max = sum(each.cpu_s for each in planned) * _SLOWER + _START_S
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write("\n".join(each.name for each in planned) + "\n")
            file.flush()
            wall_s_max = cpu_s_max * _BUSY
            return self._shadow.run("mutation.chosen_tests", [file.name], cpu_s_max=cpu_s_max, wall_s_max=wall_s_max)

    def kill(self, ended: Ended) -> tuple[str, str] | None:
        failed, begun = _last(ended, "by"), _last(ended, "begins").get("begins", "the start")
        if failed:
            return failed["by"], failed["found"]
        if "ERROR: not found" in ended.errors:
            raise RuntimeError(f"a test that was measured is gone: {ended.errors.strip()[-2000:]}")
        if _last(ended, "ends") and begun != "the start":
            return None
        return begun, "it does not end" if ended.is_overdue else ended.errors.strip()[-200:]


def _is_of(each: Reaching, by: str) -> bool:
    """Returns whether it is this test, or in this file."""
    return each.name == by or each.name.startswith(by + "::")


def _last(ended: Ended, field: str) -> dict[str, Any]:
    """Returns the last line of JSON that has the field."""
    lines = [line for line in ended.output.splitlines() if line.startswith("{") and f'"{field}"' in line]
    return dict(json.loads(lines[-1])) if lines else {}


def fair(reaching: Iterable[Reaching]) -> list[Reaching]:
    """Orders worlds so that each kind gets about as much CPU time as the others, the cheap ones first."""
    spent: dict[str, float] = {}
    ordered: list[tuple[float, int, Reaching]] = []
    for number, each in enumerate(reaching):
        kind = each.name.partition(":")[0]
        spent[kind] = spent.get(kind, 0.0) + each.cpu_s
        ordered.append((spent[kind], number, each))
    return [each for _, _, each in sorted(ordered)]


def affordable(package: str, reaching: Iterable[Reaching], budget_s: float) -> list[Reaching]:
    """Returns the cheapest tests within the budget; the package's own come first."""

    def rank(each: Reaching) -> tuple[bool, float, str]:
        return f"/{package}/" not in each.name, each.cpu_s, each.name

    return list(_within(sorted(reaching, key=rank), budget_s))


def _within(ordered: Iterable[Reaching], budget_s: float) -> Iterator[Reaching]:
    files: set[str] = set()
    left_s, number = budget_s, 0
    for each in ordered:
        file = each.name.partition("::")[0]
        cost_s = each.cpu_s + (0 if file in files else _FILE_S)
        if cost_s <= left_s and number < _TESTS_MAX:
            files.add(file)
            left_s -= cost_s
            number += 1
            yield each
