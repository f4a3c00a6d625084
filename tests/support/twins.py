"""The compiled modules of hot loops ("twins" of Python sources), built from their current sources."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, cast

from barnabas.records import python_walk, walk
from barnabas.records.walk import Walker

_ROOT = Path(__file__).resolve().parents[2]
_WALK = "src/barnabas/records/_compiled_walk.pyx"


def can_compile() -> bool:
    return importlib.util.find_spec("Cython") is not None and shutil.which(os.environ.get("CC", "cc")) is not None


def compiled(source: str, installed: object | None) -> Any:
    """Returns the installed twin of this source; a new one if there is none or its source is newer; None if none can be
    built.
    """
    tool = runpy.run_path(str(_ROOT / "tools" / "compile_twin.py"))
    path = _ROOT / source
    if installed is not None:
        made = Path(str(cast("Any", installed).__file__))
        if made.stat().st_mtime >= path.stat().st_mtime:
            return installed
    if not can_compile():
        return None
    target = Path(tempfile.mkdtemp(prefix="barnabas-twin-")) / tool["file_name"](path)
    tool["compile_twin"](path, target)
    name = path.stem
    loader = ExtensionFileLoader(name, str(target))
    spec = importlib.util.spec_from_file_location(name, target, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def walkers() -> dict[str, Walker]:
    """Returns all walks over records that can run here."""
    found = {"python": cast("Walker", python_walk)}
    twin = compiled(_WALK, walk.compiled_walker())
    if twin is not None:
        found["compiled"] = twin
    return found
