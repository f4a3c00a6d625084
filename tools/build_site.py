"""The documentation as a site: stages the pages, including generated ones, and runs MkDocs.

python tools/build_site.py             writes build/site (`make docs`)

The stage has the layout of the repository, so that the links in it stay as they are. A link to code leads to a page
with that file. `--strict`: a broken link or anchor ends the build.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import cli_reference
from tidy import FENCE

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
CONFIG = ROOT / "mkdocs.yml"
PAGES: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/README.md",
    "tools/schemas/README.md",
)
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
#: Loads from other hosts. Links in the text can lead to other hosts, but a page must not load anything from them.
FOREIGN = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"' >]+)|url\((https?:[^)]+)"""
)
LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", ".sh": "sh"}

API_PAGES: Final = {
    "testing": """# barnabas.testing

A real broker in your tests; [A broker in your tests](../testing.md) is the introduction.

::: barnabas.testing.Cluster

::: barnabas.testing.History

::: barnabas.testing.fixtures
""",
    "histories": """# barnabas.histories

The judge of recorded histories; [Checking histories](../check.md) has the format and the rules.

::: barnabas.histories.judge.judge

::: barnabas.histories.judge.Judge

::: barnabas.histories.operations.parse

::: barnabas.histories.operations.Operation

::: barnabas.histories.operations.Malformed

::: barnabas.histories.anomalies.Verdict

::: barnabas.histories.anomalies.Finding

::: barnabas.histories.anomalies.Kind
""",
    "spark": """# Options of the Spark source and sink

[The Spark source and sink](../spark.md) describes every option with its default. Here are the values that they become.

::: barnabas.spark.source_options
    options: {show_if_no_docstring: true, members: [SourceOptions, Subscription, FetchSettings]}

::: barnabas.spark.sink_options
    options: {show_if_no_docstring: true, members: [SinkOptions]}
""",
}

CSS: Final = """/* Pages are wide, for tables of words. */
.md-grid { max-width: 78rem; }
.md-typeset table:not([class]) { font-size: .66rem; }
.md-typeset table:not([class]) :is(th, td) { min-width: 2.5rem; padding: .5em .8em; }
.md-typeset img { max-width: 100%; }
/* An empty row of headings takes no room. */
.md-typeset table:not([class]) thead:not(:has(th:not(:empty))) { display: none; }
@media (min-width: 60em) {
  /* Everything fits: long names break. */
  .md-typeset table:not([class]) td { min-width: 3.4rem; overflow-wrap: anywhere; }
  .md-typeset table:not([class]) td:first-child { min-width: 5rem; }
}
@media (max-width: 59.9em) {
  /* Names stay whole, cells stay readable, and the table scrolls by itself. */
  .md-typeset table:not([class]) code { white-space: nowrap; }
  .md-typeset table:not([class]) td:last-child:not(:first-child) { min-width: 12rem; }
  /* Two columns fit on a phone. */
  .md-typeset table:not([class]) td:nth-child(2):last-child { min-width: 9rem; }
}
"""
ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path fill="#3f51b5" d="M12 2 2 7l10 5 10-5z'
    'M2 12l10 5 10-5-2-1-8 4-8-4zM2 17l10 5 10-5-2-1-8 4-8-4z"/></svg>'
)


def stage(target: Path) -> None:
    """Writes all pages below `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    pages = [ROOT / page for page in PAGES] + sorted((ROOT / "docs").rglob("*.md"))
    linked: set[Path] = set()
    for page in pages:
        text, found = with_links(page, page.read_text(encoding="utf-8"))
        linked |= found
        _write(target / page.relative_to(ROOT), text)
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.suffix in (".svg", ".png"):
            copy = target / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for path in sorted(linked):
        _write(target / f"{path.relative_to(ROOT).as_posix().lstrip('.')}.md", source_page(path))
    _write(target / "docs" / "cli-reference.md", cli_reference.page())
    for name, text in API_PAGES.items():
        _write(target / "docs" / "api" / f"{name}.md", text)
    _write(target / "site.css", CSS)
    _write(target / "favicon.svg", ICON)


def with_links(page: Path, text: str) -> tuple[str, set[Path]]:
    """Returns the page, in which links to code lead to the pages of the code, and the files and folders that it links
    to.
    """
    linked: set[Path] = set()
    staged = set(PAGES)

    def rewrite(match: re.Match[str]) -> str:
        before, target, _ = match.groups()
        path = Path(os.path.normpath(page.parent / target))
        name = posixpath.relpath(path.as_posix(), ROOT.as_posix())
        is_page = name in staged or name.startswith("docs/") or name == "docs"
        if re.match(r"[a-z]+:", target) or is_page or not path.exists():
            return match.group()
        linked.add(path)
        # MkDocs leaves out files whose name begins with a dot.
        shown = re.sub(r"(^|/)\.(?=\w)", r"\1", target.rstrip("/"))
        return f"{before}{shown}.md)"

    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(FENCE.match(line))
        lines.append(line if fenced else LINK.sub(rewrite, line))
    return "\n".join(_spaced(lines)) + "\n", linked


def _spaced(lines: list[str]) -> Iterator[str]:
    """Yields the lines, with an empty line before each list: without it, Python-Markdown does not see the list."""
    fenced = False
    before = ""
    for line in lines:
        begins_item = re.match(r"([-*]|\d+\.) ", line) is not None
        if begins_item and not fenced and before.strip() and not re.match(r"\s|([-*]|\d+\.) ", before):
            yield ""
        fenced ^= bool(FENCE.match(line))
        yield line
        before = line


def source_page(path: Path) -> str:
    """Returns the page of a file of code, or of a folder: its files with the first line of each."""
    name = path.relative_to(ROOT).as_posix()
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# `{name}`\n\n"
    if path.is_dir():
        rows = [
            f"| `{each.name}` | {_first_line(each)} |" for each in sorted(path.iterdir()) if each.name[0] not in "_."
        ]
        return head + "\n".join(["| file | |", "|---|---|", *rows]) + "\n"
    text = path.read_text(encoding="utf-8")
    return f"{head}````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"


def _first_line(path: Path) -> str:
    module = path / "__init__.py" if path.is_dir() else path
    if module.suffix != ".py" or not module.exists():
        return ""
    return module.read_text(encoding="utf-8").partition("\n")[0].strip('"').replace("|", r"\|")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    stage(STAGE)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(CONFIG)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    foreign = sorted(set(foreign_loads(SITE)))
    for line in foreign:
        print(f"docs: {line}")
    if done.returncode or foreign:
        return 1
    print(f"docs: {(SITE / 'index.html').relative_to(ROOT)}")
    return 0


def foreign_loads(site: Path) -> Iterator[str]:
    """Yields what the pages and styles would load from other hosts."""
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            for found in FOREIGN.findall(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(site)} loads {''.join(found)}"


if __name__ == "__main__":
    sys.exit(main())
