"""A node whose peers send impossible answers: their answers are damaged before it reads them.

    world = DamagedAnswers(seed, ...)   three brokers and one or three controllers, writers at work, one node chosen
    world.damage_for(3_000)             a part of the answers to it is damaged: to a broker, those of the leaders it
                                        follows, of the metadata quorum, and of the controller; to a controller, those
                                        of the other voters
    world.check_recovered()             all answers are intact again: what must hold then

Most damage keeps the correlation id, so that the response reaches its request. A response that cannot be decoded costs
a connection. A damaged response that can still be decoded is a false answer: a follower that receives a wrong log start
offset of its leader, or an error that fences it, has to believe it, as Apache Kafka's does. So after false answers only
the node's own actions are checked.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import pytest
from tests.property.test_request_fuzz import COUNTS

from barnabas.common.errors import DecodeError
from barnabas.protocol import codec
from barnabas.protocol.channel import Channel
from barnabas.protocol.header import response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.wire import skip_tagged_fields
from barnabas.simulation.node import Node
from barnabas.simulation.world import MILLISECOND_US
from barnabas.simulation.worlds.replicated import Replicated, batch_of, produce_request

#: The position of the first byte after the correlation id.
_BODY_AT = 4


def damaged(frame: bytes, random: Random) -> bytes:
    """Returns the response with one to three changes, often in its first fields."""
    out = bytearray(frame)
    for _ in range(random.randint(1, 3)):
        first = 0 if random.random() < 0.05 else _BODY_AT
        end = len(out) if random.random() < 0.5 else min(len(out), 80)
        at = random.randrange(first, max(end, first + 1))
        kind = random.choice(["flip", "set", "insert", "delete", "count", "repeat", "end"])
        if kind == "flip" and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == "set" and at < len(out):
            out[at] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        elif kind == "insert":
            out[at:at] = random.randbytes(random.randint(1, 16))
        elif kind == "delete":
            del out[at : at + random.randint(1, 16)]
        elif kind == "count":
            out[at : at + 4] = random.choice(COUNTS).to_bytes(4, "big")
        elif kind == "repeat":
            out[at:at] = out[at : at + 16]
        else:
            del out[at:]
    return bytes(out)


def is_readable(frame: bytes, channel: Channel) -> bool:
    """Returns whether the channel can decode the frame as the response that it waits for."""
    if not channel._in_flight:
        return False
    correlation_id, requested = channel._in_flight[0]
    if int.from_bytes(frame[:4], "big") != correlation_id or requested.request.API_KEY is None:
        return False
    key = requested.request.API_KEY
    try:
        position = skip_tagged_fields(memoryview(frame), 4) if response_header_version(key, requested.version) else 4
        codec.decode(response_class(key), requested.version, frame, position)
    except DecodeError:
        return False
    return True


class DamagedAnswers:
    def __init__(self, seed: int, victim: str, patch: pytest.MonkeyPatch, *, percent: int, lies: bool) -> None:
        self.random = Random(seed)
        self.has_quorum = victim.startswith("controller")
        self.world = Replicated(seed, controllers=3 if self.has_quorum else 1)
        self.world.create_topic("orders", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        self.victim = victim
        self.percent = percent
        self._lies = lies
        self.is_on = False
        #: Damaged answers by API key.
        self.counts: Counter[int] = Counter()
        self._written = 0
        sound = Channel.on_frame

        def on_frame(channel: Channel, frame: memoryview) -> None:
            if self.is_on and self._is_victims(channel) and self.random.randrange(100) < self.percent:
                requested = channel._in_flight[0][1].request if channel._in_flight else None
                if requested is not None and requested.API_KEY is not None:
                    self.counts[requested.API_KEY] += 1
                frame = memoryview(self._damaged(bytes(frame), channel))
            sound(channel, frame)

        patch.setattr(Channel, "on_frame", on_frame)

    def _damaged(self, frame: bytes, channel: Channel) -> bytes:
        """Returns the damaged frame. If false answers are not wanted, a frame that can still be decoded is cut
        short.
        """
        changed = damaged(frame, self.random)
        return changed if self._lies or not is_readable(changed, channel) else changed[: self.random.randrange(9)]

    @property
    def node(self) -> Node:
        return self.world.cluster.nodes[self.victim]

    def _is_victims(self, channel: Channel) -> bool:
        return channel._host is self.node.host

    def _write(self) -> None:
        """Produces to every partition and ignores the result."""

        def ignore(_: Message | None) -> None: ...

        for index in range(3):
            leader = self.world.image(index=index).leader
            if leader > 0:
                self._written += 1
                request = produce_request(self.world.topic_id(), index, batch_of(b"%d" % self._written))
                client = self.world.client
                client.process.enter(partial(client.send, f"broker{leader}", request, ignore))

    def _create_topic(self, name: str) -> None:
        """Creates a topic and ignores the result."""

        def ignore(_: Message | None) -> None: ...

        request = CreateTopicsRequest(timeout_ms=1_000)
        request.topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=3)]
        client = self.world.client
        client.process.enter(partial(client.send, "broker1", request, ignore))

    def damage_for(self, duration_ms: int) -> None:
        """Damages answers while records and topics are written. Among three controllers, the active one is killed
        twice if it is not the chosen node, so that voters elect while answers are damaged.
        """
        self.is_on = True
        ticks = duration_ms // 100
        for tick in range(ticks):
            self._write()
            if self.has_quorum and tick % 5 == 0:
                self._create_topic(f"topic{tick}")
            if self.has_quorum and tick in (ticks // 4, ticks * 3 // 4):
                self._kill_active_controller()
            self.world.run_for(100)  # runs the checkers of the simulation too
            self.check_offsets()
        self.is_on = False

    def _kill_active_controller(self) -> None:
        for name, node in self.world.cluster.nodes.items():
            if (
                name != self.victim
                and node.is_running
                and node.broker is not None
                and node.broker.quorum.raft.is_leader
            ):
                node.kill()
                self.world.world.after(300 * MILLISECOND_US, node.start)
                return

    def check_offsets(self) -> None:
        for node in self.world.cluster.nodes.values():
            if node.broker is None or not node.is_running:
                continue
            for partition in node.broker.replicas.partitions():
                log = partition.log
                assert log.log_start_offset <= partition.high_watermark <= log.log_end_offset, partition.topic_partition

    def check_recovered(self) -> None:
        if self.has_quorum:
            self._check_quorum_recovered()
        world = self.world
        for index in range(3):
            world.await_isr((1, 2, 3), index=index, within_ms=40_000)
            assert world.produce(b"sound", index=index)[0] == 0
            world.await_equal(index=index)
            values = [world.values(number, index=index) for number in (1, 2, 3)]
            assert values[0] == values[1] == values[2]
            assert values[0][-1] == b"sound"

    def _check_quorum_recovered(self) -> None:
        """Checks that a new topic reaches all controllers, and that their images are equal then."""
        world = self.world
        world.create_topic("sound", [(1, 2, 3)])
        brokers = [node.broker for name, node in world.cluster.nodes.items() if name.startswith("controller")]

        def all_know() -> bool:
            return all(broker is not None and "sound" in broker.metadata.image.topics_by_name for broker in brokers)

        world.run_until(all_know, "all controllers know the new topic", 40_000)
        images = [broker.metadata.image for broker in brokers if broker is not None]
        topics = [{name: topic.topic_id for name, topic in image.topics_by_name.items()} for image in images]
        assert topics[0] == topics[1] == topics[2]
