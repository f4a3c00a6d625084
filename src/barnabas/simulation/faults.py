"""Faults of a run: which occur, when and for how long. They are drawn from the seed, kept as values, then injected.

A schedule is a list of `Fault`s. It can be printed, reduced to fewer faults and run again. Each seed first draws its
own subset of kinds (a swarm): runs with few kinds reach states that runs with all of them never do.

The generator respects the limits within which the checkers expect the cluster to be safe. A fault that can destroy data
(`DESTRUCTIVE`) strikes another node only after the last one had time to recover, so that the same data is never lost on
more replicas than the replication factor covers; and of data that only one node has, only unsynced parts are destroyed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from random import Random
from typing import NamedTuple

from barnabas.simulation.faulty_disk import BROKEN, Loss
from barnabas.simulation.network import Direction
from barnabas.simulation.simulated_cluster import ZOOKEEPER, Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World, format_time
from barnabas.simulation.zookeeper_faults import end_session, lose_answer


class FaultKind(Enum):
    """The kinds of faults; the unit of a `Fault`'s `amount` is given for each."""

    KILL = "kill"  # kill -9, started again after the duration
    STOP = "stop"  # SIGTERM, started again after the duration
    POWER = "power"  # power failure; amount: 0 keeps, 1 loses some, 2 loses all of what was not synced
    LOSE_DISK = "lose-disk"  # the process is killed and comes back, after the duration, on an empty disk
    PAUSE = "pause"  # SIGSTOP, SIGCONT after the duration
    SLOW_DISK = "slow-disk"  # amount: times slower
    FULL_DISK = "full-disk"
    BROKEN_DISK = "broken-disk"  # every call gives EIO; afterwards the process is started anew
    COLD_CACHE = "cold-cache"  # amount: percent of reads that miss the page cache
    PARTITION = "partition"  # nothing passes between node and peer
    ONE_WAY = "one-way"  # nothing passes from node to peer
    SLOW_LINK = "slow-link"  # amount: milliseconds more, both ways
    LOSSY_LINK = "lossy-link"  # amount: percent of segments lost, both ways
    RESET = "reset"  # every connection between node and peer breaks
    REFUSE = "refuse"  # new connections to the node are refused
    CLOCK = "clock"  # the wall clock jumps; amount: milliseconds
    EXPIRE = "expire"  # ZooKeeper ends the session of a node that lives
    LOSE_ANSWER = "lose-answer"  # the next write of a node to ZooKeeper is done, but its answer is lost
    KILL_CLIENT = "kill-client"  # of a client: kill -9, started again after the duration
    PAUSE_CLIENT = "pause-client"  # of a client: SIGSTOP, SIGCONT after the duration


DESTRUCTIVE = frozenset({FaultKind.POWER, FaultKind.LOSE_DISK})
#: The pause that lets replicas catch up before the next node can lose data.
_RECOVERY_MS = 30_000
_GAP_MS_MEAN = 12_000
_WITH_PEER = frozenset(
    {FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.SLOW_LINK, FaultKind.LOSSY_LINK, FaultKind.RESET}
)
_OF_CLIENTS = (FaultKind.KILL_CLIENT, FaultKind.PAUSE_CLIENT)
_CLIENT_GAP_MS_MEAN = 20_000
_LOSSES = (Loss.NONE, Loss.SOME, Loss.ALL)


#: Faults of disks that end a ZooKeeper server, as often as it starts.
_OF_BROKERS = frozenset({FaultKind.FULL_DISK, FaultKind.BROKEN_DISK, FaultKind.REFUSE})
_OF_SESSIONS = frozenset({FaultKind.EXPIRE, FaultKind.LOSE_ANSWER})
#: How often a fault of a link cuts a broker off from ZooKeeper alone.
_ZOOKEEPER_LINK_CHANCE = 0.3


class Fault(NamedTuple):
    """One fault of a schedule. `peer` is a machine's name for faults of a link."""

    at_ms: int
    kind: FaultKind
    node: str
    peer: str = ""
    duration_ms: int = 0
    amount: int = 0

    def __str__(self) -> str:
        between = f"{self.node} - {self.peer}" if self.peer else self.node
        amount = f", {self.amount}" if self.amount else ""
        return f"{format_time(self.at_ms * 1000)}  {self.kind.value:<11} {between}, {self.duration_ms} ms{amount}"


def fault_spec(fault: Fault) -> str:
    """Returns a fault as a command names it: AT_MS:KIND:NODE[-PEER]:DURATION_MS[:AMOUNT]."""
    between = f"{fault.node}-{fault.peer}" if fault.peer else fault.node
    amount = [str(fault.amount)] if fault.amount else []
    return ":".join([str(fault.at_ms), fault.kind.value, between, str(fault.duration_ms), *amount])


def fault_of(spec: str) -> Fault:
    """Returns the fault that `fault_spec` writes so. Raises ValueError."""
    at_ms, kind, between, duration_ms, *amount = spec.split(":")
    if len(amount) > 1:
        raise ValueError(f"{spec}: too many parts")
    node, _, peer = between.partition("-")
    return Fault(int(at_ms), FaultKind(kind), node, peer, int(duration_ms), int(amount[0]) if amount else 0)


class FaultStep(NamedTuple):
    """The fact of a note that a fault begins or ends."""

    fault: Fault
    begins: bool


def within_limits(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yields the faults, which are in order, without those that destroy data before another node had time to
    recover.
    """
    destroyed_at: dict[str, int] = {}
    for fault in faults:
        if fault.kind in DESTRUCTIVE:
            others = [when for node, when in destroyed_at.items() if node != fault.node]
            if others and fault.at_ms - max(others) < _RECOVERY_MS:
                continue
            destroyed_at[fault.node] = fault.at_ms + fault.duration_ms
        yield fault


class FaultGenerator:
    """A generator of schedules."""

    def __init__(self, layout: Layout, clients: Sequence[str], kinds: Collection[FaultKind] = tuple(FaultKind)) -> None:
        self._brokers = list(layout.node_properties())
        self._nodes = [*self._brokers, *([ZOOKEEPER] if layout.zookeeper else [])]
        self._in_zookeeper = layout.zookeeper
        self._clients = list(clients)
        has_voters_apart = layout.controllers > 0 and layout.replication_factor > 2
        self._replaceable = [name for name in self._nodes if name.startswith("broker")] if has_voters_apart else []
        self._kinds = [kind for kind in FaultKind if kind in kinds and kind not in _OF_CLIENTS and self._victims(kind)]
        self._kinds_of_clients = [kind for kind in _OF_CLIENTS if kind in kinds and self._clients]

    def schedule(self, world: World, begin_ms: int, end_ms: int) -> tuple[Fault, ...]:
        """Draws the faults of nodes and clients in the given period, in order."""
        faults = self.draw(world.stream("atlas"), begin_ms, end_ms)
        faults += self.draw_of_clients(world.stream("clients"), begin_ms, end_ms)
        return tuple(sorted(faults, key=lambda fault: fault.at_ms))

    def draw_of_clients(self, random: Random, begin_ms: int, end_ms: int) -> list[Fault]:
        """Draws the faults of clients in the given period, independently of those of nodes."""
        swarm = [kind for kind in self._kinds_of_clients if random.random() < 0.4]
        faults: list[Fault] = []
        at_ms = begin_ms
        while swarm and (at_ms := at_ms + 1 + int(random.expovariate(1 / _CLIENT_GAP_MS_MEAN))) < end_ms:
            kind = random.choice(swarm)
            faults.append(Fault(at_ms, kind, random.choice(self._clients), duration_ms=_duration_ms(random)))
        return faults

    def draw(self, random: Random, begin_ms: int, end_ms: int) -> list[Fault]:
        """Draws the faults of nodes in the given period, in order."""
        swarm = [kind for kind in self._kinds if random.random() < 0.5]
        if not swarm and self._kinds:
            swarm = [random.choice(self._kinds)]
        faults: list[Fault] = []
        at_ms = begin_ms
        while swarm:
            at_ms += 1 + int(random.expovariate(1 / _GAP_MS_MEAN))
            if at_ms >= end_ms:
                break
            faults.append(self._draw_one(random, random.choice(swarm), at_ms))
        return list(within_limits(faults))

    def _victims(self, kind: FaultKind) -> list[str]:
        """Returns the programs that a fault can strike. Voters never lose a disk, which has their votes in the quorum.
        In ZooKeeper mode no broker loses unsynced records, which nobody notices there; and the server needs its disk.
        """
        if kind is FaultKind.LOSE_DISK:
            return self._replaceable
        if kind in _OF_SESSIONS:
            return self._brokers if self._in_zookeeper else []
        if self._in_zookeeper and kind is FaultKind.POWER:
            return [ZOOKEEPER]
        return self._brokers if kind in _OF_BROKERS else self._nodes

    def _draw_one(self, random: Random, kind: FaultKind, at_ms: int) -> Fault:
        node = random.choice(self._victims(kind))
        peer = ""
        if kind in _WITH_PEER:
            peer = random.choice([name for name in (*self._nodes, *self._clients) if name != node])
            if self._in_zookeeper and node != ZOOKEEPER and random.random() < _ZOOKEEPER_LINK_CHANCE:
                peer = ZOOKEEPER
        amounts = {
            FaultKind.POWER: (0, 2),
            FaultKind.SLOW_DISK: (5, 300),
            FaultKind.COLD_CACHE: (10, 100),
            FaultKind.SLOW_LINK: (5, 2_000),
            FaultKind.LOSSY_LINK: (1, 40),
            FaultKind.CLOCK: (-1_800_000, 1_800_000),
        }
        low, high = amounts.get(kind, (0, 0))
        duration_ms = _duration_ms(random)
        return Fault(at_ms, kind, node, peer, duration_ms, random.randint(low, high))


def _duration_ms(random: Random) -> int:
    """Draws a duration: most faults are short, some outlast every timeout."""
    return int(random.choice((200, 2_000, 8_000, 20_000, 45_000)) * (0.25 + random.random()))


class Injector:
    """The injector of faults: begins and ends them. `heal` ends all active ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Active faults, each with the function that ends it.
        self._active: dict[Fault, Callable[[], None] | None] = {}
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
            FaultKind.KILL_CLIENT: self._kill_client,
            FaultKind.PAUSE_CLIENT: self._pause_client,
        }

    def schedule(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._cluster.world.at(fault.at_ms * MILLISECOND_US, partial(self._begin, fault), None, "fault")

    @property
    def active(self) -> tuple[Fault, ...]:
        return tuple(self._active)

    def heal(self, among: Collection[str] | None = None) -> None:
        """Ends all active faults; with `among`, only those of these machines and of the links between them."""
        for fault in self.active:
            if among is None or (fault.node in among and (not fault.peer or fault.peer in among)):
                self._end(fault)

    def _begin(self, fault: Fault) -> None:
        if fault in self._active:
            return
        where = f" with {fault.peer}" if fault.peer else ""
        amount = f" {fault.amount}" if fault.amount else ""
        text = f"fault: {fault.kind.value}{amount}{where} for {fault.duration_ms} ms"
        self._cluster.world.note(fault.node, text, FaultStep(fault, begins=True))
        self._active[fault] = self._begin_by_kind[fault.kind](fault)
        until_us = self._cluster.world.now_us + fault.duration_ms * MILLISECOND_US
        self._cluster.world.at(until_us, lambda: self._end(fault), None, "fault ends")

    def _end(self, fault: Fault) -> None:
        if fault not in self._active:
            return
        end = self._active.pop(fault)
        self._cluster.world.note(fault.node, f"end of {fault.kind.value}", FaultStep(fault, begins=False))
        if end is not None:
            end()

    # -- the kinds: each function begins a fault, and returns the function that ends it, if it lasts

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
        """Breaks a disk. A directory that failed stays offline until the next start, so the node is started again."""
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
