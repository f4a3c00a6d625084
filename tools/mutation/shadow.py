"""A copy of the repository in which one function at a time is mutated, and the processes that run in it.

The checkout itself is never changed. Files keep their times of modification, so that compiled bytecode stays valid;
the bytecode of the mutated module is removed before and after the run.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutation.candidates import PRODUCT, Mutant
from mutation.sources import apply

#: The folders that the worlds and the fast tests read.
_COPIED: Final = ("src", "tests", "tools", "docs", "deploy", "examples", "bench")
_MEMORY_BYTES_MAX: Final = 6 << 30
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class Ended:
    """How a process ended: by itself, or because it took too long."""

    output: str
    errors: str
    cpu_s: float
    is_overdue: bool


class Shadow:
    def __init__(self, root: Path, place: Path) -> None:
        self._root, self.place = root, place

    def refresh(self) -> None:
        """Makes the copy equal to the checkout, whatever an interrupted run has left."""
        wanted = {path: self._root / path for path in files_of(self._root)}
        for path, file in wanted.items():
            copy = self.place / path
            if not copy.exists() or _stamp(copy) != _stamp(file):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, copy)
        for copy in list(self.place.rglob("*")):
            is_cached = "__pycache__" in copy.parts or ".pytest_cache" in copy.parts
            if copy.is_file() and not is_cached and copy.relative_to(self.place).as_posix() not in wanted:
                copy.unlink()

    def digest(self, *folders: str) -> str:
        """Returns a digest of all files below the folders."""
        found = hashlib.sha256()
        for path in sorted(path for path in files_of(self._root) if path.startswith(tuple(folders))):
            found.update(path.encode() + b"\0" + (self._root / path).read_bytes() + b"\0")
        return found.hexdigest()[:16]

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        path = PRODUCT / mutant.path
        original, copy = self._root / path, self.place / path
        text = original.read_text(encoding="utf-8")
        try:
            copy.write_text(apply(text, mutant.edits), encoding="utf-8")
            _forget_bytecode(copy)
            yield
        finally:
            shutil.copy2(original, copy)
            _forget_bytecode(copy)

    def run(self, module: str, arguments: Sequence[str], *, cpu_s_max: float, wall_s_max: float) -> Ended:
        """Runs a module of the tools in the copy, until it ends or has used its time."""
        paths = [str(self.place / folder) for folder in ("src", "", "tools")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
                preexec_fn=lambda: _limit(cpu_s_max),
            )
            status, cpu_s, is_overdue = _wait(process, wall_s_max)
            texts = [_text(file) for file in (out, errors)]
        is_overdue = is_overdue or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
        return Ended(texts[0], texts[1], cpu_s, is_overdue)


def files_of(root: Path) -> list[str]:
    """Returns the paths of all files that belong to the copy, also those that no commit has yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *_COPIED, "*.toml", "*.md"]
    done = subprocess.run(listed, cwd=root, capture_output=True, check=True)
    paths = [path for path in done.stdout.decode().split("\0") if path and (root / path).is_file()]
    compiled = [path.relative_to(root).as_posix() for path in (root / "src").rglob("*.so")]
    return [*paths, *compiled]


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _forget_bytecode(path: Path) -> None:
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def _limit(cpu_s_max: float) -> None:
    """Limits the process that is about to begin: a mutant can loop without end, or fill the memory."""
    seconds = int(cpu_s_max) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))


def _wait(process: subprocess.Popen[bytes], wall_s_max: float) -> tuple[int, float, bool]:
    until_s = time.monotonic() + wall_s_max
    is_overdue = False
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return status, used.ru_utime + used.ru_stime, is_overdue
        if time.monotonic() > until_s and not is_overdue:
            is_overdue = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    text: bytes = file.read()  # type: ignore[attr-defined]
    return text.decode(errors="replace")
