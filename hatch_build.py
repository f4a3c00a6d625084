"""The build hook: puts the compiled twin of the Spark source's parser into the wheel, where Cython and a C compiler are
there. It never fails a build: without the twin the source parses with numpy and gives the same tables.
"""

from __future__ import annotations

import runpy
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledTwin(BuildHookInterface[Any]):
    """A wheel carries the extension inside; an editable installation gets it beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        tool = runpy.run_path(str(root / "tools" / "compile_twin.py"))
        source, name = root / tool["SOURCE"], tool["file_name"]()
        is_editable = version == "editable"
        directory = source.parent if is_editable else Path(tempfile.mkdtemp(prefix="barnabas-build-"))
        try:
            tool["compile_twin"](source, directory / name)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or ""
            self.app.display_warning(f"the compiled parser is left out, numpy does its work: {error} {said[-500:]}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if not is_editable:
            build_data["force_include"][str(directory / name)] = f"barnabas/spark/{name}"
