"""The lab: the processes of an embedded cluster on this machine, stopped, killed, paused, resumed and started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import Any, Final

from barnabas.console.problems import Problem
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node

_STOP_S: Final = 30.0
_NOT_HERE: Final = "the cluster was not started by `barnabas up` on this machine"


class Lab:
    """The lab: actions on the processes of an embedded cluster. `directory` is its directory; None if the cluster is
    not embedded.
    """

    def __init__(self, directory: Path | None) -> None:
        self._cluster = None if directory is None else EmbeddedCluster(directory)
        self._turn = asyncio.Lock()

    @property
    def is_embedded(self) -> bool:
        return self._cluster is not None and bool(self._nodes())

    async def state(self) -> dict[str, Any]:
        if not self.is_embedded:
            return {"is_embedded": False, "reason": _NOT_HERE, "brokers": []}
        brokers = [
            {"broker": node.node_id, "state": _state(node), "pid": node.pid if node.running else None}
            for node in self._nodes()
        ]
        return {"is_embedded": True, "reason": None, "brokers": brokers}

    async def act(self, action: str, broker_id: int) -> str:
        """Does one action. Returns what was done. Raises Problem."""
        cluster = self._cluster
        if cluster is None:
            raise Problem("refused", _NOT_HERE)
        node = next((node for node in self._nodes() if node.node_id == broker_id), None)
        if node is None:
            raise Problem("not-found", f"the embedded cluster has no broker {broker_id}")
        if node.running == (action == "start"):
            raise Problem("refused", f"broker {broker_id} is {'already' if node.running else 'not'} running")
        work: dict[str, Callable[[], object]] = {
            "stop": lambda: cluster.stop(broker_id, timeout_s=_STOP_S),
            "kill": lambda: cluster.kill(broker_id),
            "pause": lambda: cluster.signal(broker_id, Signals.SIGSTOP),
            "resume": lambda: cluster.signal(broker_id, Signals.SIGCONT),
            "start": lambda: cluster.start_again(broker_id),
        }
        # The state file is read and written as a whole, so two actions at the same time would lose one.
        async with self._turn:
            try:
                await asyncio.to_thread(work[action])
            except Failure as error:
                raise Problem("refused", str(error)) from error
        return f"broker {broker_id}: {_DONE[action]}"

    def _nodes(self) -> list[Node]:
        try:
            return [] if self._cluster is None else self._cluster.nodes
        except Failure:
            return []


ACTIONS: Final = ("stop", "kill", "pause", "resume", "start")
_DONE: Final = {
    "stop": "stopped",
    "kill": "killed (SIGKILL)",
    "pause": "paused (SIGSTOP)",
    "resume": "resumed (SIGCONT)",
    "start": "started",
}


def _state(node: Node) -> str:
    if not node.running:
        return "stopped"
    return "paused" if _is_stopped(node.pid) else "running"


def _is_stopped(pid: int) -> bool:
    """Whether a process is suspended by a signal; False on a system without /proc."""
    try:
        with open(os.path.join("/proc", str(pid), "stat"), encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
