"""`barnabas check`: judges a recorded history of clients of any Kafka-compatible cluster."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import output
from barnabas.cli.options import Json
from barnabas.embedded.failures import Failure
from barnabas.histories import Finding, Kind, Malformed, Verdict, judge

File = Annotated[str, typer.Argument(metavar="HISTORY", help="File with one JSON operation per line; - reads stdin")]
Allow = Annotated[
    list[Kind] | None,
    typer.Option("--allow", metavar="KIND", help="A kind of finding that does not count as an anomaly; repeatable"),
]
Max = Annotated[int, typer.Option("--max", min=1, help="Maximum number of findings to show of each kind")]


def check(file: File, allow: Allow = None, maximum: Max = 10, as_json: Json = False) -> None:
    """Judge whether the cluster kept its guarantees to the clients of a recorded history

    The exit code is 1 if a guarantee was broken and 2 if the file is not a history. docs/check.md describes the rules
    and the file format.
    """
    try:
        verdict = _judged(file).allow(allow or ())
    except Malformed as error:
        output.show_failure(Failure(f"{file}: {error}", "docs/check.md describes the format of a history"))
        raise typer.Exit(2) from None
    except (OSError, UnicodeDecodeError) as error:
        output.show_failure(Failure(f"{file}: {error}"))
        raise typer.Exit(2) from None
    if as_json:
        output.show_json(_document(verdict, maximum))
    else:
        _show(verdict, maximum)
    if not verdict.valid:
        raise typer.Exit(1)


def _judged(file: str) -> Verdict:
    """Judges the history without garbage collection: everything that is read is needed until the end."""
    gc.disable()
    try:
        if file == "-":
            return judge(sys.stdin)
        with Path(file).open(encoding="utf-8") as lines:
            return judge(lines)
    finally:
        gc.enable()


def _document(verdict: Verdict, maximum: int) -> dict[str, Any]:
    return {**verdict.as_json(), "findings": [finding.as_json() for finding in _first(verdict.findings, maximum)]}


def _show(verdict: Verdict, maximum: int) -> None:
    counts = verdict.counts
    print(
        f"{output.counted(counts['operations'], 'operation')}: {output.counted(counts['sent'], 'record')} sent "
        f"({counts['acked']:,} acked, {counts['failed']:,} failed, {counts['unknown']:,} unknown), "
        f"{output.counted(counts['read'], 'record')} read in {output.counted(counts['polls'], 'poll')} "
        f"of {output.counted(counts['partitions'], 'partition')}"
    )
    if counts["ignored"]:
        print(f"ignored: {output.counted(counts['ignored'], 'operation')} with another f")
    for finding in _first(verdict.findings, maximum):
        word = "note" if finding.note else "anomaly"
        print(f"{word}: {finding.kind.value}: {finding.text} ({_lines(finding)})")
    for word, found in (("anomalies", verdict.anomalies), ("notes", verdict.notes)):
        if found:
            print(f"{word}: " + ", ".join(f"{kind.value} {count:,}" for kind, count in sorted(found.items())))
    print("no anomalies" if verdict.valid else "INVALID")


def _first(findings: Iterable[Finding], maximum: int) -> list[Finding]:
    shown: dict[tuple[Kind, bool], int] = {}
    chosen = []
    for finding in findings:
        key = (finding.kind, finding.note)
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= maximum:
            chosen.append(finding)
    return chosen


def _lines(finding: Finding) -> str:
    return f"line{'s' if len(finding.lines) > 1 else ''} {', '.join(str(line) for line in finding.lines)}"
