"""The workers' Python: the same interpreter, with everything in its path except Spark's zip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from barnabas.spark.workers import worker_python

_SHOW = "import json, sys; print(json.dumps([sys.executable, sys.argv[1:], sys.path]))"


def _run(python: str, path: str | None) -> list[list[str]]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    command = [python, "-c", _SHOW, "an argument", "*"]
    found: list[list[str]] = json.loads(
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    )
    return found


def test_the_zip_is_left_out_and_all_else_stays(tmp_path: Path) -> None:
    python = worker_python(tmp_path / "a place")
    executable, arguments, path = _run(python, "/first one:/spark/python/lib/pyspark.zip:/py4j-0.1-src.zip:/last")
    assert str(executable) == sys.executable
    assert arguments == ["an argument", "*"]
    assert [each for each in path if each in ("/first one", "/py4j-0.1-src.zip", "/last")] == [
        "/first one",
        "/py4j-0.1-src.zip",
        "/last",
    ]
    assert not any(each.endswith("pyspark.zip") for each in path)


def test_without_a_path_nothing_changes(tmp_path: Path) -> None:
    assert _run(worker_python(tmp_path), None)[2] == _run(sys.executable, None)[2]
