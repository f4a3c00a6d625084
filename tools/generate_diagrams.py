"""Generates the parts of the documentation that come from tables in the code: the diagrams and the list of packages.

python tools/generate_diagrams.py            write the files
python tools/generate_diagrams.py --check    write nothing; exit 1 and name the files that are not current

    docs/architecture.svg    the layers of pyproject.toml, and the path of two requests (modules that exist)
    docs/architecture.md     the table of packages, from the layers and the docstring of each package
    docs/states-*.svg        the states of the tables below, with their transitions
    docs/log-in.md           the table of the gate before the log-in
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.coordinators import runtime
from barnabas.coordinators.groups.classic import group
from barnabas.coordinators.transactions import state as txn
from barnabas.protocol import sasl_gate
from barnabas.raft import quorum

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "barnabas"
HOSTS: Final = frozenset({"server", "simulation"})
#: The table of the gate, between these lines of docs/log-in.md.
GATE_BEGIN: Final = "<!-- gate: written by tools/generate_diagrams.py -->"
GATE_END: Final = "<!-- gate end -->"
#: The rows of the table, between these lines of docs/architecture.md.
BEGIN: Final = "<!-- packages: written by tools/generate_diagrams.py -->"
END: Final = "<!-- packages end -->"
STYLE: Final = (
    "<style>text{fill:#1f2328}.n{fill:#f6f8fa;stroke:#57606a}.h{fill:#fff8e5;stroke:#9a6700}"
    ".o{fill:none;stroke:#8c959f;stroke-dasharray:5 3}.a{fill:none;stroke:#57606a;stroke-width:1.4;marker-end:url(#m)}"
    ".p{stroke:#bc4c00}.f{stroke:#0969da}.b{font-weight:bold}.s{font-size:12px}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.n{fill:#223;stroke:#99a}.h{fill:#332d18;stroke:#cb8}"
    ".a{stroke:#9bd}}</style>"
    '<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#678"/></marker></defs>'
)


class Box(NamedTuple):
    """A rectangle by its centre."""

    x: float
    y: float
    width: float
    height: float

    def edge(self, x: float, y: float) -> tuple[float, float]:
        """Returns where the line from the centre to that point leaves the box."""
        across, down = x - self.x, y - self.y
        scale = min(
            self.width / 2 / abs(across) if across else 1e9,
            self.height / 2 / abs(down) if down else 1e9,
        )
        return self.x + across * scale, self.y + down * scale

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Returns the point on the border of the box that is nearest to a point outside it."""
        right, bottom = self.width / 2, self.height / 2
        return min(max(x, self.x - right), self.x + right), min(max(y, self.y - bottom), self.y + bottom)


# -- packages


def layers() -> list[list[str]]:
    """Returns the packages of each layer, the topmost first, as import-linter checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    found = next(each["layers"] for each in contracts if each["type"] == "layers")
    return [[name.strip().removeprefix("barnabas.") for name in layer.split("|")] for layer in found]


def table() -> str:
    rows = ["| package | contents |", "|---|---|"]
    for package in (package for layer in layers() for package in layer):
        rows.append(f"| [`{package}`](../src/barnabas/{package}) | {_purpose(package)} |")
    return "\n".join(rows)


def _purpose(package: str) -> str:
    """Returns the first paragraph of the package's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text("utf-8")))
    assert text, f"{package} has no docstring"
    return " ".join(text.split("\n\n")[0].split()).rstrip(".").replace("|", r"\|")


def page_with_table() -> str:
    text = (DOCS / "architecture.md").read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


#: The path of a request: module, what it does there.
STEPS: Final = (
    ("", "a Kafka client"),
    ("server/listener.py", "one receive area for all connections"),
    ("protocol/frame_reader.py", "cuts frames, as views; no copy"),
    ("broker/requests/dispatch.py", "header, version, handler; answers in order"),
    ("broker/handlers/produce.py", "or fetch.py: to (topic, partition, view)"),
    ("replication/replica_manager.py", "finds the partition led here"),
    ("replication/partition.py", "role, epoch, HW: how far a reader can see"),
    ("storage/log.py", "assigns offsets; one write, one read"),
    ("", "*.log *.index *.timeindex"),
)


def architecture() -> str:
    parts = [_text(30, 34, "Packages: each imports only those below", "b"), _text(560, 34, "Two requests", "b")]
    y = 56
    for layer in layers():
        width = (470 - 12 * (len(layer) - 1)) / len(layer)
        for place, package in enumerate(layer):
            kind = "h" if package in HOSTS else "n"
            box = Box(30 + place * (width + 12) + width / 2, y + 19, width, 38)
            parts.append(_box(box, kind, package))
        y += 48
    parts.append(_text(30, y + 16, "Below server and simulation: no clock, no randomness, no I/O, no await.", "s"))
    parts.append(_text(30, y + 34, "All of it comes through the ports in common.", "s"))
    height, y = y + 50, 56
    for place, (module, text) in enumerate(STEPS):
        assert not module or (PACKAGE / module).exists(), f"{module} is not a file"
        parts.append(f'<rect class="{"n" if module else "o"}" x="600" y="{y}" width="330" height="46" rx="6"/>')
        parts.append(_text(614, y + (20 if module else 28), module or text, "b"))
        if module:
            parts.append(_text(614, y + 37, text, "s"))
        if place:
            parts += [_line(f"M{x} {y - 20}V{y - 1}", f"a {kind}") for x, kind in ((680, "p"), (850, "f"))]
        y += 66
    top, bottom = 79, y - 43
    parts.append(_line(f"M600 {bottom - 66}H560V{top}H599", "a p"))
    parts.append(_line(f"M930 {bottom - 66}H970V{top}H931", "a f"))
    parts.append(_text(600, y + 6, "left: produce, answered when the HW covers it (acks=all)", "s"))
    parts.append(_text(600, y + 24, "right: fetch, answered with whole batches below the HW, as on disk", "s"))
    parts.append(
        _text(600, y + 42, "A request that has to wait is in replication/purgatory.py: no task, no thread.", "s")
    )
    return _svg(1060, max(height, y + 56), "The packages of Barnabas, and the path of two requests through them", parts)


# -- states


class Diagram(NamedTuple):
    """A table of transitions, and where its states are drawn."""

    title: str
    transitions: Mapping[Any, frozenset[Any]]
    places: Mapping[str, tuple[int, int]]
    #: The cases that the table does not contain.
    notes: tuple[str, ...] = ()


DIAGRAMS: Final = {
    "states-group": Diagram(
        "The states of a classic group",
        group.TRANSITIONS,
        {
            "EMPTY": (130, 60),
            "PREPARING_REBALANCE": (420, 60),
            "COMPLETING_REBALANCE": (420, 170),
            "STABLE": (130, 170),
            "DEAD": (690, 60),
        },
    ),
    "states-transaction": Diagram(
        "The states of a transactional id",
        txn.TRANSITIONS,
        {
            "EMPTY": (130, 70),
            "COMPLETE_COMMIT": (130, 150),
            "COMPLETE_ABORT": (130, 230),
            "ONGOING": (690, 70),
            "PREPARE_COMMIT": (420, 150),
            "PREPARE_ABORT": (420, 230),
            "DEAD": (130, 340),
        },
    ),
    "states-coordinator": Diagram(
        "The states of a coordinator's partition on this broker",
        runtime.TRANSITIONS,
        {"LOADING": (130, 60), "ACTIVE": (420, 60), "FAILED": (420, 150), "CLOSED": (690, 60)},
    ),
    "states-quorum": Diagram(
        "The roles of a node in the metadata quorum",
        quorum.TRANSITIONS,
        {
            "UNATTACHED": (130, 60),
            "PROSPECTIVE": (400, 60),
            "CANDIDATE": (670, 60),
            "LEADER": (940, 60),
            "FOLLOWER": (400, 170),
            "RESIGNED": (940, 170),
        },
        (
            "A message with a higher epoch makes every role "
            + " or ".join(sorted(role.__name__ for role in quorum.OF_HIGHER_EPOCH))
            + " of that epoch.",
            "The only voter becomes Candidate from every role but Leader, without pre-votes.",
        ),
    ),
}


def states(diagram: Diagram) -> str:
    """Returns the picture: states with the same transitions share a dashed box; an end that every other state can
    reach, and transitions within a box, are described below it."""
    boxes = {state: Box(*diagram.places[name_of(state)], 190, 40) for state in diagram.transitions}
    shared: dict[frozenset[Any], list[Any]] = {}
    ends = [state for state, targets in diagram.transitions.items() if not targets]
    everywhere = [end for end in ends if all(end in diagram.transitions[state] for state in boxes if state is not end)]
    notes = [f"Every state can become {shown(end)}." for end in everywhere]
    notes += diagram.notes
    parts = []
    for state, targets in diagram.transitions.items():
        shared.setdefault(targets.difference(everywhere), []).append(state)
    for targets, sources in shared.items():
        source = boxes[sources[0]]
        if len(sources) > 1 and targets:
            source = _around([boxes[state] for state in sources])
            parts.append(_rect(source, "o"))
        for target in sorted(targets, key=name_of):
            if target in sources:
                notes.append(f"{' and '.join(shown(each) for each in sources)} can be followed by {shown(target)}.")
                continue
            is_mutual = any(each in diagram.transitions[target] for each in sources)
            parts.append(_arrow(source, boxes[target], is_shared=len(sources) > 1, shift=7 if is_mutual else 0))
    parts += [_box(box, "n", shown(state)) for state, box in boxes.items()]
    y = max(box.y for box in boxes.values()) + 60
    parts += [_text(35, y + 18 * place, note, "s") for place, note in enumerate(notes)]
    width = max(box.x for box in boxes.values()) + 130
    return _svg(width, y + 18 * len(notes), diagram.title, parts)


def name_of(state: Any) -> str:
    """Returns the name of a state, which is a member of an enum or a class."""
    return state.name if isinstance(state, Enum) else state.__name__.upper()


def shown(state: Any) -> str:
    return "".join(word.capitalize() for word in name_of(state).split("_"))


def _around(boxes: list[Box]) -> Box:
    left, right = min(box.x - box.width / 2 for box in boxes) - 15, max(box.x + box.width / 2 for box in boxes) + 15
    top, bottom = min(box.y - box.height / 2 for box in boxes) - 15, max(box.y + box.height / 2 for box in boxes) + 15
    return Box((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)


def _arrow(source: Box, target: Box, *, is_shared: bool, shift: float) -> str:
    begin = source.nearest(target.x, target.y) if is_shared else source.edge(target.x, target.y)
    end = target.edge(*begin) if is_shared else target.edge(source.x, source.y)
    length = max(((end[0] - begin[0]) ** 2 + (end[1] - begin[1]) ** 2) ** 0.5, 1)
    across, down = -(end[1] - begin[1]) / length * shift, (end[0] - begin[0]) / length * shift
    path = f"M{begin[0] + across:.0f} {begin[1] + down:.0f}L{end[0] + across:.0f} {end[1] + down:.0f}"
    return _line(path, "a")


# -- drawing


def _svg(width: float, height: float, title: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" font-size="14" role="img" aria-label="{title}">'
    )
    return "\n".join([f"<!-- Written by tools/generate_diagrams.py. -->{head}", STYLE, *parts, "</svg>"]) + "\n"


def _rect(box: Box, kind: str) -> str:
    x, y = box.x - box.width / 2, box.y - box.height / 2
    return f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="6"/>'


def _box(box: Box, kind: str, text: str) -> str:
    return f'{_rect(box, kind)}<text x="{box.x:.0f}" y="{box.y + 5:.0f}" text-anchor="middle">{text}</text>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{text}</text>'


def _line(path: str, kind: str) -> str:
    return f'<path class="{kind}" d="{path}"/>'


def gate() -> str:
    """Returns the table of `protocol.sasl_gate`: a row for each state, a column for each kind of frame."""
    kinds = list(sasl_gate.FrameKind)
    rows = [
        " | ".join([f"**{state.value}**", *(sasl_gate.TABLE[state][kind].value for kind in kinds)])
        for state in sasl_gate.GateState
    ]
    head = " | ".join(["state", *(kind.value for kind in kinds)])
    return "\n".join(f"| {row} |" for row in (head, " | ".join(["---"] * (len(kinds) + 1)), *rows))


def page_with_gate() -> str:
    text = (DOCS / "log-in.md").read_text("utf-8")
    before, _, rest = text.partition(GATE_BEGIN)
    _, _, after = rest.partition(GATE_END)
    return f"{before}{GATE_BEGIN}\n\n{gate()}\n\n{GATE_END}{after}"


def files() -> dict[Path, str]:
    """Returns every generated file with its text."""
    found = {DOCS / f"{name}.svg": states(diagram) for name, diagram in DIAGRAMS.items()}
    pages = {DOCS / "architecture.md": page_with_table(), DOCS / "log-in.md": page_with_gate()}
    return {**found, DOCS / "architecture.svg": architecture(), **pages}


def stale(current: Mapping[Path, str]) -> list[str]:
    """Returns the names of the files whose text on disk differs."""
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in current.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main(arguments: list[str]) -> int:
    current = files()
    found = stale(current)
    if "--check" in arguments:
        print("\n".join(f"{name} is out of date" for name in found) or "all files are current")
        return 1 if found else 0
    for path, text in current.items():
        path.write_text(text, "utf-8")
    print(f"wrote {', '.join(found) or 'nothing new'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
