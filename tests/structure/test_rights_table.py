"""docs/authorization.md has the table of questions that the code has."""

from __future__ import annotations

import generate_rights_table as generator


def test_page_is_current() -> None:
    page = generator.TARGET.read_text(encoding="utf-8")
    assert page == generator.written(page), "run tools/generate_rights_table.py"
