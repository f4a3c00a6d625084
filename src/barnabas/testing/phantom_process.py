"""A phantom cluster in a process of its own, so that a measured client shares no interpreter with it.

    python -m barnabas.testing.phantom_process --topics 10000 --partitions 4

It writes one JSON line with its bootstrap address, then executes commands from its standard input, one a line, and
answers each with one JSON line: `kill 2`, `start 2`, `silence 2`, `speak 2`, `elect`, `create NAME PARTITIONS`,
`delete NAME`, `shrink NAME PARTITION BROKER`, `expand NAME PARTITION BROKER`, `produce NAME PARTITION RECORDS`,
`requests`. It ends with its standard input.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="phantom_process")
    for name, default in (("topics", 10), ("partitions", 4), ("replication", 3), ("brokers", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--journal", action="store_true")
    parser.add_argument("--without", type=int, nargs="*", default=())
    options = vars(parser.parse_args(arguments))
    groups = options.pop("groups")
    with PhantomCluster(**options) as phantom:
        phantom.change(lambda state: _commit(state, groups))
        _print({"bootstrap": phantom.bootstrap})
        for line in sys.stdin:
            _print(execute(phantom, line.split()))


def _commit(state: PhantomState, groups: int) -> None:
    """Lets groups commit an offset in each partition of one topic."""
    names = state.names
    for number in range(groups):
        topic = names[number % len(names)]
        for partition in range(len(state.topics[topic].partitions)):
            state.commit(f"group-{number:04d}", topic, partition, 0)


def execute(phantom: PhantomCluster, words: Sequence[str]) -> dict[str, Any]:
    """Executes one command. Returns its result, with the time at which the change was made."""
    command, *rest = words
    if command == "requests":
        return {"requests": dict(phantom.requests)}
    if command in ("silence", "speak"):
        phantom.silence(int(rest[0]), is_silent=command == "silence")
        return {"time_s": time.time()}
    numbers = [int(word) if word.isdigit() else word for word in rest]
    method = _METHODS[command]
    changed = phantom.change(lambda state: getattr(state, method)(*numbers))
    return {"changed": changed, "time_s": time.time()}


_METHODS = {
    "kill": "kill",
    "start": "start",
    "elect": "elect_preferred",
    "create": "create_topic",
    "delete": "delete_topic",
    "shrink": "shrink_isr",
    "expand": "expand_isr",
    "produce": "produce",
}


def _print(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
