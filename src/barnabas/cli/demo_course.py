"""The course of the demo: orders are replayed, a broker is killed, returns and leads again; all records are drained.

Each step waits for a condition that it can observe (a leader, an ISR, an offset in the tables), never for a fixed time.
A step that does not finish within its limit ends the demo and reports what was missing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.cli import clients, elect, output
from barnabas.cli.demo_stage import Pipeline, Replay, Stage, Watcher
from barnabas.cli.demo_view import View
from barnabas.cli.local_cluster import Interruption
from barnabas.embedded.failures import Failure
from barnabas.monitor.partition_state import Key, PartitionState
from barnabas.monitor.texts import NO_NODE
from barnabas.orders.ledger import read_ledger

_STEP_TIMEOUT_S: Final = 300.0
#: The share of the orders after which the broker is killed.
_KILL_AFTER: Final = 1 / 3
#: How long the broker stays down, so that the degraded cluster can be seen.
_AWAY_S: Final = 4.0
_POLL_S: Final = 0.05


class Kill(StrEnum):
    """The broker that the demo kills: a partition leader, the active controller, or none."""

    LEADER = "leader"
    CONTROLLER = "controller"
    NONE = "none"


@dataclass(slots=True)
class BrokerKill:
    """The broker that the demo killed, and the consequences. Times are in seconds since the kill."""

    broker: int
    killed_at_s: float
    led: tuple[int, ...]
    was_controller: bool
    #: Number of records acknowledged at the time of the kill.
    acknowledged: int
    leaders_after_s: float = 0.0
    #: The time at which the broker accepts clients again.
    back_after_s: float = 0.0
    isr_full_after_s: float = 0.0


class Course:
    """A run of the demo, from the started parts until all records are in the tables."""

    def __init__(self, stage: Stage, view: View, interruption: Interruption) -> None:
        assert stage.watcher is not None
        assert stage.pipeline is not None
        assert stage.replay is not None
        self._stage = stage
        self._watcher: Watcher = stage.watcher
        self._pipeline: Pipeline = stage.pipeline
        self._replay: Replay = stage.replay
        self._view = view
        self._interruption = interruption

    def warm_up(self, records: int) -> None:
        """Waits until the pipeline has written its first batch, which consists of the warm-up records."""
        started = False

        def steps() -> int:
            nonlocal started
            if not started and self._pipeline.has_started:
                started = True
                self._view.say("Spark is up; its first batch takes longest")
            return int(started)

        self._until(lambda: self._applied() >= records, "the first batch in the tables", progress=steps)
        self._view.say(f"the pipeline is warm: {output.counted(self._applied(), 'record')} in the tables")

    def play(self, kill: Kill) -> BrokerKill | None:
        """Performs all steps, until every acknowledged record is in the tables. Returns the kill, if there was one."""
        fault = None
        if kill is not Kill.NONE:
            self._until(self._is_time_to_kill, "a third of the orders", progress=self._acknowledged)
            fault = self._kill(kill)
            self._bring_back(fault)
            self._elect_preferred()
        self._view.phase("replaying the rest of the orders")
        self._until(lambda: not self._replay.is_running, "the end of the replay", progress=self._acknowledged)
        self._view.phase("the pipeline drains the topic")
        ends = read_ledger(self._stage.places.ledger).end_offsets
        self._until(lambda: self._is_drained(ends), "the last record in the tables", progress=self._applied)
        return fault

    def _kill(self, kill: Kill) -> BrokerKill:
        self._until(lambda: bool(self._watcher.states), "the state of the cluster")
        states, controller = self._watcher.states, self._watcher.controller
        if kill is Kill.CONTROLLER:
            victim = controller
            why = "the active controller"
        else:
            busiest = max(states, key=lambda state: state.size_bytes or 0)
            victim = busiest.leader
            why = f"leader of {busiest.key}, the busiest partition"
        led = tuple(sorted(state.partition for state in states if state.leader == victim))
        self._view.phase(f"kill -9 of broker {victim}, {why}")
        fault = BrokerKill(victim, time.time(), led, controller == victim, self._acknowledged())
        self._stage.cluster.kill(victim)
        self._until(lambda: self._are_led(victim), f"new leaders without broker {victim}")
        fault.leaders_after_s = time.time() - fault.killed_at_s
        return fault

    def _bring_back(self, fault: BrokerKill) -> None:
        away_until = fault.killed_at_s + _AWAY_S
        self._until(lambda: time.time() >= away_until, "the end of the pause")
        self._view.phase(f"broker {fault.broker} restarts")
        self._stage.cluster.start_again(fault.broker)
        fault.back_after_s = time.time() - fault.killed_at_s
        self._until(self._are_in_sync, f"broker {fault.broker} in every ISR")
        fault.isr_full_after_s = time.time() - fault.killed_at_s
        self._view.say(f"every ISR is complete again {fault.isr_full_after_s:.1f} s after the kill")

    def _elect_preferred(self) -> None:
        self._view.phase("electing the preferred leaders")
        admin = clients.admin_client(self._stage.bootstrap)
        self._until(lambda: self._are_preferred(admin), "preferred leaders")
        counts = Counter(state.leader for state in self._partitions())
        leads = ", ".join(f"broker {broker} leads {count}" for broker, count in sorted(counts.items()))
        self._view.say(f"preferred leaders everywhere: {leads}")

    def _are_preferred(self, admin: AdminClient) -> bool:
        wrong = [state.key for state in self._partitions() if state.leader != state.replicas[0]]
        if wrong:
            requested = [TopicPartition(key.topic, key.partition) for key in wrong]
            # Partitions that moved in the meantime report "election not needed"; the next attempt finds them.
            elect.hold(admin, elect.ElectionKind.PREFERRED, requested)
            self._until(lambda: not self._wrong(wrong), "the state after the election", within_s=5.0, is_needed=False)
        return not wrong

    def _wrong(self, keys: list[Key]) -> bool:
        return any(state.key in keys and state.leader != state.replicas[0] for state in self._partitions())

    def _is_time_to_kill(self) -> bool:
        if not self._replay.is_running:
            return True
        progress = self._replay.progress
        return progress is not None and progress.books.orders >= progress.total_orders * _KILL_AFTER

    def _are_led(self, without: int) -> bool:
        return all(state.leader not in (NO_NODE, without) for state in self._partitions())

    def _are_in_sync(self) -> bool:
        return all(not state.out_of_sync and state.leader != NO_NODE for state in self._partitions())

    def _is_drained(self, ends: dict[int, int]) -> bool:
        last = self._pipeline.last()
        if last is None:
            return not any(ends.values())
        return all(
            partition in last.progress and last.progress[partition].next_offset >= end
            for partition, end in ends.items()
            if end
        )

    def _partitions(self) -> tuple[PartitionState, ...]:
        return self._watcher.states

    def _acknowledged(self) -> int:
        progress = self._replay.progress
        return 0 if progress is None else sum(progress.acknowledged.values())

    def _applied(self) -> int:
        last = self._pipeline.last()
        return 0 if last is None else last.total.read

    def _until(
        self,
        is_done: Callable[[], bool],
        what: str,
        *,
        progress: Callable[[], int] | None = None,
        within_s: float = _STEP_TIMEOUT_S,
        is_needed: bool = True,
    ) -> None:
        """Waits for a condition. The time limit starts again whenever `progress` advances."""
        seen = None if progress is None else progress()
        deadline = time.monotonic() + within_s
        while not is_done():
            self._interruption.check()
            self._pipeline.check()
            if self._replay.error is not None:
                raise Failure(f"the replay ended: {self._replay.error}")
            self._view.show(self._acknowledged(), self._applied(), self._watcher.states)
            if progress is not None and progress() != seen:
                seen = progress()
                deadline = time.monotonic() + within_s
            if time.monotonic() > deadline:
                if not is_needed:
                    return
                raise Failure(
                    f"{output.counted(round(within_s), 'second')} without {what}",
                    f"the pipeline's last lines:\n{self._pipeline.log_tail()}",
                )
            time.sleep(_POLL_S)
