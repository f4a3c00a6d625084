"""Pure nodes of a quorum in a seeded world: no broker, no sockets, the product's own `RaftNode` on disks in memory.

    World(Plan.of(seed)).run()     a time of faults; then everything heals and the quorum must work again

Every choice comes from the seed. A `Violation` or any other error that a node raises ends the run; `timeline` contains
what happened before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.simulation.raft.checker import Checker, Violation, name_of
from tests.simulation.raft.network import Heap, Network
from tests.simulation.raft.plan import Plan
from tests.support.crashing_disk import CrashingDisk, Fate

from barnabas.common.config import BrokerConfig
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.records_metadata import ConfigRecord
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.formatting import ensure_formatted
from barnabas.raft.node import RaftNode
from barnabas.raft.snapshots import Snapshot, SnapshotId
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.simulation.host import SeededRandom

CLUSTER_ID = "c2ltdWxhdGVkLXF1b3J1bQ"
_TROUBLE_MS = 6_000
_HEALING_MS_MAX = 12_000
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
    """One life of a node: `common.host.Host` as far as raft asks. After `end` nothing of it happens any more."""

    def __init__(self, world: World, place: Place, disk: CrashingDisk, seed: int) -> None:
        self._world = world
        self._place = place
        self.is_over = False
        self.clock = self.timers = self.blocking = self.faults = self
        self.random = SeededRandom(seed)
        self.disk = disk
        self.reported: list[str] = []

    # Clock: each runs at its own speed, from its own zero.

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
            self._place.kept.append(lambda: self._fire(timer))
            return
        callback, timer.callback = timer.callback, None
        callback()

    # Blocking work.

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.call_later(1 + self.random.below(4), lambda: done(work(), None))

    # Faults.

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise Violation(f"node {self._place.node_id}: {message}") from error

    def report(self, message: str, error: BaseException | None = None) -> None:
        self._world.note(f"node {self._place.node_id} reports: {message}")

    def warn(self, message: str) -> None:
        self._world.note(f"node {self._place.node_id} warns: {message}")

    def inform(self, message: str) -> None:
        self._world.note(f"node {self._place.node_id}: {message}")


class Place:
    """A machine: it stays when its node crashes."""

    def __init__(self, node_id: int, *, is_controller: bool) -> None:
        self.node_id = node_id
        self.is_controller = is_controller
        self.address = (f"host{node_id}", 9000 + node_id)
        self.disk = CrashingDisk()
        self.host: NodeHost | None = None
        self.node: RaftNode | None = None
        self.key = VoterKey(node_id)
        self.lives = 0
        self.is_paused = False
        self.kept: list[Callable[[], None]] = []
        self.speed = 1.0
        self.zero_ms = 0


class WorldPeers:
    """`raft.peers.Peers` of one life."""

    def __init__(self, world: World, place: Place, host: NodeHost) -> None:
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
                self._place.kept.append(lambda: receive(response))
                return
            reply(response)

        self._world.network.send(self._place.node_id, address, request, receive, timeout_ms)

    def is_refused(self, address: tuple[str, int]) -> bool:
        return (self._place.node_id, address) in self._world.network.refused


class Ear:
    """A subscriber that passes a node's commits and snapshots to the checker."""

    def __init__(self, checker: Checker, key: VoterKey, node: RaftNode) -> None:
        self._checker, self._key, self._node = checker, key, node

    def on_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._checker.on_snapshot(self._key, snapshot_id, snapshot)

    def on_commit(self, batch: CommittedBatch) -> None:
        self._checker.on_commit(self._key, batch, self._node.epoch)

    def on_caught_up(self) -> None:
        pass


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed + 1)
        self.heap = Heap()
        self.heap.after = self._after
        self.network = Network(self.heap, self.chance, on_wire=plan.on_wire)
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
        self._by_address = {place.address: node_id for node_id, place in self.places.items()}
        self.network.node_at = lambda address: self._by_address.get(address, -1)
        self.network.is_up = lambda node_id: node_id in self.places and self.places[node_id].node is not None
        self.network.deliver = self._deliver
        self.network.on_answer = self._on_answer
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
            self.heap.later(self.chance.random() * 200, lambda place=place: self.start(place))  # type: ignore[misc]

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

    def start(self, place: Place) -> None:
        place.lives += 1
        place.is_paused = False
        place.kept.clear()
        host = place.host = NodeHost(self, place, place.disk, self.plan.seed * 1000 + place.node_id * 50 + place.lives)
        config = self._config(place)
        is_first = place.node_id in self.first_voters.ids and not place.key.directory_id.strip(b"\0")
        formatted = ensure_formatted(
            host,  # type: ignore[arg-type]
            config,
            cluster_id=CLUSTER_ID,
            initial_voters=self.first_voters if is_first else VoterSet(),
        )
        place.key = VoterKey(place.node_id, formatted.metadata_directory_id)
        node = RaftNode(host, config, MetadataStore(), formatted, WorldPeers(self, place, host))  # type: ignore[arg-type]
        key, checker = place.key, self.checker
        checker.restarted(key)
        node.add_listener(Ear(checker, key, node))
        delivery: Any = node._delivery
        appended, truncated = delivery.appended, delivery.truncated

        def on_appended(batch: CommittedBatch) -> None:
            checker.on_appended(key, batch)
            appended(batch)

        def on_truncated(end_offset: int) -> None:
            checker.on_truncated(key, end_offset)
            truncated(end_offset)

        delivery.appended, delivery.truncated = on_appended, on_truncated
        place.node = node
        self.note(f"node {place.node_id} starts")
        node.start()

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

    def _deliver(self, node_id: int, request: Message, answer: Callable[[Message], None]) -> None:
        place = self.places[node_id]
        node, host = place.node, place.host
        if node is None or host is None:
            return
        if place.is_paused:
            place.kept.append(lambda: None if host.is_over else self._deliver(node_id, request, answer))
            return
        if isinstance(request, ApiVersionsRequest):
            feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            answer(ApiVersionsResponse(supported_features=[feature]))
            return
        if self.plan.small_fetches and isinstance(request, FetchRequest):
            request.max_bytes = 1
        version = request.VERSIONS[1]
        node.server.serve(request, version, "CONTROLLER", lambda response: None if host.is_over else answer(response))

    def _on_answer(self, source: int, target: int, request: Message, response: Message) -> None:
        self.checker.on_answer(self.places[target].key, request, response)

    def _after(self) -> None:
        for place in self.places.values():
            if place.node is not None:
                self.checker.read_identity(place.key, place.node)

    # Trouble.

    def run(self) -> World:
        self.heap.later(100, self._propose)
        self.heap.later(300, self._trouble)
        self.heap.run_until(_TROUBLE_MS)
        self._heal()
        return self

    def _up(self) -> list[Place]:
        return [place for place in self.places.values() if place.node is not None]

    def _leaders(self) -> list[Place]:
        return [p for p in self._up() if p.node is not None and p.node.is_leader and not p.is_paused]

    def _propose(self) -> None:
        """Proposes to every node that regards itself as the leader."""
        for place in self._leaders():
            self.propose_to(place)
        if not self.is_healed:
            self.heap.later(10 + self.chance.random() * 120, self._propose)

    def propose_to(self, place: Place) -> None:
        node, host = place.node, place.host
        assert node is not None
        assert host is not None
        self.proposals += 1
        value = f"v{self.proposals}"
        record = ConfigRecord(resource_type=4, resource_name="", name=name_of(value), value=value)

        def done(base_offset: int) -> None:
            if not host.is_over:
                self.checker.promised[base_offset] = value

        node.propose([(record, 0)], wall_ms=host.wall_ms(), done=done)

    def _trouble(self) -> None:
        if self.is_healed:
            return
        kinds = [
            name
            for name in ("losses", "cuts", "crashes", "power", "pauses", "wipes", "changes", "upgrades")
            if self._has(name)
        ]
        if kinds:
            getattr(self, f"_begin_{self.chance.choice(kinds)}")()
        self.heap.later(100 + self.chance.random() * 700, self._trouble)

    def _has(self, kind: str) -> bool:
        return bool(getattr(self.plan, kind))

    def _some_place(self) -> Place | None:
        """Leaders are in trouble more often than others."""
        places = self._up()
        leaders = self._leaders()
        if leaders and self.chance.random() < 0.5:
            return self.chance.choice(leaders)
        return self.chance.choice(places) if places else None

    def _begin_losses(self) -> None:
        faults = self.network.faults
        faults.loss = self.chance.choice([0, 0.02, 0.1, 0.3])
        faults.doubling = self.chance.choice([0, 0.1, 0.3])
        faults.delay_ms_max = self.chance.choice([1, 5, 30, 150])
        self.note(f"network: loss {faults.loss}, doubling {faults.doubling}, delay {faults.delay_ms_max}")

    def _begin_cuts(self) -> None:
        faults = self.network.faults
        if faults.cut and self.chance.random() < 0.6:
            faults.cut.clear()
            self.note("network: whole")
            return
        ids = list(self.places)
        side = {n for n in ids if self.chance.random() < 0.5}
        one_way = self.chance.random() < 0.3
        faults.cut = {(a, b) for a in ids for b in ids if (a in side) != (b in side) and not (one_way and a in side)}
        self.note(f"network: {sorted(side)} apart{', one way' if one_way else ''}")

    def _begin_crashes(self) -> None:
        place = self._some_place()
        if place is not None:
            self.crash(place, Fate.KEPT)
            self._start_later(place)

    def _begin_power(self) -> None:
        for place in [self._some_place()] if self.chance.random() < 0.7 else self._up():
            if place is not None:
                self.crash(place, self.chance.choice(list(Fate)))
                self._start_later(place)

    def _start_later(self, place: Place) -> None:
        def start() -> None:
            if place.node is None:
                self.start(place)

        self.heap.later(20 + self.chance.random() * 1200, start)

    def _begin_pauses(self) -> None:
        place = self._some_place()
        if place is None or place.is_paused:
            return
        self.note(f"node {place.node_id} pauses")
        place.is_paused = True
        life = place.lives
        self.heap.later(50 + self.chance.random() * 1500, lambda: self._resume(place, life))

    def _resume(self, place: Place, life: int) -> None:
        if place.lives != life or not place.is_paused:
            return
        self.note(f"node {place.node_id} goes on")
        place.is_paused = False
        kept, place.kept = place.kept, []
        for action in kept:
            self.heap.later(0, action)

    def _begin_wipes(self) -> None:
        """Removes the disk of at most one voter in a world, and only where two others have all that it had."""
        if self.plan.voters < 3 or any(not p.key.directory_id.strip(b"\0") for p in self._up() if p.is_controller):
            return
        if any(place.key.directory_id[:5] == b"wiped" for place in self.places.values()) or self._wiped:
            return
        place = self.places[self.chance.choice(self.first_voters.ids)]
        if place.node is not None:
            self._wiped = True
            self.wipe(place)
            self._start_later(place)

    _wiped = False

    def _begin_changes(self) -> None:
        """Adds an observer as a voter, or removes a voter. Where a disk can be lost, only that voter is removed: the
        others are needed.
        """
        for place in self._leaders():
            node = place.node
            assert node is not None
            voters = node.voters
            others = [p for p in self.places.values() if p.is_controller and voters.find(p.key) is None]
            if others and (self.plan.wipes or len(voters) < 3 or self.chance.random() < 0.6):
                one = self.chance.choice(others)
                stale = voters.by_id(one.node_id)
                if stale is not None:
                    self._request_to_remove(place, stale.key)
                else:
                    self._request_to_add(place, one)
            elif len(voters) > 1 and not self.plan.wipes:
                self._request_to_remove(place, self.chance.choice(voters.voters).key)

    def _begin_upgrades(self) -> None:
        """Raises kraft.version once; the voters change from then on."""
        for place in self._leaders():
            node = place.node
            assert node is not None
            if node.kraft_version == 1:
                self._begin_changes()
            elif node.changes.upgrade_refusal() is None:
                self.note(f"node {place.node_id} makes the voters dynamic")
                node.changes.upgrade()

    def _request_to_add(self, leader: Place, one: Place) -> None:
        listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host=one.address[0], port=one.address[1])
        request = AddRaftVoterRequest(
            cluster_id=None,
            voter_id=one.node_id,
            voter_directory_id=one.key.directory_id,
            listeners=[listener],
        )
        self.call(leader, request)

    def _request_to_remove(self, leader: Place, key: VoterKey) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=key.node_id, voter_directory_id=key.directory_id
        )
        self.call(leader, request)

    def call(self, place: Place, request: Any) -> None:
        assert place.node is not None
        self.note(f"node {place.node_id} is asked: {request.NAME} {request.voter_id}")
        place.node.server.serve(
            request,
            request.VERSIONS[1],
            "CONTROLLER",
            lambda r: self.note(f"node {place.node_id} answers {r.error_code} {r.error_message}"),  # type: ignore[attr-defined]
        )

    # Healing.

    def _heal(self) -> None:
        self.is_healed = True
        self.network.faults.heal()
        self.note("everything heals")
        for place in self.places.values():
            if place.node is None:
                self.start(place)
            elif place.is_paused:
                self._resume(place, place.lives)
        begin = self.heap.now
        attempts: list[int] = []

        def attempt() -> None:
            for place in self._leaders():
                self.propose_to(place)
                attempts.append(self.proposals)
            if self.heap.now < begin + _HEALING_MS_MAX:
                self.heap.later(400, attempt)

        attempt()
        promised_before = len(self.checker.promised)
        self.heap.run_until(begin + _HEALING_MS_MAX, lambda: self._is_useful(promised_before))
        if not self._is_useful(promised_before):
            self._tell_state()
            raise Violation(f"no progress within {_HEALING_MS_MAX} ms")
        self.checker.check_promises()

    def _tell_state(self) -> None:
        for place in self._up():
            node = place.node
            assert node is not None
            voters = [(v.key.node_id, v.key.directory_id[:2]) for v in node.voters]
            self.note(
                f"node {place.node_id} {place.key.directory_id[:2]!r}: {node.quorum.role}, high watermark "
                f"{node.high_watermark}, end {node.log_end_offset}, voters {voters}"
            )

    def _is_useful(self, promised_before: int) -> bool:
        """Returns whether there is a leader, a new commit, and all nodes have got all of it."""
        if len(self.checker.promised) <= promised_before + 1 or len(self._leaders()) != 1:
            return False
        newest = max(self.checker.promised)
        return all(self.checker.shadow(place.key).delivered > newest for place in self._up())
