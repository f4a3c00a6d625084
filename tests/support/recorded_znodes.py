"""The znodes recorded from Apache Kafka 3.9.1 (tests/data/znodes)."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_DATA = Path(__file__).resolve().parent.parent / "data" / "znodes"


class RecordedZnode(NamedTuple):
    data: bytes | None
    version: int
    czxid: int


Tree = dict[str, RecordedZnode]


class EncodedZnode(NamedTuple):
    """A result of one of Kafka's encoders, with its name and the values that it was given."""

    encoder: str
    values: tuple[str, ...]
    data: bytes


@functools.cache
def _recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((_DATA / "recorded.json").read_text())
    return content


def recorded_trees() -> dict[str, Tree]:
    """Returns the whole tree after each of the 36 steps."""
    tree: Tree = {}
    trees = {}
    for step, change in _recorded()["steps"].items():
        tree = {path: znode for path, znode in tree.items() if path not in change["gone"]}
        for path, (data, version, czxid) in change["set"].items():
            tree[path] = RecordedZnode(None if data is None else data.encode(), version, czxid)
        trees[step] = tree
    return trees


def recorded_contents() -> Iterator[tuple[str, bytes]]:
    """Yields every content that was ever written, with its path."""
    for tree in recorded_trees().values():
        yield from ((path, znode.data) for path, znode in tree.items() if znode.data is not None)
    yield from ((path, data.encode()) for path, data in _recorded()["writes"])
    yield from ((path, data.encode()) for path, data in _recorded()["release_2_8"].items())


@functools.cache
def encoded_znodes() -> tuple[EncodedZnode, ...]:
    lines = (line.split("\t") for line in (_DATA / "encoded.tsv").read_text().split("\n") if line)
    return tuple(EncodedZnode(call.split(" ")[0], tuple(call.split(" ")[1:]), data.encode()) for call, data in lines)
