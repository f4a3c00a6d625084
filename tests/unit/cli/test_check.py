"""`barnabas check`: exit codes, text and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli import entry

SENT: dict[str, Any] = {"process": "p1", "type": "ok", "f": "send", "topic": "orders", "partition": 0}
GOOD: list[dict[str, Any]] = [
    {**SENT, "offset": 0, "value": "a"},
    {**SENT, "offset": 1, "value": "b"},
    {"process": "c1", "type": "ok", "f": "poll", "records": {"orders-0": [[0, "a"], [1, "b"]]}},
]
LOST = [*GOOD[:2], {**GOOD[2], "records": {"orders-0": [[1, "b"]]}}]


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    file = path / "history.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def test_a_good_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["check", written(tmp_path, GOOD)]) == 0
    assert capsys.readouterr().out == (
        "3 operations: 2 records sent (2 acked, 0 failed, 0 unknown), 2 records read in 1 poll of 1 partition\n"
        "no anomalies\n"
    )


def test_an_anomaly_is_named_with_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["check", written(tmp_path, LOST)]) == 1
    shown = capsys.readouterr().out.splitlines()[1:]
    assert shown == [
        "anomaly: lost-write: 'a' of p1 was acked at orders-0@0 and never read, although orders-0@1 was (lines 1, 3)",
        "anomalies: lost-write 1",
        "INVALID",
    ]
    assert entry.run(["check", written(tmp_path, LOST), "--allow", "lost-write"]) == 0


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["check", "--json", written(tmp_path, LOST)]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["valid"] is False
    assert shown["anomalies"] == {"lost-write": 1}
    (finding,) = shown["findings"]
    assert (finding["topic"], finding["partition"], finding["offset"], finding["values"]) == ("orders", 0, 0, ["a"])


def test_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(json.dumps(GOOD[0]) + "\nnonsense\n")
    assert entry.run(["check", str(file)]) == 2
    assert "line 2: invalid JSON" in capsys.readouterr().err
    assert entry.run(["check", str(tmp_path / "none")]) == 2
