"""Responses that leave together at the end of a turn.

A request on one connection often completes requests of others: the fetch of a follower advances the HW, and with it
hundreds of Produce requests with acks=all are answered. Written one by one, each of their responses would cost a system
call. While a connection is served, the others are only recorded as having responses; they send these at the end of its
turn.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.common.continuations import Owner, run


class Sender(Owner, Protocol):
    def send_responses(self) -> None:
        """Passes all complete responses to the host."""


class TurnOutput:
    """The connections of one broker that have responses to send at the end of the turn."""

    __slots__ = ("_senders", "is_open")

    def __init__(self) -> None:
        #: Whether a connection is being served, so that a turn is not over.
        self.is_open = False
        self._senders: dict[Sender, None] = {}

    def add(self, sender: Sender) -> None:
        """Sends the responses of this connection when the turn ends."""
        self._senders[sender] = None

    def end(self) -> None:
        """Ends the turn: sends the responses of all connections that have some."""
        self.is_open = False
        self.send()

    def send(self) -> None:
        """Sends the responses so far, so that they do not wait for the rest of the turn."""
        if self._senders:
            senders, self._senders = self._senders, {}
            for sender in senders:
                run(sender, sender.send_responses)
