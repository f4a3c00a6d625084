"""Invariants that are checked while the world runs: after every event of a node, on the nodes' own objects.

A checker raises `Violation` at the first violation, so that the time line ends where it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import SECOND_US


class Checker(Protocol):
    def check(self, cluster: Cluster) -> None:
        """Checks the nodes of `cluster.dirty`. Raises Violation."""


class PeriodicChecker(Checker, Protocol):
    """A checker that runs now and then: calls after every event would cost time and find nothing more."""

    is_periodic: bool


#: The time between two calls of periodic checkers.
_PERIOD_US = SECOND_US // 8


class Watch:
    """Runs the checkers on the nodes of `cluster.dirty` after every `interval` events in which a node's program ran.
    Periodic checkers run eight times a second, on all nodes whose programs have run since the last time.
    """

    def __init__(self, cluster: Cluster, checkers: Sequence[Checker], interval: int = 1) -> None:
        self._cluster = cluster
        self.use(checkers)
        self._interval = interval
        self._left = interval
        self._due_us = 0
        #: The nodes that periodic checkers have not checked since their programs ran; in no order.
        self._unseen: set[Node] = set()
        self.runs = 0
        cluster.world.watch(self._after_event)

    def use(self, checkers: Sequence[Checker]) -> None:
        """Runs these checkers from now on, and no others."""
        periodic = [checker for checker in checkers if getattr(checker, "is_periodic", False)]
        self._checks = tuple(checker.check for checker in checkers if checker not in periodic)
        self._periodic = tuple(checker.check for checker in periodic)

    def _after_event(self) -> None:
        self._left -= 1
        if self._left > 0:
            return
        self._left = self._interval
        cluster = self._cluster
        world, nodes, unseen = cluster.world, cluster.nodes.values(), self._unseen
        dirty = world.dirty
        found = [node for node in nodes if node in dirty]
        self._run(self._checks, found)
        if self._periodic:
            unseen.update(found)
            if world.now_us >= self._due_us:
                self._due_us = world.now_us + _PERIOD_US
                self._run(self._periodic, [node for node in nodes if node in unseen])
                unseen.clear()
        dirty.clear()

    def check_all(self) -> None:
        """Runs all checkers on all nodes, including those that normally run at intervals."""
        self._cluster.checks_all = True
        try:
            self._run((*self._checks, *self._periodic), tuple(self._cluster.nodes.values()))
        finally:
            self._cluster.checks_all = False

    def _run(self, checks: Sequence[Callable[[Cluster], None]], nodes: Sequence[Node]) -> None:
        self.runs += 1
        cluster = self._cluster
        cluster.dirty = nodes
        for check in checks:
            check(cluster)


class NoUncaughtExceptions:
    """Checks that no event and no connection ended with an uncaught exception of our code."""

    def check(self, cluster: Cluster) -> None:
        errors = cluster.world.errors
        if errors:
            _, process, error = errors[0]
            raise Violation(f"uncaught {type(error).__name__}: in {process}: {error}") from error
        for node in cluster.dirty:
            if node.connection_log.errors:
                cause, mistake = node.connection_log.errors[0]
                raise Violation(f"unexpected {type(mistake).__name__}: on {node.name}: {cause}: {mistake}") from mistake
