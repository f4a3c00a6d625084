"""Answers that are held back: one answer to a request of a node arrives only after newer metadata.

The request is the next one of the node to another node, of a given kind or of any. The answer, and everything after it
on its connection, waits until the node has applied an image that is newer than the request. An image that arrives
before the request does not count, because nothing would have overtaken the answer.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from barnabas.simulation.network import Observer, Pipe, Socket
from barnabas.simulation.simulated_cluster import Cluster

#: The requests whose answers can be held back if no kind is given. Fetches of metadata are not among them: they deliver
#: the image itself.
_NAMES: Final = {
    kind.API_KEY: kind.NAME.removesuffix("Request")
    for kind in (
        AlterPartitionRequest,
        BrokerHeartbeatRequest,
        FetchRequest,
        OffsetForLeaderEpochRequest,
        WriteTxnMarkersRequest,
    )
}
_LENGTH_BYTES: Final = 4
_KEY_END: Final = 6
_CONTROLLER_PORT: Final = 9093


class HeldAnswer(Observer):
    """The next answer to a request of a node. `key`: the API key; 0 for any. An image, or `end`, releases it."""

    def __init__(self, cluster: Cluster, node: str, key: int) -> None:
        self._cluster = cluster
        self._node = node
        self._keys = frozenset({key}) if key else frozenset(_NAMES)
        self._image_offset = -1
        self._pipe: Pipe | None = None
        self._is_over = False
        cluster.network.add_observer(self)

    def sent(self, socket: Socket, data: bytes) -> None:
        """Begins to hold the connection's answers if this is the request whose answer is to be held back."""
        network = self._cluster.network
        if network.name_of(socket.local[0]) != self._node or not self._is_wanted(socket, data):
            return
        out = socket.out
        other = network.name_of(socket.remote[0])
        if out is None or out.target.out is None or other not in self._cluster.nodes:
            return
        network.remove_observer(self)
        self._image_offset = self._offset()
        self._pipe = out.target.out
        self._pipe.hold()
        key = int.from_bytes(data[_LENGTH_BYTES:_KEY_END], "big")
        self._cluster.world.note(self._node, f"the answer of {other} to {_NAMES.get(key, key)} is held back")

    def _is_wanted(self, socket: Socket, data: bytes) -> bool:
        if len(data) < _KEY_END or int.from_bytes(data[:_LENGTH_BYTES], "big") > len(data) - _LENGTH_BYTES:
            return False
        key = int.from_bytes(data[_LENGTH_BYTES:_KEY_END], "big")
        is_of_metadata = key == FetchRequest.API_KEY and socket.remote[1] == _CONTROLLER_PORT
        return key in self._keys and not is_of_metadata

    def _offset(self) -> int:
        broker = self._cluster.nodes[self._node].broker
        return -1 if broker is None else broker.metadata.image.offset

    def on_image(self, node: str, offset: int) -> None:
        """Releases the answer, after the current event, if it waits, and this image is newer than the request."""
        if node != self._node or self._pipe is None or self._is_over:
            return
        if offset > self._image_offset and self._pipe.has_stalled:
            world = self._cluster.world
            self._is_over = True
            world.note(self._node, "the answer that was held back arrives")
            world.at(world.now_us, self._pipe.release, None, "held answer")

    def end(self) -> None:
        """Releases the answer if no image has."""
        if self._pipe is None:
            self._cluster.network.remove_observer(self)
        elif not self._is_over:
            self._is_over = True
            self._pipe.release()
