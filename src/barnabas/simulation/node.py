"""A Barnabas node on a simulated machine: the broker's own objects, started and stopped as in `server/main.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.broker.assembly import Broker
from barnabas.broker.requests.client_connection import Connection
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.throttling.connection_limits import Slot
from barnabas.broker.zookeeper.composition import compose
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError, FatalFault, StorageFault
from barnabas.controller.requests.result import Versioned
from barnabas.raft.formatting import ensure_formatted
from barnabas.simulation.cpu import Cpu
from barnabas.simulation.network import Listening, Network, Socket
from barnabas.simulation.program import Program
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, ProcessExit, World

_STOP_US_MAX = 20 * SECOND_US
_SWEEPS_PER_IDLE_TIME = 8


class AcceptedEnd:
    """An accepted connection: the network's end on one side, the broker's connection core on the other."""

    __slots__ = ("_connection", "_slot", "_socket", "idle_sweeps", "listener")

    def __init__(self, dispatcher: Dispatcher, listener: str, socket: Socket, slot: Slot | None) -> None:
        """`slot` is the connection's place in the counts of limits; None if they refuse it, which closes it."""
        self._socket = socket
        self._slot = slot
        # The broker's core closes its link itself, as after a failed log-in.
        socket.when_closed(self._release)
        self.listener = listener
        self._connection: Connection = dispatcher.connect(socket, f"/{socket.remote[0]}", listener)
        self.idle_sweeps = 0

    def connected(self) -> None: ...

    def received(self, data: bytes) -> None:
        connection, socket = self._connection, self._socket
        self.idle_sweeps = 0
        view = memoryview(data)
        while len(view) and not socket.is_closed:
            room = connection.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            connection.received(count)
            view = view[count:]

    def ended(self) -> None:
        self.close()

    def closed(self, error: OSError | None) -> None:
        self._release()
        self._connection.closed()

    def _release(self) -> None:
        if self._slot is not None:
            self._slot.release()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def close(self) -> None:
        self._release()
        self._socket.close()
        self._connection.closed()

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def is_closed(self) -> bool:
        return self._socket.is_closed

    @property
    def is_admitted(self) -> bool:
        """Returns whether the connection is open and was not refused."""
        return self._slot is not None and not self._socket.is_closed


class TimelineLog:
    """The `ConnectionLog` of a node. Adds the ends of connections to the time line, and keeps mistakes in our code
    separately.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self.errors: list[tuple[str, BaseException]] = []

    def closed_for_cause(self, peer: str, cause: str, error: BaseException | None) -> None:
        self._world.note(self._name, f"closes the connection of {peer}: {cause}" + (f" ({error!r})" if error else ""))
        if error is not None:
            self.errors.append((cause, error))

    def request_failed(self, peer: str, what: str, error: BaseException | None) -> None:
        self._world.note(self._name, f"{peer}: {what}" + (f" ({error!r})" if error else ""))
        if error is not None:
            self.errors.append((what, error))


class Node(Program):
    """A node, which `start` starts, again after its process has ended; machine, disk and properties remain."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        properties: Mapping[str, str],
        *,
        cluster_id: str | None = None,
        on_exit: Callable[[str], None] | None = None,
    ) -> None:
        """Creates a node that does not run. `on_exit` is called with its name at every end of its process."""
        super().__init__(world, network, name, on_exit=on_exit)
        self.properties = dict(properties)
        #: If set, an empty disk is formatted for this cluster before the start, as an operator would do.
        self.cluster_id = cluster_id
        #: The records with which an empty disk is formatted; None for those of a new cluster.
        self.bootstrap: Sequence[Versioned] | None = None
        self.connection_log = TimelineLog(world, name)
        self.broker: Broker | None = None
        self._open: dict[AcceptedEnd, None] = {}
        #: The connections that limits refused.
        self.refused = 0
        self._listenings: list[Listening] = []

    @property
    def accepted_ends(self) -> list[AcceptedEnd]:
        """The connections that the node has accepted; some can be closed."""
        return list(self._open)

    def open_connections(self, listener: str) -> int:
        """Returns the number of admitted connections of a listener."""
        return sum(end.is_admitted and end.listener == listener for end in self._open)

    # -- starts and stops

    @property
    def connections(self) -> list[Connection]:
        """Returns the open connections of clients and other nodes."""
        return [end.connection for end in self._open if not end.is_closed]

    def _forget(self) -> None:
        self.broker = None
        self._open.clear()

    def _main(self) -> None:
        process = self.machine.process
        assert process is not None
        self.host = self.machine.host_for(process)
        try:
            config = BrokerConfig.from_properties(self.properties)
            if config.is_zookeeper_mode:
                compose(self.host, config, self.connection_log, self._composed)
                return
            if self.cluster_id is not None:
                ensure_formatted(self.host, config, cluster_id=self.cluster_id, bootstrap=self.bootstrap)
            self._open_broker(Broker.create(self.host, config, self.connection_log))
        except (ConfigError, FatalFault, StorageFault) as error:
            raise ProcessExit(f"did not start: {error}") from error

    def _composed(self, found: Broker | ConfigError) -> None:
        """Continues a start in ZooKeeper mode, where the identity of the broker is read first."""
        if isinstance(found, ConfigError):
            raise ProcessExit(f"did not start: {found}") from found
        try:
            self._open_broker(found)
        except (ConfigError, FatalFault, StorageFault) as error:
            raise ProcessExit(f"did not start: {error}") from error

    def _open_broker(self, broker: Broker) -> None:
        process = self.machine.process
        assert process is not None
        broker.open()
        self._listenings = []
        self._listen(broker, broker.config, at_once=True)
        broker.start(on_open=lambda: self._listen(broker, broker.config, at_once=False))
        self.broker = broker
        process.cpu = Cpu(process.charge)

    def _listen(self, broker: Broker, config: BrokerConfig, *, at_once: bool) -> None:
        process = self.machine.process
        assert process is not None
        for listener in config.listeners:
            if broker.is_served_at_once(listener.name) is not at_once:
                continue
            dispatcher = broker.dispatcher(listener.name)
            accept = self._acceptor(broker, dispatcher, listener.name)
            self._listenings.append(self.network.listen(process, (self.machine.address, listener.port), accept))
        idle_ms_max = config.int_of("connections.max.idle.ms")
        if at_once and idle_ms_max > 0:
            self._schedule_sweep(idle_ms_max * MILLISECOND_US // _SWEEPS_PER_IDLE_TIME)

    def _acceptor(self, broker: Broker, dispatcher: Dispatcher, listener: str) -> Callable[[Socket], AcceptedEnd]:
        """Returns the accept loop of a listener. Unlike a real one it closes connections that would have to wait."""
        limits = broker.connection_limits[listener]
        now_ms = broker.host.clock.now_ms

        def accept(socket: Socket) -> AcceptedEnd:
            slot = None
            if not limits.arrive(listener, now_ms()) and limits.has_slot(listener):
                taken = limits.take(listener, socket.remote[0], now_ms())
                slot = taken if isinstance(taken, Slot) else None
            end = AcceptedEnd(dispatcher, listener, socket, slot)
            if slot is None:
                self.refused += 1
                self.world.after(0, end.close, self.machine.process, "refused")
            self._open[end] = None
            return end

        return accept

    def _schedule_sweep(self, interval_us: int) -> None:
        def sweep() -> None:
            for end in tuple(self._open):
                end.idle_sweeps += 1
                if end.is_closed:
                    del self._open[end]
                elif end.idle_sweeps > _SWEEPS_PER_IDLE_TIME:
                    end.close()
            self._schedule_sweep(interval_us)

        self.world.after(interval_us, sweep, self.machine.process, "idle sweep")

    def _stop(self) -> None:
        process, broker = self.machine.process, self.broker
        assert process is not None
        if broker is None:
            raise ProcessExit("stopped before it was up")

        def release() -> None:
            for listening in self._listenings:
                listening.close()
            for end in tuple(self._open):
                end.close()

        def give_up() -> None:
            raise ProcessExit("the controlled shutdown did not complete: stopped without a clean-shutdown marker")

        def stopped() -> None:
            self.world.at(process.now_us, leave, process, "stopped")

        def leave() -> None:
            raise ProcessExit("stopped cleanly")

        self.world.after(_STOP_US_MAX, give_up, process, "stop timeout")
        broker.stop(stopped, release)
