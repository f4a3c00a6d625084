"""The time line of a run as one HTML page, which needs no server and loads nothing.

`page_data` turns the facts of the time line into swim lanes: the states of nodes and clients, faults, leaders of
partitions. The template draws them. Problems, the courses of their records, and the time line are plain text in the
page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from barnabas.simulation.facts import DECIDED, ControllerElected, PartitionDecided
from barnabas.simulation.faults import Fault, FaultStep
from barnabas.simulation.scenario import Outcome
from barnabas.simulation.simulated_cluster import ZOOKEEPER
from barnabas.simulation.timeline import Line, fold, machine_of
from barnabas.simulation.world import SECOND_US, Note, ProcessState, format_time

_TEMPLATE = "timeline_page.html"
#: The sources of the lines that end a run.
_JUDGES = ("checker", "run")
_PROBLEMS_MAX = 100
#: The number of problems that are shown without a click.
_PROBLEMS_OPEN = 3


def page_of(outcome: Outcome, summary: Sequence[str], command: str) -> str:
    """Returns the page. `summary`: lines about the run; `command`: what runs it again."""
    lines = fold(outcome.notes)
    data = page_data(outcome, lines)
    seed = outcome.settings.seed
    title = f"Seed {seed}: {outcome.problems[0]}" if outcome.failed else f"Seed {seed}: every guarantee was kept"
    parts = {
        "TITLE": escape(title),
        "SUMMARY": "<br>".join(map(escape, summary)),
        "COMMAND": escape(command),
        "PROBLEMS": "\n".join(_problems(outcome)),
        "LINES": "\n".join(_item(line.note, line.text, _kind(line, data["clients"])) for line in lines),
        # No text can end the script that contains it.
        "DATA": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    page = files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8")
    before, *rest = page.split("@@")
    # Every second part is a name: a text that looks like one is not replaced.
    names, texts = rest[::2], rest[1::2]
    return before + "".join(parts[name] + text for name, text in zip(names, texts, strict=True))


def page_data(outcome: Outcome, lines: Sequence[Line]) -> dict[str, Any]:
    """Returns what the page draws; times are in microseconds."""
    end_us = max([round(outcome.virtual_s * SECOND_US), *(note.time_us for note in outcome.notes), 1])
    layout = outcome.settings.layout
    nodes = [*layout.node_properties(), *([ZOOKEEPER] if layout.zookeeper else [])]
    # A client has a lane if something happened to it.
    struck = {note.node for note in outcome.notes if isinstance(note.fact, ProcessState | FaultStep)}
    struck |= {note.fact.fault.peer for note in outcome.notes if isinstance(note.fact, FaultStep)} - {""}
    noted = {machine_of(line.note.node) for line in lines}
    clients = sorted((noted | struck) - {*nodes, DECIDED, *_JUDGES, "world"})
    lanes = [_lane(name, outcome.notes, end_us, begins="dead") for name in sorted(nodes)]
    lanes += [_lane(name, outcome.notes, end_us, begins="running") for name in clients if name in struck]
    drawn = {lane["name"] for lane in lanes}
    judged = [note for note in outcome.notes if note.node in _JUDGES]
    return {
        "end_us": end_us,
        "problem": outcome.problems[0] if outcome.failed else "",
        "problem_us": (judged[-1].time_us if judged else end_us) if outcome.failed else None,
        "clients": clients,
        "lanes": [*lanes, {"name": "everything else", "states": [], "faults": [], "rows": 0}],
        "partitions": [*_controllers(outcome.notes, end_us), *_partitions(outcome.notes, end_us)],
        "lines": [
            {
                "from": line.note.time_us,
                "lane": machine_of(line.note.node) if machine_of(line.note.node) in drawn else "everything else",
                "kind": _kind(line, clients),
                "text": f"{format_time(line.note.time_us)}  {line.note.node}  {line.text}",
            }
            for line in lines
        ],
    }


def _lane(name: str, notes: Sequence[Note], end_us: int, *, begins: str) -> dict[str, Any]:
    """Returns the lane of a machine: its states and the faults that strike it or its links."""
    states: list[dict[str, Any]] = [{"from": 0, "to": end_us, "state": begins}]
    for note in notes:
        if note.node == name and isinstance(note.fact, ProcessState):
            states[-1]["to"] = note.time_us
            states.append({"from": note.time_us, "to": end_us, "state": note.fact.value})
    faults, rows = _faults(name, notes, end_us)
    return {
        "name": name,
        "states": [each for each in states if each["from"] < each["to"]],
        "faults": faults,
        "rows": rows,
    }


def _faults(name: str, notes: Sequence[Note], end_us: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the faults of a machine, in rows in which they do not overlap, and the number of rows."""
    began: dict[Fault, dict[str, Any]] = {}
    bars: list[dict[str, Any]] = []
    for note in notes:
        if not isinstance(note.fact, FaultStep) or name not in (note.fact.fault.node, note.fact.fault.peer):
            continue
        fault, begins, _ = note.fact
        if begins:
            began[fault] = {
                "from": note.time_us,
                "to": end_us,
                "text": note.text.removeprefix("fault: "),
                "kind": fault.kind.value,
            }
            bars.append(began[fault])
        elif fault in began:
            began.pop(fault)["to"] = note.time_us
    ends: list[int] = []
    for bar in bars:
        row = next((row for row, end in enumerate(ends) if end <= bar["from"]), len(ends))
        ends[row:] = [bar["to"], *ends[row + 1 :]]
        bar["row"] = row
    return bars, len(ends)


def _controllers(notes: Iterable[Note], end_us: int) -> Iterator[dict[str, Any]]:
    """Yields the lane of the active controller, as if it were a partition."""
    spans: list[dict[str, Any]] = []
    for note in notes:
        if isinstance(note.fact, ControllerElected):
            name = note.fact.node
            number = int("".join(filter(str.isdigit, name)) or -1)
            _begin(spans, note.time_us, end_us, leader=number, missing=False, text=note.text, label=name, short="")
    if spans:
        yield {"name": "active controller", "spans": spans}


def _partitions(notes: Iterable[Note], end_us: int) -> list[dict[str, Any]]:
    """Returns a lane for each partition, with a span for each decision. Those of internal topics come last."""
    spans: dict[str, list[dict[str, Any]]] = {}
    for note in notes:
        fact = note.fact
        if isinstance(fact, PartitionDecided):
            labels = {"label": f"{fact.leader}, ISR {','.join(map(str, fact.isr))}", "short": f"{fact.leader}"}
            missing = set(fact.isr) != set(fact.replicas)
            text = note.text.partition(": ")[2]
            of_partition = spans.setdefault(fact.partition, [])
            _begin(of_partition, note.time_us, end_us, leader=fact.leader, missing=missing, text=text, **labels)
    names = sorted(spans, key=lambda name: (name.startswith("__"), name))
    return [{"name": name, "spans": spans[name]} for name in names]


def _begin(spans: list[dict[str, Any]], time_us: int, end_us: int, **fields: Any) -> None:
    if spans:
        spans[-1]["to"] = time_us
    spans.append({"from": time_us, "to": end_us, **fields})


def _kind(line: Line, clients: Sequence[str]) -> str:
    if line.note.node in _JUDGES:
        return "broken"
    if line.note.node == DECIDED:
        return "decided"
    if isinstance(line.note.fact, FaultStep):
        return "step"
    return "client" if machine_of(line.note.node) in clients else ""


def _problems(outcome: Outcome) -> Iterator[str]:
    for place, problem in enumerate(outcome.problems[:_PROBLEMS_MAX]):
        if place == _PROBLEMS_OPEN:
            yield f"<details><summary>{len(outcome.problems) - place} more problems</summary>"
        yield f'<div class="problem"><p><strong>{escape(problem)}</strong></p>'
        course = outcome.courses.get(problem)
        if course:
            yield "<ol>"
            yield from (_item(note, note.text, "") for note in course)
            yield "</ol>"
        yield "</div>"
    if len(outcome.problems) > _PROBLEMS_OPEN:
        yield "</details>"


def _item(note: Note, text: str, kind: str) -> str:
    cells = (format_time(note.time_us), note.node, text)
    return f'<li class="{kind}">' + "".join(f"<span>{escape(cell)}</span>" for cell in cells) + "</li>"
