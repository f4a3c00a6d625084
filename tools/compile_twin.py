"""Compiles the twin of the Spark source's parser: `python tools/compile_twin.py` puts it beside its source.

Needs Cython and a C compiler (CC decides which). The build hook does the same for wheels and editable installations.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path("src/barnabas/spark/_compiled_parser.pyx")


def file_name() -> str:
    """Of the extension, as this Python looks for it."""
    return SOURCE.stem + str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def compile_twin(source: Path, target: Path) -> None:
    """OSError or subprocess.SubprocessError where it cannot be done; then `target` is as it was."""
    compiler = shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))
    linker = shlex.split(str(sysconfig.get_config_var("LDSHARED") or ""))
    if not linker:
        raise OSError("this Python does not say how extensions are linked")
    if os.environ.get("CC"):
        linker = [*compiler, *linker[1:]]
    with tempfile.TemporaryDirectory() as made:
        code, built, linked = Path(made) / "twin.c", Path(made) / "twin.o", Path(made) / target.name
        _run([sys.executable, "-m", "cython", "-3", str(source), "-o", str(code)])
        include = f"-I{sysconfig.get_paths()['include']}"
        _run([*compiler, "-O3", "-fwrapv", "-fPIC", "-w", include, "-c", str(code), "-o", str(built)])
        _run([*linker, str(built), "-o", str(linked)])
        target.write_bytes(linked.read_bytes())


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    compile_twin(root / SOURCE, (root / SOURCE).parent / file_name())
