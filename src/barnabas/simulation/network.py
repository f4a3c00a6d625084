"""The network: addresses, connections with ordered byte streams, and the faults between two machines.

TCP's guarantees hold: bytes arrive in order and once, or the connection ends. A lost segment is a delay. While a
direction is cut nothing arrives, both ends stay open, and what was sent arrives when the cut heals or the sender gives
up. When a process ends, its system closes its connections; a machine without power does not, and its peers only notice
when they send to it. Delays are drawn per message from the named stream of the directed pair of machines.

    Socket --write--> Pipe (one direction) --latency, loss, cuts--> Socket of the peer --> End of its process
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from zlib import crc32

from barnabas.common.host import Buffer, LinkCondition
from barnabas.simulation.network_direction import RETRANSMIT_US_MAX, Direction
from barnabas.simulation.network_ends import Address, End, failure
from barnabas.simulation.world import SECOND_US, Process, World

#: Unconsumed bytes of one direction above which the sender must stop writing, and below which it can continue.
_HIGH_BYTES, _LOW_BYTES = 1024 * 1024, 256 * 1024
_UNREACHABLE_US = 3 * SECOND_US
_FIRST_LOCAL_PORT = 32768


class Observer:
    """An observer of all connections of a network. Observing does not change a run."""

    def connected(self, dialled: Socket, accepted: Socket) -> None:
        """Handles a new connection, before any of its bytes are sent."""

    def sent(self, socket: Socket, data: bytes) -> None:
        """Handles bytes that a program writes, before they are sent."""

    def received(self, socket: Socket, data: bytes) -> None:
        """Handles bytes before a program gets them."""

    def closed(self, socket: Socket) -> None:
        """Handles the end of one side of a connection."""


class Listening:
    """An open port. `accept` returns the end of each new connection."""

    def __init__(self, network: Network, address: Address, process: Process, accept: Callable[[Socket], End]) -> None:
        self._network = network
        self.address = address
        self.process = process
        self.accept = accept

    def close(self) -> None:
        self.process.holdings.pop(self, None)
        self._network.listening.pop(self.address, None)

    def process_ended(self, *, orderly: bool) -> None:
        self._network.listening.pop(self.address, None)


class _Mark:
    """A marker in a stream of bytes: the connection opens, the stream ends, or the connection is reset."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


OPEN, EOF, RESET = _Mark("open"), _Mark("eof"), _Mark("reset")
Item = bytes | _Mark


class Pipe:
    """A direction of a connection: the data in flight, in order. `delay_us`: the smoothed delay, without
    retransmissions.
    """

    __slots__ = (
        "_holds",
        "_stalled",
        "_stalled_since_us",
        "delay_us",
        "direction",
        "last_us",
        "retransmits",
        "source",
        "target",
        "unconsumed",
    )

    def __init__(self, direction: Direction, source: Socket, target: Socket) -> None:
        self.direction = direction
        self.source = source
        self.target = target
        self.last_us = 0
        self.unconsumed = 0
        self.delay_us = self.retransmits = 0
        self._holds = 0
        self._stalled: deque[Item] = deque()
        self._stalled_since_us = 0

    def send(self, item: Item) -> None:
        source = self.source
        size = 0 if isinstance(item, _Mark) else len(item)
        self.unconsumed += size
        arrival_us = source.process.now_us + self._delay_us(size)
        if arrival_us < self.last_us:
            arrival_us = self.last_us
        self.last_us = arrival_us
        source.network.world.at(arrival_us, lambda: self._arrive(item), None, source.label)

    def _delay_us(self, size: int) -> int:
        direction = self.direction
        count, waited_us = direction.retransmits, direction.retransmitted_us
        delay_us = direction.delay_us(size)
        self.retransmits += direction.retransmits - count
        once_us = delay_us - direction.retransmitted_us + waited_us
        self.delay_us = (7 * (self.delay_us or once_us) + once_us) // 8
        return delay_us

    def _arrive(self, item: Item) -> None:
        if self.direction.cuts or self._stalled or self._holds or not self.target.machine_is_on():
            self._stall(item)
        else:
            self._deliver(item)

    def _deliver(self, item: Item) -> None:
        target = self.target
        if not isinstance(item, _Mark):
            target.network.world.trace.add(f"{len(item)} {crc32(item)}")
        target.arrived(item)

    def _stall(self, item: Item) -> None:
        """Keeps data that cannot arrive until the sender gives up retransmitting. A reset is not retransmitted."""
        if item is RESET and not self._holds:
            return
        world = self.source.network.world
        if not self._stalled:
            self.direction.stalled[self] = None
            deadline_us = world.now_us + self.source.network.give_up_us
            since_us = self._stalled_since_us = world.now_us
            world.at(deadline_us, lambda: self._give_up(since_us), None, "give up")
        self._stalled.append(item)

    def _give_up(self, since_us: int) -> None:
        if self._stalled and self._stalled_since_us == since_us:
            self._stalled.clear()
            self.direction.stalled.pop(self, None)
            self.source.break_off(failure(errno.ETIMEDOUT))

    def unstall(self) -> None:
        """Delivers the stalled data with the next retransmission, after the direction has opened again."""
        outage_us = self.source.network.world.now_us - self._stalled_since_us
        delay_us = self.direction.random.randrange(max(1, min(outage_us, RETRANSMIT_US_MAX)))
        self.source.network.world.after(delay_us, self._flush, None, "retransmit")

    @property
    def has_stalled(self) -> bool:
        """Whether data has arrived and waits."""
        return bool(self._stalled)

    def hold(self) -> None:
        """Keeps what arrives from now on, until `release` is called as often as this."""
        self._holds += 1

    def release(self) -> None:
        self._holds -= 1
        if self._stalled:
            self._flush()

    def _flush(self) -> None:
        if self.direction.cuts or self._holds or not self.target.machine_is_on():
            return
        stalled, self._stalled = self._stalled, deque()
        self.direction.stalled.pop(self, None)
        for item in stalled:
            self._deliver(item)

    def consumed(self, size: int) -> None:
        self.unconsumed -= size
        if self.source.is_held_back and self.unconsumed < _LOW_BYTES:
            self.source.release()


class Socket:
    """One side of a connection (`common.host.Link`)."""

    __slots__ = (
        "_draining",
        "_end",
        "_on_closed",
        "_reading",
        "_rx",
        "is_closed",
        "is_held_back",
        "is_open",
        "label",
        "local",
        "network",
        "out",
        "process",
        "remote",
    )

    def __init__(self, network: Network, process: Process, local: Address, remote: Address) -> None:
        self.network = network
        self.process = process
        self.local = local
        self.remote = remote
        self.label = f"{local[0]}:{local[1]}>{remote[0]}:{remote[1]}"
        self.out: Pipe | None = None
        self.is_open = False
        self.is_closed = False
        self.is_held_back = False
        self._on_closed: Callable[[], None] | None = None
        self._end: End | None = None
        self._reading = True
        self._draining = False
        self._rx: deque[Item | OSError] = deque()
        process.holdings[self] = None
        network.sockets[self] = None

    def attach(self, end: End) -> None:
        self._end = end

    def when_closed(self, callback: Callable[[], None]) -> None:
        self._on_closed = callback

    def machine_is_on(self) -> bool:
        return self.network.is_on(self.local[0])

    # -- the program's side

    def write(self, chunks: Sequence[Buffer]) -> None:
        if self.is_closed or self.out is None:
            return
        self.write_bytes(bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks))

    def write_bytes(self, data: bytes) -> None:
        out = self.out
        if self.is_closed or out is None or not data:
            return
        if self.process.cpu is not None:
            self.process.cpu.sent(len(data))
        for observer in self.network.observers:
            observer.sent(self, data)
        random = out.direction.random
        if len(data) > 1 and random.random() < 0.05:
            cut = random.randrange(1, len(data))
            self._send(out, data[:cut])
            self._send(out, data[cut:])
        else:
            self._send(out, data)
        if out.unconsumed > _HIGH_BYTES and not self.is_held_back and self._end is not None:
            self.is_held_back = True
            self._end.pause_writing()

    def _send(self, out: Pipe, item: Item) -> None:
        outbox = self.process.outbox
        if outbox is None:
            out.send(item)
        else:
            outbox.append(lambda: out.send(item))

    @property
    def unsent_bytes(self) -> int:
        return 0 if self.out is None else self.out.unconsumed

    def condition(self) -> LinkCondition | None:
        """Returns what the system of this side knows: what is cut off is not acknowledged."""
        out = self.out
        back_us = 0 if out is None or out.target.out is None else out.target.out.delay_us
        return None if out is None else LinkCondition(out.delay_us + back_us, out.retransmits, out.has_stalled)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.network.world.at(self.process.now_us, self.drain, self.process, "resume")

    def close(self) -> None:
        """Closes the connection; written data is still sent."""
        if not self.is_closed:
            self._forget()
            if self.out is not None:
                self._send(self.out, EOF)

    def abort(self) -> None:
        if not self.is_closed:
            self._forget()
            if self.out is not None:
                self._send(self.out, RESET)

    def _forget(self) -> None:
        self.is_closed = True
        if self._on_closed is not None:
            self._on_closed()
        for observer in self.network.observers:
            observer.closed(self)
        self._rx.clear()
        self.process.holdings.pop(self, None)
        self.network.sockets.pop(self, None)

    # -- the system's side

    def process_ended(self, *, orderly: bool) -> None:
        """Closes the connection for an ended process. Unread bytes turn the close into a reset, as in any TCP."""
        unread = bool(self._rx)
        self._forget()
        if orderly and self.out is not None:
            self.out.send(RESET if unread else EOF)

    def arrived(self, item: Item) -> None:
        if self.is_closed:
            if not isinstance(item, _Mark) and self.out is not None:
                self.out.send(RESET)
            return
        if item is RESET:
            self.break_off(failure(errno.ECONNRESET if self.is_open else errno.ECONNREFUSED))
            return
        self._rx.append(item)
        self.process.enter(self.drain)

    def break_off(self, error: OSError) -> None:
        """Breaks the connection, and notifies the program."""
        if not self.is_closed:
            self._rx.clear()
            self._rx.append(error)
            self.process.enter(self.drain)

    def release(self) -> None:
        """Lets the program write again after the peer consumed the data; the notification crosses the network too."""
        self.is_held_back = False
        assert self.out is not None
        delay_us = self.out.direction.delay_us(0)

        def resume_writing() -> None:
            if not self.is_closed and not self.is_held_back and self._end is not None:
                self._end.resume_writing()

        self.network.world.after(delay_us, resume_writing, self.process, "room")

    def drain(self) -> None:
        end, rx = self._end, self._rx
        if self._draining or end is None:
            return
        self._draining = True
        try:
            while rx and not self.is_closed:
                item = rx[0]
                if isinstance(item, OSError):
                    self._forget()
                    end.closed(item)
                elif isinstance(item, _Mark):
                    rx.popleft()
                    if item is OPEN:
                        self.is_open = True
                        end.connected()
                    else:
                        end.ended()
                elif self._reading:
                    rx.popleft()
                    self._peer_pipe().consumed(len(item))
                    if self.process.cpu is not None:
                        self.process.cpu.received(len(item))
                    for observer in self.network.observers:
                        observer.received(self, item)
                    end.received(item)
                else:
                    break
        finally:
            self._draining = False

    def _peer_pipe(self) -> Pipe:
        assert self.out is not None
        pipe = self.out.target.out
        assert pipe is not None
        return pipe


class Network:
    """All machines by name and address. Faults are set on the directions between them."""

    def __init__(self, world: World, *, give_up_us: int = 60 * SECOND_US) -> None:
        self.world = world
        #: The time for which a sender's system retries before it declares a connection broken.
        self.give_up_us = give_up_us
        self.listening: dict[Address, Listening] = {}
        #: A tuple, so that an observer can remove itself while all are called.
        self.observers: tuple[Observer, ...] = ()
        #: Machines that refuse every new connection.
        self.unwritable: set[str] = set()
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._off: set[str] = set()
        #: All open sockets, in the order of creation.
        self.sockets: dict[Socket, None] = {}
        self._directions: dict[tuple[str, str], Direction] = {}
        self._local_ports: dict[str, int] = {}

    def add_observer(self, observer: Observer) -> None:
        self.observers += (observer,)

    def remove_observer(self, observer: Observer) -> None:
        self.observers = tuple(each for each in self.observers if each is not observer)

    # -- machines

    def add(self, name: str) -> str:
        """Adds a machine, and returns its address."""
        address = f"10.0.0.{len(self._addresses) + 1}"
        self._addresses[name] = address
        self._names[address] = name
        return address

    def resolve(self, host: str) -> str | None:
        return host if host in self._names else self._addresses.get(host)

    def name_of(self, address: str) -> str:
        return self._names[address]

    @property
    def addresses(self) -> Mapping[str, str]:
        """Returns the address of each machine."""
        return self._addresses

    def is_on(self, address: str) -> bool:
        return address not in self._off

    def switch_off(self, name: str) -> None:
        self._off.add(self._addresses[name])

    def switch_on(self, name: str) -> None:
        address = self._addresses[name]
        self._off.discard(address)
        for (_, target), direction in self._directions.items():
            if target == address:
                self._unstall(direction)

    # -- directions

    def direction(self, source: str, target: str) -> Direction:
        """Returns the direction from machine to machine, by name."""
        key = (self._addresses[source], self._addresses[target])
        return self._direction(*key)

    def directions(self) -> Iterable[tuple[tuple[str, str], Direction]]:
        """Returns the used directions by source and target address."""
        return self._directions.items()

    def _direction(self, source: str, target: str) -> Direction:
        direction = self._directions.get((source, target))
        if direction is None:
            direction = self._directions[source, target] = Direction(self.world.stream(f"net/{source}/{target}"))
        return direction

    def cut(self, source: str, target: str) -> None:
        """Cuts the direction from `source` to `target` until `heal` was called as many times as `cut`."""
        self.direction(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        direction = self.direction(source, target)
        direction.cuts -= 1
        if direction.cuts == 0:
            self._unstall(direction)

    def _unstall(self, direction: Direction) -> None:
        for pipe in tuple(direction.stalled):
            pipe.unstall()

    def reset_between(self, one: str, other: str) -> int:
        """Breaks every connection between two machines, on both sides. Returns their number."""
        pair = {self._addresses[one], self._addresses[other]}
        sockets = [socket for socket in self.sockets if {socket.local[0], socket.remote[0]} == pair and socket.is_open]
        for socket in sockets:
            socket.break_off(failure(errno.ECONNRESET))
        return len(sockets) // 2

    # -- connections

    def listen(self, process: Process, address: Address, accept: Callable[[Socket], End]) -> Listening:
        """Opens a port. Raises OSError if it is taken."""
        if address in self.listening:
            raise failure(errno.EADDRINUSE)
        listening = Listening(self, address, process, accept)
        self.listening[address] = listening
        process.holdings[listening] = None
        return listening

    def dial(self, process: Process, source: str, host: str, port: int, end: End) -> Socket:
        """Connects from machine `source`. It calls no method of `end` before it returns."""
        address = self.resolve(host)
        local_port = self._local_ports.get(source, _FIRST_LOCAL_PORT)
        self._local_ports[source] = local_port + 1
        socket = Socket(self, process, (self._addresses[source], local_port), (address or host, port))
        socket.attach(end)
        if address is None:
            unknown = OSError(errno.ENOENT, f"no such host: {host}")
            self.world.at(process.now_us, lambda: socket.break_off(unknown), None, "unknown host")
        else:
            _Dial(self, socket)
        return socket


class _Dial:
    """The handshake of a dial: it is repeated after 1, 2, 4 ... seconds, until it gives up."""

    def __init__(self, network: Network, socket: Socket) -> None:
        self._network = network
        self._socket = socket
        self._direction = network._direction(socket.local[0], socket.remote[0])
        self._deadline_us = socket.process.now_us + network.give_up_us
        self._wait_us = SECOND_US
        self._send(socket.process.now_us)

    def _send(self, time_us: int) -> None:
        self._network.world.at(time_us + self._direction.delay_us(0), self._arrive, None, f"dial {self._socket.label}")

    def _arrive(self) -> None:
        network, socket = self._network, self._socket
        if socket.is_closed:
            return
        world = network.world
        if self._direction.cuts:
            again_us = world.now_us + self._wait_us
            self._wait_us *= 2
            if again_us > self._deadline_us:
                world.at(self._deadline_us, lambda: socket.break_off(failure(errno.ETIMEDOUT)), None, "dial timeout")
            else:
                self._send(again_us)
        elif not network.is_on(socket.remote[0]):
            world.after(_UNREACHABLE_US, lambda: socket.break_off(failure(errno.EHOSTUNREACH)), None, "unreachable")
        else:
            self._answer()

    def _answer(self) -> None:
        network, socket = self._network, self._socket
        back = network._direction(socket.remote[0], socket.local[0])
        listening = network.listening.get(socket.remote)
        if listening is None or network.name_of(socket.remote[0]) in network.unwritable:
            refused = failure(errno.ECONNREFUSED)
            network.world.after(back.delay_us(0), lambda: socket.break_off(refused), None, f"refused {socket.label}")
            return
        peer = Socket(network, listening.process, socket.remote, socket.local)
        socket.out = Pipe(self._direction, socket, peer)
        peer.out = Pipe(back, peer, socket)
        peer.is_open = True
        for observer in network.observers:
            observer.connected(socket, peer)
        peer.out.send(OPEN)
        listening.process.enter(lambda: self._accept(listening, peer))

    def _accept(self, listening: Listening, peer: Socket) -> None:
        if not peer.is_closed:
            peer.attach(listening.accept(peer))
            peer.drain()
