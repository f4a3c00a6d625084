"""Packages import only packages below them, and the core has no clock, chance or I/O of its own (pyproject.toml)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "barnabas"
FLAGS = re.DOTALL | re.IGNORECASE


def contracts() -> list[dict[str, object]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, object]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return found


def test_imports_keep_the_contracts() -> None:
    script = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(contracts())} kept, 0 broken" in done.stdout


def test_every_package_has_its_layer() -> None:
    layers = next(item["layers"] for item in contracts() if item["type"] == "layers")
    assert isinstance(layers, list)
    named = {name.strip() for layer in layers for name in layer.split("|")}
    packages = {f"barnabas.{path.name}" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert named == packages


def silent_packages(package: Path) -> list[str]:
    """Returns the packages whose docstring lacks what they import or where to begin reading."""
    found = []
    for path in sorted(package.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        is_generated = path.parent.name == "messages"
        if (
            path.parent != package
            and not is_generated
            and not re.search(r"import.*\bbegin\b|\bbegin\b.*import", text, FLAGS)
        ):
            found.append(path.parent.relative_to(package).as_posix())
    return found


def test_every_package_says_what_it_imports_and_where_to_begin() -> None:
    assert silent_packages(PACKAGE) == []


def test_a_package_that_does_not_is_found(tmp_path: Path) -> None:
    for name, text in {"": "x", "told": "Imports `a`. Begin with `b.py`.", "silent": "Imports nothing."}.items():
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text(f'"""{text}"""\n', encoding="utf-8")
    assert silent_packages(tmp_path) == ["silent"]


#: Ordinary clients of any cluster: of the broker they may know the protocol, records and pure decisions.
APPS = {
    "barnabas.console",
    "barnabas.history",
    "barnabas.monitor",
    "barnabas.orders",
    "barnabas.pipelines",
    "barnabas.spark",
    "barnabas.whatif",
}
OUTSIDE = {
    "barnabas.server",
    "barnabas.simulation",
    "barnabas.cli",
    "barnabas.embedded",
    "barnabas.testing",
    "barnabas.tls",
}


def test_every_core_package_is_forbidden_the_outside() -> None:
    forbidden, of_apps, of_histories = (
        item for item in contracts() if item["type"] == "forbidden" and "Controller" not in str(item["name"])
    )
    packages = {f"barnabas.{path.name}" for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert set(forbidden["source_modules"]) == packages - OUTSIDE - APPS  # type: ignore[call-overload]
    assert "ignore_imports" not in forbidden
    assert set(of_apps["source_modules"]) == APPS  # type: ignore[call-overload]
    theirs = {"barnabas.common", "barnabas.decisions", "barnabas.protocol", "barnabas.records"}
    elsewhere = (
        packages - APPS - theirs - {"barnabas.histories", "barnabas.testing", "barnabas.tls", "barnabas.embedded"}
    )
    assert set(of_apps["forbidden_modules"]) == elsewhere  # type: ignore[call-overload]
    assert "ignore_imports" not in of_apps
    of_brokers = elsewhere | {"barnabas.decisions"}
    assert set(of_histories["forbidden_modules"]) == of_brokers  # type: ignore[call-overload]


#: The modules that run simulations on command; `barnabas.cli.simulate` loads one only when it is asked to.
SIMULATES = [PACKAGE / "cli" / f"simulate_{name}.py" for name in ("runs", "application", "worlds", "history")]


def test_production_does_not_import_simulation_or_tests() -> None:
    assert all(path.exists() for path in SIMULATES)
    for path in PACKAGE.rglob("*.py"):
        package = path.relative_to(PACKAGE).parts[0]
        if package not in ("simulation", "testing"):
            text = path.read_text(encoding="utf-8")
            assert "barnabas.testing" not in text, path
            assert "barnabas.simulation" not in text or path in SIMULATES, path
            for loaded in SIMULATES:
                loads = (PACKAGE / "cli" / "simulate.py", *SIMULATES)
                assert f"cli.{loaded.stem}" not in text or path in loads, path


def test_commands_and_broker_start_without_the_simulation() -> None:
    script = (
        "import sys, barnabas.cli.app, barnabas.cli.entry, barnabas.server.main;"
        "simulating = ('barnabas.simulation', 'barnabas.cli.simulate_runs', 'barnabas.cli.simulate_worlds');"
        "print([name for name in sys.modules if name.startswith(simulating)])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
