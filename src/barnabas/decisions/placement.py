"""Placement of replicas as a pure function of the brokers, as Kafka's StripedReplicaPlacer places them.

Racks take turns, and so do the brokers within a rack. The first turn is random, and each partition begins one rack
further. After as many partitions as there are unfenced brokers, all orders are shuffled, so that the same replica sets
do not repeat. The first replica is never on a fenced broker; the others only if a rack has no unfenced broker left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Random

_T = TypeVar("_T")


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


class _Turn:
    """Brokers that take turns: each appears once per round, and the next round begins one broker further."""

    __slots__ = ("_index", "_offset", "_round", "brokers")

    def __init__(self, brokers: Iterable[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._index = 0
        self._offset = random.below(len(self.brokers)) if self.brokers else 0
        self._round = 0

    def next(self, current_round: int) -> int | None:
        if not self.brokers:
            return None
        if self._round != current_round:
            self._round = current_round
            self._index = 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self._offset) % len(self.brokers)]
        self._index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: Sequence[UsableBroker], random: Random) -> None:
        self.fenced = _Turn((broker.broker_id for broker in brokers if broker.fenced), random)
        self.unfenced = _Turn((broker.broker_id for broker in brokers if not broker.fenced), random)

    def next(self, current_round: int) -> int | None:
        broker = self.unfenced.next(current_round)
        return broker if broker is not None else self.fenced.next(current_round)


class StripedPlacement:
    """Places the replicas of one topic's partitions; each call of `place` places one partition."""

    def __init__(self, brokers: Sequence[UsableBroker], random: Random) -> None:
        self._random = random
        names = sorted({broker.rack for broker in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_Rack([broker for broker in brokers if broker.rack == name], random) for name in names]
        self._broker_count = len(brokers)
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        #: The number of partitions placed so far. It is never reset, because each `_Turn` recognises a new round by a
        #: new number.
        self._round = 0
        self._until_shuffle = self._unfenced_count
        self._offset = random.below(len(self._racks)) if self._racks else 0

    def check(self, replication_factor: int) -> None:
        """Raises RequestFailed if this many replicas cannot be placed."""
        if replication_factor <= 0:
            raise RequestFailed(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
            )
        if self._unfenced_count == 0:
            raise RequestFailed(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
        if replication_factor > self._broker_count:
            raise RequestFailed(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._broker_count} broker(s) are registered.",
            )

    def place(self, replication_factor: int) -> list[int]:
        """Returns the replicas of the next partition, the preferred leader first."""
        self.check(replication_factor)
        if self._until_shuffle == 0:
            self._shuffle()
            self._until_shuffle = self._unfenced_count
        if self._offset >= len(self._racks):
            self._offset = 0
        leader_rack, leader = self._place_leader()
        replicas = [leader]
        rack = self._offset
        skip: int | None = leader_rack
        while len(replicas) < replication_factor:
            if rack == skip:
                # The leader took this rack's turn of the first lap.
                skip = None
            else:
                broker = self._racks[rack].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            rack = (rack + 1) % len(self._racks)
        self._round += 1
        self._until_shuffle -= 1
        self._offset += 1
        return replicas

    def _place_leader(self) -> tuple[int, int]:
        rack = self._offset
        while True:
            broker = self._racks[rack].unfenced.next(self._round)
            if broker is not None:
                return rack, broker
            rack = (rack + 1) % len(self._racks)

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._random)
        for rack in self._racks:
            _shuffle(rack.unfenced.brokers, self._random)
            _shuffle(rack.fenced.brokers, self._random)


def _shuffle(items: list[_T], random: Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = random.below(last + 1)
        items[last], items[other] = items[other], items[last]
