"""Secrets are compared in constant time (CVE-2021-38153): the code of log-ins has no `==` on names of secrets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import barnabas

PACKAGE: Final = Path(barnabas.__file__).parent
FILES: Final = (
    *sorted((PACKAGE / "protocol" / "sasl").glob("*.py")),
    PACKAGE / "protocol" / "sasl_gate.py",
    PACKAGE / "broker" / "requests" / "log_in.py",
    PACKAGE / "broker" / "requests" / "token_requests.py",
    PACKAGE / "broker" / "token_users.py",
    PACKAGE / "controller" / "requests" / "scram.py",
    PACKAGE / "controller" / "kraft" / "token_control.py",
    PACKAGE / "controller" / "kraft" / "tokens.py",
    PACKAGE / "metadata" / "tokens.py",
    PACKAGE / "console" / "security" / "passwords.py",
    *sorted((PACKAGE / "tls").glob("*.py")),
)
SECRET: Final = re.compile(
    r"password|salted|proof|signature|stored_key|server_key|client_key|secret|digest|expected|hmac"
)


def _name(node: ast.expr) -> str:
    """Returns the name of a value; for a call that of the function's result, unless it is its length."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _name(node.value) + ast.unparse(node.slice)
    if isinstance(node, ast.Call):
        function = ast.unparse(node.func)
        return "" if function == "len" else function
    return ""


def comparisons(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(each, ast.Eq | ast.NotEq | ast.In) for each in node.ops):
            names = [_name(each) for each in (node.left, *node.comparators)]
            if any(SECRET.search(name) for name in names):
                yield ast.unparse(node)


def test_no_secret_is_compared_with_equality() -> None:
    """Guard S4."""
    found = {path.name: list(comparisons(path.read_text("utf-8"))) for path in FILES}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert len(FILES) >= 8


def test_such_comparisons_are_found() -> None:
    assert list(comparisons("given.password == known")) == ["given.password == known"]
    assert list(comparisons("match['proof'] != x")) == ["match['proof'] != x"]
    assert list(comparisons("a == hmac.digest(k, m, 'sha256')")) == ["a == hmac.digest(k, m, 'sha256')"]
    assert list(comparisons("len(proof) != len(signature) or name == 'a'")) == []
