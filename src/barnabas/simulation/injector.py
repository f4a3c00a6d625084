"""The injector of faults: it begins and ends the faults of a schedule, at their time or at their event.

A fault that is tied to an event does not begin within the call that is the event, but as the next event of the world.
The output of the process is held back from the call until the fault has begun. A leader that is killed at an append has
therefore written the batch, and no follower has received it. The output of a leader that is cut off is stalled, and a
paused leader sends it when it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from barnabas.simulation.fault_effects import FaultEffects
from barnabas.simulation.fault_events import IMAGE, Row, named, rows_of
from barnabas.simulation.faults import LATE_MS, THERE, Fault, FaultEvent, FaultKind, FaultStep, Trigger
from barnabas.simulation.rare_events import Call, RareEvent, observed
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.timeline import machine_of
from barnabas.simulation.world import MILLISECOND_US, Process


class _Armed:
    """A fault that waits for its event; `late`: why it waits for a different event instead."""

    def __init__(self, fault: Fault, trigger: Trigger, late: str = "") -> None:
        self.fault = fault
        self.trigger = trigger
        self.left = trigger.occurrence
        self.late = late


class Injector:
    """Injects the faults of one cluster. `heal` ends all active ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Active faults, each with the function that ends it.
        self._active: dict[Fault, Callable[[], None] | None] = {}
        #: Faults whose time has come, and that wait for their event.
        self._armed: list[_Armed] = []
        self._rows: dict[str, Row] = {}
        self._effects = FaultEffects(cluster)
        self._ended_us = 0

    @contextmanager
    def injecting(self, faults: Sequence[Fault]) -> Iterator[None]:
        """Injects the faults while the context is open, and watches for the events to which some of them are tied."""
        tied = {fault.trigger.event for fault in faults if fault.trigger is not None}
        rows = rows_of({*tied, *([FaultEvent.APPEND] if tied else [])})
        self._rows = named(rows)
        held = [IMAGE] if any(fault.kind is FaultKind.HOLD_ANSWER for fault in faults) else []
        self.schedule(faults)
        with observed([*(row.calls for row in rows), *held], self._on_event):
            yield

    def schedule(self, faults: Sequence[Fault]) -> None:
        """Schedules faults. Those that need events must be injected by `injecting`."""
        for fault in faults:
            begin = self._begin if fault.trigger is None else self._arm
            self._cluster.world.at(fault.at_ms * MILLISECOND_US, partial(begin, fault), None, "fault")

    @property
    def active(self) -> tuple[Fault, ...]:
        return tuple(self._active)

    @property
    def last_active_us(self) -> int:
        """The last time at which a fault was active, as far as the injector began it."""
        return self._cluster.world.now_us if self._active else self._ended_us

    def heal(self, among: Collection[str] | None = None) -> None:
        """Ends all active faults; with `among`, only those of these machines and of the links between them. No fault
        waits for its event any longer.
        """
        self._armed.clear()
        for fault in self.active:
            if among is None or (fault.node in among and (not fault.peer or fault.peer in among)):
                self._end(fault)

    # -- events

    def _arm(self, fault: Fault) -> None:
        assert fault.trigger is not None, "only a tied fault waits for something"
        assert any(row.event is fault.trigger.event for row in self._rows.values()), "its event is observed"
        self._wait(_Armed(fault, fault.trigger))

    def _wait(self, armed: _Armed) -> None:
        self._armed.append(armed)
        world = self._cluster.world
        until_us = world.now_us + armed.trigger.within_ms * MILLISECOND_US
        world.at(until_us, lambda: self._give_up(armed), None, "fault not triggered in time")

    def _give_up(self, armed: _Armed) -> None:
        """Lets a fault whose event has not happened strike at the next append, or now if there was none either."""
        if armed not in self._armed:
            return
        self._armed.remove(armed)
        fault, trigger = armed.fault, armed.trigger
        if not armed.late:
            late = f"{trigger.within_ms} ms passed without {trigger.event.value}"
            self._wait(_Armed(fault, Trigger(FaultEvent.APPEND, within_ms=LATE_MS), late))
            return
        running = [name for name, program in self._cluster.programs.items() if program.is_running]
        if fault.node != THERE or running:
            self._strike(fault, running[0] if fault.node == THERE else fault.node, armed.late)

    def _on_event(self, event: RareEvent, call: Call) -> None:
        process = self._cluster.world.running
        name = "" if process is None else machine_of(process.name)
        if process is None or process.is_dead or name not in self._cluster.programs:
            return
        if event is IMAGE:
            for held in self._effects.held_answers:
                held.on_image(name, call.subject.image.offset)
            return
        row = self._rows[event.name]
        for armed in tuple(self._armed):
            if armed.trigger.event is row.event and armed.trigger.node in ("", name):
                armed.left -= 1
                if armed.left == 0:
                    self._armed.remove(armed)
                    late = f" and {armed.late}" if armed.late else ""
                    self._strike_after(process, armed.fault, name, f"{name} {row.text(call)}{late}")

    def _strike_after(self, process: Process, fault: Fault, there: str, cause: str) -> None:
        """Lets a fault strike as the next event, before anything that the process sends from now on leaves it."""
        world = self._cluster.world

        def strike() -> None:
            self._strike(fault, there if fault.node == THERE else fault.node, cause)
            process.release_output()

        process.hold_output()
        world.at(world.now_us, strike, None, "fault")

    def _strike(self, fault: Fault, node: str, cause: str) -> None:
        peer = self._other(node) if fault.peer == node else fault.peer
        now_ms = -(-self._cluster.world.now_us // MILLISECOND_US)
        self._begin(fault._replace(at_ms=now_ms, node=node, peer=peer, trigger=None), fault, cause)

    def _other(self, node: str) -> str:
        """Returns the next program after this one."""
        names = list(self._cluster.programs)
        return names[(names.index(node) + 1) % len(names)]

    # -- begin and end

    def _begin(self, fault: Fault, tied: Fault | None = None, cause: str = "") -> None:
        if fault in self._active:
            return
        where = f" with {fault.peer}" if fault.peer else ""
        amount = f" {fault.amount}" if fault.amount else ""
        because = f", because {cause}" if cause else ""
        text = f"fault: {fault.kind.value}{amount}{where} for {fault.duration_ms} ms{because}"
        self._cluster.world.note(fault.node, text, FaultStep(fault, begins=True, tied=tied))
        self._active[fault] = self._effects.begin(fault)
        until_us = self._cluster.world.now_us + fault.duration_ms * MILLISECOND_US
        self._cluster.world.at(until_us, lambda: self._end(fault), None, "fault ends")

    def _end(self, fault: Fault) -> None:
        if fault not in self._active:
            return
        end = self._active.pop(fault)
        self._ended_us = self._cluster.world.now_us
        self._cluster.world.note(fault.node, f"end of {fault.kind.value}", FaultStep(fault, begins=False))
        if end is not None:
            end()
