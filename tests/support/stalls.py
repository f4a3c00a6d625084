"""Stalls: how long, per partition, a client that tries every reachable broker gets no acknowledgement.

    world = StallWorld(seed)                 three nodes with both roles, one partition led by each, writers at work
    world.strike("island", 1, 30_000)        node 1 is cut off for 30 s, then the network heals
    world.whole_after_ms                     the time from then until all three brokers report every replica in its ISR
    world.stalls_ms()                        per partition the longest time without an acknowledgement since the strike

Times are Kafka's defaults. A writer has one batch under way (`acks=all`), sends another one when it fails or is not
answered in 3 s, and meanwhile requests metadata from one broker after the other: it finds a new leader as soon as one
broker knows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from barnabas.broker.assembly import Broker
from barnabas.protocol.channel import ChannelTimes
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.faulty_disk import Loss
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient, batch_of, produce_request

TOPIC = "orders"
NUMBERS = (1, 2, 3)
_NAMES = tuple(f"broker{number}" for number in NUMBERS)
_CLIENTS = ("writer", "watcher")
_PACE_MS = 100
_ANSWER_MS = 3_000
_LOOK_MS = 200
_FLAP_MS = 2_000
_RING_MS = 5_000


class _Writer:
    """A client that writes to one partition as long as the world runs, one batch at a time."""

    def __init__(self, world: StallWorld, index: int) -> None:
        self._world = world
        self._client = world.client
        self._index = index
        self._leader = NUMBERS[index]
        self._epoch = -1
        self._next_request = index
        #: The number of the batch whose answer counts.
        self._turn = 0
        self.acked_ms: list[int] = []

    def start(self) -> None:
        self._write()
        self._look()

    def _write(self) -> None:
        self._turn += 1
        turn = self._turn
        request = produce_request(self._world.topic_id, self._index, batch_of(b"x"), timeout_ms=_ANSWER_MS)
        self._client.send(
            f"broker{self._leader}", request, lambda answer: self._on_answer(turn, answer), timeout_ms=_ANSWER_MS
        )

    def _on_answer(self, turn: int, response: Message | None) -> None:
        if turn != self._turn:
            return
        if isinstance(response, ProduceResponse) and not response.responses[0].partition_responses[0].error_code:
            self.acked_ms.append(self._world.now_ms)
        self._client.host.timers.call_later(_PACE_MS, lambda: self._again(turn))

    def _again(self, turn: int) -> None:
        if turn == self._turn:
            self._write()

    def _look(self) -> None:
        """Asks the next broker for the leader, and repeats this with the one after it."""
        self._next_request += 1
        number = NUMBERS[self._next_request % len(NUMBERS)]
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        self._world.watcher.send(f"broker{number}", request, self._on_metadata, timeout_ms=1_000)
        self._client.host.timers.call_later(_LOOK_MS, self._look)

    def _on_metadata(self, response: Message | None) -> None:
        if not isinstance(response, MetadataResponse) or response.topics[0].error_code:
            return
        partition = next(row for row in response.topics[0].partitions if row.partition_index == self._index)
        if partition.leader_epoch > self._epoch and partition.leader_id > 0:
            self._epoch = partition.leader_epoch
            if partition.leader_id != self._leader:
                self._leader = partition.leader_id
                self._write()


class StallWorld:
    def __init__(self, seed: int, **properties: str) -> None:
        self.world = World(seed)
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        self.cluster = Cluster(self.world, Layout(3, 0, {"auto.create.topics.enable": "false", **settings}))
        times = ChannelTimes(_ANSWER_MS, 2_000, 20, 200)
        self.client, self.watcher = (RawClient(self.cluster, name, times) for name in _CLIENTS)
        self.cluster.start()
        self.run_until(lambda: all(self._is_joined(number) for number in NUMBERS), 30_000)
        self._create()
        self.topic_id = self._broker(1).metadata.image.topics_by_name[TOPIC].topic_id
        self.run_until(self.is_whole, 30_000)
        self._struck_ms = 0
        self.whole_after_ms = 0
        self._writers = [_Writer(self, index) for index in range(len(NUMBERS))]
        for writer in self._writers:
            self.client.process.enter(writer.start)
        self.run_for(3_000)

    # -- time

    @property
    def now_ms(self) -> int:
        return self.world.now_us // MILLISECOND_US

    def run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)

    def run_until(self, holds: object, within_ms: int) -> None:
        assert callable(holds)
        self.world.run_while(lambda: not holds(), self.world.now_us + within_ms * MILLISECOND_US)
        assert holds(), f"seed {self.world.seed}: not within {within_ms} ms"

    # -- state

    def _broker(self, number: int) -> Broker:
        broker = self.cluster.nodes[f"broker{number}"].broker
        assert broker is not None
        return broker

    def _is_joined(self, number: int) -> bool:
        node = self.cluster.nodes[f"broker{number}"]
        image = None if node.broker is None else node.broker.metadata.image
        return image is not None and sum(not each.fenced for each in image.brokers.values()) == len(NUMBERS)

    def is_whole(self) -> bool:
        """Returns whether all brokers report every replica in its ISR."""
        for number in NUMBERS:
            if not self._is_joined(number):
                return False
            topic = self._broker(number).metadata.image.topics_by_name.get(TOPIC)
            if topic is None or any(set(partition.isr) != set(NUMBERS) for partition in topic.partitions):
                return False
        return True

    @property
    def active(self) -> int:
        """Returns the node with the active controller."""
        return next(n for n in NUMBERS if self._broker(n).quorum.controller.is_active)

    def _create(self) -> None:
        rows = [
            CreateTopicsRequest.CreatableReplicaAssignment(
                partition_index=index, broker_ids=[number, *(other for other in NUMBERS if other != number)]
            )
            for index, number in enumerate(NUMBERS)
        ]
        insync = CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")
        topic = CreateTopicsRequest.CreatableTopic(
            name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=rows, configs=[insync]
        )
        answer = self.client.call(
            "broker1", CreateTopicsRequest(topics=[topic], timeout_ms=5_000), CreateTopicsResponse
        )
        assert [row.error_code for row in answer.topics] == [0]
        self.run_until(lambda: all(TOPIC in self._broker(n).metadata.image.topics_by_name for n in NUMBERS), 5_000)

    # -- faults

    def strike(self, kind: str, victim: int, duration_ms: int) -> None:
        """Causes one fault of a node or of its connections, then heals it and waits until the cluster has recovered."""
        self._struck_ms = self.now_ms
        name = f"broker{victim}"
        others = [other for other in _NAMES if other != name]
        if kind in ("flap", "ring"):
            self._repeat(kind, victim, duration_ms)
        elif kind in ("kill", "pause", "power"):
            node = self.cluster.nodes[name]
            if kind == "pause":
                node.machine.pause()
                self.run_for(duration_ms)
                node.machine.resume()
            else:
                self.cluster.prevent_start(name)
                if kind == "kill":
                    node.kill()
                else:
                    node.power_off(Loss.NONE)
                self.run_for(duration_ms)
                self.cluster.allow_start(name)
        else:
            self._cut(cuts_of(kind, name, others), duration_ms)
        healed_ms = self.now_ms
        self.run_until(self.is_whole, 120_000)
        self.whole_after_ms = self.now_ms - healed_ms
        self.run_for(5_000)

    def _cut(self, pairs: Iterable[tuple[str, str]], duration_ms: int) -> None:
        pairs = list(pairs)
        for pair in pairs:
            self.cluster.network.cut(*pair)
        self.run_for(duration_ms)
        for pair in pairs:
            self.cluster.network.heal(*pair)

    def _repeat(self, kind: str, victim: int, duration_ms: int) -> None:
        """Repeats a cut. `flap`: the same node is cut off and returns; `ring`: one node after the other."""
        step_ms = _FLAP_MS if kind == "flap" else _RING_MS
        for turn in range(duration_ms // step_ms):
            number = victim if kind == "flap" else NUMBERS[(victim + turn) % len(NUMBERS)]
            name = f"broker{number}"
            others = [other for other in _NAMES if other != name]
            if kind == "flap" and turn % 2:
                self.run_for(step_ms)
            else:
                self._cut(cuts_of("split", name, others), step_ms)

    # -- results

    def stalls_ms(self) -> list[int]:
        found = []
        for writer in self._writers:
            times = [self._struck_ms, *(at for at in writer.acked_ms if at >= self._struck_ms), self.now_ms]
            found.append(max(after - before for before, after in itertools.pairwise(times)))
        return found


def cuts_of(kind: str, name: str, others: list[str]) -> list[tuple[str, str]]:
    """Returns pairs of (source, target) between which nothing passes."""
    away = [(name, other) for other in others]
    back = [(other, name) for other in others]
    match kind:
        case "split":
            return away + back
        case "island":
            out = [(name, client) for client in _CLIENTS]
            return [*away, *back, *out, *((client, name) for client in _CLIENTS)]
        case "mute":
            return away
        case "deaf":
            return back
        case "bridge":
            return [away[0], back[0]]
        case "one-way":
            return [away[0]]
        case "one-way back":
            return [back[0]]
    raise AssertionError(f"no such fault: {kind}")
