"""Rules of this repository that ruff, mypy and import-linter do not check. `make lint` and tests/structure run it.

    python tools/tidy.py [ROOT]      prints "file:line: what" for each finding; exit code 1 if there are any

The limits of sizes hold for all Python that is written by hand; those of classes hold outside tests/, where a class is
a list of cases. The rules of the core hold for the packages below server/ and simulation/, where time, chance and files
come through ports. Where a rule cannot be kept, the code or the rule is changed: no comment in the code suppresses a
finding. An exception is part of a rule, for all code: `BROAD_EXCEPT_ALLOWED`, `GENERATED`, and properties, which do not
count as methods.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

FILE_LINES_MAX = 560
FUNCTION_LINES_MAX = 60
CLASS_METHODS_MAX = 25
CONSTRUCTOR_PARAMETERS_MAX = 8
MODULE_DOCSTRING_LINES_MAX = 25

SOURCE_FOLDERS = ("src", "tests", "tools", "bench", "examples")
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "data"})
GENERATED = (
    "src/barnabas/protocol/messages/",
    "src/barnabas/common/config_table.py",
    "src/barnabas/common/zookeeper_config_table.py",
)
CORE_PACKAGES = frozenset(
    {
        "common",
        "protocol",
        "records",
        "storage",
        "metadata",
        "raft",
        "replication",
        "controller",
        "coordinators",
        "broker",
        "histories",
        "zookeeper",
        "znodes",
    }
)
#: Calls that the core must not make, and what to use instead.
CORE_BANNED_CALLS = {
    "open": "host.disk",
    "input": "nothing: the core reads no terminal",
    "print": "host.faults.report",
    "datetime.now": "host.clock.wall_ms",
    "datetime.utcnow": "host.clock.wall_ms",
    "datetime.today": "host.clock.wall_ms",
    "date.today": "host.clock.wall_ms",
    "uuid.uuid1": "host.random.uuid",
    "uuid.uuid4": "host.random.uuid",
    "uuid4": "host.random.uuid",
    "id": "a name or a number of its own",
}
#: The packages below src/barnabas whose docstrings, comments and messages are in plain English.
PLAIN_PACKAGES = frozenset(
    {
        "broker",
        "cli",
        "common",
        "console",
        "controller",
        "coordinators",
        "decisions",
        "embedded",
        "histories",
        "history",
        "journal",
        "metadata",
        "monitor",
        "orders",
        "pipelines",
        "protocol",
        "raft",
        "records",
        "replication",
        "server",
        "simulation",
        "spark",
        "storage",
        "testing",
        "tls",
        "whatif",
        "zookeeper",
        "znodes",
    }
)
#: The other folders whose texts are in plain English.
PLAIN_FOLDERS = ("bench/", "examples/", "tests/", "tools/")
#: Words that leave the subject of a docstring open if they begin it: prepositions and bare pronouns.
UNCLEAR_OPENING = re.compile(
    r"(about|above|after|against|along|also|among|around|as|at|because|before|behind|below|beside|besides|between|"
    r"beyond|but|by|during|even|except|for|from|in|inside|into|like|nor|of|off|on|onto|or|out|outside|over|since|so|"
    r"through|to|toward|towards|under|until|unless|up|upon|with|within|without|everybody|everything|he|her|hers|him|"
    r"his|it|its|nobody|none|she|somebody|that|their|them|these|they|this|those|what|whatever|whenever|where|"
    r"whereas|which|whichever|while|who|whoever|whom|whose)\b",
    re.IGNORECASE,
)
#: The same for comments, where a preposition can begin a clause: "Without a session, ..." is a good comment.
UNCLEAR_COMMENT = re.compile(
    r"(also|around|because|besides|even|everybody|he|her|him|his|inside|it|its|like|nobody|nor|of|or|she|so|somebody|"
    r"still|their|them|these|they|those|until|what|whatever|whenever|where|whereas|which|whichever|who|whoever|whom|"
    r"whose|within)\b",
    re.IGNORECASE,
)
#: A participle whose subject has to be guessed: "Made by ...", "Sent when ...".
UNCLEAR_PARTICIPLE = re.compile(
    r"(added|asked|called|carried out|checked|created|decided|deleted|done|drawn|filled|found|kept|made|omitted|"
    r"recorded|reported|rounded|sent|set|stored|taken|told|used|written) "
    r"(after|again|alone|also|as|at|because|before|by|during|first|for|from|if|in|instead|last|near|on|once|only|"
    r"per|so|twice|unless|until|up|when|while|with|without)\b",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"(?P<code>\s*|.*?\s\s)#:? ?(?P<text>.*)$")
#: Phrases that an engineer of Kafka would not write, and what is meant. The brackets keep the rule from finding itself.
COINAGES = {
    "hear[ ]of": "learn, receive",
    "hears[ ]of": "learns, is notified",
    "heard[ ]of": "known, contacted",
    "tells[ ]of": "reports",
    "told[ ]of": "notified, informed",
    "witnesse[d]": "recorded",
    "testimon[y]": "record",
    "hung[ ]up": "closed the connection",
    "hangs[ ]up": "closes the connection",
    "wis[h]": "request",
    "wishe[s]": "requests",
    "nobody[ ]in[ ]particular": "no owner",
    "as[ ]good[ ]as": "equivalent to",
    "for[ ]ever": "forever",
    "goes[ ]on": "continues",
    "go[ ]on": "continue",
    "gone[ ]on": "continued",
    "went[ ]on": "continued",
    "tells[ ]whether": "returns whether",
    "also[ ]if": "even if",
    "metadata[ ]do": "metadata does",
    "metadata[ ]have": "metadata has",
    "metadata[ ]say": "metadata says",
}
_COINAGE = re.compile(rf"\b({'|'.join(COINAGES)})\b", re.IGNORECASE)
#: Files where a broad `except Exception` is allowed: it turns a crash into an answer or a log line.
BROAD_EXCEPT_ALLOWED = (
    "src/barnabas/common/continuations.py",
    "src/barnabas/console/messages/schemas.py",
    "src/barnabas/decisions/strategies.py",
    "src/barnabas/controller/zookeeper/runtime.py",
    "src/barnabas/server/",
    "src/barnabas/simulation/",
)
_PROPERTY = frozenset({"property", "cached_property", "setter"})
_ANNOTATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign)
LEFTOVER = re.compile(r"#.*\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def check(root: Path) -> list[Finding]:
    """Returns all findings below `root`, in the order of file and line."""
    found: list[Finding] = []
    for path in python_files(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith(GENERATED):
            found.extend(check_python(name, path.read_text(encoding="utf-8")))
    for path in markdown_files(root):
        found.extend(check_markdown(root, path))
    return sorted(found)


def python_files(root: Path) -> Iterator[Path]:
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts):
                yield path


def markdown_files(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.md"))
    for folder in ("docs", *SOURCE_FOLDERS):
        for path in sorted((root / folder).rglob("*.md")):
            if not SKIPPED_FOLDERS.intersection(path.relative_to(root).parts):
                yield path


def check_python(name: str, text: str) -> Iterator[Finding]:
    """Yields the findings in one file. `name` is its path below the root, with slashes."""
    lines = text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield Finding(name, FILE_LINES_MAX + 1, f"{len(lines)} lines, {FILE_LINES_MAX} are allowed: split by noun")
    for number, line in enumerate(lines, 1):
        if LEFTOVER.search(line):
            yield Finding(name, number, "a leftover note: do it, or file an issue")
    tree = ast.parse(text, name)
    yield from _check_header(name, tree)
    for node in ast.walk(tree):
        for rule in _RULES:
            yield from rule(name, node)
    if _in_core(name):
        yield from _check_core(name, tree)
    if _is_plain(name):
        yield from _check_english(name, tree, lines)


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    is_package = parts[:2] == ["src", "barnabas"] and len(parts) > 3 and parts[2] in PLAIN_PACKAGES
    return is_package or name.startswith(PLAIN_FOLDERS)


def _check_english(name: str, tree: ast.Module, lines: list[str]) -> Iterator[Finding]:
    """Yields docstrings and comments with an unclear first word, help texts that end with a full stop, and coinages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node) or ""
            opening = UNCLEAR_OPENING.match(docstring) or UNCLEAR_PARTICIPLE.match(docstring)
            if opening:
                text = f"a docstring opens with {opening.group()!r}: name the subject, or begin with a verb"
                yield Finding(name, node.body[0].lineno, text)
        elif isinstance(node, ast.keyword) and node.arg == "help":
            value = node.value
            if isinstance(value, ast.Constant) and str(value.value).endswith("."):
                yield Finding(name, value.lineno, "a help text ends with a full stop")
    yield from _check_comments(name, lines)
    for number, line in enumerate(lines, 1):
        for match in _COINAGE.finditer(line):
            found = match.group()
            meant = next(text for phrase, text in COINAGES.items() if re.fullmatch(phrase, found, re.IGNORECASE))
            yield Finding(name, number, f"{found!r} is not plain English: write {meant}")


def _check_comments(name: str, lines: list[str]) -> Iterator[Finding]:
    """Yields comments with an unclear first word. A line that continues the comment above it is not its beginning."""
    column = -1
    for number, line in enumerate(lines, 1):
        comment = _COMMENT.match(line)
        if comment is None:
            column = -1
            continue
        is_alone = not comment["code"].strip()
        is_continued = is_alone and len(comment["code"]) == column
        column = len(comment["code"]) if is_alone else -1
        opening = UNCLEAR_COMMENT.match(comment["text"]) or UNCLEAR_PARTICIPLE.match(comment["text"])
        if opening and not is_continued:
            yield Finding(
                name, number, f"a comment opens with {opening.group()!r}: name the subject, or begin with a verb"
            )


def _check_header(name: str, tree: ast.Module) -> Iterator[Finding]:
    if not tree.body:
        return
    docstring = ast.get_docstring(tree)
    if docstring is None:
        yield Finding(name, 1, "no module docstring: say what it owns")
    elif len(docstring.splitlines()) > MODULE_DOCSTRING_LINES_MAX:
        yield Finding(name, 1, f"module docstring longer than {MODULE_DOCSTRING_LINES_MAX} lines")
    code = tree.body[1:] if docstring is not None else tree.body
    future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in code)
    if not future and any(isinstance(node, _ANNOTATED) for node in code):
        yield Finding(name, 1, "no `from __future__ import annotations`")


def _check_function(name: str, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield Finding(name, node.lineno, f"{node.name}: {length} lines, {FUNCTION_LINES_MAX} are allowed")


def _check_class(name: str, node: ast.AST) -> Iterator[Finding]:
    if not isinstance(node, ast.ClassDef) or name.startswith("tests/"):
        return
    functions = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    methods = [item for item in functions if not _is_property(item)]
    if len(methods) > CLASS_METHODS_MAX:
        yield Finding(name, node.lineno, f"{node.name}: {len(methods)} methods, {CLASS_METHODS_MAX} are allowed")
    for method in functions:
        arguments = method.args
        count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
        if method.name == "__init__" and count > CONSTRUCTOR_PARAMETERS_MAX:
            text = f"{node.name}: {count} constructor parameters, {CONSTRUCTOR_PARAMETERS_MAX} are allowed"
            yield Finding(name, method.lineno, text)


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Returns whether a method is a property, which reads like an attribute and is not counted."""
    return any(ast.unparse(item).split(".")[-1] in _PROPERTY for item in function.decorator_list)


def _check_except(name: str, node: ast.AST) -> Iterator[Finding]:
    if not name.startswith("src/") or not isinstance(node, ast.ExceptHandler):
        return
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    broad = any(item is None or (isinstance(item, ast.Name) and item.id == "Exception") for item in caught)
    last = node.body[-1]
    passes_on = isinstance(last, ast.Raise) and last.exc is None
    if broad and not passes_on and not name.startswith(BROAD_EXCEPT_ALLOWED):
        yield Finding(name, node.lineno, "a broad except: name what you can handle")


_RULES: tuple[Callable[[str, ast.AST], Iterator[Finding]], ...] = (_check_function, _check_class, _check_except)


def _in_core(name: str) -> bool:
    parts = name.split("/")
    return parts[:2] == ["src", "barnabas"] and len(parts) > 3 and parts[2] in CORE_PACKAGES


def _check_core(name: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield Finding(name, node.lineno, "the core never waits: no async, no await")
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CORE_BANNED_CALLS:
                yield Finding(name, node.lineno, f"{called}() in the core: use {CORE_BANNED_CALLS[called]}")
        elif isinstance(node, ast.FunctionDef):
            yield from _imports_of_ours(name, node)


def _imports_of_ours(name: str, function: ast.FunctionDef) -> Iterator[Finding]:
    """Yields the imports inside a function, which hide a dependency between packages, often a cycle."""
    for node in ast.walk(function):
        ours = (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("barnabas")) or (
            isinstance(node, ast.Import) and any(alias.name.startswith("barnabas") for alias in node.names)
        )
        if ours and isinstance(node, ast.stmt):
            yield Finding(name, node.lineno, f"an import of ours inside {function.name}: put it at the top")


def check_markdown(root: Path, path: Path) -> Iterator[Finding]:
    """Yields the findings in a Markdown file: it has one title, and its links lead to files and headings that exist."""
    name = path.relative_to(root).as_posix()
    lines = list(prose(path.read_text(encoding="utf-8")))
    titles = [number for number, line in lines if line.startswith("# ")]
    if len(titles) != 1:
        yield Finding(name, titles[1] if titles else 1, f"{len(titles)} titles (`# ...`), exactly one is wanted")
    for number, line in lines:
        for match in LINK.finditer(line):
            target = match.group(1) or match.group(2)
            if problem := _broken(path, target):
                yield Finding(name, number, f"link to {target}: {problem}")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yields the numbered lines outside fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def _broken(source: Path, target: str) -> str | None:
    if re.match(r"[a-z]+:", target):
        return None
    file, _, anchor = target.partition("#")
    pointed = (source.parent / file) if file else source
    if not pointed.exists():
        return "no such file"
    if anchor and pointed.suffix == ".md" and anchor not in _anchors(pointed):
        return "no such heading"
    return None


def _anchors(path: Path) -> set[str]:
    """Returns the anchors that GitHub makes from the headings."""
    found = (HEADING.match(line) for _, line in prose(path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", match.group(1).lower()).replace(" ", "-") for match in found if match}


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
