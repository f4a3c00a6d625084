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
from barnabas.simulation.faults import THERE, Fault, FaultKind, FaultStep, Trigger
from barnabas.simulation.rare_events import Call, RareEvent, observed
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.timeline import machine_of
from barnabas.simulation.world import MILLISECOND_US, Process


class _Armed:
    """A fault that waits for its event."""

    def __init__(self, fault: Fault, trigger: Trigger) -> None:
        self.fault = fault
        self.trigger = trigger
        self.left = trigger.occurrence


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

    @contextmanager
    def injecting(self, faults: Sequence[Fault]) -> Iterator[None]:
        """Injects the faults while the context is open, and looks for the events to which some of them are tied."""
        rows = rows_of({fault.trigger.event for fault in faults if fault.trigger is not None})
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
        armed = _Armed(fault, fault.trigger)
        self._armed.append(armed)
        world = self._cluster.world
        until_us = world.now_us + fault.trigger.within_ms * MILLISECOND_US
        world.at(until_us, lambda: self._give_up(armed), None, "fault waits no longer")

    def _give_up(self, armed: _Armed) -> None:
        if armed in self._armed:
            self._armed.remove(armed)
            trigger = armed.trigger
            text = f"no fault: {armed.fault.kind.value} waited {trigger.within_ms} ms for {trigger.event.value}"
            self._cluster.world.note(armed.fault.node, text)

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
                    self._strike_after(process, armed.fault, name, f"{name} {row.text(call)}")

    def _strike_after(self, process: Process, fault: Fault, there: str, cause: str) -> None:
        """Lets a fault strike as the next event, before anything that the process sends from now on leaves it."""
        world = self._cluster.world
        node = there if fault.node == THERE else fault.node
        peer = self._other(node) if fault.peer == node else fault.peer
        struck = fault._replace(at_ms=-(-world.now_us // MILLISECOND_US), node=node, peer=peer, trigger=None)

        def strike() -> None:
            self._begin(struck, fault, cause)
            process.release_output()

        process.hold_output()
        world.at(world.now_us, strike, None, "fault")

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
        self._cluster.world.note(fault.node, f"end of {fault.kind.value}", FaultStep(fault, begins=False))
        if end is not None:
            end()
