"""What a coordinator knows of one transactional id, and the states that it goes through (KIP-98, KIP-890).

    Empty           a producer id and epoch are given; nothing is written
    Ongoing         these partitions may hold records of the transaction
    PrepareCommit   decided: the markers are on their way to the partitions, nothing can change it
    PrepareAbort    the same for an abort
    CompleteCommit  all markers are written
    CompleteAbort   the same for an abort
    Dead            forgotten: a tombstone is on its way

A `TxnImage` is what a record of `__transaction_state` says, and does not change; `transitions` makes the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.common.types import TopicPartition
from barnabas.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = 0x7FFF


class TxnState(IntEnum):
    """Numbered as in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def shown(self) -> str:
        """As Kafka's tools name it."""
        return _SHOWN[self]


_SHOWN: Final[Mapping[TxnState, str]] = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
    TxnState.DEAD: "Dead",
}

_AT_REST: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
PREPARED: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})

#: Which states a record may lead to. Version 2 of the protocol may abort what was never begun.
TRANSITIONS: Final[Mapping[TxnState, frozenset[TxnState]]] = {
    **dict.fromkeys(
        sorted(_AT_REST), frozenset({TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD})
    ),
    TxnState.ONGOING: frozenset({TxnState.ONGOING, *PREPARED}),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.COMPLETE_COMMIT}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.COMPLETE_ABORT}),
    TxnState.DEAD: frozenset(),
}


class TxnImage(NamedTuple):
    """Times are wall clock milliseconds; -1 where there is none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    #: The version of the transaction protocol that its producer spoke last; 2 has a new epoch after each transaction.
    client_version: int = 0
    #: The id before the present one, once its epochs were used up.
    previous_producer_id: int = NO_PRODUCER_ID
    #: The id that the producer goes on with when the transaction being ended is complete.
    next_producer_id: int = NO_PRODUCER_ID
    #: Not kept in the log: the epoch before the last bump that a producer asked for.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_at_rest(self) -> bool:
        return self.state in _AT_REST

    @property
    def is_prepared(self) -> bool:
        """Decided, and not complete."""
        return self.state in PREPARED

    @property
    def is_epoch_exhausted(self) -> bool:
        """The last epoch is kept back, so that the producer before can always be fenced."""
        return is_exhausted(self.producer_epoch)

    def is_timed_out(self, wall_ms: int) -> bool:
        return self.state is TxnState.ONGOING and self.start_ms + self.timeout_ms < wall_ms


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """One transactional id in a coordinator: its committed image, and the state that a record on its way leads to."""

    __slots__ = ("image", "pending", "transactional_id")

    def __init__(self, transactional_id: str, image: TxnImage) -> None:
        self.transactional_id = transactional_id
        self.image = image
        self.pending: TxnState | None = None
