"""The functions that each world and each test executes, measured on the unmutated code.

    python -m mutation.reach OUT worlds NAME...     runs these worlds
    python -m mutation.reach OUT tests FILE...      runs the tests of these files

A mutant of a function that a test does not execute cannot be noticed by it, so that only tests that execute it are run.
A trace function is called once for each call of a Python function, and not for lines. Functions that a module's fixture
executes count for the first test that needs it.

OUT gets one line of JSON for each world or test that passed: its name, its CPU time, and the functions of the mutated
packages, as numbers of lines `{"function": ...}` that come before.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, Any

import pytest
from tests.support import turn_watch

from mutation import worlds
from mutation.candidates import PACKAGES

_ROOTS = tuple(f"/src/barnabas/{package}/" for package in PACKAGES)


class Recorder:
    """Records which functions are executed."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._seen: set[CodeType] = set()
        self._numbers: dict[str, int] = {}
        self._of_code: dict[CodeType, int] = {}

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        self._seen.add(frame.f_code)

    @contextmanager
    def recording(self) -> Iterator[None]:
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        self._seen.clear()
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def note(self, name: str, cpu_s: float) -> None:
        numbers = sorted({self._number(code) for code in self._seen} - {-1})
        print(json.dumps({"name": name, "cpu_s": round(cpu_s, 3), "reaches": numbers}), file=self._out, flush=True)

    def _number(self, code: CodeType) -> int:
        number = self._of_code.get(code)
        if number is None:
            name = name_of(code.co_filename, code.co_qualname)
            if name is not None and name not in self._numbers:
                self._numbers[name] = len(self._numbers)
                print(json.dumps({"function": name}), file=self._out)
            number = self._of_code[code] = -1 if name is None else self._numbers[name]
        return number


def name_of(filename: str, qualified: str) -> str | None:
    """Returns `raft/core.py:Core.run` for a function of the mutated packages. What a function contains without a name
    of its own, such as a lambda, belongs to it.
    """
    if not any(root in filename for root in _ROOTS):
        return None
    while qualified.endswith(">") and ".<locals>.<" in qualified:
        qualified = qualified.rpartition(".<locals>.<")[0]
    return f"{filename.rpartition('/src/barnabas/')[2]}:{qualified}"


class _Plugin:
    """Notes each test that passes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._passes = False
        began_s = time.process_time()
        with self._recorder.recording():
            result = yield
        if self._passes:
            self._recorder.note(item.nodeid, time.process_time() - began_s)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._passes = report.passed


def ignore_long_turns() -> None:
    """Accepts long turns: tracing, and a machine that does other work, make them long."""

    def judge(item: pytest.Item, found: list[turn_watch.LongTurn]) -> None:
        found.clear()

    turn_watch.judge = judge


def main(arguments: list[str]) -> int:
    out, what, *names = arguments
    with Path(out).open("w", encoding="utf-8") as file:
        recorder = Recorder(file)
        if what == "tests":
            ignore_long_turns()
            options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not full", "--tb=line", *names]
            pytest.main(options, plugins=[_Plugin(recorder)])
            return 0
        for name in names:
            began_s = time.process_time()
            with recorder.recording():
                found = worlds.explore(name)
            if found is None:
                recorder.note(name, time.process_time() - began_s)
            else:
                print(f"{name}, without a mutant: {found}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
