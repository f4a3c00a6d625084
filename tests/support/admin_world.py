"""Admin requests of every kind to every node of a simulated cluster whose controllers are killed, paused and cut off.

`SentRequest` is one request until it is answered or its connection ends. `overdue` names those that waited longer than
the bound: their own timeout, or the time that a node waits for a controller, and an allowance. The time in which a node
is paused does not count.

A request can wait that long only while its node cannot reach a controller. `WellTime` measures how long a request
waited without an interruption while its node had a connection to each working voter, and these were a majority.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
from barnabas.simulation.answer_times import AnsweredInTime
from barnabas.simulation.conditions import DEAD, OFF, PAUSED, condition_of
from barnabas.simulation.exchanges import Exchanges
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.injector import Injector
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import SHORT_TIMES

#: The longest time that a node waits for a controller.
FORWARDING_MS: Final = 30_000
#: The timeout of a request whose own timeout is less than this.
TIMEOUT_MS_MIN: Final = 5_000
#: An allowance for an election, the loss of a link and slow disks.
ALLOWANCE_MS: Final = 2_000
_NEVER_MS: Final = 600_000
#: The interval at which the condition of the cluster is checked.
_LOOK_US: Final = 50 * MILLISECOND_US
_CLIENT_PORT, _CONTROLLER_PORT = 9092, 9093
_TOPICS: Final = ("orders", "payments", "parcels")


class SentRequest:
    """A request. `answer` is None while the request waits, and if its connection ended (`is_over` distinguishes the
    two).
    """

    def __init__(self, node: str, port: int, request: Message, now_us: int) -> None:
        self.node = node
        self.port = port
        self.request = request
        self.sent_us = now_us
        self.is_over = False
        self.over_us = 0
        self.answer: Message | None = None
        #: The longest time that the request waited while its node and a majority of the voters were healthy.
        self.well_us = 0

    @property
    def bound_ms(self) -> int:
        timeout_ms = getattr(self.request, "timeout_ms", None)
        own_ms = FORWARDING_MS if timeout_ms is None else max(timeout_ms, TIMEOUT_MS_MIN)
        return min(own_ms, FORWARDING_MS) + ALLOWANCE_MS

    def __str__(self) -> str:
        waited = f"{(self.over_us - self.sent_us) // MILLISECOND_US} ms" if self.is_over else "forever"
        sent_ms = self.sent_us // MILLISECOND_US
        well_ms = self.well_us // MILLISECOND_US
        name = type(self.request).__name__
        return f"{name} at {self.node}:{self.port}, sent at {sent_ms} ms, waited {waited}, {well_ms} ms healthy"


class WellTime:
    """Records for each node since when it has run without trouble and connected to a majority of voters without
    trouble."""

    def __init__(self, cluster: Cluster, voters: Sequence[str]) -> None:
        self._cluster = cluster
        self._voters = voters
        self._since_us: dict[str, int] = {}
        #: Requests that wait.
        self.waiting: list[SentRequest] = []
        #: Checks the requests that nodes have received, those of other nodes included.
        self._answers = AnsweredInTime(cluster, Exchanges(cluster))

    def look(self) -> None:
        world = self._cluster.world
        self._answers.check(self._cluster)
        condition = condition_of(self._cluster)
        healthy = [name for name in self._voters if name not in condition.troubles]
        is_enough = len(healthy) > len(self._voters) // 2
        # A voter with a slow disk can be the active controller.
        running = [name for name in self._voters if condition.troubles.get(name) not in (OFF, DEAD, PAUSED)]
        for name in self._cluster.nodes:
            pairs = itertools.combinations(dict.fromkeys((name, *running)), 2)
            if is_enough and name not in condition.troubles and not any(pair in condition.links for pair in pairs):
                self._since_us.setdefault(name, world.now_us)
            else:
                self._since_us.pop(name, None)
        self.waiting = [request for request in self.waiting if not request.is_over]
        for request in self.waiting:
            since_us = self._since_us.get(request.node)
            if since_us is not None:
                request.well_us = max(request.well_us, world.now_us - max(since_us, request.sent_us))
        world.after(_LOOK_US, self.look, None, "look")


class AdminWorld:
    """A cluster under admin requests. `begin` starts it, `run_requests` sends requests while faults happen, `overdue`
    judges.
    """

    def __init__(self, seed: int, layout: Layout | None = None) -> None:
        self.chance = random.Random(seed)
        self.world = World(seed)
        settings = SHORT_TIMES if self.chance.random() < 0.5 else {"auto.create.topics.enable": "false"}
        drawn = Layout(3, 0, settings) if self.chance.random() < 0.6 else Layout(2, 3, settings)
        self.cluster = Cluster(self.world, layout or drawn)
        self.injector = Injector(self.cluster)
        self._machine = Machine(self.world, self.cluster.network, "client")
        self._process = self._machine.spawn()
        self._host = MachineHost(self._machine, self._process)
        self._area = ReceiveArea()
        self.requested: list[SentRequest] = []
        #: The times (us) in which a node was paused.
        self._naps: dict[str, list[tuple[int, int]]] = {name: [] for name in self.cluster.nodes}
        self._well_time = WellTime(self.cluster, self.voters)
        self._well_time.look()

    # -- course of a run

    def begin(self) -> None:
        self.cluster.start()
        self.run_until(lambda: self.active() is not None, 30_000)

    def run_until(self, holds: Callable[[], bool], within_ms: int) -> None:
        self.world.run_while(lambda: not holds(), self.world.now_us + within_ms * MILLISECOND_US)
        assert holds(), f"seed {self.world.seed}: not within {within_ms} ms"

    def active(self) -> str | None:
        """Returns a node that regards itself as the active controller."""
        for name, node in self.cluster.nodes.items():
            if node.is_running and node.broker is not None and node.broker.quorum.controller.is_active:
                return name
        return None

    @property
    def voters(self) -> list[str]:
        names = list(self.cluster.nodes)
        return [name for name in names if name.startswith("controller")] or names

    def strike(self) -> None:
        """Begins a fault, most often of the active controller."""
        chance, active = self.chance, self.active()
        node = active if active is not None and chance.random() < 0.7 else chance.choice(list(self.cluster.nodes))
        kind = chance.choice(
            (
                FaultKind.KILL,
                FaultKind.PAUSE,
                FaultKind.PAUSE,
                FaultKind.PARTITION,
                FaultKind.ONE_WAY,
                FaultKind.RESET,
                FaultKind.SLOW_DISK,
                FaultKind.FULL_DISK,
                FaultKind.STOP,
            )
        )
        duration_ms = int(chance.choice((300, 2_000, 5_000, 15_000, 40_000)) * (0.25 + chance.random()))
        peers = [name for name in self.cluster.nodes if name != node]
        count = chance.choice((1, len(peers))) if kind in (FaultKind.PARTITION, FaultKind.ONE_WAY) else 1
        now_ms = self.world.now_us // MILLISECOND_US + 1
        amount = chance.randint(5, 30) if kind is FaultKind.SLOW_DISK else 0
        is_of_disk = kind in (FaultKind.SLOW_DISK, FaultKind.FULL_DISK)
        if is_of_disk and any((fault.kind, fault.node) == (kind, node) for fault in self.injector.active):
            return
        is_of_link = kind in (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.RESET)
        for peer in chance.sample(peers, count) if is_of_link else [""]:
            self.injector.schedule([Fault(now_ms, kind, node, peer, duration_ms, amount)])
        if kind is FaultKind.PAUSE:
            self._naps[node].append((now_ms * MILLISECOND_US, (now_ms + duration_ms) * MILLISECOND_US))

    def heal(self) -> None:
        self.injector.heal()
        now_us = self.world.now_us
        self._naps = {name: [(b, min(e, now_us)) for b, e in naps] for name, naps in self._naps.items()}

    def run_requests(self, duration_ms: int, *, faults: bool = True) -> None:
        """Sends requests for this time, with faults unless `faults` is False."""
        chance = self.chance
        end_us = self.world.now_us + duration_ms * MILLISECOND_US
        next_fault_us = self.world.now_us + chance.randrange(1_000) * MILLISECOND_US
        while self.world.now_us < end_us:
            if faults and self.world.now_us >= next_fault_us:
                self.strike()
                next_fault_us = self.world.now_us + int(chance.expovariate(1 / 4_000) * MILLISECOND_US)
            self.call(chance.choice(list(self.cluster.nodes)), self.request())
            self.world.run_for(chance.randrange(1, 400) * MILLISECOND_US)

    def run_around_pauses(self, duration_ms: int) -> None:
        """Sends requests while one controller at a time is paused or killed and the network is intact. Most are sent a
        few milliseconds before or after such a change, to the node that changes."""
        chance = self.chance
        end_ms = self.world.now_us // MILLISECOND_US + duration_ms
        changes: list[tuple[int, str]] = []
        next_ms = 0
        while (now_ms := self.world.now_us // MILLISECOND_US) < end_ms:
            if now_ms >= next_ms and all(node.is_running for node in self.cluster.nodes.values()):
                node = self.active() or chance.choice(self.voters)
                kind = chance.choice((FaultKind.PAUSE,) * 4 + (FaultKind.KILL,))
                length_ms = int(chance.choice((60, 300, 1_500, 2_500, 3_500, 6_000, 12_000)) * (0.5 + chance.random()))
                begin_ms, wake_ms = now_ms + 1, now_ms + 1 + length_ms
                self.injector.schedule([Fault(begin_ms, kind, node, "", length_ms, 0)])
                if kind is FaultKind.PAUSE:
                    self._naps[node].append((begin_ms * MILLISECOND_US, wake_ms * MILLISECOND_US))
                changes = [(begin_ms, node), (wake_ms, node)]
                next_ms = wake_ms + chance.choice((20, 500, 3_000, 7_000))
            near = [node for at_ms, node in changes if -10 <= now_ms - at_ms <= 40]
            is_near = bool(near) and chance.random() < 0.7
            self.call(
                near[0] if is_near else chance.choice(list(self.cluster.nodes)),
                _create(chance) if chance.random() < 0.7 else self.request(),
            )
            pause_ms = chance.randrange(1, 15 if near else 400)
            left_ms = [at_ms - now_ms for at_ms, _ in changes if at_ms > now_ms]
            if left_ms:
                pause_ms = max(1, min(pause_ms, min(left_ms) - chance.randrange(6)))
            self.world.run_for(pause_ms * MILLISECOND_US)

    def call(self, node: str, request: Message, port: int | None = None) -> SentRequest:
        """Sends a request on a new connection: to a broker mostly through its client listener, unless `port` is
        given.
        """
        if port is None:
            is_broker = node.startswith("broker")
            to_controller = node in self.voters and (not is_broker or self.chance.random() < 0.25)
            port = _CONTROLLER_PORT if to_controller else _CLIENT_PORT
        requested = SentRequest(node, port, request, self.world.now_us)
        self.requested.append(requested)
        self._well_time.waiting.append(requested)

        def dial() -> None:
            times = ChannelTimes(_NEVER_MS, _NEVER_MS, connect_timeout_ms=_NEVER_MS)
            channel = Channel(self._host, self._area, (node, port), "client", times)
            channel.send(request, lambda answer: over(answer, channel))

        def over(answer: Message | None, channel: Channel) -> None:
            requested.is_over, requested.over_us, requested.answer = True, self.world.now_us, answer
            self._host.timers.call_soon(channel.close)

        self._process.enter(dial)
        return requested

    # -- conditions

    def waited_ms(self, requested: SentRequest) -> int:
        """Returns how long a request has waited while its node was not paused."""
        end_us = requested.over_us if requested.is_over else self.world.now_us
        naps = self._naps[requested.node]
        slept_us, until_us = 0, requested.sent_us
        for begin, end in sorted(naps):
            begin_us, end_of_nap_us = max(begin, until_us), min(end, end_us)
            if end_of_nap_us > begin_us:
                slept_us += end_of_nap_us - begin_us
                until_us = end_of_nap_us
        return (end_us - requested.sent_us - slept_us) // MILLISECOND_US

    def overdue(self) -> list[str]:
        return [
            f"seed {self.world.seed}: {requested}, bound {requested.bound_ms} ms"
            for requested in self.requested
            if self.waited_ms(requested) > requested.bound_ms
        ]

    # -- requests

    def request(self) -> Message:
        return self.chance.choice(_KINDS)(self.chance)


def _create(chance: random.Random) -> Message:
    topic = CreateTopicsRequest.CreatableTopic(name=chance.choice(_TOPICS), num_partitions=2, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=chance.choice((0, 5_000, 30_000)))


def _delete(chance: random.Random) -> Message:
    topic = DeleteTopicsRequest.DeleteTopicState(name=chance.choice(_TOPICS))
    return DeleteTopicsRequest(topics=[topic], timeout_ms=chance.choice((1_000, 5_000, 60_000)))


def _grow(chance: random.Random) -> Message:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=chance.choice(_TOPICS), count=chance.randint(2, 6))
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)


def _change(chance: random.Random) -> Message:
    cls = IncrementalAlterConfigsRequest
    change = cls.AlterableConfig(name="retention.ms", config_operation=0, value=str(chance.randrange(10**6)))
    return cls(
        resources=[cls.AlterConfigsResource(resource_type=2, resource_name=chance.choice(_TOPICS), configs=[change])]
    )


def _replace(chance: random.Random) -> Message:
    cls = AlterConfigsRequest
    config = cls.AlterableConfig(name="segment.ms", value=str(10**6 + chance.randrange(10**6)))
    return cls(
        resources=[cls.AlterConfigsResource(resource_type=2, resource_name=chance.choice(_TOPICS), configs=[config])]
    )


def _elect(chance: random.Random) -> Message:
    topics = [ElectLeadersRequest.TopicPartitions(topic=chance.choice(_TOPICS), partitions=[0, 1])]
    return ElectLeadersRequest(
        election_type=0, topic_partitions=chance.choice((None, topics)), timeout_ms=chance.choice((5_000, 60_000))
    )


def _reassign(chance: random.Random) -> Message:
    cls = AlterPartitionReassignmentsRequest
    partition = cls.ReassignablePartition(partition_index=0, replicas=[chance.randint(1, 2)])
    return cls(
        topics=[cls.ReassignableTopic(name=chance.choice(_TOPICS), partitions=[partition])],
        timeout_ms=chance.choice((5_000, 20_000)),
    )


def _list_moves(chance: random.Random) -> Message:
    return ListPartitionReassignmentsRequest(topics=None, timeout_ms=5_000)


def _describe(chance: random.Random) -> Message:
    cls = DescribeQuorumRequest
    wanted = cls.TopicData(topic_name="__cluster_metadata", partitions=[cls.PartitionData(partition_index=0)])
    return cls(topics=[wanted])


def _upgrade(chance: random.Random) -> Message:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=1, upgrade_type=1)
    return UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[update], validate_only=True)


def _unregister(chance: random.Random) -> Message:
    return UnregisterBrokerRequest(broker_id=99)


def _remove_voter(chance: random.Random) -> Message:
    return RemoveRaftVoterRequest(cluster_id=None, voter_id=99, voter_directory_id=b"x" * 16)


_KINDS: Final[Sequence[Callable[[random.Random], Message]]] = (
    _create,
    _create,
    _create,
    _delete,
    _grow,
    _change,
    _change,
    _replace,
    _elect,
    _reassign,
    _list_moves,
    _describe,
    _upgrade,
    _unregister,
    _remove_voter,
)
