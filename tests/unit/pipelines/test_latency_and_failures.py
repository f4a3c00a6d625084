"""The latency of records, by sampled ends of the log, and the message when a stream fails."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.order_batches import COMMIT, Stream, order, pipeline, record

from barnabas.pipelines import pictures
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.failures import pipeline_error
from barnabas.pipelines.latency import ARRIVALS, Arrivals, latencies
from barnabas.pipelines.pictures import draw_all
from barnabas.pipelines.query import connect, run


def sample(time_ms: int, ends: dict[int, int], started: bool = False) -> str:
    return json.dumps({"time_ms": time_ms, "ends": ends} | ({"started": True} if started else {})) + "\n"


def test_records_are_as_old_as_their_sample(tmp_path: Path) -> None:
    lines = [sample(1000, {0: 5}, started=True), sample(1200, {0: 10}), sample(1400, {0: 12}), '{"time_ms": 14']
    (tmp_path / ARRIVALS).write_text("".join(lines))
    first = replace(COMMIT, ranges={0: (0, 7)}, recorded_ms=2000)
    second = replace(COMMIT, ranges={0: (7, 12)}, recorded_ms=3000)
    found = latencies(tmp_path, [first, second])
    assert sorted(zip(found.latency_ms, found.records, strict=True)) == [(900, 2), (1700, 2), (1900, 3)]
    assert found.percentile_ms(50) == 1700
    assert found.percentile_ms(99) == 1900


def test_without_samples_there_is_no_latency(tmp_path: Path) -> None:
    assert latencies(tmp_path, [COMMIT]).percentile_ms(50) is None


def test_the_ends_of_the_log_are_sampled_while_they_move(tmp_path: Path) -> None:
    seen = threading.Semaphore(0)
    ends: Iterator[dict[int, int] | OSError] = iter([{0: 1}, {0: 1}, OSError("no leader"), {0: 3, 1: 2}])

    def end_offsets() -> dict[int, int]:
        found = next(ends, {0: 3, 1: 2})
        seen.release()
        if isinstance(found, OSError):
            raise found
        return found

    arrivals = Arrivals(tmp_path, end_offsets, interval_s=0.001)
    for _ in range(6):
        assert seen.acquire(timeout=10)
    arrivals.close()
    written = [json.loads(line) for line in (tmp_path / ARRIVALS).read_text().splitlines() if line]
    assert [(line["ends"], line.get("started")) for line in written] == [
        ({"0": 1}, True),
        ({"0": 3, "1": 2}, None),
    ]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_costs_samples_and_no_more(tmp_path: Path) -> None:
    (tmp_path / ARRIVALS).symlink_to("/dev/full")
    seen = threading.Semaphore(0)

    def end_offsets() -> dict[int, int]:
        seen.release()
        return {0: 1}

    arrivals = Arrivals(tmp_path, end_offsets, interval_s=0.001)
    for _ in range(4):
        assert seen.acquire(timeout=10), "it has ended by itself"
    arrivals.close()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("x\nOSError: [Errno 28] No space left on device: 'a'\n", "the disk is full under", "free some space"),
        (
            "[STREAM_FAILED] x\n  barnabas.spark.errors.ClusterUnreachable: nobody answers at a:1\n",
            "nobody answers",
            "start",
        ),
        ("Reason: x\nbarnabas.pipelines.errors.PipelineError: it is so (do this)\n", "it is so (do this)", ""),
        ("Traceback\nKeyError: 'x'\n", "the stream failed: KeyError: 'x'", "start it again"),
        ("", "the stream failed: RuntimeError", "start it again"),
        (
            "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Job aborted: why. SQLSTATE: XXKST\n"
            "=== Streaming Query ===\nIdentifier: orders of orders [id = a]\nCurrent State: ACTIVE\n",
            "the stream failed: Job aborted: why.",
            "start it again",
        ),
        (
            "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: Python worker failed to connect back."
            " SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: orders of orders [id = a]\n",
            "Python did not start within Spark's 10 s",
            "continues where it stopped",
        ),
    ],
)
def test_a_failure_is_one_line_and_what_to_do(text: str, message: str, hint: str) -> None:
    failure = pipeline_error(RuntimeError(text), Path("/tables"))
    assert message in failure.message
    assert "\n" not in failure.message
    assert hint in (failure.hint or "")


def test_a_java_that_has_died_is_reported(tmp_path: Path) -> None:
    assert (
        "Spark's Java process has ended"
        in pipeline_error(ConnectionRefusedError(111, "Connection refused"), tmp_path).message
    )


def test_queries_without_tables_or_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there are no tables in"):
        connect(tmp_path)
    made = pipeline(tmp_path)
    made.open().release()
    assert run(made.tables, "SELECT count(*) AS n, sum(total) AS s FROM orders").to_pylist() == [{"n": 0, "s": None}]
    with pytest.raises(PipelineError, match="Parser Error") as refused:
        run(made.tables, "SELEC")
    assert "household_daily" in (refused.value.hint or "")


def test_pictures_are_drawn_of_what_is_there(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    made.open().release()
    assert draw_all(made.tables, tmp_path / "pictures") == []
    Stream(made, [record(0, 0, order(1, "2017-01-01T10:00:00Z"))]).run()
    (made.tables / ARRIVALS).write_text(sample(1000, {}, started=True) + sample(1200, {0: 1}))
    drawn = draw_all(made.tables, tmp_path / "pictures")
    assert [path.name for path in drawn] == ["revenue_by_hour.png", "latency.png", "index.html"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn[:2])
    page = drawn[2].read_text()
    inside = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,([^"]+)">', page)
    assert [base64.b64decode(image) for _, image in inside] == [path.read_bytes() for path in drawn[:2]]
    assert all(page.count(caption) == 2 for caption, _ in inside)
    assert {name for name, _, _ in pictures._PICTURES} == pictures._CAPTIONS.keys()
