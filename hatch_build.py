"""The build hook: puts the compiled twins into the wheel, where Cython and a C compiler are there. It never fails a
build: without a twin, plain Python (or numpy, for the Spark source) does its work and finds the same.
"""

from __future__ import annotations

import runpy
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledTwins(BuildHookInterface[Any]):
    """A wheel carries the extensions inside; an editable installation gets each beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        tool = runpy.run_path(str(root / "tools" / "compile_twin.py"))
        is_editable = version == "editable"
        made = Path(tempfile.mkdtemp(prefix="barnabas-build-"))
        for what, source in tool["SOURCES"].items():
            name = tool["file_name"](source)
            target = (root / source).parent / name if is_editable else made / name
            try:
                tool["compile_twin"](root / source, target)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or ""
                self.app.display_warning(f"{what} is not compiled, a slower form does its work: {error} {said[-500:]}")
                continue
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            if not is_editable:
                build_data["force_include"][str(target)] = str(source.parent.relative_to("src") / name)
