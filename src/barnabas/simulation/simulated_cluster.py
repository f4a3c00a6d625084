"""A cluster of nodes and client machines in one world: the nodes' properties, and a supervisor that starts them again.

A node is started again one second after its process ended, as an init system does, unless a fault holds it down. Faults
overlap, so each one holds it down and releases it separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.simulation.loop import SimulatedLoop
from barnabas.simulation.machine import Machine
from barnabas.simulation.network import Network
from barnabas.simulation.node import Node
from barnabas.simulation.program import Program
from barnabas.simulation.world import SECOND_US, World
from barnabas.simulation.zookeeper_node import PORT as ZOOKEEPER_PORT
from barnabas.simulation.zookeeper_node import ZookeeperNode

#: 16 bytes in base64, as printed by `kafka-storage random-uuid`.
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
_RESTART_US = SECOND_US
_CLIENT_PORT, _CONTROLLER_PORT = 9092, 9093
_CONTROLLER_ID_BASE = 3000
#: The name of the machine with the ZooKeeper server.
ZOOKEEPER = "zookeeper"


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of nodes of each role: without `controllers`, every broker is also a controller."""

    brokers: int = 1
    controllers: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Whether the metadata is in a ZooKeeper server instead of a quorum.
    zookeeper: bool = False
    #: Whether each broker is in a rack of its own, `rack1` and so on.
    has_racks: bool = False

    @property
    def replication_factor(self) -> int:
        return min(self.brokers, 3)

    @property
    def min_in_sync(self) -> int:
        return max(1, self.replication_factor - 1)

    def shared_property(self, key: str) -> str:
        """Returns a property that all nodes have. Raises KeyError."""
        return self._shared_properties()[key]

    def node_properties(self) -> dict[str, dict[str, str]]:
        """Returns the server.properties of each node by name."""
        return self._properties_with_zookeeper() if self.zookeeper else self._properties_with_quorum()

    def _shared_properties(self) -> dict[str, str]:
        return {
            "log.dirs": "/data",
            "offsets.topic.replication.factor": str(self.replication_factor),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": str(self.replication_factor),
            "transaction.state.log.min.isr": str(self.min_in_sync),
            "transaction.state.log.num.partitions": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            # A client that still requests a deleted topic must not create another one.
            "auto.create.topics.enable": "false",
            **self.properties,
        }

    def _rack(self, number: int) -> dict[str, str]:
        return {"broker.rack": f"rack{number}"} if self.has_racks else {}

    def _properties_with_zookeeper(self) -> dict[str, dict[str, str]]:
        assert not self.controllers, "a broker in ZooKeeper mode is a controller too"
        return {
            f"broker{number}": {
                **self._shared_properties(),
                "zookeeper.connect": f"{ZOOKEEPER}:{ZOOKEEPER_PORT}",
                "broker.id": str(number),
                "listeners": f"PLAINTEXT://broker{number}:{_CLIENT_PORT}",
                **self._rack(number),
            }
            for number in range(1, self.brokers + 1)
        }

    def _properties_with_quorum(self) -> dict[str, dict[str, str]]:
        brokers = {f"broker{number}": number for number in range(1, self.brokers + 1)}
        controllers = {f"controller{number}": _CONTROLLER_ID_BASE + number for number in range(1, self.controllers + 1)}
        voters = controllers or brokers
        shared = {
            "controller.quorum.voters": ",".join(f"{id_}@{name}:{_CONTROLLER_PORT}" for name, id_ in voters.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            **self._shared_properties(),
        }
        nodes = {}
        for name, node_id in {**controllers, **brokers}.items():
            listeners = []
            roles = []
            own = {}
            if name in brokers:
                own = self._rack(node_id)
                roles.append("broker")
                listeners.append(f"PLAINTEXT://{name}:{_CLIENT_PORT}")
            if name in voters:
                roles.append("controller")
                listeners.append(f"CONTROLLER://{name}:{_CONTROLLER_PORT}")
            own |= {"node.id": str(node_id), "process.roles": ",".join(roles), "listeners": ",".join(listeners)}
            nodes[name] = {**shared, **own}
        return nodes


class Client:
    """A machine that runs one client program on an asyncio loop of its own."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.name = name
        self.machine = Machine(world, network, name)
        self._world = world
        self._network = network
        self._program: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._task: asyncio.Task[None] | None = None
        #: Objects of ended processes, kept because a task that is garbage-collected would run its `finally`.
        self._remains: list[object] = []
        self.loop = self._new_loop()

    def _new_loop(self) -> SimulatedLoop:
        return SimulatedLoop(self._world, self._network, self.machine.spawn(), self.name)

    def run(self, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts the program now and after each `restart`."""
        self._program = program
        self._begin(program)

    def _begin(self, program: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                self._world.note(self.name, f"its program failed: {error!r}")

        self._task = self.loop.create_task(program())
        self._task.add_done_callback(ended)

    @property
    def has_ended(self) -> bool:
        """Whether its program has returned."""
        return self._task is not None and self._task.done()

    def kill(self) -> None:
        self._remains += [self.loop, asyncio.all_tasks(self.loop)]
        self.machine.kill()

    def restart(self) -> None:
        """Starts a new process if the last one has ended."""
        if not self.machine.is_running:
            self.loop = self._new_loop()
            if self._program is not None:
                self._begin(self._program)


class Cluster:
    """Nodes and clients by name, in a deterministic order."""

    def __init__(self, world: World, layout: Layout) -> None:
        self.world = world
        self.layout = layout
        self.network = Network(world)
        self.nodes: dict[str, Node] = {}
        self.zookeeper: ZookeeperNode | None = None
        self.clients: dict[str, Client] = {}
        self._held: dict[str, int] = {}
        #: Nodes whose program ran since the last check (`checkers.Watch`); all of them for a manual check.
        self.dirty: Sequence[Node] = ()
        #: Whether a check that is requested covers everything, including what is otherwise checked only now and then.
        self.checks_all = False
        if layout.zookeeper:
            self.zookeeper = ZookeeperNode(world, self.network, ZOOKEEPER, on_exit=self._on_exit)
            self._held[ZOOKEEPER] = 0
        for name, properties in layout.node_properties().items():
            self.nodes[name] = Node(
                world,
                self.network,
                name,
                properties,
                cluster_id=None if layout.zookeeper else CLUSTER_ID,
                on_exit=self._on_exit,
            )
            self._held[name] = 0
        self.dirty = tuple(self.nodes.values())

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{name}:{_CLIENT_PORT}" for name in self.nodes if name.startswith("broker"))

    @property
    def programs(self) -> dict[str, Program]:
        """The nodes, and the ZooKeeper server if there is one."""
        return {**self.nodes, **({} if self.zookeeper is None else {self.zookeeper.name: self.zookeeper})}

    @property
    def machines(self) -> list[str]:
        return [*self.programs, *self.clients]

    def machine(self, name: str) -> Machine:
        """Returns the machine of a program or of a client."""
        return (self.programs.get(name) or self.clients[name]).machine

    def add_client(self, name: str) -> Client:
        client = self.clients[name] = Client(self.world, self.network, name)
        return client

    def start(self) -> None:
        for program in self.programs.values():
            program.start()

    # -- starts of nodes

    def prevent_start(self, name: str) -> None:
        """Prevents starts of the program until `allow_start` is called as often as this."""
        self._held[name] += 1

    def allow_start(self, name: str) -> None:
        self._held[name] -= 1
        self._start_if_free(name)

    def _on_exit(self, name: str) -> None:
        if not self._held[name]:
            self.world.after(_RESTART_US, lambda: self._start_if_free(name), None, f"supervise {name}")

    def _start_if_free(self, name: str) -> None:
        program = self.programs[name]
        if not self._held[name] and not program.is_running:
            program.machine.power_on()
            program.start()
