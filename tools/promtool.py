"""Prometheus and its promtool, for the tests of deploy/: from the PATH, or from Debian's package `prometheus`.

    python tools/promtool.py check rules deploy/prometheus/barnabas.rules.yml

The package is not installed: its archive is fetched with `apt-get download` and unpacked in ~/.cache/barnabas.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path.home() / ".cache" / "barnabas" / "promtool"


def program(name: str = "promtool") -> Path:
    """Returns the path of the program. Raises RuntimeError with a remedy if it cannot be obtained."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    cached = CACHE / name
    if not cached.exists():
        _fetch(cached)
    return cached


def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [program(), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            subprocess.run(
                ["apt-get", "download", "prometheus"], cwd=scratch, check=True, capture_output=True, text=True
            )
            archive = next(Path(scratch).glob("prometheus_*.deb"))
            subprocess.run(["dpkg-deb", "-x", archive, "tree"], cwd=scratch, check=True, capture_output=True)
        except (OSError, StopIteration, subprocess.CalledProcessError) as error:
            raise RuntimeError(f"no {target.name}: put one into the PATH: {error}") from error
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".tmp")
        shutil.copy2(Path(scratch) / "tree" / "usr" / "bin" / target.name, partial)
        partial.replace(target)


if __name__ == "__main__":
    done = run(*sys.argv[1:])
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)
