"""The condition of one direction between two machines: latency, loss, and how many faults cut it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from barnabas.simulation.world import MILLISECOND_US, SECOND_US

if TYPE_CHECKING:
    from random import Random

_RETRANSMIT_US: Final = 200 * MILLISECOND_US
RETRANSMIT_US_MAX: Final = 120 * SECOND_US


class Stalled(Protocol):
    """Messages that wait until nothing cuts the direction any more."""

    def unstall(self) -> None: ...


class Direction:
    """One direction between two machines."""

    __slots__ = (
        "bytes_per_s",
        "cuts",
        "extra_us",
        "latency_us",
        "loss_percent",
        "random",
        "retransmits",
        "retransmitted_us",
        "stalled",
    )

    def __init__(self, random: Random) -> None:
        self.random = random
        #: The typical one-way delay; half of the messages are faster, a few much slower.
        self.latency_us = 100
        self.extra_us = 0
        self.loss_percent = 0
        self.bytes_per_s = 1_000_000_000
        #: The number of faults that currently cut the direction.
        self.cuts = 0
        self.stalled: dict[Stalled, None] = {}
        #: The segments that were sent again, and the time that passed until then.
        self.retransmits = self.retransmitted_us = 0

    def delay_us(self, size: int) -> int:
        """Draws the delay of one message: usually short, with a long tail and retransmissions of lost segments."""
        random = self.random.random
        delay = self.extra_us + int(self.latency_us * (0.5 + random())) + size * SECOND_US // self.bytes_per_s
        if random() < 0.01:
            delay += int(self.latency_us * 20 * random())
        if self.loss_percent:
            wait = _RETRANSMIT_US
            while random() * 100 < min(self.loss_percent, 90) and wait < RETRANSMIT_US_MAX:
                delay += wait
                self.retransmits += 1
                self.retransmitted_us += wait
                wait *= 2
        return delay
