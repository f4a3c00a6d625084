"""The znodes and writes of a run of the 36 recorded steps (`golden_steps`), compared with the recording.

Both are compared by step and path: the tree after a step, and the writes of each path in their order. Times, ids, ports
and random bytes are first removed from the data. Notifications of configs are compared as one path in any order: a tool
that changes several topics and brokers in one request names them in no order.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.recorded_znodes import recorded_trees

from barnabas.zookeeper.files.txn_entries import decode_entry
from barnabas.zookeeper.txns import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetDataTxn,
)

_WRITES: Final = Path(__file__).resolve().parents[1] / "data" / "znodes" / "recorded_writes.json"
_LOG_HEADER_BYTES: Final = 16
_FRAME: Final = struct.Struct(">qi")
RECORDED_PORTS: Final = {0: 9561, 1: 9562, 2: 9563}
#: Pattern -> its replacement.
_VARIES: Final = (
    (re.compile(r'"timestamp":"\d+"'), '"timestamp":"TIME"'),
    (re.compile(r'"topic_id":"[\w-]{22}"'), '"topic_id":"ID"'),
    (re.compile(r'("version":"1","id":)"[\w-]{22}"'), r'\1"ID"'),
    (re.compile(r"(salt|stored_key|server_key)=[\w+/=]+"), r"\1=RANDOM"),
)

_CHANGE: Final = "/config/changes/config_change_"

Write = tuple[str, str | None]
#: Step -> path -> its writes in their order.
WritesOfSteps = dict[str, dict[str, list[Write]]]


class Place(NamedTuple):
    """A step and a path."""

    step: str
    path: str


class Seen(NamedTuple):
    """A znode after a step: its data and its data version."""

    data: str | None
    version: int


class Run(NamedTuple):
    """The outcome of a run of the steps: the trees, the last zxid of each step, and the ports of its brokers."""

    trees: Mapping[str, Mapping[str, Seen]]
    zxids: Mapping[str, int]
    ports: Mapping[int, int]


Differences = dict[Place, tuple[Any, Any]]


def alike(data: str | None, ports: Mapping[int, int]) -> str | None:
    """Returns the data without the parts that differ from run to run."""
    if data is None:
        return None
    for number, port in ports.items():
        data = data.replace(f":{port}", f":PORT{number}")
    for pattern, instead in _VARIES:
        data = pattern.sub(instead, data)
    return data


def recorded_tree(step: str) -> dict[str, Seen]:
    """Returns the recorded tree after a step."""
    return {
        path: Seen(alike(None if old.data is None else old.data.decode(), RECORDED_PORTS), old.version)
        for path, old in recorded_trees()[step].items()
    }


def seen_tree(run: Run, step: str) -> dict[str, Seen]:
    """Returns the tree of a run after a step."""
    return {path: Seen(alike(new.data, run.ports), new.version) for path, new in run.trees[step].items()}


def tree_differences(run: Run) -> Differences:
    """Returns the znodes that are not as recorded: recorded, seen."""
    found: Differences = {}
    for step in run.trees:
        recorded, seen = recorded_tree(step), seen_tree(run, step)
        one, other = ({path: [znode] for path, znode in tree.items()} for tree in (recorded, seen))
        found.update(differences(step, one, other))
    return found


def write_differences(run: Run, folder: Path) -> Differences:
    """Returns the paths whose writes are not those recorded. `folder` has the server's logs."""
    recorded, seen = recorded_writes(), seen_writes(run, folder)
    found: Differences = {}
    for step in run.trees:
        found.update(differences(step, recorded[step], seen[step]))
    return found


def recorded_writes() -> WritesOfSteps:
    """Returns the recorded writes of each step and path."""
    recorded: dict[str, dict[str, list[list[str | None]]]] = json.loads(_WRITES.read_text())
    return {
        step: {
            path: [_write(row, lambda data: alike(data, RECORDED_PORTS)) for row in rows]
            for path, rows in paths.items()
        }
        for step, paths in recorded.items()
    }


def differences(step: str, one: Mapping[str, list[Any]], other: Mapping[str, list[Any]]) -> Differences:
    """Returns the paths whose rows differ. Notifications of configs are one path."""
    one, other = _with_changes_in_one_place(one), _with_changes_in_one_place(other)
    paths = sorted({*one, *other})
    return {Place(step, path): (one.get(path), other.get(path)) for path in paths if one.get(path) != other.get(path)}


def _with_changes_in_one_place(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    found = {path: row for path, row in rows.items() if not path.startswith(_CHANGE)}
    found[_CHANGE] = sorted(each for path, row in rows.items() if path.startswith(_CHANGE) for each in row)
    return found


def _write(row: list[str | None], change: Callable[[str | None], str | None]) -> Write:
    kind, *data = row
    assert kind is not None
    return kind, change(data[0]) if data else None


def seen_writes(run: Run, folder: Path) -> WritesOfSteps:
    """Returns the writes of each step and path of a run. `folder` has the server's logs."""
    found: dict[str, dict[str, list[Write]]] = {step: {} for step in run.zxids}
    ends = iter(sorted((zxid, step) for step, zxid in run.zxids.items()))
    end, step = next(ends)
    for zxid, path, kind, data in writes_of(folder):
        while zxid > end:
            end, step = next(ends, (1 << 63, ""))
        if step:
            found[step].setdefault(path, []).append((kind, alike(data, run.ports)))
    return found


def writes_of(folder: Path) -> Iterator[tuple[int, str, str, str | None]]:
    """Yields the writes in the logs of a folder: zxid, path, kind, data."""
    logs = sorted(folder.glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    for log in logs:
        content = log.read_bytes()
        at = _LOG_HEADER_BYTES
        while at + _FRAME.size <= len(content):
            _, length = _FRAME.unpack_from(content, at)
            if length <= 0:
                break
            at += _FRAME.size
            entry = decode_entry(content[at : at + length])
            at += length + 1
            for path, kind, data in _parts(entry.txn):
                yield entry.header.zxid, path, kind, None if data is None else data.decode()


def _parts(txn: object) -> Iterator[tuple[str, str, bytes | None]]:
    match txn:
        case CreateTxn() | CreateTtlTxn() | CreateContainerTxn():
            yield txn.path, "create", txn.data
        case SetDataTxn():
            yield txn.path, "set", txn.data
        case DeleteTxn():
            yield txn.path, "delete", None
        case CloseSessionTxn():
            for path in txn.paths or ():
                yield path, "delete", None
        case MultiTxn():
            if not any(isinstance(part.txn, ErrorTxn) for part in txn.parts):
                for part in txn.parts:
                    yield from _parts(part.txn)
