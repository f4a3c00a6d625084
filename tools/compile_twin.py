"""Compiles the hot loops that are written in Python to extension modules, their twins: `python tools/compile_twin.py`
writes each next to its source.

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

#: Sources, by the name that a message uses when the compilation fails.
SOURCES = {
    "the walk over records": Path("src/barnabas/records/_compiled_walk.pyx"),
    "the Spark source's parser": Path("src/barnabas/spark/_compiled_parser.pyx"),
}


def file_name(source: Path) -> str:
    """Returns the name of the extension's file, as this Python searches for it."""
    return source.stem + str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def compile_twin(source: Path, target: Path) -> None:
    """Compiles one twin. Raises OSError or subprocess.SubprocessError on failure and leaves `target` as it was."""
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
    for each in SOURCES.values():
        compile_twin(root / each, (root / each).parent / file_name(each))
