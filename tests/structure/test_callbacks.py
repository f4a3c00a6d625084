"""No callback of another object is set from outside: it is a constructor argument or a registration.

other.on_closed = self._closed        the class of `other` does not show where control goes
other.listeners.append(self._closed)  the same, of a list that `other` shows
Other(on_closed=self._closed)         an argument
other.when_closed(self._closed)       a registration, with a docstring that says when it is called

A part that another one needs is an argument too, and no class has a bare annotation that others fill in. A callback
that a caller can leave out is None then: a function without an effect hides that nobody listens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "barnabas"
GENERATED = SOURCE / "protocol" / "messages"


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def sources() -> dict[str, ast.Module]:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
        if GENERATED not in path.parents
    }


def attributes_of(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Returns the attributes that its classes declare as callable, and all others."""
    callbacks: set[str] = set()
    others: set[str] = set()
    for node in nodes_of(tree):
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
    nodes = [node for node in nodes_of(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    parameters = {argument.arg for node in nodes for argument in node.args.args}
    variables = {node.id for node in nodes_of(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return {node.name for node in nodes} - parameters - variables


def properties_of(tree: ast.Module) -> set[str]:
    return {
        node.name
        for node in nodes_of(tree)
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d).endswith("property") for d in node.decorator_list)
    }


def assigned_callbacks(tree: ast.Module, elsewhere: set[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, statement) of each callback that is set on another object. `elsewhere`: the attributes that classes
    of other modules declare to be callable.
    """
    functions = functions_of(tree) - properties_of(tree)
    for node in nodes_of(tree):
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


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return sources()


def test_no_callback_is_set_from_outside(trees: dict[str, ast.Module]) -> None:
    found = []
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


# Lists of listeners that another object shows.

#: The callbacks that a draft of a decision returns with it: values, which nobody calls before the commit.
RETURNED = {"effects"}


def appended_callbacks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields (line, call) of each callback that is appended to a list of another object."""
    functions = functions_of(tree) - properties_of(tree)
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            continue
        shown = node.func.value
        if node.func.attr not in ("append", "add") or not isinstance(shown, ast.Attribute) or _is_own(shown):
            continue
        if shown.attr not in RETURNED and _is_function(node.args[0], functions):
            yield node.lineno, ast.unparse(node)


def test_no_callback_is_appended_from_outside(trees: dict[str, ast.Module]) -> None:
    assert [f"{name}:{line}: {text}" for name, tree in trees.items() for line, text in appended_callbacks(tree)] == []


@pytest.mark.parametrize("argument", ["self._closed", "lambda: None", "_nothing"])
def test_an_appended_callback_is_found(argument: str) -> None:
    code = f"""
def _nothing(): ...

class One:
    def _closed(self): ...

    def wire(self, other):
        other.on_closed.append({argument})
        self.other.listeners.add({argument})
        self.listeners.append({argument})
        other.effects.append({argument})
        other.values.append(other)
"""
    assert [text for _, text in appended_callbacks(ast.parse(code))] == [
        f"other.on_closed.append({argument})",
        f"self.other.listeners.add({argument})",
    ]


# Parts that come after construction.

_VALUE_CLASSES = ("NamedTuple", "Protocol", "TypedDict", "Structure", "Message")


def bare_annotations(*trees: ast.Module) -> set[str]:
    """Returns the attributes that classes only annotate; fields, and attributes that any class sets itself, do not
    count.
    """
    found: set[str] = set()
    own: set[str] = set()
    for node in (node for tree in trees for node in nodes_of(tree)):
        if not isinstance(node, ast.ClassDef):
            continue
        around = [ast.unparse(part) for part in (*node.bases, *node.decorator_list)]
        if any(name in text for text in around for name in (*_VALUE_CLASSES, "dataclass")):
            continue
        own |= {
            target.attr
            for part in ast.walk(node)
            if isinstance(part, ast.Assign | ast.AnnAssign)
            for target in (part.targets if isinstance(part, ast.Assign) else [part.target])
            if _is_own(target)
        }
        found |= {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is None
        }
    return found - own


def assigned_parts(tree: ast.Module, bare: set[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, statement) of each assignment to a bare attribute of another object."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign):
            continue
        flat = [
            part for target in node.targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        if any(isinstance(part, ast.Attribute) and not _is_own(part) and part.attr in bare for part in flat):
            yield node.lineno, ast.unparse(node)


def test_no_part_is_set_from_outside(trees: dict[str, ast.Module]) -> None:
    bare = bare_annotations(*trees.values())
    found = [f"{name}:{line}: {text}" for name, tree in trees.items() for line, text in assigned_parts(tree, bare)]
    assert found == []


def test_a_part_that_is_set_from_outside_is_found() -> None:
    code = """
class Part:
    helper: Helper
    own: Helper

    def __init__(self):
        self.own = Helper()

class Row(NamedTuple):
    place: int

def wire(part, row):
    part.helper = Helper()
    first, part.helper = 1, Helper()
    part.own = Helper()
    row.place = 3
"""
    tree = ast.parse(code)
    assert bare_annotations(tree) == {"helper"}
    assert [line for line, _ in assigned_parts(tree, {"helper"})] == [13, 14]


# Functions without an effect.


def is_without_effect(node: ast.FunctionDef | ast.Lambda) -> bool:
    if isinstance(node, ast.Lambda):
        return isinstance(node.body, ast.Constant) and node.body.value is None
    return all(
        isinstance(part, ast.Pass)
        or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        or (isinstance(part, ast.Return) and (part.value is None or ast.unparse(part.value) == "None"))
        for part in node.body
    )


def silent_defaults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields (line, text) of each function without an effect that stands for a callback that nobody gave: the default
    of a parameter, the first value of an attribute, the second half of an `or`, a returned value.
    """
    silent = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and is_without_effect(node)}
    for node in nodes_of(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.arguments):
            values = [*node.defaults, *node.kw_defaults]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
            values = list(node.value.elts) if isinstance(node.value, ast.Tuple) else [node.value]
        elif isinstance(node, ast.BoolOp):
            values = list(node.values)
        elif isinstance(node, ast.IfExp):
            values = [node.body, node.orelse]
        for value in values:
            if (isinstance(value, ast.Lambda) and is_without_effect(value)) or (
                isinstance(value, ast.Name) and value.id in silent
            ):
                yield value.lineno, ast.unparse(value)


#: The checks of configuration values: a table by the text of their limits, in which "none" is a check like the others.
CHECKS = "common/config_keys.py"


def test_a_callback_that_nobody_gave_is_none(trees: dict[str, ast.Module]) -> None:
    found = [f"{name}:{line}: {text}" for name, tree in trees.items() for line, text in silent_defaults(tree)]
    assert [one for one in found if not one.startswith(CHECKS)] == []


def test_each_function_without_an_effect_is_found() -> None:
    code = """
def _nothing():
    \"\"\"Does nothing.\"\"\"
    return None

def _ignore(_): ...

class One:
    def __init__(self, on_closed=_nothing, *, on_lost=lambda _: None, limit=lambda: 3):
        self._told = _ignore
        self._closed = on_closed or _nothing
        self._first, self._next = 1, _ignore
        self._lost = on_lost if limit() else _nothing

    def undo(self):
        return lambda: None

    def table(self):
        send(self._told, _ignore)
        return {NoOp: _nothing}
"""
    assert [line for line, _ in sorted(silent_defaults(ast.parse(code)))] == [9, 9, 10, 11, 12, 13, 16]
