"""No callback of another object is set from outside: it is a constructor argument or a registration.

other.on_closed = self._closed        the class of `other` does not show where control goes
Other(on_closed=self._closed)         an argument
other.when_closed(self._closed)       a registration, with a docstring that says when it is called
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "barnabas"
GENERATED = SOURCE / "protocol" / "messages"


def sources() -> dict[str, ast.Module]:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
        if GENERATED not in path.parents
    }


def attributes_of(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Returns the attributes that its classes declare as callable, and all others."""
    callbacks, others = set(), set()
    for node in ast.walk(tree):
        targets = (
            [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
        )
        is_callback = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Callable[")
        for target in targets:
            if _is_own(target):
                (callbacks if is_callback else others).add(target.attr)
            elif isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign):
                (callbacks if is_callback else others).add(target.id)
    return callbacks, others


def functions_of(tree: ast.Module) -> set[str]:
    """Functions and methods, except names that parameters or variables have, too."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    parameters = {argument.arg for node in nodes for argument in node.args.args}
    variables = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {node.name for node in nodes} - parameters - variables


def properties_of(tree: ast.Module) -> set[str]:
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d).endswith("property") for d in node.decorator_list)
    }


def assigned_callbacks(tree: ast.Module, elsewhere: set[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, statement) of each callback that is set on another object. `elsewhere`: the attributes that classes
    of other modules declare to be callable.
    """
    functions = functions_of(tree) - properties_of(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        for target in flat:
            if not isinstance(target, ast.Attribute) or _is_own(target):
                continue
            is_callback = target.attr.startswith("on_") or target.attr in elsewhere
            if is_callback or _is_function(node.value, functions):
                yield node.lineno, ast.unparse(node)


def _is_function(value: ast.expr, functions: set[str]) -> bool:
    if isinstance(value, ast.Lambda):
        return True
    if isinstance(value, ast.Attribute):
        return _is_own(value) and value.attr in functions
    return isinstance(value, ast.Name) and value.id in functions


def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_callback_is_set_from_outside() -> None:
    found = []
    trees = sources()
    declared = {name: attributes_of(tree) for name, tree in trees.items()}
    # A name that another class uses for something else proves nothing.
    known = set().union(*(callbacks for callbacks, _ in declared.values()))
    known -= set().union(*(others for _, others in declared.values()))
    for name, tree in trees.items():
        own, _ = declared[name]
        found += [f"{name}:{line}: {text}" for line, text in assigned_callbacks(tree, known - own)]
    assert found == []


@pytest.mark.parametrize(
    "statement",
    [
        "other.on_closed = None",
        "self.other.on_closed = self._closed",
        "other.told = lambda: None",
        "other.told = self._closed",
        "other.told = _nothing",
        "other.flushed = something",
        "first, other.flushed = other.flushed, first",
    ],
)
def test_each_way_to_set_one_is_found(statement: str) -> None:
    code = f"""
def _nothing(): ...

class One:
    def _closed(self): ...

    def wire(self, other, something, first):
        {statement}
"""
    assert [text for _, text in assigned_callbacks(ast.parse(code), {"flushed"})] == [ast.unparse(ast.parse(statement))]


@pytest.mark.parametrize(
    "statement", ["self.told = told", "other.count = 3", "other.state = self.state", "other.listeners.append(told)"]
)
def test_values_and_own_attributes_are_not(statement: str) -> None:
    code = f"""
class One:
    @property
    def state(self): ...

    def wire(self, other, told):
        {statement}
"""
    assert list(assigned_callbacks(ast.parse(code), {"told"})) == []
