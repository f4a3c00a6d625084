"""Incidents out of a history of a gigabyte, saved by `barnabas console`: how long it takes, and how much memory."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support.histories import contents
from tests.support.large_history import BEGIN_MS, SAMPLE_MS, write_large_history
from tests.support.many_partitions import resident_peak_mb

from barnabas.history.reader import History

pytestmark = pytest.mark.full
SIZE_BYTES: Final = 1_000_000_000
HOUR_MS: Final = 3_600_000
#: The limit for an hour, on a machine with other work.
HOUR_S: Final = 5.0
#: The limit for the whole gigabyte, which is read and written once.
WHOLE_S: Final = 120.0
MEMORY_MB: Final = 64.0


class Large(NamedTuple):
    file: Path
    last_ms: int


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    file = tmp_path_factory.mktemp("large") / "history.db"
    last_ms = write_large_history(file, size_bytes=SIZE_BYTES)
    yield Large(file, last_ms)
    file.unlink()


class Console:
    """`barnabas console --incident FILE` as a process."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-m", "barnabas.cli", "console", "--incident", str(file), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip().removeprefix("console: ").rstrip("/")

    def save(self, target: Path, since_ms: int, until_ms: int) -> float:
        """Saves an incident as the page does. Returns the seconds to its last byte."""
        begin_s = time.monotonic()
        with (
            urllib.request.urlopen(
                f"{self.url}/api/incident-file?from={since_ms}&to={until_ms}", timeout=300
            ) as answer,
            target.open("wb") as file,
        ):
            while piece := answer.read(1 << 18):
                file.write(piece)
        return time.monotonic() - begin_s


@pytest.fixture
def console(large: Large) -> Iterator[Console]:
    found = Console(large.file)
    try:
        with urllib.request.urlopen(f"{found.url}/api/overview", timeout=120) as answer:
            assert answer.status == 200
        yield found
    finally:
        found.process.terminate()
        found.process.wait(30)


def test_an_hour_of_a_gigabyte_is_saved_at_once_and_in_little_memory(
    large: Large, console: Console, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    middle_ms = BEGIN_MS + (large.last_ms - BEGIN_MS) // 2 // SAMPLE_MS * SAMPLE_MS
    until_ms = middle_ms + HOUR_MS
    part = tmp_path / "hour.db"
    before_mb = resident_peak_mb(console.process.pid)
    taken_s = console.save(part, middle_ms, until_ms)
    more_mb = resident_peak_mb(console.process.pid) - before_mb
    figures = {
        "history, MB": round(large.file.stat().st_size / 1e6),
        "incident, MB": round(part.stat().st_size / 1e6, 1),
        "saved after, s": round(taken_s, 2),
        "resident memory before, MB": round(before_mb),
        "more resident memory, MB": round(more_mb),
    }
    record_property("figures", figures)
    print(figures)
    with History.open(part) as found, History.open(large.file) as whole:
        for time_ms in (middle_ms, middle_ms + HOUR_MS // 2, until_ms):
            one, other = found.at(time_ms), whole.at(time_ms)
            assert contents(one) == contents(other)
            assert (one.volumes.size[one.rows] == other.volumes.size[other.rows]).all()
        assert found.events(middle_ms, until_ms, 10_000) == whole.events(middle_ms, until_ms, 10_000)
        assert found.span()[1] == until_ms
    assert taken_s <= HOUR_S, figures
    assert more_mb <= MEMORY_MB, figures


def test_the_whole_gigabyte_is_saved_in_the_same_memory(
    large: Large, console: Console, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    part = tmp_path / "whole.db"
    before_mb = resident_peak_mb(console.process.pid)
    taken_s = console.save(part, BEGIN_MS, large.last_ms)
    more_mb = resident_peak_mb(console.process.pid) - before_mb
    figures = {"saved after, s": round(taken_s, 1), "more resident memory, MB": round(more_mb)}
    record_property("figures", figures)
    print(figures)
    with History.open(part) as found, History.open(large.file) as whole:
        assert contents(found.at(large.last_ms)) == contents(whole.at(large.last_ms))
        assert found.span() == whole.span()
    part.unlink()
    assert taken_s <= WHOLE_S, figures
    assert more_mb <= MEMORY_MB, figures
