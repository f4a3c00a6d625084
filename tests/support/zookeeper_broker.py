"""Whole brokers in ZooKeeper mode, in memory: no socket, no thread, no real time. Brokers cannot reach one another."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.wired import NotedCloses, WiredClient
from tests.support.znode_memory import MemoryTree, ZnodeMemory

from barnabas.broker.assembly import Broker
from barnabas.broker.zookeeper.identity import Identity, identify
from barnabas.broker.zookeeper.store_steps import StoreSteps
from barnabas.broker.zookeeper.zookeeper_side import ZooKeeperSide
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.metrics import TimeBuckets
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import MemoryHost
from barnabas.zookeeper.client.store import StoreListener

PROPERTIES = {
    "broker.id": "1",
    "zookeeper.connect": "localhost:2181",
    "listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class MemoryClient(ZnodeMemory):
    """A client whose sessions are opened and closed by its user."""

    def open(self) -> None:
        self.open_session()

    def close(self, done: Callable[[], None]) -> None:
        ended, self.session_id = self.session_id, 0
        self.tree.end_session(ended)
        done()


class MemorySession:
    """The part of `ZooKeeperSession` that a side uses."""

    def __init__(self, tree: MemoryTree) -> None:
        self.store = MemoryClient(tree=tree)
        self.latency = TimeBuckets()

    def listen(self, listener: StoreListener) -> None:
        self.store.listener = listener


def identified(host: MemoryHost, config: BrokerConfig, store: ZnodeMemory) -> Identity | ConfigError:
    """Returns the identity that a broker determines."""
    found: list[Identity | ConfigError] = []
    StoreSteps(identify(host, config, store), found.append).start()
    store.answer_all()
    (result,) = found
    return result


class ZooKeeperBroker:
    """A started broker, with the properties that a test changes; `tree` and `disk` can be those of another one."""

    def __init__(self, tree: MemoryTree | None = None, disk: MemoryDisk | None = None, **properties: str) -> None:
        self.tree = tree or MemoryTree()
        self.host = MemoryHost(seed=1, disk=disk)
        self.closes = NotedCloses()
        changed = {key.replace("_", "."): value for key, value in properties.items()}
        config = BrokerConfig.from_properties({**PROPERTIES, **changed})
        self.session = MemorySession(self.tree)
        self.store = self.session.store
        found = identified(self.host, config, self.store)
        assert isinstance(found, Identity), found
        self.config = found.config
        self.broker = Broker(self.host, found.config, self.closes, lambda parts: self._side(parts, found.cluster_id))
        self.opened: list[int] = []
        self.broker.open()

    def _side(self, parts: object, cluster_id: str) -> ZooKeeperSide:
        return ZooKeeperSide(parts, self.session, cluster_id)  # type: ignore[arg-type]

    def start(self) -> ZooKeeperBroker:
        self.broker.start(on_open=lambda: self.opened.append(self.host.clock.now_ms()))
        self.settle()
        return self

    def settle(self, duration_ms: int = 300) -> None:
        """Lets time pass, and answers requests to ZooKeeper."""
        for _ in range(duration_ms // 5):
            if self.store.is_connected:
                self.store.answer_all()
            self.host.time.run_for(5)

    def connect(self, client_id: str = "wired") -> ZooKeeperBrokerClient:
        return ZooKeeperBrokerClient(self, client_id)


class ZooKeeperBrokerClient(WiredClient):
    """A client whose waits answer the broker's requests to ZooKeeper."""

    def __init__(self, broker: ZooKeeperBroker, client_id: str) -> None:
        super().__init__(broker, client_id)  # type: ignore[arg-type]
        broker.host.time.call_later(1, lambda: self._answer(broker))

    def _answer(self, broker: ZooKeeperBroker) -> None:
        if broker.store.is_connected:
            broker.store.answer_all()
        broker.host.time.call_later(5, lambda: self._answer(broker))
