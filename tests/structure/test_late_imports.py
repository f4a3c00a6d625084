"""Imports by name, and circles of imports.

The core imports by name in one module, `common/late_imports.py`, and each of its callers has a reason. No module
imports itself by way of others, for types neither.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from barnabas.common import late_imports

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

#: The modules of the core that import by name, and why.
CALLERS = {
    "barnabas.broker.requests.handler_modules": "a handler is imported at the first request of its API",
    "barnabas.broker.requests.request_rights": "a node without an authorizer does not need the table of questions",
    "barnabas.decisions.strategies": "the strategy is a function of the user, which the configuration names",
    "barnabas.protocol.messages.index": "a message is imported at its first use: there are hundreds",
    "barnabas.protocol.sasl.signed_tokens": "joserfc takes 11 MB, and only OAUTHBEARER with a key set needs it",
    "barnabas.records.checksum": "the extension module of a package, whose own imports take 25 ms",
    "barnabas.records.compression": "a compression package is imported at its first use",
    "barnabas.records.walk": "the compiled module exists only where it could be built",
}
WAYS = {"importlib", "__import__", "import_module", "runpy", "pkgutil"}


@cache
def sources() -> dict[str, str]:
    found = {}
    for path in sorted((SOURCE / "barnabas").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def modules() -> dict[str, ast.Module]:
    return {name: ast.parse(source) for name, source in sources().items()}


def core() -> tuple[str, ...]:
    """Returns the packages that are forbidden everything outside."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    forbidden = next(each for each in contracts if "barnabas.raft" in each.get("source_modules", ()))
    return tuple(forbidden["source_modules"])


def is_core(name: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in core())


def names_in(tree: ast.Module) -> set[str]:
    """Returns all names that the module uses or imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= set(node.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= set(node.module.split("."))
    return found


def test_the_core_imports_by_name_in_one_module() -> None:
    core_modules = {name: tree for name, tree in modules().items() if is_core(name)}
    assert len(core_modules) > 300
    words = {*WAYS, "late_imports"}
    used = {
        name: names_in(tree) for name, tree in core_modules.items() if any(word in sources()[name] for word in words)
    }
    assert [name for name, names in used.items() if names & WAYS] == ["barnabas.common.late_imports"]
    assert {name for name, names in used.items() if "late_imports" in names} == set(CALLERS)


@pytest.mark.parametrize(
    "code",
    [
        "import importlib",
        "import importlib.util as util",
        "from importlib import import_module as load",
        "found = __import__(name)",
        "import pkgutil",
        "from barnabas.common import late_imports",
        "from barnabas.common.late_imports import load",
    ],
)
def test_each_way_to_import_by_name_is_found(code: str) -> None:
    assert names_in(ast.parse(code)) & {*WAYS, "late_imports"}


def test_a_module_that_is_missing() -> None:
    assert late_imports.load_optional("barnabas.no_such_module") is None
    with pytest.raises(ModuleNotFoundError):
        late_imports.load("barnabas.no_such_module")
    assert late_imports.load_optional("barnabas.common.late_imports") is late_imports


# Circles.


def imports_of(name: str, tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    """Yields the modules of `known` that this one imports, also those for types only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ({alias.name for alias in node.names} & set(known)) - {name}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found = inner if inner in known else node.module
                if found in known and found != name:
                    yield found


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the groups of modules of which each imports each other one, directly or not."""
    left = {name: set(found) for name, found in imports.items()}
    while ends := {name for name, found in left.items() if not found & left.keys()}:
        left = {name: found for name, found in left.items() if name not in ends}
    while ends := set(left) - set().union(*left.values()) if left else set():
        left = {name: found for name, found in left.items() if name not in ends}
    return [sorted(left)] if left else []


def test_no_module_imports_itself_by_way_of_others() -> None:
    trees = modules()
    assert circles({name: set(imports_of(name, tree, trees)) for name, tree in trees.items()}) == []


def test_a_circle_is_found() -> None:
    trees = {
        "p.a": ast.parse("from p import b"),
        "p.b": ast.parse("if TYPE_CHECKING:\n    from p.c import C"),
        "p.c": ast.parse("def f():\n    import p.a"),
        "p.d": ast.parse("import p.a"),
        "p.e": ast.parse("import p.f"),
        "p.f": ast.parse(""),
    }
    found = {name: set(imports_of(name, tree, trees)) for name, tree in trees.items()}
    assert found["p.b"] == {"p.c"}
    assert circles(found) == [["p.a", "p.b", "p.c"]]
