"""Seeded runs of a replicated topic in ZooKeeper mode, under faults of brokers and of the server.

The clients, the promises and the end of a run are those of `replication_explorer`; an operator edits znodes. Faults cut
brokers off from the server only, end their sessions, and lose the answers to their writes. In the end the controller
knows what the znodes say.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.checkers import Checker
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.injector import Injector
from barnabas.simulation.liveness import partitions_of, unfinished_request
from barnabas.simulation.replication_checkers import ReplicaChecker, Replicas
from barnabas.simulation.replication_decisions import Decisions
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import ZOOKEEPER, Cluster, Layout
from barnabas.simulation.world import World
from barnabas.simulation.worlds.replicated import RawClient, Replicated
from barnabas.simulation.worlds.replication_explorer import Outcome, ReplicationRun
from barnabas.simulation.worlds.replication_workers import BROKERS, PARTITIONS, TOPIC, Mover, Worker
from barnabas.simulation.worlds.zookeeper_requests import AcceptedRequests
from barnabas.simulation.znode_operator import ZnodeEdit, ZnodeOperator
from barnabas.simulation.zookeeper_checkers import Deletions, OneWriter, ServerTree, StateFollowed

#: A second of virtual time contains what would take a minute with the defaults.
SHORT_TIMES = {
    "zookeeper.session.timeout.ms": "1000",
    "zookeeper.connection.timeout.ms": "4000",
    "replica.lag.time.max.ms": "1000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "2000",
    "auto.create.topics.enable": "false",
}
_EDIT_GAP_MS = 700
_NODES = (*BROKERS, ZOOKEEPER)
_LINKS = frozenset({FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.RESET, FaultKind.SLOW_LINK})
_KINDS = (
    FaultKind.KILL,
    FaultKind.STOP,
    FaultKind.PAUSE,
    FaultKind.POWER,
    FaultKind.EXPIRE,
    FaultKind.LOSE_ANSWER,
    FaultKind.CLOCK,
    *sorted(_LINKS, key=lambda kind: kind.value),
)
_DURATIONS_MS = (30, 200, 800, 2_500)


def draw_faults(random: Random, begin_ms: int, end_ms: int, kinds: Sequence[FaultKind]) -> list[Fault]:
    """Draws faults: each seed has its own kinds and its own pace. `kinds` replaces the seed's kinds."""
    kinds = kinds or [kind for kind in _KINDS if random.random() < 0.5] or [random.choice(_KINDS)]
    gap_ms = random.choice((150, 400, 1_000))
    faults: list[Fault] = []
    at_ms = begin_ms
    while (at_ms := at_ms + 1 + int(random.expovariate(1 / gap_ms))) < end_ms:
        kind = random.choice(kinds)
        node, peer, amount = random.choice(_NODES), "", 0
        if kind is FaultKind.POWER:
            node, amount = ZOOKEEPER, random.randint(0, 2)
        elif kind in (FaultKind.EXPIRE, FaultKind.LOSE_ANSWER):
            node = random.choice(BROKERS)
        elif kind is FaultKind.CLOCK:
            amount = random.randint(-60_000, 60_000)
        elif kind in _LINKS:
            alone = node != ZOOKEEPER and random.random() < 0.5
            peer = ZOOKEEPER if alone else random.choice([name for name in _NODES if name != node])
            amount = random.choice((2, 20, 120))
        duration_ms = int(random.choice(_DURATIONS_MS) * (0.25 + random.random()))
        faults.append(Fault(at_ms, kind, node, peer, duration_ms, amount))
    return faults


class ZookeeperRig(Replicated):
    """A started cluster of three brokers and a ZooKeeper server, in a world of its own."""

    def __init__(self, seed: int, **properties: str) -> None:
        self.world = World(seed)
        settings = {**SHORT_TIMES, **{key.replace("_", "."): value for key, value in properties.items()}}
        self.cluster = Cluster(self.world, Layout(len(BROKERS), 0, settings, zookeeper=True))
        assert self.cluster.zookeeper is not None
        self.cluster.zookeeper.settings["tickTime"] = "200"
        self._decided = DecidedMetadata(self.cluster)
        self.followed = StateFollowed()
        self.tree = ServerTree(self.cluster, [OneWriter(), self.followed, Deletions(self.cluster)])
        self.client = RawClient(self.cluster, "client")
        self.cluster.start()
        self.run_until(self._all_serve, "all brokers are registered")
        self.accepted = AcceptedRequests()
        self.accepted.check(self.cluster)

    def _all_serve(self) -> bool:
        """Returns whether all brokers know each other and serve clients."""
        brokers = [node.broker for node in self.cluster.nodes.values()]
        return self._all_unfenced(len(BROKERS)) and all(broker is not None and broker._is_let_in for broker in brokers)

    @property
    def decided(self) -> MetadataImage:
        return self._decided.image()

    @property
    def metadata(self) -> DecidedMetadata:
        return self._decided

    def create_topic(self, topic: str, assignments: Sequence[Sequence[int]], **configs: str) -> None:
        """Creates a topic by the broker that is the controller."""
        request = CreateTopicsRequest(timeout_ms=5000)
        wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)
        wanted.assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignments)
        ]
        wanted.configs = [
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        request.topics = [wanted]
        codes = [
            self.client.call(name, request, CreateTopicsResponse).topics[0].error_code for name in self.cluster.nodes
        ]
        assert 0 in codes, codes
        self.run_until(lambda: self.settled(topic), f"{topic} is led and followed")


class ZookeeperRun(ReplicationRun):
    """A run of the explorer of ZooKeeper mode."""

    DURATION_S = 4
    rig: ZookeeperRig

    def __init__(
        self,
        seed: int,
        *,
        duration_s: int | None = None,
        kinds: Sequence[FaultKind] = (),
        schedule: Sequence[Fault] | None = None,
        **properties: str,
    ) -> None:
        super().__init__(seed, duration_s=duration_s, kinds=kinds, schedule=schedule, ties_faults=False, **properties)

    def _make_rig(self) -> ZookeeperRig:
        return ZookeeperRig(self.seed, **self.properties)

    def _draw_faults(self, begin_ms: int, end_ms: int) -> list[Fault]:
        return draw_faults(self.world.stream("zookeeper faults"), begin_ms, end_ms, self._kinds)

    def _lay_long_links(self, random: Random) -> None:
        """Draws delays: in some runs some of the nodes are far from each other."""
        network = self.rig.cluster.network
        if random.random() < 0.5:
            return
        for one, other in combinations(_NODES, 2):
            delay_us = random.choice((0, 0, 5_000, 60_000))
            network.direction(one, other).extra_us = network.direction(other, one).extra_us = delay_us

    def _checkers(self) -> list[Checker]:
        looks: list[ReplicaChecker] = [
            *self._looks(),
            Decisions({}, unregisters=True),
            self.rig.followed,
            self.rig.accepted,
        ]
        return [self._elections, self.rig.tree, self.rig.accepted, Replicas(None, looks, self.rig.metadata)]

    def _workers(self) -> list[Worker]:
        random = self.world.stream("zookeeper edits")
        edits = [kind for kind in ZnodeEdit if kind is not ZnodeEdit.ENLARGE and random.random() < 0.4]
        topics = [Topic(TOPIC, PARTITIONS, {})]
        self.editor = ZnodeOperator(self.rig.cluster, topics, edits, "editor", gap_ms=_EDIT_GAP_MS)
        self.editor.start()
        workers = super()._workers()
        has_mover = any(isinstance(worker, Mover) for worker in workers)
        return workers if has_mover else [*workers, Restorer(self, "restorer")]

    def _heal(self, injector: Injector, workers: Sequence[Worker]) -> None:
        self.editor.stopping = True
        super()._heal(injector, workers)

    def _is_whole(self) -> bool:
        cluster = self.rig.cluster
        return super()._is_whole() and not unfinished_request(cluster) and self._is_known()

    def _is_known(self) -> bool:
        """Returns whether there is one controller, and its image agrees with the znodes."""
        controllers: list[ZookeeperController] = []
        for node in self.rig.cluster.nodes.values():
            if node.broker is not None:
                controller = node.broker.services.zookeeper.controller
                assert isinstance(controller, ZookeeperController), "the controller runs in a broker"
                controllers.append(controller)
        active = [controller for controller in controllers if controller.is_active]
        if len(active) != 1 or any(controller.leader_id < 0 for controller in controllers):
            return False
        known = {place: partition[:5] for place, partition in partitions_of(active[0].image)}
        return known == {place: partition[:5] for place, partition in partitions_of(self.rig.decided)}


class Restorer(Mover):
    """An administrator who only makes all brokers replicas again, at the end."""

    def start(self) -> None:
        """Does nothing: this administrator acts only at the end of the run."""


def explore(seed: int, *, kinds: Sequence[FaultKind] = (), duration_s: int | None = None) -> Outcome:
    return ZookeeperRun(seed, kinds=kinds, duration_s=duration_s).execute()
