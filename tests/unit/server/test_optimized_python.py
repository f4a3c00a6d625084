"""`python -O` removes assertions, which are part of the broker's safety: no process of Barnabas runs with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure

WHY = "python -O (or PYTHONOPTIMIZE) is refused: it removes assertions"


@pytest.mark.parametrize("module", ["barnabas.server.main", "barnabas.cli.entry"])
@pytest.mark.parametrize("flags, environment", [(["-O"], {}), (["-OO"], {}), ([], {"PYTHONOPTIMIZE": "1"})])
def test_it_is_refused_in_one_line(module: str, flags: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    arguments = [sys.executable, *flags, "-m", module, "broker", str(tmp_path / "server.properties")]
    done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **environment}, cwd=tmp_path)
    assert done.returncode == 2
    assert WHY in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_other_commands_are_refused_too() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "barnabas.cli.entry", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert WHY in done.stderr


def test_a_cluster_of_an_optimized_process_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    with pytest.raises(Failure) as refused:
        EmbeddedCluster(tmp_path).start()
    assert WHY in str(refused.value)
