"""The documentation names what exists: files, tests, names in code, commands and their options.

Links and anchors are checked by `tools/tidy.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import cli_reference
import tidy
from barnabas.spark import source_options

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
LINKED_CODE = re.compile(r"\[`([^`]+)`\]\(([^)#\s]+\.py)\)")
#: A file or folder of this repository: a path with a slash, or the name of a file.
PATH = re.compile(r"\.?[A-Za-z_][\w.-]*(?:/[\w.-]+)*/?")
SUFFIXES = (".py", ".md", ".svg", ".toml", ".sh", ".yml", ".json", ".properties", ".pyx", ".gz", ".txt")
#: Files of a broker, a table or a client, not of this repository.
OTHER_FILES = re.compile(
    r"meta\.properties|server\.properties|(cluster|contexts|proof|ledger|plan|stats)\.json|conftest\.py|kafka-.*\.(sh|yml)"
)
#: Options of Spark and of Kafka's tools.
OTHER_OPTIONS = frozenset({"--conf", "--packages", "--py-files", "--zookeeper"})
FOLDERS = ("src", "tests", "examples", "tools", "docs", "bench", "deploy", ".github", ".ci")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
COMMAND = re.compile(r"(?:^|(?<=[\s`(/]))barnabas ([a-z][^\n]*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+|-[a-zA-Z])(?![\w-])")


class Shown(NamedTuple):
    """A command line that a document shows."""

    document: str
    line: int
    text: str


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose(path: Path) -> str:
    return "\n".join(line for _, line in tidy.prose(path.read_text(encoding="utf-8")))


# -- files


@cache
def names_of_files() -> frozenset[str]:
    """Returns the end of each path, from each folder on: `storage/log.py` and `log.py` for one file."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if "__pycache__" not in path.parts:
                parts = path.relative_to(ROOT).parts
                found.update("/".join(parts[begin:]) for begin in range(len(parts)))
    found.update(path.name for path in ROOT.iterdir())
    return frozenset(found)


def missing_files(text: str) -> Iterator[str]:
    for match in CODE.finditer(text):
        code = match.group(1)
        for path, test in TEST.findall(code):
            if not (ROOT / path).exists() or not re.search(rf"def {test}\b", (ROOT / path).read_text()):
                yield f"{path}::{test}"
        if PATH.fullmatch(code) and is_ours(code) and code.rstrip("/") not in names_of_files():
            yield code


def is_ours(code: str) -> bool:
    if "NAME" in code:
        return False
    if code.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
        return True
    return code.endswith(SUFFIXES) and not OTHER_FILES.fullmatch(code.rpartition("/")[2])


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_files_exist(path: Path) -> None:
    assert list(missing_files(prose(path))) == []


def test_a_missing_file_is_found() -> None:
    text = "`src/barnabas/nothing.py` `storage/log.py` `no_such.py` `a.b` `meta.properties` `tests/a.py::test_b`"
    assert list(missing_files(text)) == ["src/barnabas/nothing.py", "no_such.py", "tests/a.py::test_b"]


# -- names in code


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Functions, classes, methods (`Class.method`), and assigned names of a module and its classes."""
    found: set[str] = set()

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.update((node.name, prefix + node.name))
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update(target.id for target in targets if isinstance(target, ast.Name))

    walk(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def wrong_names(document: Path, text: str) -> Iterator[str]:
    """Links such as [`Log.read`](../src/barnabas/storage/log.py): the file defines the name."""
    for name, target in LINKED_CODE.findall(text):
        linked = document.parent / target
        if name.endswith(".py"):
            if not target.endswith(name.split("/")[-1]):
                yield f"{name} is linked to {target}"
        elif NAME.fullmatch(name) and linked.exists() and name not in defined_in(linked):
            yield f"{name} is not defined in {target}"


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_linked_names_are_defined(path: Path) -> None:
    assert list(wrong_names(path, prose(path))) == []


def test_a_wrong_name_is_found() -> None:
    log = "../src/barnabas/storage/log.py"
    text = f"[`Log.append_as_leader`]({log}) [`Log.burn`]({log}) [`other.py`]({log}) [`log.py`]({log}) [`Log`]({log})"
    assert list(wrong_names(ROOT / "docs" / "x.md", text)) == [
        f"Log.burn is not defined in {log}",
        f"other.py is linked to {log}",
    ]


# -- commands


@cache
def commands() -> dict[str, cli_reference.Command]:
    return cli_reference.commands()


def shown_commands(path: Path) -> Iterator[Shown]:
    """Yields command lines in code blocks, with their continuation lines, and in backticks."""
    name = path.relative_to(ROOT).as_posix()
    lines = path.read_text(encoding="utf-8").splitlines()
    fenced = False
    for number, line in enumerate(lines, 1):
        if tidy.FENCE.match(line):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            text = re.split(r"\s#\s", line)[0]
            begin = len(line) - len(line.lstrip())
            for further in lines[number:]:
                if "barnabas " in further or len(further) - len(further.lstrip()) <= begin + 4:
                    break
                text += " " + further.strip()
            for part in re.split(r"\|\s*(?=\S*barnabas )", text):
                yield from (Shown(name, number, match) for match in COMMAND.findall(part))
    for match in CODE.finditer(prose(path)):
        for found in COMMAND.findall(" ".join(match.group(1).split())):
            yield Shown(name, 0, found)


def problem_of(text: str) -> str | None:
    """Returns why a command line cannot be parsed: an unknown command, or an unknown option."""
    words = re.sub(r"[\[\](),]", " ", text).split()
    names = alternatives(words.pop(0))
    while words and any(name in commands() and commands()[name].subcommands for name in names):
        if words[0].startswith("-") or words[0] == "...":
            names += [f"{name} {inner}" for name in names for inner in commands()[name].subcommands]
            break
        inner = alternatives(words.pop(0))
        names = [f"{name} {word}" for name in names for word in inner]
    unknown = [name for name in names if name not in commands()]
    if unknown:
        return f"no command {unknown[0]}"
    options = frozenset({"--help"}).union(*(commands()[name].options for name in names))
    quoted = re.sub(r"\"[^\"]*\"|'[^']*'", "", " ".join(words))
    return next((f"{names[0]} has no option {found}" for found in OPTION.findall(quoted) if found not in options), None)


def alternatives(word: str) -> list[str]:
    return word.rstrip(".:;`").split("|")


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_commands_parse(path: Path) -> None:
    problems = [
        f"{shown.document}:{shown.line}: barnabas {shown.text}: {problem}"
        for shown in shown_commands(path)
        if (problem := problem_of(shown.text)) is not None
    ]
    assert problems == []


def test_commands_are_found_in_the_documents() -> None:
    found = [shown.text for path in documents() for shown in shown_commands(path)]
    assert len(found) > 100
    assert any("--to-datetime" in text and "--export" in text for text in found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("up --brokers 3", None),
        ("topics burn NAME", "no command topics burn"),
        ("burn", "no command burn"),
        ("up --brookers 3", "up has no option --brookers"),
        ("reassign execute|verify --reassignment-json-file FILE", None),
        ("groups list [PATTERN] [--jason]", "groups list has no option --jason"),
        ("groups", None),
        ('pipeline query "SELECT --x" --tables DIR', None),
    ],
)
def test_a_wrong_command_is_found(text: str, problem: str | None) -> None:
    assert problem_of(text) == problem


# -- options in prose


def known_options() -> frozenset[str]:
    """Returns the options of all commands, and those that a program of this repository defines."""
    found: set[str] = set().union(*(command.options for command in commands().values()))
    for folder in ("tools", "bench", "src", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found.update(re.findall(r"[\"'](--[a-z][a-z0-9-]+)", path.read_text(encoding="utf-8")))
    return frozenset(found)


def test_options_in_prose_exist() -> None:
    known = known_options() | OTHER_OPTIONS | {"--help", "--version"}
    wrong = [
        f"{path.name}: {option}"
        for path in documents()
        for code in CODE.findall(prose(path))
        if code.startswith("--")
        for option in OPTION.findall(code)[:1]
        if option not in known
    ]
    assert wrong == []


# -- options of the Spark source


def test_every_option_of_the_spark_source_is_described() -> None:
    described = {
        option
        for row in re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "spark.md").read_text(encoding="utf-8"), re.MULTILINE)
        for option in re.findall(r"`([a-zA-Z]+)`", row)
    }
    assert set(source_options._KNOWN) <= described
