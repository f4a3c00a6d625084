"""Requests to the other nodes of the metadata quorum, over channels (an implementation of `raft.peers.Peers`)."""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Host
from barnabas.protocol.channel import Channel, ChannelTimes, Reply
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.protocol.peer_security import PLAINTEXT, ChannelSecurity

Address = tuple[str, int]

#: The pauses between connection attempts to a peer. They are short, because a quorum without a leader cannot wait long
#: for a peer that returns. A paused peer is not dialled continuously: its system accepts these connections until the
#: backlog is full, and then clients cannot connect when it resumes.
_TIMES: Final = ChannelTimes(backoff_ms=20, backoff_ms_max=200)


class QuorumPeers:
    """Two channels to each address: a fetch can wait on one for records without delaying the other requests."""

    def __init__(self, host: Host, area: ReceiveArea, client_id: str, security: ChannelSecurity = PLAINTEXT) -> None:
        self._host = host
        self._security = security
        self._area = area
        self._client_id = client_id
        self._channels: dict[tuple[Address, bool], Channel] = {}
        #: Addresses whose most recent connection attempt was refused.
        self._refused: set[Address] = set()

    def send(self, address: Address, request: Message, reply: Reply, *, timeout_ms: int) -> None:
        key = (address, isinstance(request, FetchRequest | FetchSnapshotRequest))
        channel = self._channels.get(key)
        if channel is None:
            channel = Channel(self._host, self._area, address, self._client_id, _TIMES, self._security)
            self._channels[key] = channel
        used = channel

        def answered(response: Message | None) -> None:
            if response is None and isinstance(used.last_error, ConnectionRefusedError):
                self._refused.add(address)
            else:
                self._refused.discard(address)
            reply(response)

        channel.send(request, answered, timeout_ms=timeout_ms)

    def is_refused(self, address: Address) -> bool:
        """Returns whether the last attempt to connect to the address was refused."""
        return address in self._refused

    def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()
