"""Invariants that are checked while the world runs: after every event of a node, on the nodes' own objects.

A checker raises `Violation` at the first violation, so that the time line ends where it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster


class Checker(Protocol):
    def check(self, cluster: Cluster) -> None:
        """Checks the nodes of `cluster.dirty`. Raises Violation."""


class Watch:
    """Runs the checkers on the nodes of `cluster.dirty` after every `interval` events in which a node's program ran."""

    def __init__(self, cluster: Cluster, checkers: Sequence[Checker], interval: int = 1) -> None:
        self._cluster = cluster
        self.use(checkers)
        self._interval = interval
        self._left = interval
        self.runs = 0
        cluster.world.watch(self._after_event)

    def use(self, checkers: Sequence[Checker]) -> None:
        """Runs these checkers from now on, and no others."""
        self._checks = tuple(checker.check for checker in checkers)

    def _after_event(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left = self._interval
            cluster = self._cluster
            dirty = cluster.world.dirty
            self._run_checkers([node for node in cluster.nodes.values() if node in dirty])
            dirty.clear()

    def check_all(self) -> None:
        """Runs all checkers on all nodes, including those that normally run at intervals."""
        self._cluster.checks_all = True
        try:
            self._run_checkers(tuple(self._cluster.nodes.values()))
        finally:
            self._cluster.checks_all = False

    def _run_checkers(self, nodes: Sequence[Node]) -> None:
        self.runs += 1
        cluster = self._cluster
        cluster.dirty = nodes
        for check in self._checks:
            check(cluster)


class NoUncaughtExceptions:
    """Checks that no event and no connection ended with an uncaught exception of our code."""

    def check(self, cluster: Cluster) -> None:
        errors = cluster.world.errors
        if errors:
            _, process, error = errors[0]
            raise Violation(f"nobody caught {type(error).__name__}: in {process}: {error}") from error
        for node in cluster.dirty:
            if node.connection_log.errors:
                cause, mistake = node.connection_log.errors[0]
                raise Violation(
                    f"nobody expected {type(mistake).__name__}: on {node.name}: {cause}: {mistake}"
                ) from mistake
