"""The usual operators of mutation testing: comparisons, conditions, numbers and single statements.

An operator is a function that yields changes of one function of the product.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from mutation.sources import Change, Edit, Scope, Source, blocks, body_of, call_of, is_informing, name_of, nodes

Operator = Callable[[Source, Scope], Iterator[Change]]

_TOKENS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_COMPARISONS: dict[str, dict[str, str]] = {
    "boundary": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
    "equal-for-order": {"<=": "==", ">=": "==", "<": "!=", ">": "!="},
    "order-for-equal": {"==": "<=", "!=": "<"},
    "opposite": {"==": "!=", "!=": "==", "is": "is not", "is not": "is", "in": "not in", "not in": "in"},
}
#: Names of numbers at which something begins or ends.
_BOUNDARY = re.compile(r"(offset|epoch|watermark|_end|_start|leo|version|position|point)$")


def comparisons(source: Source, scope: Scope) -> Iterator[Change]:
    for node in nodes(scope.function):
        if not isinstance(node, ast.Compare):
            continue
        for (left, right), sign in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            token = _TOKENS[type(sign)]
            for name, changes in _COMPARISONS.items():
                if token in changes and not (name == "order-for-equal" and _is_no_number(right)):
                    yield Change(name, node.lineno, (_token(source, left, right, token, changes[token]),))


def _is_no_number(node: ast.expr) -> bool:
    """Returns whether the value is certainly not a number: a text, a collection, a member of an enumeration, or a
    boolean.
    """
    is_member = isinstance(node, ast.Attribute) and (node.attr.isupper() or name_of(node.value)[:1].isupper())
    is_other = isinstance(node, ast.Constant) and (isinstance(node.value, bool) or not isinstance(node.value, int))
    return is_member or is_other or isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Set | ast.JoinedStr)


def _token(source: Source, left: ast.expr, right: ast.expr, token: str, new: str) -> Edit:
    begin, end = source.span(left)[1], source.span(right)[0]
    pattern = re.escape(token).replace(r"\ ", r"\s+")
    found = re.search(rf"(?<![\w<>=!]){pattern}(?![\w<>=!])", source.text[begin:end])
    assert found is not None, (source.text[begin:end], token)
    return Edit(begin + found.start(), begin + found.end(), new)


def off_by_one(source: Source, scope: Scope) -> Iterator[Change]:
    for node in nodes(scope.function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _is_int(node.right, 1):
            yield Change("off-by-one", node.lineno, (source.replace(node, source.text_of(node.left)),))
        elif isinstance(node, ast.Slice):
            for bound in (node.lower, node.upper):
                if bound is not None and not _is_one_more(bound):
                    yield Change("off-by-one", bound.lineno, (source.replace(bound, _more(source, bound)),))
        elif isinstance(node, ast.Assign) and _BOUNDARY.search(name_of(node.targets[0])) and _is_computed(node.value):
            yield Change("off-by-one", node.lineno, (source.replace(node.value, _more(source, node.value)),))


def _is_computed(node: ast.expr) -> bool:
    return not isinstance(node, ast.Constant | ast.Tuple | ast.Lambda) and not _is_one_more(node)


def _more(source: Source, node: ast.expr) -> str:
    return f"({source.text_of(node)}) + 1"


def _is_one_more(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and _is_int(node.right, 1)


def _is_int(node: ast.expr, value: int | None = None) -> bool:
    is_int = isinstance(node, ast.Constant) and type(node.value) is int
    return is_int and (value is None or node.value == value)  # type: ignore[attr-defined]


def constants(source: Source, scope: Scope) -> Iterator[Change]:
    ones = {id(node.right) for node in nodes(scope.function) if isinstance(node, ast.BinOp) and _is_int(node.right, 1)}
    for node in nodes(scope.function):
        if not isinstance(node, ast.Constant) or id(node) in ones:
            continue
        if isinstance(node.value, bool):
            yield Change("constant", node.lineno, (source.replace(node, str(not node.value)),))
        elif isinstance(node.value, int):
            yield Change("constant", node.lineno, (source.replace(node, str(node.value + 1)),))


def conditions(source: Source, scope: Scope) -> Iterator[Change]:
    for node in nodes(scope.function):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            test = node.test
            if not isinstance(test, ast.UnaryOp | ast.Constant) and not _has_opposite(test):
                yield Change("negate", test.lineno, (source.replace(test, f"not ({source.text_of(test)})"),))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield Change("drop-not", node.lineno, (source.replace(node, source.text_of(node.operand)),))
        elif isinstance(node, ast.BoolOp):
            yield from _connectives(source, node)


def _has_opposite(test: ast.expr) -> bool:
    """Returns whether `comparisons` yields the negation."""
    is_single = isinstance(test, ast.Compare) and len(test.ops) == 1
    return is_single and _TOKENS[type(test.ops[0])] in _COMPARISONS["opposite"]  # type: ignore[attr-defined]


def _connectives(source: Source, node: ast.BoolOp) -> Iterator[Change]:
    is_and = isinstance(node.op, ast.And)
    for value in node.values:
        yield Change("drop-condition", value.lineno, (source.replace(value, str(is_and)),))
    old, new = ("and", "or") if is_and else ("or", "and")
    edits = tuple(_token(source, left, right, old, new) for left, right in pairwise(node.values))
    yield Change("and-or", node.lineno, edits)


def arithmetic(source: Source, scope: Scope) -> Iterator[Change]:
    for node in nodes(scope.function):
        if isinstance(node, ast.Call) and name_of(node.func) in ("min", "max") and isinstance(node.func, ast.Name):
            other = "max" if node.func.id == "min" else "min"
            yield Change("min-max", node.lineno, (source.replace(node.func, other),))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _is_of_numbers(node):
            old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            begin, end = source.span(node.left)[1], source.span(node.right)[0]
            place = begin + source.text[begin:end].index(old)
            yield Change("plus-minus", node.lineno, (Edit(place, place + 1, new),))


def _is_of_numbers(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    kinds = (ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.Subscript)
    return not _is_int(node.right, 1) and all(isinstance(side, kinds) or _is_int(side) for side in sides)


def statements(source: Source, scope: Scope) -> Iterator[Change]:
    """Drops single statements; a constructor keeps its attributes, without which nothing works."""
    is_constructor = scope.function.name == "__init__"
    for block in blocks(scope.function):
        for statement in block:
            if is_constructor and isinstance(statement, ast.Assign):
                continue
            is_stored = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name | ast.Tuple)
            if is_stored or call_of(statement) is not None or isinstance(statement, ast.AugAssign | ast.Delete):
                yield Change("drop-statement", statement.lineno, (source.replace(statement, "pass"),))


def early_returns(source: Source, scope: Scope) -> Iterator[Change]:
    """Ends a function without a result before it is done."""
    returns = scope.function.returns
    if not (isinstance(returns, ast.Constant) and returns.value is None) or scope.function.name == "__init__":
        return
    for statement in body_of(scope.function)[1:]:
        if not isinstance(statement, ast.Return | ast.FunctionDef) and not is_informing(statement):
            yield Change("return-early", statement.lineno, (source.replace(statement, "return"),))


def swaps(source: Source, scope: Scope) -> Iterator[Change]:
    """Exchanges two adjacent calls, or a call and an assignment to an attribute."""
    for block in blocks(scope.function):
        for one, other in pairwise(block):
            if call_of(one) is None and call_of(other) is None:
                continue
            if _is_effect(one) and _is_effect(other) and source.text_of(one) != source.text_of(other):
                yield swap(source, "swap", one, other)


def _is_effect(statement: ast.stmt) -> bool:
    is_stored = isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name | ast.Tuple)
    return is_stored or call_of(statement) is not None


def swap(source: Source, operator: str, one: ast.stmt, other: ast.stmt) -> Change:
    edits = (source.replace(one, source.text_of(other)), source.replace(other, source.text_of(one)))
    return Change(operator, other.lineno, edits)


OPERATORS: Sequence[Operator] = (
    comparisons,
    off_by_one,
    constants,
    conditions,
    arithmetic,
    swaps,
    early_returns,
    statements,
)
