"""The build hook: puts the compiled twins into the wheel, where Cython and a C compiler are there, and the page of the
console, where Node and its packages are there. It never fails a build: without a twin, plain Python (or numpy, for the
Spark source) does its work and finds the same; without the page, `barnabas console` says how to build it.
"""

from __future__ import annotations

import runpy
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltParts(BuildHookInterface[Any]):
    """A wheel carries the extensions and the page inside. An editable installation gets each extension beside its source;
    `make setup` builds the page there.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        is_editable = version == "editable"
        self._add_twins(root, build_data, is_editable=is_editable)
        if not is_editable:
            self._add_page(root, build_data)

    def _add_page(self, root: Path, build_data: dict[str, Any]) -> None:
        tool = runpy.run_path(str(root / "tools" / "build_console.py"))
        try:
            tool["build"](root)
        except (OSError, tool["BuildFailed"]) as error:
            self.app.display_warning(f"the page of the console is not in the wheel: {error}")
            return
        static: Path = tool["STATIC"]
        build_data["force_include"][str(root / static)] = str(static.relative_to("src"))

    def _add_twins(self, root: Path, build_data: dict[str, Any], *, is_editable: bool) -> None:
        tool = runpy.run_path(str(root / "tools" / "compile_twin.py"))
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
