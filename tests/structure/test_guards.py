"""The table of guards is correct: each test that it names exists, and its docstring has the guard's number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| ([GS]\d+) \|.*\|(.*)\|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
#: The guards that do not concern replication.
_ELSEWHERE = {"G23", "G24", "G26"}
_ALL = {f"G{number}" for number in range(1, 46)} | {f"S{number}" for number in range(1, 23)}


def guards() -> dict[str, list[tuple[str, str]]]:
    text = (ROOT / "docs" / "guards.md").read_text()
    return {guard: _TEST.findall(tests) for guard, tests in _ROW.findall(text)}


def docstring_of(path: str, name: str) -> str:
    tree = ast.parse((ROOT / path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    assert len(found) == 1, f"{path}::{name}: {len(found)} of that name"
    return ast.get_docstring(found[0]) or ""


def test_every_guard_has_tests_that_carry_its_number() -> None:
    named = guards()
    assert set(named) | _ELSEWHERE >= _ALL
    for guard, tests in named.items():
        assert tests, guard
        for path, name in tests:
            assert re.search(rf"\b{guard}\b", docstring_of(path, name)), f"{path}::{name} does not say {guard}"
