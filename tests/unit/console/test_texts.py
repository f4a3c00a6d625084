"""All English texts of the page are in one file of its sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

UI = Path(__file__).resolve().parents[3] / "src/barnabas/console/ui"
TEXTS = UI / "core/texts.js"
SOURCES = [each for folder in ("core", "parts", "pictures", "screens") for each in sorted((UI / folder).glob("*.js"))]
_COMMENTS = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
_IMPORTS = re.compile(r"^import .*$", re.MULTILINE)
#: A text between two tags, and that of an attribute which is seen or spoken.
_NODE = re.compile(r"<[a-z/][^<>`=]*(?:=\"[^\"]*\"[^<>`=]*)*>([^<>`{}=&;]+)</")
_ATTRIBUTE = re.compile(r"""\b(?:title|aria-label|placeholder|label|verb|lead|hint|empty)="([^"]*[A-Za-z]{2}[^"]*)\"""")
_STRING = re.compile(r"""'((?:[^'\\\n]|\\.)*)'""")
#: A word beside an expression, which is neither a class, nor a key, nor an attribute.
_BESIDE = re.compile(
    r"\b(?!dialog|empty)[A-Za-z]{2,} \$\{[^{}`]*\}"
    r"|\$\{[^{}`]*\},? (?!is[A-Z]|download|autofocus)[A-Za-z]{2,}(?![\w-]*=)"
)
#: Several words, or one as it begins a sentence.
_PHRASE = re.compile(r"[A-Za-z]{2,}[,.;:]? [A-Za-z(“]|^[A-Z][a-z]+")
#: Names of keys, errors, headers, classes and fonts, and the state of a link.
_NAMES = re.compile(
    r"Arrow\w+|Page(?:Up|Down)|Home|End|Enter|Escape|\w+Error|Content-Type|X-Barnabas-Token|User:|was lost"
    r"|.*system-ui.*|(?:table-box|lag|end|code|list|chip|frame) [a-z-]+"
    r"|(?:input|a|button|tr).*[,\[:].*|M[\d.]+ ?[\d.].*|\(.*\)"
)


def texts_in(source: str) -> Iterator[str]:
    code = _IMPORTS.sub("", _COMMENTS.sub("", source))
    for found in (*_NODE.findall(code), *_ATTRIBUTE.findall(code), *_BESIDE.findall(code)):
        if re.search(r"[A-Za-z]{2}", found):
            yield found.strip()
    for found in _STRING.findall(code):
        if _PHRASE.search(found) and not _NAMES.fullmatch(found.strip()):
            yield found


@pytest.mark.parametrize("path", [each for each in SOURCES if each != TEXTS], ids=lambda each: each.name)
def test_a_source_has_no_text_of_its_own(path: Path) -> None:
    assert list(texts_in(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "html`<h2>Brokers</h2>`",
        'html`<${Table} label="Groups" />`',
        "say('Done')",
        "throw new Error('There are no partitions in it.')",
        "const hint = `at most ${count} records`",
    ],
)
def test_a_text_is_found(source: str) -> None:
    assert list(texts_in(source))


def test_no_text_is_there_in_vain() -> None:
    """Every group of texts, and every text of a group, is used by a source."""
    code = "\n".join(each.read_text(encoding="utf-8") for each in SOURCES if each != TEXTS)
    group, unused = "", []
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"  (\w+): \{", line):
            group = found[1]
        elif (found := re.match(r"    (\w+): ", line)) and not re.search(rf"texts\.{group}(?:\.{found[1]}\b|\[)", code):
            unused.append(f"{group}.{found[1]}")
    assert unused == []
