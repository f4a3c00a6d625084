"""The report of branch coverage: files are summed by package; generated messages and other code are left out."""

from __future__ import annotations

from typing import Any

import coverage_by_package


def measured(statements: int, statements_run: int, branches: int, branches_run: int) -> dict[str, Any]:
    summary = {
        "num_statements": statements,
        "covered_lines": statements_run,
        "num_branches": branches,
        "covered_branches": branches_run,
    }
    return {"summary": summary}


def test_files_are_summed_by_package() -> None:
    files = {
        "src/barnabas/storage/log.py": measured(300, 150, 100, 20),
        "src/barnabas/storage/recovery/recovery.py": measured(100, 50, 0, 0),
        "src/barnabas/tls/contexts.py": measured(10, 10, 0, 0),
        "src/barnabas/protocol/messages/fetch.py": measured(999, 0, 999, 0),
        "tests/support/wired.py": measured(999, 0, 999, 0),
    }
    assert [line.split() for line in coverage_by_package.lines(coverage_by_package.by_package({"files": files}))] == [
        ["package", "statements", "run", "branches", "run"],
        ["storage", "400", "50.0", "%", "100", "20.0", "%"],
        ["tls", "10", "100.0", "%", "0", "-"],
        ["all", "410", "51.2", "%", "100", "20.0", "%"],
    ]
