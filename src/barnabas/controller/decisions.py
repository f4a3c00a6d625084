"""Who leads a partition, and where its replicas go: pure decisions, used by both kinds of controller.

Election (KIP-966, and KIP-460 for the preferred kind). Let "valid" mean: may lead, and in the ISR, or in the ELR while
the ISR is empty.

    preferred    AR[0] if valid, else as below without regard to the current leader's claim being first
    online       the current leader if valid; else the first valid one in AR order; else, with ELR on and both ISR and
                 ELR empty, the last known leader, which counts as unclean
    unclean      as online; else the first of AR that may lead at all

Placement stripes: the racks take turns, and so do the brokers within a rack; where the turn starts is left to chance,
and each partition starts one further. After as many partitions as there are unfenced brokers everything is shuffled, so
that the same sets do not come again. A first replica is never placed on a fenced broker; other replicas only when a
rack has no unfenced one left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeVar

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Random
from barnabas.metadata.topics import NO_LEADER

_T = TypeVar("_T")


class Election(Enum):
    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class Elected(NamedTuple):
    leader: int
    #: Records that only the ISR had may be lost.
    unclean: bool


class Candidates(NamedTuple):
    """What an election looks at. `last_known_elr` holds the last known leader while the partition has none."""

    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()
    elr_enabled: bool = False


def elect(candidates: Candidates, may_lead: Callable[[int], bool], election: Election) -> Elected:
    def valid(replica: int) -> bool:
        eligible = replica in candidates.isr or (not candidates.isr and replica in candidates.elr)
        return eligible and may_lead(replica)

    if election is Election.PREFERRED and candidates.replicas and valid(candidates.replicas[0]):
        return Elected(candidates.replicas[0], False)
    if valid(candidates.leader):
        return Elected(candidates.leader, False)
    for replica in candidates.replicas:
        if valid(replica):
            return Elected(replica, False)
    if candidates.elr_enabled and not candidates.isr and not candidates.elr and len(candidates.last_known_elr) == 1:
        last_known = candidates.last_known_elr[0]
        if last_known in candidates.replicas and may_lead(last_known):
            return Elected(last_known, True)
    if election is Election.UNCLEAN:
        for replica in candidates.replicas:
            if may_lead(replica):
                return Elected(replica, True)
    return Elected(NO_LEADER, False)


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


class _Turn:
    """Brokers that take turns. Within a round each comes once; the next round starts one further."""

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
    """Places the replicas of one topic's partitions, one `place` per partition."""

    def __init__(self, brokers: Sequence[UsableBroker], random: Random) -> None:
        self._random = random
        names = sorted({broker.rack for broker in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_Rack([broker for broker in brokers if broker.rack == name], random) for name in names]
        self._broker_count = len(brokers)
        self._unfenced_count = sum(not broker.fenced for broker in brokers)
        #: Counts the partitions; never set back, so that no broker's turn is taken for one that it already had.
        self._round = 0
        self._until_shuffle = self._unfenced_count
        self._offset = random.below(len(self._racks)) if self._racks else 0

    def check(self, replication_factor: int) -> None:
        """RequestFailed if there is no place for so many replicas."""
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
        """The next partition's replicas, the preferred leader first."""
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
                # Its turn in this first lap was the leader's.
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


def place_replicas(
    brokers: Sequence[UsableBroker], partition_count: int, replication_factor: int, random: Random
) -> list[list[int]]:
    """Replicas of `partition_count` new partitions. RequestFailed(INVALID_REPLICATION_FACTOR) if they cannot be had."""
    placement = StripedPlacement(brokers, random)
    placement.check(replication_factor)
    return [placement.place(replication_factor) for _ in range(partition_count)]
