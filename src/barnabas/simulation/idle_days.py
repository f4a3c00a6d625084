"""Idle days: the wall clocks of all nodes advance by days within virtual minutes, while no client works.

Retention, the expiry of offsets, producers and transactional ids, and the age of snapshots follow wall clocks;
everything else follows clocks that count the time in which a machine runs. A day is therefore a step of all wall
clocks, as after a night in which all machines were suspended, and some time for the work that is due then. Sometimes
the machines also notice that they were suspended: the processes are paused for that time, and all timers and sessions
have expired when they continue.

The clients stop before, with nothing in flight: a producer that repeats a batch after days is not recognised any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.simulation.history import Violation
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.work import Worker
from barnabas.simulation.world import SECOND_US

_DAY_US: Final = 86_400 * SECOND_US
#: Numbers of days: with the last one, offsets and transactional ids of clients that do not work expire.
_DAYS: Final = (1, 2, 8)
#: The time after each step, for every periodic work that the feature's properties make more frequent.
_AFTERWARDS_US: Final = 70 * SECOND_US
_STOP_US_MAX: Final = 120 * SECOND_US
_PAUSE_CHANCE: Final = 0.3


class IdleDays:
    """The days that a seed draws."""

    def __init__(self, cluster: Cluster, *, lets_offsets_expire: bool) -> None:
        self._cluster = cluster
        random = cluster.world.stream("idle")
        self.days = random.choice(_DAYS if lets_offsets_expire else _DAYS[:-1])
        self._pauses = random.random() < _PAUSE_CHANCE

    def run(self, workers: Sequence[Worker]) -> None:
        """Stops the workers, lets the days pass, and starts them again."""
        world = self._cluster.world
        for worker in workers:
            worker.stopping = True
        ends_us = world.now_us + _STOP_US_MAX
        if not world.run_while(lambda: not all(worker.client.has_ended for worker in workers), ends_us):
            working = [worker.client.name for worker in workers if not worker.client.has_ended]
            raise Violation(f"not idle within {_STOP_US_MAX // SECOND_US} s: {', '.join(working)}")
        for number in range(self.days):
            world.note("world", f"idle day {number + 1}")
            self._pass_a_day()
            world.run_for(_AFTERWARDS_US)
        for worker in workers:
            worker.stopping = False
            worker.client.run(worker.run)

    def _pass_a_day(self) -> None:
        machines = [program.machine for program in self._cluster.programs.values()]
        if self._pauses:
            for machine in machines:
                machine.pause()
            self._cluster.world.run_for(_DAY_US)
            for machine in machines:
                machine.resume()
        else:
            for machine in machines:
                machine.set_clock(_DAY_US)
