"""The site of the documentation: every page is in its navigation, and nothing is loaded from other hosts.

`make docs` builds it and checks links and anchors; these tests need no MkDocs.
"""

from __future__ import annotations

import re
from pathlib import Path

import build_site
import cli_reference

ROOT = Path(__file__).resolve().parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
IN_NAVIGATION = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", CONFIG, re.MULTILINE)
GENERATED = {"docs/cli-reference.md", *(f"docs/api/{name}.md" for name in build_site.API_PAGES)}


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(IN_NAVIGATION) == pages | GENERATED | set(build_site.PAGES)
    assert len(IN_NAVIGATION) == len(set(IN_NAVIGATION))


def test_the_configuration_names_no_other_host() -> None:
    assert "://" not in CONFIG
    assert "font: false" in CONFIG


def test_links_to_code_lead_to_pages_of_that_code() -> None:
    page = ROOT / "docs" / "x.md"
    text = "# X\nSee [a](../src/barnabas/storage/log.py), [b](cli.md#topics), [c](../deploy), [d](https://x.org)\n"
    staged, linked = build_site.with_links(page, text + "- one\n- two\n```\n[e](../pyproject.toml)\n```\n")
    assert "[a](../src/barnabas/storage/log.py.md), [b](cli.md#topics), [c](../deploy.md), [d](https://x.org)" in staged
    assert "\n\n- one\n- two\n" in staged
    assert "[e](../pyproject.toml)" in staged
    assert linked == {ROOT / "src/barnabas/storage/log.py", ROOT / "deploy"}


def test_pages_of_code_and_folders() -> None:
    assert "```python\n" in build_site.source_page(ROOT / "tools" / "tidy.py")
    assert "| `log.py` | " in build_site.source_page(ROOT / "src" / "barnabas" / "storage")


def test_what_a_browser_would_load_from_another_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://x.org">x</a> <img src="y.png"> <script src="https://x.org/z.js">'
    )
    (tmp_path / "b.css").write_text("a { background: url(https://x.org/f.woff) }")
    assert list(build_site.foreign_loads(tmp_path)) == [
        "a.html loads https://x.org/z.js",
        "b.css loads https://x.org/f.woff",
    ]


def test_the_reference_has_every_command_with_its_options() -> None:
    page = cli_reference.page()
    for command in cli_reference.commands().values():
        assert f"# barnabas {command.name}\n" in page
        for option in command.options:
            assert re.search(rf"\| `[^`]*{re.escape(option)}\b", page), option
