"""The notebook of the documentation: its cells run, and what they show is of the kind that is kept in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import run_notebook

NOTEBOOK = Path(__file__).resolve().parents[3] / "docs" / "history.ipynb"


def kinds(notebook: dict[str, Any]) -> list[list[tuple[str, list[str]]]]:
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[(output["output_type"], sorted(output.get("data", {}))) for output in cell["outputs"]] for cell in cells]


def test_the_notebook_runs_and_is_kept_executed() -> None:
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    found = run_notebook.run(NOTEBOOK)
    assert kinds(found) == kinds(kept)
    pages = ["".join(output["data"]["text/html"]) for output in _results(found) if "text/html" in output["data"]]
    assert [page.count("<svg") for page in pages] == [2, 1, 0]
    assert NOTEBOOK.stat().st_size < 100_000
    assert str(Path.home()) not in NOTEBOOK.read_text(encoding="utf-8")


def _results(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [output for output in outputs if output["output_type"] == "execute_result"]
