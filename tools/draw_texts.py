"""Draws texts at random for a reading without the code: docstrings, comments, help texts, log lines and error messages.

    python tools/draw_texts.py [--seed SEED] [--count 150] [--places]

A reader says what each text describes. Texts that leave this open are rewritten, and the next draw is made, until
fewer than 2 of 150 fail twice in a row. Without --seed, the commit is the seed: the same commit draws the same texts.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import subprocess
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidy import GENERATED, SKIPPED_FOLDERS

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("src", "tests/support", "tools", "bench", "examples")
#: Shorter strings are names, and shorter comments are units.
_MESSAGE_WORDS_MIN: Final = 4
_COMMENT_WORDS_MIN: Final = 3
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """A text that an engineer reads. `subject` is the name that a docstring belongs to."""

    path: str
    line: int
    kind: str
    subject: str
    text: str


def texts(root: Path) -> list[Text]:
    """Returns all texts, in the order of files and lines."""
    found: list[Text] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name.startswith(GENERATED) or SKIPPED_FOLDERS.intersection(path.relative_to(root).parts):
                continue
            source = path.read_text(encoding="utf-8")
            found += sorted((*_strings(name, ast.parse(source)), *_comments(name, source)), key=lambda text: text.line)
    return found


def _strings(name: str, tree: ast.Module) -> Iterator[Text]:
    known: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node)) is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            known.add(statement.value)
            subject = "" if isinstance(node, ast.Module) else node.name
            yield Text(name, statement.lineno, "docstring", subject, docstring)
        elif isinstance(node, ast.JoinedStr):
            known.update(node.values)
    for node in ast.walk(tree):
        if node in known or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = node.value if isinstance(node, ast.Constant) else ast.unparse(node)[2:-1]
        if isinstance(text, str) and len(text.split()) >= _MESSAGE_WORDS_MIN:
            yield Text(name, node.lineno, "message", "", text)


def _comments(name: str, source: str) -> Iterator[Text]:
    """Yields the comments; lines below each other are one."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and (token.start[0] != block[-1].start[0] + 1 or token.start[1] != block[-1].start[1]):
                yield from _joined(name, block)
                block = []
            block.append(token)
    yield from _joined(name, block)


def _joined(name: str, block: list[tokenize.TokenInfo]) -> Iterator[Text]:
    text = " ".join(token.string.lstrip("#:").strip() for token in block)
    if len(text.split()) >= _COMMENT_WORDS_MIN and not text.startswith(("--", "type:", "noqa")):
        yield Text(name, block[0].start[0], "comment", "", text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws texts at random for a reading without the code")
    parser.add_argument("--seed", help="draw by this seed instead of the commit")
    parser.add_argument("--count", type=int, default=150, help="the number of texts")
    parser.add_argument("--places", action="store_true", help="print the file and line of each text")
    options = parser.parse_args()
    seed = options.seed
    if seed is None:
        command = ["git", "rev-parse", "HEAD"]
        seed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    found = texts(ROOT)
    print(f"{options.count} of {len(found)} texts, seed {seed}")
    for number, text in enumerate(random.Random(seed).sample(found, options.count), 1):
        place = f" {text.path}:{text.line}" if options.places else ""
        print(f"\n{number}. {text.kind}{place} {text.subject}".rstrip())
        print(textwrap.indent(text.text, "    "))


if __name__ == "__main__":
    main()
