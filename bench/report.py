"""The report of measured values: minimum, median and maximum of each broker, the ratio of the medians, the goal."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

from targets import ROOT, kafka_jars
from workloads import Metric

#: The values of each metric and side, one per round. The sides are the brokers; one of them can be something else
#: ("write loop").
Values = dict[str, dict[str, list[float]]]


class Table(NamedTuple):
    """A table of the report."""

    title: str
    about: str
    metrics: Sequence[Metric]


def machine() -> dict[str, Any]:
    """Returns the properties of the machine that the figures depend on."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory_kb = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kb / 1e6, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java[0] if java else "none",
        "kafka": kafka_jars.VERSION,
        "librdkafka": confluent_kafka.libversion()[0],
        "confluent_kafka": confluent_kafka.version(),
        "commit": _commit(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        ).stdout.strip()

    head = git("rev-parse", "--short", "HEAD")
    return f"{head} with changes" if git("status", "--porcelain", "--untracked-files=no") else head


def summarize(values: Values, metrics: Sequence[Metric]) -> list[dict[str, Any]]:
    """Returns one row per metric that was measured. `compared_with` is the side that Barnabas is compared with."""
    rows = []
    for metric in metrics:
        measured = {side: found for side, found in values.get(metric.name, {}).items() if found}
        if not measured:
            continue
        row: dict[str, Any] = {"metric": metric.name, "title": metric.title, "unit": metric.unit}
        for side, found in measured.items():
            row[side] = {"min": min(found), "median": statistics.median(found), "max": max(found), "values": found}
        row["compared_with"] = other = next((side for side in measured if side != "barnabas"), None)
        ratio = None
        if other is not None and "barnabas" in measured and row[other]["median"]:
            ratio = row["barnabas"]["median"] / row[other]["median"]
        row["ratio"] = ratio
        row["goal"] = metric.goal.show(metric.unit) if metric.goal else None
        judged = metric.goal is not None and "barnabas" in measured
        row["met"] = metric.goal.holds(row["barnabas"]["median"], ratio) if judged and metric.goal else None
        rows.append(row)
    return rows


def record(values: Values, metric: Metric, side: str, value: float) -> None:
    """Adds one value to a row, and prints it."""
    values.setdefault(metric.name, {}).setdefault(side, []).append(value)
    print(f"  {side:10} {metric.title:75} {number(value):>10} {metric.unit}", flush=True)


def number(value: float) -> str:
    if value >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def _spread(row: dict[str, Any], side: str | None) -> str:
    if side is None or side not in row:
        return "–"
    found = row[side]
    text = f"{number(found['min'])} / **{number(found['median'])}** / {number(found['max'])}"
    return text if side in ("kafka", "barnabas") else f"{text} ({side})"


def _table(table: Table, rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"## {table.title}",
        "",
        table.about,
        "",
        "| | unit | Apache Kafka | Barnabas | ratio | goal | met |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}×"
        met = "–" if row["met"] is None else "yes" if row["met"] else "no"
        sides = [_spread(row, row["compared_with"]), _spread(row, "barnabas")]
        lines.append(f"| {' | '.join([row['title'], row['unit'], *sides, ratio, row['goal'] or '–', met])} |")
    return [*lines, ""]


def markdown(parts: Sequence[tuple[Table, list[dict[str, Any]]]], about: dict[str, Any], *, quick: bool) -> str:
    lines = [
        "# Speed next to Apache Kafka",
        "",
        f"{about['time']}, commit {about['commit']}. {about['cpu']}, {about['cores']} cores, {about['memory_gb']} GB, "
        f"Linux {about['kernel']}; Python {about['python']}; Apache Kafka {about['kafka']} on {about['java']} "
        f"(-Xmx1G -Xms1G, G1); confluent-kafka {about['confluent_kafka']}, librdkafka {about['librdkafka']}.",
        "",
        "Both brokers ran one after the other, never simultaneously, on the same disk; which one was first changed "
        "from round to round. Values are minimum / **median** / maximum of the rounds; the ratio is Barnabas over "
        "Kafka, of the medians.",
        "",
    ]
    if quick:
        lines += ["A quick run: too short to judge by.", ""]
    for table, rows in parts:
        lines += _table(table, rows)
    return "\n".join(lines)


def write(directory: Path, name: str, values: Values, tables: Sequence[Table], *, quick: bool) -> str:
    """Writes NAME.md and NAME.json, and returns the tables as text. Tables without values are left out."""
    parts = [(table, rows) for table in tables if (rows := summarize(values, table.metrics))]
    about = machine()
    text = markdown(parts, about, quick=quick)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.md").write_text(text, "utf-8")
    rows = [{"table": table.title, **row} for table, found in parts for row in found]
    document = {"about": about, "quick": quick, "rows": rows}
    (directory / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return text
