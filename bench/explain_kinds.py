"""The kinds of faults of the score of `explain` in a simulated cluster: what each does, and its truth.

A kind begins its fault immediately, on a part that the seed draws, and returns the cause, the component, and the
duration. `UNSEEN` kinds were never looked at while the rules of `explain` were made; the right answer to them is
"unknown".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.simulation.fault_effects import FaultEffects
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.network import Observer, Pipe, Socket
from barnabas.simulation.operator import reassignment
from barnabas.simulation.world import MILLISECOND_US
from explain_reader import READER
from explain_truth import NOTHING, UNKNOWN
from explain_world import LOOSE, ORDERS, PAYMENTS, ScoredCluster

_BROKER_RESOURCE, _TOPIC_RESOURCE = 4, 2


class Struck(NamedTuple):
    """The fault that was made."""

    cause: str
    component: str
    duration_ms: int


class Stage:
    """The cluster that a fault strikes, and what ends with it."""

    def __init__(self, scored: ScoredCluster, avoid: int = 0) -> None:
        """`avoid`: a broker that another fault has struck."""
        self.scored = scored
        self.random = scored.random
        self.effects = FaultEffects(scored.cluster)
        self.duration_ms = self.random.randrange(15_000, 40_000)
        #: The functions that end what was begun.
        self.ends: list[Callable[[], None]] = []
        self._avoid = avoid

    def broker(self) -> int:
        return self.random.choice([each for each in self.scored.brokers if each not in (self._avoid, 4)])

    def pair(self) -> tuple[int, int]:
        """Returns two brokers, each of which leads partitions that the other one follows."""
        one, other = self.random.sample([1, 2, 3], 2)
        return one, other

    def begin(self, kind: FaultKind, node: str, peer: str = "", amount: int = 0) -> None:
        end = self.effects.begin(Fault(0, kind, node, peer, 0, amount))
        if end is not None:
            self.ends.append(end)

    def on_broker(self, kind: FaultKind, cause: str, amount: int = 0) -> Struck:
        broker = self.broker()
        self.begin(kind, f"broker{broker}", amount=amount)
        return Struck(cause, f"broker {broker}", self.duration_ms)

    def on_controller(self, kind: FaultKind, cause: str) -> Struck:
        name = self.scored.active_controller()
        assert name is not None
        self.begin(kind, name)
        return Struck(cause, f"broker {name.removeprefix('broker')}", self.duration_ms)

    def on_link(self, kind: FaultKind, cause: str, amount: int = 0) -> Struck:
        one, other = self.pair()
        self.begin(kind, f"broker{one}", f"broker{other}", amount)
        between = f"link {one}>{other}" if kind is FaultKind.ONE_WAY else f"link {min(one, other)}-{max(one, other)}"
        return Struck(cause, between, self.duration_ms)

    def configure(self, resource: int, name: str, values: Mapping[str, str | None]) -> None:
        rows = [
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=1 if value is None else 0, value=value
            )
            for key, value in values.items()
        ]
        changed = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource, resource_name=name, configs=rows
        )
        # Only the broker itself takes a change of its configuration.
        to = int(name) if resource == _BROKER_RESOURCE else None
        self.scored.ask(IncrementalAlterConfigsRequest(resources=[changed]), to=to)


# Processes


def _gc_pause(stage: Stage) -> Struck:
    """Lets the process spend seconds on one turn of its own code, as a collection of garbage does."""
    broker, lasts_ms = stage.broker(), stage.random.randrange(3_000, 9_000)
    process = stage.scored.cluster.nodes[f"broker{broker}"].machine.process
    assert process is not None
    assert process.cpu is not None
    process.cpu.spend_ns(lasts_ms * 1_000_000)
    return Struck("busy", f"broker {broker}", lasts_ms)


def _cpu_hog(stage: Stage) -> Struck:
    """Lets other processes take most of the CPU: the broker waits for it, and runs for a small part of the time."""
    broker, share = stage.broker(), stage.random.uniform(0.02, 0.1)
    machine, scored = stage.scored.cluster.nodes[f"broker{broker}"].machine, stage.scored
    slice_ms = stage.random.randrange(300, 1_200)
    ends_ms = scored.now_ms + stage.duration_ms

    def preempt() -> None:
        if machine.process is not None and machine.is_running:
            machine.process.preempt(int(slice_ms * (1 - share)) * MILLISECOND_US)
        if scored.now_ms + slice_ms < ends_ms:
            scored.later(slice_ms, preempt)

    preempt()
    return Struck("starved", f"broker {broker}", stage.duration_ms)


def _rolling_restart(stage: Stage) -> Struck:
    for number, broker in enumerate([1, 2, 3]):
        stage.scored.later(1 + number * 9_000, lambda node=f"broker{broker}": _restart(stage, node))  # type: ignore[misc]
    return Struck("restarted", "cluster", 27_000)


def _restart(stage: Stage, node: str) -> None:
    end = stage.effects.begin(Fault(0, FaultKind.STOP, node))
    assert end is not None
    stage.scored.later(1_500, end)


# Links


def _isolate(stage: Stage) -> Struck:
    """Cuts the machine of a broker off from all others, that of the reader included."""
    struck, network = stage.on_broker(FaultKind.ISOLATE, "link-lost"), stage.scored.cluster.network
    node = struck.component.replace(" ", "")
    network.cut(node, READER)
    network.cut(READER, node)

    def end() -> None:
        network.heal(node, READER)
        network.heal(READER, node)

    stage.ends.append(end)
    return struck


# Disks and throttles


def _throttle(stage: Stage) -> Struck:
    """Sets a limit of replication, as a tool for moves does, and forgets it: a new replica does not catch up."""
    follower = stage.broker()
    source, other = (each for each in (1, 2, 3) if each != follower)
    index = next(index for index in range(3) if follower not in _replicas(stage, PAYMENTS, index))
    stage.configure(_TOPIC_RESOURCE, PAYMENTS, {"follower.replication.throttled.replicas": "*"})
    stage.configure(_BROKER_RESOURCE, str(follower), {"follower.replication.throttled.rate": "1000"})
    stage.scored.later(1_000, lambda: stage.scored.ask(reassignment(PAYMENTS, index, [source, other, follower])))

    def end() -> None:
        stage.configure(_BROKER_RESOURCE, str(follower), {"follower.replication.throttled.rate": None})
        stage.configure(_TOPIC_RESOURCE, PAYMENTS, {"follower.replication.throttled.replicas": None})

    stage.ends.append(end)
    return Struck("throttled", f"broker {follower}", stage.duration_ms)


def _clock(stage: Stage) -> Struck:
    jump_ms = stage.random.choice((-1, 1)) * stage.random.randrange(2_000, 1_800_000)
    return stage.on_broker(FaultKind.CLOCK, "clock-jumped", jump_ms)


# Requests of operators


def _replicas(stage: Stage, topic: str, index: int) -> tuple[int, ...]:
    found = stage.scored.image().partition(topic, index)
    assert found is not None
    return tuple(found.replicas)


def _election(stage: Stage) -> Struck:
    """Asks for an election that changes a leader: the replicas are in another order since a moment ago."""
    requested = ElectLeadersRequest.TopicPartitions(topic=PAYMENTS, partitions=[0, 1, 2])
    stage.scored.ask(ElectLeadersRequest(election_type=0, topic_partitions=[requested], timeout_ms=3_000))
    return Struck("election-asked", f"topic {PAYMENTS}", 5_000)


def _reassignment(stage: Stage) -> Struck:
    index = stage.random.randrange(3)
    replicas = list(_replicas(stage, PAYMENTS, index))
    outside = next(each for each in (1, 2, 3) if each not in replicas)
    stage.scored.ask(reassignment(PAYMENTS, index, [outside, replicas[0]]))
    return Struck("reassignment-asked", f"topic {PAYMENTS}", 8_000)


def _config(stage: Stage) -> Struck:
    key, value = stage.random.choice(
        (("retention.ms", "3600000"), ("min.insync.replicas", "1"), ("segment.bytes", "1048576"))
    )
    stage.configure(_TOPIC_RESOURCE, ORDERS, {key: value})
    return Struck("config-asked", f"topic {ORDERS}", 5_000)


def _decommission(stage: Stage) -> Struck:
    """Moves all replicas away from broker 3, stops it and unregisters it."""
    scored = stage.scored
    for topic in scored.image().topics():
        for index, partition in enumerate(topic.partitions):
            if 3 in partition.replicas:
                free = next(each for each in (4, 1, 2) if each not in partition.replicas)
                moved = [free if each == 3 else each for each in partition.replicas]
                scored.ask(reassignment(topic.name, index, moved))
    scored.gone.add(3)

    def stop() -> None:
        stage.effects.begin(Fault(0, FaultKind.STOP, "broker3"))

    scored.later(8_000, stop)
    scored.later(12_000, lambda: scored.ask(UnregisterBrokerRequest(broker_id=3)))
    return Struck("decommissioned", "broker 3", 14_000)


def _unclean_election(stage: Stage) -> Struck:
    """Kills a follower, then the leader, and starts the follower: it must lead without what it lacks."""
    scored = stage.scored
    leader = scored.leader(LOOSE, 0)
    follower = next(each for each in _replicas(stage, LOOSE, 0) if each != leader)
    first = stage.effects.begin(Fault(0, FaultKind.KILL, f"broker{follower}"))
    assert first is not None
    scored.later(4_000, lambda: stage.begin(FaultKind.KILL, f"broker{leader}"))
    scored.later(7_000, first)
    return Struck("unclean-election", f"topic {LOOSE}", 16_000)


def _burst(stage: Stage) -> Struck:
    scored = stage.scored
    scored.batch_records[ORDERS], scored.batch_bytes[ORDERS] = 150, 2_000

    def end() -> None:
        scored.batch_records[ORDERS], scored.batch_bytes[ORDERS] = 2, 200

    stage.ends.append(end)
    return Struck("burst", f"topic {ORDERS}", stage.duration_ms)


# Kinds that were never seen while the rules were made


def _reject(stage: Stage) -> Struck:
    """Lets a packet filter reject all that comes to a broker: its process runs, and every dial is refused."""
    broker, network = stage.broker(), stage.scored.cluster.network
    node = f"broker{broker}"
    stage.begin(FaultKind.REFUSE, node)
    for other in stage.scored.cluster.nodes:
        if other != node:
            network.reset_between(node, other)
    return Struck(UNKNOWN, f"broker {broker}", stage.duration_ms)


class _Stuck(Observer):
    """A broker that takes requests, and whose answers never leave."""

    def __init__(self, stage: Stage, broker: int) -> None:
        self._network = stage.scored.cluster.network
        self._address = (stage.scored.cluster.nodes[f"broker{broker}"].machine.address, 9092)
        self._held: list[Pipe] = []
        for socket in self._network.sockets:
            self._hold(socket)
        self._network.add_observer(self)

    def connected(self, dialled: Socket, accepted: Socket) -> None:
        self._hold(accepted)

    def _hold(self, socket: Socket) -> None:
        if socket.local == self._address and socket.out is not None:
            socket.out.hold()
            self._held.append(socket.out)

    def end(self) -> None:
        self._network.remove_observer(self)
        for pipe in self._held:
            pipe.release()


def _stuck(stage: Stage) -> Struck:
    broker = stage.broker()
    stage.ends.append(_Stuck(stage, broker).end)
    return Struck(UNKNOWN, f"broker {broker}", stage.duration_ms)


class Kind(NamedTuple):
    """A kind of fault: what begins it, and the brokers and dedicated controllers that it needs."""

    strike: Callable[[Stage], Struck]
    brokers: int = 3
    #: The number; None lets the seed draw none or one.
    controllers: int | None = None


def _amount(low: int, high: int) -> Callable[[Stage], int]:
    return lambda stage: stage.random.randrange(low, high)


_POWER, _SLOW_LINK, _LOSSY, _SLOW_DISK = _amount(0, 3), _amount(50, 1_000), _amount(10, 40), _amount(150, 300)

KINDS: Final[Mapping[str, Kind]] = {
    "kill": Kind(lambda stage: stage.on_broker(FaultKind.KILL, "crashed")),
    "stop": Kind(lambda stage: stage.on_broker(FaultKind.STOP, "stopped")),
    "power": Kind(lambda stage: stage.on_broker(FaultKind.POWER, "power-lost", _POWER(stage)), controllers=1),
    "pause": Kind(lambda stage: stage.on_broker(FaultKind.PAUSE, "paused")),
    "gc-pause": Kind(_gc_pause),
    "cpu-hog": Kind(_cpu_hog),
    "isolation": Kind(_isolate),
    "partition": Kind(lambda stage: stage.on_link(FaultKind.PARTITION, "link-lost")),
    "one-way": Kind(lambda stage: stage.on_link(FaultKind.ONE_WAY, "link-one-way")),
    "slow-link": Kind(lambda stage: stage.on_link(FaultKind.SLOW_LINK, "link-slow", _SLOW_LINK(stage))),
    "lossy-link": Kind(lambda stage: stage.on_link(FaultKind.LOSSY_LINK, "link-lossy", _LOSSY(stage))),
    "slow-disk": Kind(lambda stage: stage.on_broker(FaultKind.SLOW_DISK, "disk-slow", _SLOW_DISK(stage))),
    "full-disk": Kind(lambda stage: stage.on_broker(FaultKind.FULL_DISK, "disk-full")),
    "failing-disk": Kind(lambda stage: stage.on_broker(FaultKind.BROKEN_DISK, "disk-failed"), controllers=1),
    "lost-disk": Kind(lambda stage: stage.on_broker(FaultKind.LOSE_DISK, "disk-lost"), controllers=1),
    "throttle": Kind(_throttle),
    "clock": Kind(_clock),
    "controller-kill": Kind(lambda stage: stage.on_controller(FaultKind.KILL, "crashed"), controllers=0),
    "controller-pause": Kind(lambda stage: stage.on_controller(FaultKind.PAUSE, "paused"), controllers=0),
    "election": Kind(_election),
    "reassignment": Kind(_reassignment),
    "config": Kind(_config),
    "decommission": Kind(_decommission, brokers=4, controllers=1),
    "rolling-restart": Kind(_rolling_restart),
    "unclean-election": Kind(_unclean_election, controllers=1),
    "burst": Kind(_burst),
    "nothing": Kind(lambda stage: Struck(NOTHING, "", stage.duration_ms)),
}

UNSEEN: Final[Mapping[str, Kind]] = {"rejected": Kind(_reject), "stuck-answers": Kind(_stuck)}

#: Pairs that strike two different brokers, the second one some seconds after the first.
PAIRED: Final = ("kill", "pause", "stop", "slow-disk", "full-disk", "clock", "gc-pause")
