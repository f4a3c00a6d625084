"""The nodes of the quorum's world: `RaftNode`s of the product on disks in memory, which crash, pause and restart."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.common.config import BrokerConfig
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.formatting import ensure_formatted
from barnabas.raft.node import RaftNode
from barnabas.raft.snapshots import Snapshot, SnapshotId
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.simulation.crashing_disk import CrashingDisk, Fate
from barnabas.simulation.host import SeededRandom
from barnabas.simulation.worlds.quorum_checker import Checker, Violation
from barnabas.simulation.worlds.quorum_network import Address, Heap, Network
from barnabas.simulation.worlds.quorum_plan import Plan

CLUSTER_ID = "c2ltdWxhdGVkLXF1b3J1bQ"
#: The free space of a disk that is not full.
ROOM = 1 << 40
_BASE = {
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.request.timeout.ms": "700",
    "metadata.log.max.snapshot.interval.ms": "0",
}


class NodeTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class NodeHost:
    """One process of a node: the part of `common.host.Host` that raft uses. Nothing runs after `end`."""

    def __init__(self, world: Places, place: Place, disk: CrashingDisk, seed: int) -> None:
        self._world = world
        self._place = place
        self.is_over = False
        self.clock = self.timers = self.blocking = self.faults = self
        self.random = SeededRandom(seed)
        self.disk = disk
        self.reported: list[str] = []

    # The clock: that of each node has its own speed and its own zero.

    def now_ms(self) -> int:
        return int(self._place.zero_ms + self._world.heap.now * self._place.speed)

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def wall_ms(self) -> int:
        return 1_735_689_600_000 + self.now_ms()

    # Timers.

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> NodeTimer:
        timer = NodeTimer(callback)
        self._world.heap.later(max(delay_ms, 0) / self._place.speed, lambda: self._fire(timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def _fire(self, timer: NodeTimer) -> None:
        if self.is_over or timer.callback is None:
            return
        if self._place.is_paused:
            self._place.keep(lambda: self._fire(timer))
            return
        callback, timer.callback = timer.callback, None
        callback()

    # Blocking work.

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def perform() -> None:
            try:
                result = work()
            except OSError as error:
                done(None, error)
            else:
                done(result, None)

        self.call_later(1 + self.random.below(4), perform)

    # Faults.

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise Violation(f"node {self._place.node_id}: {message}") from error

    def report(self, message: str, error: BaseException | None = None) -> None:
        if "responds with" in message and message in self.reported:
            raise Violation(f"node {self._place.node_id} reports twice: {message}")
        self.reported.append(message)
        self._world.note(f"node {self._place.node_id} reports: {message}")

    def warn(self, message: str) -> None:
        self._world.note(f"node {self._place.node_id} warns: {message}")

    def inform(self, message: str) -> None:
        self._world.note(f"node {self._place.node_id}: {message}")


class Place:
    """A machine, which remains when its node crashes."""

    def __init__(self, node_id: int, *, is_controller: bool) -> None:
        self.node_id = node_id
        self.is_controller = is_controller
        self.address = (f"host{node_id}", 9000 + node_id)
        self.disk = CrashingDisk()
        self.host: NodeHost | None = None
        self.node: RaftNode | None = None
        self.key = VoterKey(node_id)
        self.starts = 0
        self.is_paused = False
        #: Whether the disk was full since the last start, so that epochs of which nobody got a promise are not saved.
        self.was_full = False
        self._kept: list[Callable[[], None]] = []
        self.speed = 1.0
        self.zero_ms = 0

    def make_room(self) -> None:
        """Ends a full disk."""
        self.disk.free_bytes = max(self.disk.free_bytes, ROOM)

    def keep(self, action: Callable[[], None]) -> None:
        """Keeps the events of a paused node until it continues."""
        self._kept.append(action)

    def take_kept(self) -> list[Callable[[], None]]:
        kept, self._kept = self._kept, []
        return kept


class WorldPeers:
    """The `raft.peers.Peers` of one process."""

    def __init__(self, world: Places, place: Place, host: NodeHost) -> None:
        self._world, self._place, self._host = world, place, host

    def send(
        self,
        address: tuple[str, int],
        request: Message,
        reply: Callable[[Message | None], None],
        *,
        timeout_ms: int,
    ) -> None:
        def receive(response: Message | None) -> None:
            if self._host.is_over:
                return
            if self._place.is_paused:
                self._place.keep(lambda: receive(response))
                return
            reply(response)

        self._world.network.send(self._place.node_id, address, request, receive, timeout_ms)

    def is_refused(self, address: tuple[str, int]) -> bool:
        return (self._place.node_id, address) in self._world.network.refused


class CommitObserver:
    """A subscriber that passes a node's commits and snapshots to the checker."""

    def __init__(self, checker: Checker, key: VoterKey, node: RaftNode) -> None:
        self._checker, self._key, self._node = checker, key, node

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._checker.on_snapshot(self._key, snapshot_id, snapshot)

    def on_commit(self, batch: CommittedBatch) -> None:
        self._checker.on_commit(self._key, batch, self._node.epoch)

    def on_caught_up(self) -> None:
        pass


def _watch(delivery: Any, checker: Checker, key: VoterKey) -> None:
    """Passes appends to, truncations of and snapshots in place of a node's log to the checker."""

    def watched(name: str, notify: Callable[[VoterKey, Any], None]) -> None:
        method = getattr(delivery, name)

        def both(value: Any, *more: Any) -> None:
            notify(key, value)
            method(value, *more)

        setattr(delivery, name, both)

    watched("appended", checker.on_appended)
    watched("truncated", checker.on_truncated)
    watched("reset", checker.on_installed)


class Places:
    """The nodes of a quorum, their machines and the network between them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed + 1)
        self.heap = Heap(self._after)
        self.network = Network(self.heap, self.chance, self, on_wire=plan.on_wire)
        self.checker = Checker()
        self.timeline: list[str] = []
        self.proposals = 0
        self.is_healed = False
        self._touched: Place | None = None
        voters = range(1, plan.voters + 1)
        spare = [plan.voters + 1] if plan.changes else []
        self.places = {node_id: Place(node_id, is_controller=True) for node_id in (*voters, *spare)}
        for node_id in range(101, 101 + plan.observers):
            self.places[node_id] = Place(node_id, is_controller=False)
        self._by_address: dict[Address, int] = {place.address: node_id for node_id, place in self.places.items()}
        self.first_voters = VoterSet(
            tuple(
                Voter(VoterKey(n, bytes([n] * 16)), (VoterEndpoint("CONTROLLER", *self.places[n].address),))
                for n in voters
            )
        )
        if plan.skew:
            for place in self.places.values():
                place.speed = 1 + (self.chance.random() - 0.5) * 0.2
                place.zero_ms = self.chance.randrange(1_000_000)
        for place in self.places.values():
            self.heap.later(self._first_start_ms(place), lambda place=place: self.start(place))  # type: ignore[misc]

    def note(self, text: str) -> None:
        self.timeline.append(f"{self.heap.now:9.1f}  {text}")

    # Nodes.

    def _config(self, place: Place) -> BrokerConfig:
        properties = {**_BASE, "node.id": str(place.node_id)}
        host, port = place.address
        if place.is_controller:
            properties["listeners"] = f"CONTROLLER://{host}:{port}"
        else:
            properties |= {"process.roles": "broker", "listeners": f"PLAINTEXT://{host}:{port}"}
        servers = [self.places[n].address for n in self.first_voters.ids]
        if self.plan.dynamic:
            properties["controller.quorum.bootstrap.servers"] = ",".join(f"{h}:{p}" for h, p in servers)
        else:
            properties["controller.quorum.voters"] = ",".join(
                f"{n}@{h}:{p}" for n, (h, p) in zip(self.first_voters.ids, servers, strict=True)
            )
        if self.plan.snapshots:
            properties |= {
                "metadata.log.max.record.bytes.between.snapshots": "700",
                "metadata.max.retention.bytes": "1500",
                "internal.metadata.log.segment.bytes": "500",
            }
        return BrokerConfig.from_properties(properties)

    def _first_start_ms(self, place: Place) -> float:
        """Returns the time of a node's first start."""
        return self.chance.random() * 200

    def start(self, place: Place) -> None:
        place.starts += 1
        place.make_room()
        place.is_paused = False
        place.take_kept()
        host = place.host = NodeHost(self, place, place.disk, self.plan.seed * 1000 + place.node_id * 50 + place.starts)
        config = self._config(place)
        is_first = place.node_id in self.first_voters.ids and not place.key.directory_id.strip(b"\0")
        formatted = ensure_formatted(
            host,  # type: ignore[arg-type]
            config,
            cluster_id=CLUSTER_ID,
            initial_voters=self.first_voters if is_first else VoterSet(),
            is_new_cluster=self._is_new_cluster(place),
        )
        place.key = VoterKey(place.node_id, formatted.metadata_directory_id)
        node = RaftNode(host, config, MetadataStore(), formatted, WorldPeers(self, place, host))  # type: ignore[arg-type]
        key, checker = place.key, self.checker
        checker.restarted(key)
        if place.was_full:
            checker.shadow(key).epoch = 0
            place.was_full = False
        node.add_listener(CommitObserver(checker, key, node))
        _watch(node._delivery, checker, key)
        place.node = node
        self.note(f"node {place.node_id} starts")
        node.start()

    def _is_new_cluster(self, place: Place) -> bool:
        """Returns whether the operator says that an empty directory of this node belongs to a new cluster."""
        return False

    def crash(self, place: Place, fate: Fate) -> None:
        assert place.host is not None
        self.note(f"node {place.node_id} crashes: {fate.value}")
        place.host.is_over = True
        place.node = None
        place.disk = place.disk.after_crash(fate) if fate is not Fate.KEPT else place.disk
        place.disk.locked.clear()

    def wipe(self, place: Place) -> None:
        self.crash(place, Fate.KEPT)
        self.note(f"node {place.node_id} loses its disk")
        place.disk = CrashingDisk()
        place.key = VoterKey(place.node_id, b"wiped" + bytes(11))

    # Faults of the network.

    def _begin_losses(self) -> None:
        faults = self.network.faults
        faults.loss = self.chance.choice([0, 0.02, 0.1, 0.3])
        faults.doubling = self.chance.choice([0, 0.1, 0.3])
        faults.delay_ms_max = self.chance.choice([1, 5, 30, 150])
        self.note(f"network: loss {faults.loss}, doubling {faults.doubling}, delay {faults.delay_ms_max}")

    def _begin_damages(self) -> None:
        faults = self.network.faults
        faults.damage = self.chance.choice([0, 0.05, 0.3])
        self.note(f"network: damage {faults.damage}")

    # The nodes, as the network sees them.

    def node_at(self, address: Address) -> int:
        return self._by_address.get(address, -1)

    def is_up(self, node_id: int) -> bool:
        return node_id in self.places and self.places[node_id].node is not None

    def deliver(self, node_id: int, request: Message, answer: Callable[[Message], None]) -> None:
        place = self.places[node_id]
        node, host = place.node, place.host
        if node is None or host is None:
            return
        if place.is_paused:
            place.keep(lambda: None if host.is_over else self.deliver(node_id, request, answer))
            return
        if isinstance(request, ApiVersionsRequest):
            feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            answer(ApiVersionsResponse(supported_features=[feature]))
            return
        if self.plan.small_fetches and isinstance(request, FetchRequest):
            request.max_bytes = 1
        version = request.VERSIONS[1]
        node.server.serve(request, version, "CONTROLLER", lambda response: None if host.is_over else answer(response))

    def on_answer(self, source: int, target: int, request: Message, response: Message) -> None:
        self.checker.on_answer(self.places[target].key, request, response)

    def _after(self) -> None:
        for place in self.places.values():
            if place.node is not None:
                self.checker.read_identity(place.key, place.node)
