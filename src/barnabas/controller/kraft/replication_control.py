"""Elections and reassignments of the active controller, on request and periodic.

Leadership returns to preferred replicas, and leaderless partitions get unclean leaders where the topic's settings allow
it: each at its interval, the latter also immediately when the settings change and when this controller becomes active.
Changes that exceed one batch follow in the next turn of the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Timers
from barnabas.controller.periodic import Periodic
from barnabas.controller.replication_requests import Decider, ReplicationRequests
from barnabas.controller.requests import elections
from barnabas.controller.requests.result import Result
from barnabas.controller.requests.view import ControllerView


class ReplicationControl(ReplicationRequests):
    def __init__(self, timers: Timers, config: BrokerConfig, decider: Decider) -> None:
        super().__init__(decider)
        self._timers = timers
        self._tasks = [
            Periodic(timers, config.int_of("unclean.leader.election.interval.ms"), self.elect_unclean_leaders)
        ]
        if config.bool_of("auto.leader.rebalance.enable"):
            period_ms = config.int_of("leader.imbalance.check.interval.seconds") * 1_000
            self._tasks.append(Periodic(timers, period_ms, self.rebalance_leaders))

    def start(self) -> None:
        """Begins the periodic elections and rebalances, when this controller becomes active."""
        for task in self._tasks:
            task.start()
        self.elect_unclean_leaders()

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()

    def elect_unclean_leaders(self, names: Sequence[str] | None = None) -> None:
        """Elects leaders for leaderless partitions of these topics (None: all) that allow unclean ones."""
        self._in_batches(elections.unclean_elections_due, names)

    def rebalance_leaders(self) -> None:
        self._in_batches(elections.rebalance)

    def _in_batches(
        self, decide: Callable[[ControllerView, deque[str]], Result[None]], names: Sequence[str] | None = None
    ) -> None:
        """Searches the topics and proposes what is due, until none are left; each decision sees the previous one."""
        if not self._decider.is_active:
            return
        left = deque(self._decider.view().image.topic_names() if names is None else names)

        def decide_next() -> None:
            if not self._decider.is_active:
                return
            result = decide(self._decider.view(), left)
            if result.records and not self._decider.propose(result):
                return
            if left:
                self._timers.call_soon(decide_next)

        decide_next()
