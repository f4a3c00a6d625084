"""Bit rot and lost files in the logs of a stopped broker of a simulated cluster."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from barnabas.records.batch import iter_headers
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.worlds.replicated import Replicated

WAYS = (
    "cut inside a batch",
    "empty",
    "missing",
    "missing with its indexes",
    "missing directory",
    "the last length",
)


def segments_of(disk: MemoryDisk, root: str, topic: str) -> list[str]:
    """Returns the `.log` files with records, of all partitions of a topic."""
    found = []
    for name in disk.list_dir(root):
        if name.rpartition("-")[0] == topic and disk.is_dir(f"{root}/{name}"):
            paths = [f"{root}/{name}/{file}" for file in disk.list_dir(f"{root}/{name}") if file.endswith(".log")]
            found += [path for path in paths if disk.size(path)]
    return found


def rot(disk: FaultyDisk, path: str, way: str) -> None:
    """Damages one segment."""
    with disk.without_effects():
        data = disk.read(path)
        if way == "cut inside a batch":
            disk.write(path, data[: max(1, len(data) - 7)], sync=True)
        elif way == "empty":
            disk.write(path, b"", sync=True)
        elif way == "the last length":
            *_, (last, _) = iter_headers(memoryview(data))
            disk.write(path, data[: last + 8] + b"\x7f" + data[last + 9 :], sync=True)
        elif way == "missing directory":
            disk.remove_tree(path.rpartition("/")[0])
        else:
            stem = path.removesuffix(".log")
            suffixes: Sequence[str] = (".log",) if way == "missing" else (".log", ".index", ".timeindex", ".snapshot")
            for suffix in suffixes:
                if disk.exists(stem + suffix):
                    disk.remove(stem + suffix)


def rot_somewhere(rig: Replicated, number: int, random: Random, topic: str = "orders") -> str | None:
    """Damages one segment of one log of this broker, which must be stopped. Returns a description of the damage, or
    None if the broker has no segments.
    """
    node = rig.node(number)
    disk = node.machine.disk
    with disk.without_effects():
        paths = segments_of(disk, node.properties["log.dirs"], topic)
    if not paths:
        return None
    path, way = random.choice(paths), random.choice(WAYS)
    if way == "the last length":
        # In the middle of a log, only a reader finds a wrong bit.
        path = paths[-1]
        with disk.without_effects():
            names = [name for name in disk.list_dir(path.rpartition("/")[0]) if name.endswith(".log")]
        way = way if path.endswith(f"/{names[-1]}") else "cut inside a batch"
    if path == paths[0] and way == "missing with its indexes":
        # After a kill, retention leaves the same state.
        way = "missing"
    rot(disk, path, way)
    return f"{path}: {way}"
