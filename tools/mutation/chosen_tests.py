"""Runs chosen tests against a mutant until the first one fails.

    python -m mutation.chosen_tests FILE      FILE has the id of one test in each line

Each test is a line of JSON on the standard output when it begins; the first failure is one more, with the beginning of
its message.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO

import pytest

from mutation.reach import ignore_long_turns

#: The time limit of a test: a mutant can make it wait for something that never happens.
_WAIT_S_MAX = 120


class _Plugin:
    """Prints the tests that begin and the first failure."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say({"begins": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)

    def _fail(self, nodeid: str, text: str) -> None:
        errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        self._say({"by": nodeid, "found": " ".join(errors[:2])[:300] or text[-300:]})

    def _say(self, line: dict[str, str]) -> None:
        print(json.dumps(line), file=self._out, flush=True)


def main(arguments: list[str]) -> int:
    ignore_long_turns()
    # The output of pytest and of the tests is dropped.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    options = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not full", f"--timeout={_WAIT_S_MAX}"]
    code = pytest.main([*options, f"@{arguments[0]}"], plugins=[_Plugin(out)])
    print(json.dumps({"ends": int(code)}), file=out, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
