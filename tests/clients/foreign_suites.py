"""Parts of running the tests of other projects: their sources, what was built of them, and their results."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import kafka_jars

_OUTCOMES: Final = {"PASS:": "passed", "FAIL:": "failed", "SKIP:": "skipped"}


class Result(NamedTuple):
    """The result of a test: "passed", "failed" or "skipped", with a reason for the last two."""

    outcome: str
    detail: str


Results = Mapping[str, Result]


def go_results(done: subprocess.CompletedProcess[str], log: Path) -> dict[str, Result]:
    """Returns the results that a test program of Go printed with -test.v; `log` is where its output is."""
    found: dict[str, Result] = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 4 and words[0] == "---" and words[1] in _OUTCOMES:
            outcome = _OUTCOMES[words[1]]
            found[words[2]] = Result(outcome, f"see {log}" if outcome != "passed" else "")
    if done.returncode != 0 and all(result.outcome != "failed" for result in found.values()):
        found["the process"] = Result("failed", f"code {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def go_sources(module: str, target: Path) -> None:
    """Copies a module of Go (`path@version`) with its tests to `target`, which must not exist."""
    if shutil.which("go") is None:
        raise RuntimeError("go not found: run tools/install_system_deps.sh")
    (target.parent / "go.mod").write_text("module suites\n\ngo 1.20\n")
    run_or_raise(["go", "get", module], target.parent)
    listed = run_or_raise(["go", "list", "-m", "-f", "{{.Dir}}", module.partition("@")[0]], target.parent)
    shutil.copytree(listed.strip(), target, copy_function=shutil.copyfile)
    target.chmod(0o755)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def junit_cases(report: Path) -> list[tuple[str, Result]]:
    """Returns the tests of a report that pytest wrote with --junitxml."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.attrib['classname']}.{case.attrib['name']}"
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if bad is None:
            found.append((name, Result("passed", "")))
        else:
            outcome = "skipped" if bad.tag == "skipped" else "failed"
            found.append((name, Result(outcome, bad.attrib.get("message", ""))))
    return found


def cached(name: str, content: bytes, build: Callable[[Path], None]) -> Path:
    """Returns the cache folder that `build` has filled for this content."""
    folder = kafka_jars.cache_dir() / f"suite-{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    with kafka_jars.cache_lock(f"suite-{name}"):
        if not folder.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f"suite-{name}-", dir=kafka_jars.cache_dir()))
            build(partial)
            partial.rename(folder)
    return folder


def run_or_raise(command: Sequence[str], folder: Path) -> str:
    """Returns the standard output of a command. Raises RuntimeError with all its output if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
