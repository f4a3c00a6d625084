"""`barnabas history show`, `at` and `export`, and `explain` and `monitor` with --at, on a file alone."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.support.histories import MINUTE, incident
from tests.support.watched import T0

from barnabas.cli.app import run

AT = "2023-11-14T22:14:30"


@pytest.fixture
def file(tmp_path: Path) -> str:
    incident(tmp_path / "h.db").close(T0 + 3 * MINUTE)
    return str(tmp_path / "h.db")


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    return captured.err if code == 1 else captured.out


def test_show_has_the_period_and_the_changes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "history", "show", file).splitlines()
    assert lines[0] == "cluster watched | 2023-11-14T22:13:20.000Z to 2023-11-14T22:16:20.000Z | 2 partitions"
    assert len(lines) == 7
    assert lines[3].endswith("CRITICAL  b-0  offline: leader 2 -> none (epoch 0 -> 1), now offline")
    assert len(output(capsys, "history", "show", file, "--until", AT, "--broker", "2").splitlines()) == 4
    assert "begin" in output(capsys, "history", "show", file, "b-0")
    found = json.loads(output(capsys, "history", "show", file, "a", "--json"))
    assert [change["kind"] for change in found["changes"]] == ["begin", "isr-shrink", "isr-expand"]
    assert "there was no topic z" in output(capsys, "history", "show", file, "z-0", code=1)


def test_at_is_the_table_of_that_moment(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "history", "at", file, AT)
    assert "at 2023-11-14T22:14:30.000Z; the last change was at 2023-11-14T22:14:20.000Z" in shown
    assert "2 partitions: 1 offline, 1 at min ISR" in shown
    found = json.loads(output(capsys, "history", "at", file, AT, "--json"))
    assert [(each["topic"], each["state"]) for each in found["partitions"]] == [("a", "at min ISR"), ("b", "offline")]
    assert [each["broker"] for each in found["brokers"]] == [1, 3]
    assert "the history begins at" in output(capsys, "history", "at", file, "1h", code=1)


def test_monitor_at_has_the_exit_codes_of_check(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "monitor", "--at", AT, "--history", file)
    assert shown == output(capsys, "history", "at", file, AT)
    output(capsys, "monitor", "--at", AT, "--history", file, "--check", code=6)
    output(capsys, "monitor", "a", "--at", AT, "--history", file, "--check", code=4)
    assert "there was no topic c" in output(capsys, "monitor", "c", "--at", AT, "--history", file, code=1)
    assert "--at needs --history FILE" in output(capsys, "monitor", "--at", AT, code=1)
    assert "--history needs --at TIME" in output(capsys, "monitor", "--history", file, code=1)


def test_explain_at_ends_with_that_moment(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "explain", "b-0", "--at", AT, "--history", file)
    assert "b-0: no leader, replicas 2, in sync 2" in shown
    assert "No broker leads since 2023-11-14T22:14:20.000Z" in shown
    assert "22:15" not in shown
    later = output(capsys, "explain", "b", "--at", "22:16:00", "--history", file)
    assert "Broker 2 leads since 2023-11-14T22:15:20.000Z" in later
    assert "there was no z" in output(capsys, "explain", "z-0", "--at", AT, "--history", file, code=1)
    output(capsys, "explain", "--at", AT, "--history", file, code=1)


def test_export_has_a_line_for_each_change(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(output(capsys, "history", "export", file, "--csv"))))
    assert [row["kind"] for row in rows][:3] == ["broker-gone", "isr-shrink", "offline"]
    assert (rows[1]["isr_before"], rows[1]["isr_after"], rows[1]["state_after"]) == ("1 2 3", "1 3", "at min ISR")
    lines = output(capsys, "history", "export", file, "--jsonl", "--since", AT).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["broker-there", "online", "isr-expand"]
    assert "choose --csv or --jsonl" in output(capsys, "history", "export", file, code=1)


def test_a_bad_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.db").write_bytes(b"nothing of the kind")
    for command in (["show"], ["at"], ["export"]):
        more = {"at": ["12:00"], "export": ["--csv"]}.get(command[0], [])
        shown = output(capsys, "history", *command, str(tmp_path / "h.db"), *more, code=1)
        assert "not a history file" in shown
        assert len(shown.strip().splitlines()) == 1
