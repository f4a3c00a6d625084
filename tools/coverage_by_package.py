"""Prints the branch coverage of each package from the data of coverage.py.

python tools/coverage_by_package.py      after `coverage combine`; `make coverage` does all of it
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

#: Generated modules, whose codecs are made at run time, are left out.
GENERATED = "protocol/messages/"


class Counts(NamedTuple):
    """Statements and branches of a file or a package, and how many of them were run."""

    statements: int = 0
    statements_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + its for mine, its in zip(self, other, strict=True)))


def by_package(report: Mapping[str, Any]) -> dict[str, Counts]:
    """Returns the counts of each package, from the JSON report of coverage.py."""
    found: dict[str, Counts] = {}
    for file, measured in report["files"].items():
        parts = PurePosixPath(file).parts
        inner = parts[parts.index("barnabas") + 1 :] if "barnabas" in parts else ()
        if len(inner) > 1 and not "/".join(inner).startswith(GENERATED):
            summary = measured["summary"]
            counts = Counts(
                summary["num_statements"],
                summary["covered_lines"],
                summary["num_branches"],
                summary["covered_branches"],
            )
            found[inner[0]] = found.get(inner[0], Counts()).plus(counts)
    return found


def lines(found: Mapping[str, Counts]) -> Iterator[str]:
    yield f"{'package':<14} {'statements':>10} {'run':>8}   {'branches':>8} {'run':>8}"
    total = Counts()
    for package, counts in sorted(found.items()):
        total = total.plus(counts)
        yield _line(package, counts)
    yield _line("all", total)


def _line(package: str, counts: Counts) -> str:
    return (
        f"{package:<14} {counts.statements:>10,} {_share(counts.statements_run, counts.statements):>8}   "
        f"{counts.branches:>8,} {_share(counts.branches_run, counts.branches):>8}"
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def main() -> int:
    import coverage

    measured = coverage.Coverage()
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        measured.json_report(outfile=str(file))
        report = json.loads(file.read_text("utf-8"))
    print("\n".join(lines(by_package(report))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
