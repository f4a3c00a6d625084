"""A program on a simulated machine: started, killed, and started again; machine and disk remain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from barnabas.simulation.faulty_disk import FaultyDisk, Loss
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.network import Network
from barnabas.simulation.world import ProcessState, World


class Program(ABC):
    """A program; `start` runs it, again after its process has ended."""

    def __init__(
        self, world: World, network: Network, name: str, *, on_exit: Callable[[str], None] | None = None
    ) -> None:
        """Creates a program that does not run. `on_exit` is called with its name at every end of its process."""
        self.world = world
        self.network = network
        self.name = name
        self.machine = Machine(world, network, name)
        self.host: MachineHost | None = None
        self._on_exit = on_exit

    @property
    def is_running(self) -> bool:
        return self.machine.is_running

    @property
    def disk(self) -> FaultyDisk:
        return self.machine.disk

    def start(self) -> None:
        """Starts a new process. One that cannot start ends immediately."""
        process = self.machine.spawn()
        process.owner = self
        self._forget()
        on_exit = self._on_exit
        if on_exit is not None:
            process.when_ended(lambda cause: on_exit(self.name))
        self.world.note(self.name, f"start number {self.machine.incarnation}", ProcessState.RUNNING)
        self.world.at(self.world.now_us, self._main, process, "start")

    @abstractmethod
    def _forget(self) -> None:
        """Drops the objects of the process that has ended."""

    @abstractmethod
    def _main(self) -> None:
        """Runs at the start of the process. Raises ProcessExit if the program cannot start."""

    def stop(self) -> None:
        """Requests a clean shutdown (SIGTERM)."""
        process = self.machine.process
        if process is None or process.is_dead:
            return
        self.world.note(self.name, "SIGTERM")
        self.world.at(self.world.now_us, self._stop, process, "stop")

    @abstractmethod
    def _stop(self) -> None:
        """Handles SIGTERM."""

    def kill(self) -> None:
        self.world.note(self.name, "kill -9")
        self.machine.kill()

    def power_off(self, loss: Loss) -> None:
        self.machine.power_off(loss)
