"""The paths of a znode and everything below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from barnabas.controller.zookeeper.znode_reader import ZnodeReader


def read_subtree(reader: ZnodeReader, root: str, found: Callable[[list[str]], None]) -> None:
    """Reads the names below a znode, then calls `found` with the paths: each one after the paths below it. `root` comes
    last, whether it exists or not.
    """
    seen = [root]
    due = 1

    def on_names(path: str, names: Sequence[str]) -> None:
        nonlocal due
        below = [f"{path}/{name}" for name in names]
        seen.extend(below)
        due += len(below) - 1
        for each in below:
            reader.names(each, partial(on_names, each))
        if due == 0:
            found(sorted(seen, key=lambda each: (-each.count("/"), each)))

    reader.names(root, partial(on_names, root))
