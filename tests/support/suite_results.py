"""The tests of another project that must pass: a list in tests/data, one test per line. A test that fails, is new, is
skipped or no longer runs is reported: the list and the run must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from tests.clients.foreign_suites import Result, Results

LISTS: Final = Path(__file__).resolve().parents[1] / "data"


def expected(suite: str, *, folder: str = "zookeeper_suites") -> list[str]:
    """Returns the tests of a suite that must pass, by name."""
    path = LISTS / folder / f"{suite}.txt"
    return path.read_text().splitlines() if path.exists() else []


def check(folder: Path, results: Results, must_pass: Iterable[str]) -> None:
    """Asserts that these tests, and no others, have run and passed. The current list is written to `folder`."""
    wanted = set(must_pass)
    passed = {name for name, result in results.items() if result.outcome == "passed"}
    (folder / "passed.txt").write_text("".join(f"{name}\n" for name in sorted(passed)))
    bad = {name: result for name, result in results.items() if result.outcome != "passed"}
    assert not bad, f"{len(bad)} of {len(results)} did not pass:\n{_listed(bad)}\nlogs: {folder}"
    missing, new = sorted(wanted - passed), sorted(passed - wanted)
    assert not missing, f"{len(missing)} tests of the list have not run: {missing}"
    assert not new, f"{len(new)} tests are not in the list ({folder / 'passed.txt'} has them): {new}"


def with_second_run(first: Results, again: Results) -> Results:
    """Returns the results of a first run in which tests that failed have the result of their second one."""
    return {**first, **{name: result for name, result in again.items() if name in failed(first)}}


def in_two_runs(folder: Path, suite: Callable[[Path, Collection[str]], Results]) -> Results:
    """Runs a suite, and the tests that failed a second time, alone."""
    first = suite(folder / "first", ())
    failures = failed(first)
    return with_second_run(first, suite(folder / "second", failures)) if failures else first


def failed(results: Results) -> dict[str, Result]:
    return {name: result for name, result in results.items() if result.outcome == "failed"}


def _listed(results: Results) -> str:
    return "\n".join(f"  {result.outcome} {name}: {result.detail}" for name, result in sorted(results.items()))
