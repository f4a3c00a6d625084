"""Channels to the other voters: the result of the last attempt, and how often a paused peer is dialled."""

from __future__ import annotations

from barnabas.broker.peers.quorum_peers import QuorumPeers
from barnabas.common.host import LinkEnd, PeerLink
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.vote import VoteRequest
from barnabas.simulation.host import MemoryHost, MemoryLink

ADDRESS = ("peer", 9093)


class Dials:
    """The links that were dialled, and their ends."""

    def __init__(self, *, connects: bool) -> None:
        self.ends: list[LinkEnd] = []
        self._connects = connects
        self.host = MemoryHost()
        self.host.links = self  # type: ignore[assignment]
        self.peers = QuorumPeers(self.host, ReceiveArea(), "raft-client-1")
        self.answers: list[Message | None] = []

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        self.ends.append(end)
        if self._connects:
            self.host.timers.call_soon(end.connected)
        return MemoryLink()

    def send(self, request: Message) -> None:
        self.peers.send(ADDRESS, request, self.answers.append, timeout_ms=2_000)


def test_a_paused_peer_is_dialled_less_and_less_often() -> None:
    """The paused peer's system accepts connections, 50 of them, and the peer answers nothing. With a dial every 2 s by
    two channels of two voters, the backlog was full after half a minute; later dials were served half a minute after
    the peer woke up, because its system accepts such a connection with one of the next retransmissions.
    """
    dials = Dials(connects=True)
    for _ in range(60):
        dials.send(VoteRequest())
        dials.send(FetchRequest())
        dials.host.time.run_for(500)
    assert len(dials.ends) <= 2 * 5
    assert dials.answers
    assert not any(dials.answers)


def test_a_peer_that_cannot_be_reached_is_dialled_every_two_seconds() -> None:
    dials = Dials(connects=False)
    for _ in range(60):
        dials.send(VoteRequest())
        dials.host.time.run_for(500)
    assert len(dials.ends) >= 12


def test_the_last_attempt_on_either_channel_decides_whether_the_peer_listens() -> None:
    """A refusal from before it started again says nothing of a leader that does not answer now."""
    dials = Dials(connects=False)
    dials.send(VoteRequest())
    dials.ends[-1].closed(ConnectionRefusedError())
    assert dials.peers.is_refused(ADDRESS)
    dials.send(FetchRequest())
    dials.host.time.run_for(3_000)
    assert dials.answers == [None, None]
    assert not dials.peers.is_refused(ADDRESS)
