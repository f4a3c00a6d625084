"""The source of one module: its functions, the exact place of each node, and edits that leave all other text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Calls that only log: no test should depend on their text.
_INFORMING = frozenset({"report", "inform", "debug", "info", "warning"})


class Edit(NamedTuple):
    """A replacement of some characters of a source."""

    start: int
    end: int
    text: str


class Change(NamedTuple):
    """The edits of an operator to a function."""

    operator: str
    line: int
    edits: tuple[Edit, ...]


class Scope(NamedTuple):
    """A function with its name in the module, such as `Fetcher.add` or `Fetcher.add.<locals>.done`."""

    name: str
    function: Function


class Source:
    """A module's text with its tree."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        #: Names of functions and methods that are passed on or stored somewhere, not only called.
        self.passed_on = _passed_on(self.tree)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Returns the index of a character; `ast` counts the bytes of UTF-8."""
        text = self._lines[line - 1]
        return self._starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))

    def text_of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(*self.span(node), text)

    def scopes(self) -> Iterator[Scope]:
        """Yields all functions; a nested one comes after the one that it is in."""
        yield from _scopes(self.tree, "")


def _scopes(parent: ast.AST, prefix: str) -> Iterator[Scope]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            yield from _scopes(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Scope(prefix + node.name, node)
            yield from _scopes(node, f"{prefix}{node.name}.<locals>.")
        else:
            yield from _scopes(node, prefix)


def _passed_on(tree: ast.AST) -> frozenset[str]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in called or not isinstance(node, ast.Attribute | ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        found.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return frozenset(found)


def nodes(function: Function) -> Iterator[ast.AST]:
    """Yields the nodes that a function executes itself, in the order of the text: without functions in it, docstrings,
    annotations, assertions, and the words of errors and of log lines.
    """
    for statement in body_of(function):
        yield from _walk(statement)


def body_of(function: Function) -> list[ast.stmt]:
    """Returns the statements without the docstring."""
    first = function.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return function.body[1:] if has_docstring else function.body


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (*_INNER, ast.Assert, ast.Raise, ast.JoinedStr)) or is_informing(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "ctx"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def is_informing(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and name_of(node.value.func) in _INFORMING


def name_of(node: ast.AST) -> str:
    """Returns the last part of a dotted name; "" for any other node."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def blocks(function: Function) -> Iterator[Sequence[ast.stmt]]:
    """Yields each list of statements that follow each other, the function's own first."""
    yield body_of(function)
    for node in nodes(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(node, ast.stmt | ast.ExceptHandler):
                yield block


def call_of(statement: ast.stmt) -> ast.Call | None:
    """Returns the call that a statement consists of."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return statement.value if is_call and not is_informing(statement) else None  # type: ignore[attr-defined]


def apply(text: str, edits: Sequence[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
