"""The effects of faults: what each kind does to a cluster, and how that ends."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.faulty_disk import BROKEN, Loss
from barnabas.simulation.held_answers import HeldAnswer
from barnabas.simulation.leadership_transfers import LeadershipTransfers
from barnabas.simulation.network_direction import Direction
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US
from barnabas.simulation.zookeeper_faults import end_session, lose_answer

_LOSSES = (Loss.NONE, Loss.SOME, Loss.ALL)


class FaultEffects:
    """The effects of faults on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The answers that are held back now, or will be.
        self.held_answers: list[HeldAnswer] = []
        self._transfers: LeadershipTransfers | None = None
        self._begin_by_kind: dict[FaultKind, Callable[[Fault], Callable[[], None] | None]] = {
            FaultKind.KILL: self._kill,
            FaultKind.STOP: self._stop,
            FaultKind.POWER: self._power,
            FaultKind.LOSE_DISK: self._lose_disk,
            FaultKind.PAUSE: self._pause,
            FaultKind.SLOW_DISK: self._slow_disk,
            FaultKind.FULL_DISK: self._full_disk,
            FaultKind.BROKEN_DISK: self._broken_disk,
            FaultKind.COLD_CACHE: self._cold_cache,
            FaultKind.PARTITION: self._partition,
            FaultKind.ONE_WAY: self._one_way,
            FaultKind.SLOW_LINK: self._slow_link,
            FaultKind.LOSSY_LINK: self._lossy_link,
            FaultKind.RESET: self._reset,
            FaultKind.REFUSE: self._refuse,
            FaultKind.CLOCK: self._clock,
            FaultKind.EXPIRE: lambda fault: end_session(cluster, fault.node),
            FaultKind.LOSE_ANSWER: lambda fault: lose_answer(cluster, fault.node),
            FaultKind.ISOLATE: self._isolate,
            FaultKind.HOLD_ANSWER: self._hold_answer,
            FaultKind.AWAY_AND_BACK: self._away_and_back,
            FaultKind.KILL_CLIENT: self._kill_client,
            FaultKind.PAUSE_CLIENT: self._pause_client,
        }

    def begin(self, fault: Fault) -> Callable[[], None] | None:
        """Begins a fault. Returns the function that ends it, if it lasts."""
        return self._begin_by_kind[fault.kind](fault)

    # -- the kinds: each function does what `begin` does

    def _kill(self, fault: Fault) -> Callable[[], None]:
        self._cluster.prevent_start(fault.node)
        self._cluster.programs[fault.node].kill()
        return lambda: self._cluster.allow_start(fault.node)

    def _stop(self, fault: Fault) -> Callable[[], None]:
        self._cluster.prevent_start(fault.node)
        self._cluster.programs[fault.node].stop()
        return lambda: self._cluster.allow_start(fault.node)

    def _power(self, fault: Fault) -> Callable[[], None]:
        self._cluster.prevent_start(fault.node)
        self._cluster.programs[fault.node].power_off(_LOSSES[fault.amount])
        return lambda: self._cluster.allow_start(fault.node)

    def _lose_disk(self, fault: Fault) -> Callable[[], None]:
        self._cluster.prevent_start(fault.node)
        self._cluster.programs[fault.node].kill()
        self._cluster.programs[fault.node].disk.wipe()
        return lambda: self._cluster.allow_start(fault.node)

    def _kill_client(self, fault: Fault) -> Callable[[], None]:
        client = self._cluster.clients[fault.node]
        if client.machine.is_running:
            client.kill()
        return client.restart

    def _pause_client(self, fault: Fault) -> Callable[[], None]:
        return self._pause(fault)

    def _pause(self, fault: Fault) -> Callable[[], None]:
        machine = self._cluster.machine(fault.node)
        process = machine.process
        machine.pause()

        def resume() -> None:
            if machine.process is process:
                machine.resume()

        return resume

    def _slow_disk(self, fault: Fault) -> Callable[[], None]:
        disk = self._cluster.programs[fault.node].disk
        disk.slowness *= fault.amount

        def end() -> None:
            disk.slowness //= fault.amount

        return end

    def _full_disk(self, fault: Fault) -> Callable[[], None]:
        disk = self._cluster.programs[fault.node].disk
        taken = disk.fill()

        def end() -> None:
            disk.free_bytes += taken

        return end

    def _broken_disk(self, fault: Fault) -> Callable[[], None]:
        """Breaks a disk. Returns the function that repairs it and kills the node: a directory that failed stays offline
        until the next start.
        """
        node = self._cluster.programs[fault.node]
        node.disk.fail_with = BROKEN

        def end() -> None:
            node.disk.fail_with = None
            if node.is_running:
                node.kill()

        return end

    def _cold_cache(self, fault: Fault) -> Callable[[], None]:
        disk = self._cluster.programs[fault.node].disk
        disk.cold_chance = fault.amount / 100

        def end() -> None:
            disk.cold_chance = 0.0

        return end

    def _partition(self, fault: Fault) -> Callable[[], None]:
        network = self._cluster.network
        network.cut(fault.node, fault.peer)
        network.cut(fault.peer, fault.node)

        def end() -> None:
            network.heal(fault.node, fault.peer)
            network.heal(fault.peer, fault.node)

        return end

    def _one_way(self, fault: Fault) -> Callable[[], None]:
        self._cluster.network.cut(fault.node, fault.peer)
        return lambda: self._cluster.network.heal(fault.node, fault.peer)

    def _isolate(self, fault: Fault) -> Callable[[], None]:
        network = self._cluster.network
        others = [name for name in self._cluster.programs if name != fault.node]
        for other in others:
            network.cut(fault.node, other)
            network.cut(other, fault.node)

        def end() -> None:
            for other in others:
                network.heal(fault.node, other)
                network.heal(other, fault.node)

        return end

    def _hold_answer(self, fault: Fault) -> Callable[[], None]:
        held = HeldAnswer(self._cluster, fault.node, fault.amount)
        self.held_answers.append(held)

        def end() -> None:
            self.held_answers.remove(held)
            held.end()

        return end

    def _away_and_back(self, fault: Fault) -> Callable[[], None]:
        if self._transfers is None:
            self._transfers = LeadershipTransfers(self._cluster)
        return self._transfers.away(fault.node)

    def _slow_link(self, fault: Fault) -> Callable[[], None]:
        ways = self._both_ways(fault)
        for way in ways:
            way.extra_us += fault.amount * MILLISECOND_US

        def end() -> None:
            for way in ways:
                way.extra_us -= fault.amount * MILLISECOND_US

        return end

    def _lossy_link(self, fault: Fault) -> Callable[[], None]:
        ways = self._both_ways(fault)
        for way in ways:
            way.loss_percent += fault.amount

        def end() -> None:
            for way in ways:
                way.loss_percent -= fault.amount

        return end

    def _both_ways(self, fault: Fault) -> tuple[Direction, Direction]:
        network = self._cluster.network
        return network.direction(fault.node, fault.peer), network.direction(fault.peer, fault.node)

    def _reset(self, fault: Fault) -> None:
        count = self._cluster.network.reset_between(fault.node, fault.peer)
        self._cluster.world.note(fault.node, f"{count} connections with {fault.peer} are reset")

    def _refuse(self, fault: Fault) -> Callable[[], None] | None:
        unwritable = self._cluster.network.unwritable
        if fault.node in unwritable:
            return None
        unwritable.add(fault.node)
        return lambda: unwritable.discard(fault.node)

    def _clock(self, fault: Fault) -> Callable[[], None]:
        machine = self._cluster.programs[fault.node].machine
        machine.set_clock(fault.amount * MILLISECOND_US)
        return lambda: machine.set_clock(-fault.amount * MILLISECOND_US)
