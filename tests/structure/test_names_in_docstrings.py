"""Docstrings and comments of the product name modules, classes and attributes that exist.

A renamed module or class leaves its old name in the texts about it, which no other tool finds.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from barnabas.common import config_table, zookeeper_config_table

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ROOT / "src/barnabas"
#: A file as a text names it: `steps.py`, `broker/requests/steps.py`.
FILE = re.compile(r"(?<![\w/.-])[A-Za-z_][\w/]*\.py\b")
#: Names in backquotes with a dot: `raft.ready`, `raft.commits.CommitListener`, `Log.losses`.
DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
#: Files of users; keys of other programs, and classes of Apache Kafka with the name of one of ours.
OTHER_FILES = frozenset({"conftest.py"})
OTHER_NAMES = frozenset(
    {
        "ConfigResource.Type",
        "KafkaServer.brokerFeatures",
        "Topic.INTERNAL_TOPICS",
        "spark.sql.python.filterPushdown.enabled",
        "zookeeper.digest.enabled",
        "zookeeper.nio.sessionlessCnxnTimeout",
    }
)
#: Packages whose names are words of configuration keys and of files, too: `broker.id`, `metadata.version`.
KEY_WORDS = frozenset({"broker", "controller", "metadata", "zookeeper", "spark"})


class Text(NamedTuple):
    """A docstring or comment."""

    path: Path
    line: int
    text: str


class Code(NamedTuple):
    """The names in the product: those in each module, by its path in `barnabas`, and those in each class."""

    modules: dict[str, set[str]]
    classes: dict[str, set[str]]
    bases: dict[str, set[str]]


def sources() -> list[Path]:
    return [path for path in sorted(PRODUCT.rglob("*.py")) if "protocol/messages" not in path.as_posix()]


def module_of(path: Path) -> str:
    parts = path.relative_to(PRODUCT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_in(node: ast.AST) -> set[str]:
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.alias):
            found.add((each.asname or each.name).rpartition(".")[2])
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isidentifier():
            found.add(each.value)
    return found


@cache
def code() -> Code:
    modules: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules[module_of(path)] = names_in(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, set()).update(names_in(node))
                parents = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
                bases.setdefault(node.name, set()).update(parents)
    return Code(modules, classes, bases)


def texts_of(path: Path, source: str) -> Iterator[Text]:
    # Tokenizing all files takes 10 s.
    if not FILE.search(source) and not DOTTED.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            yield Text(path, token.start[0], token.string)


@cache
def texts() -> list[Text]:
    return [text for path in sources() for text in texts_of(path, path.read_text(encoding="utf-8"))]


@cache
def files() -> frozenset[str]:
    folders = ("src", "tests", "tools", "bench", "examples")
    return frozenset(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


def is_file(path: Path, name: str) -> bool:
    """Returns whether a text in `path` can name this file: one in its own folder or below, or any other by a path."""
    if "/" in name:
        return any(PurePosixPath(file).match(name) for file in files())
    return any(path.parent.rglob(name))


def has(name: str, attribute: str, seen: frozenset[str] = frozenset()) -> bool:
    """Returns whether a class, or a base of it, has the attribute. Bases of other libraries can have any."""
    if name not in code().classes:
        return name not in ("Protocol", "NamedTuple", "Exception", "object", "Generic", "IntEnum", "StrEnum", "Enum")
    more = code().bases[name] - seen - {name}
    return attribute in code().classes[name] or any(has(base, attribute, seen | {name}) for base in more)


def problem_of(dotted: str) -> str | None:
    """Returns why a dotted name does not exist; None if it does, or if it is not a name in this product."""
    parts = dotted.removeprefix("barnabas.").split(".")
    if len(parts) == 1 or dotted in OTHER_NAMES or dotted in _keys() or ".".join(parts) in code().modules:
        return None
    if parts[-2] in code().classes:
        return None if has(parts[-2], parts[-1]) else f"class {parts[-2]} has no {parts[-1]}"
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        if module in code().modules:
            is_key = end == 1 and parts[0] in KEY_WORDS and len(parts) == 2
            found = code().modules[module]
            return None if is_key or parts[end] in found else f"module {module} has no {parts[end]}"
    return None


@cache
def _keys() -> frozenset[str]:
    rows = [*config_table.BROKER, *config_table.TOPIC, *zookeeper_config_table.BROKER]
    return frozenset(row[0] for row in rows)


def test_files_in_texts_exist() -> None:
    wrong = [
        f"{text.path.relative_to(ROOT)}:{text.line}: {name}"
        for text in texts()
        for name in FILE.findall(text.text)
        if name not in OTHER_FILES and not is_file(text.path, name)
    ]
    assert wrong == []


def test_names_in_texts_exist() -> None:
    wrong = [
        f"{text.path.relative_to(ROOT)}:{text.line}: `{dotted}`: {problem}"
        for text in texts()
        for dotted in DOTTED.findall(text.text)
        if not dotted.endswith(".py") and (problem := problem_of(dotted))
    ]
    assert wrong == []


def test_old_names_are_found() -> None:
    """The names that the texts had after renamings: each is found."""
    path = PRODUCT / "zookeeper/server/zookeeper_server.py"
    assert is_file(path, "session_requests.py")
    assert not is_file(path, "requests.py")
    assert not is_file(path, "broker/requests.py")
    assert problem_of("raft.commits.CommitListener") is None
    assert problem_of("raft.commits.Listener") == "module raft.commits has no Listener"
    assert problem_of("ControllerListener.on_decision") is None
    assert problem_of("Controller.journal") == "class Controller has no journal"
    assert problem_of("broker.requests.steps") is None
    assert problem_of("broker.requests.pauses") == "module broker.requests has no pauses"
