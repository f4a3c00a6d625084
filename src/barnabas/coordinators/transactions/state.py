"""The coordinator's state of one transactional id, and its possible states (KIP-98, KIP-890).

    Empty           the producer id and epoch are assigned; nothing is written
    Ongoing         the partitions of the image can hold records of the transaction
    PrepareCommit   decided: the markers are being written to the partitions, and nothing can change the outcome
    PrepareAbort    the same for an abort
    CompleteCommit  all markers are written
    CompleteAbort   the same for an abort
    Dead            removed: a tombstone is in flight

A `TxnImage` is the immutable content of a record of `__transaction_state`; `transitions` derives the next one.
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
    """The states of a transaction, numbered as in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def shown(self) -> str:
        """Returns the state's name as Kafka's tools show it."""
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

_FINISHED: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})
PREPARED: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})

#: The states that a record can lead to. Version 2 of the protocol can abort a transaction that was never begun.
TRANSITIONS: Final[Mapping[TxnState, frozenset[TxnState]]] = {
    **dict.fromkeys(
        sorted(_FINISHED), frozenset({TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD})
    ),
    TxnState.ONGOING: frozenset({TxnState.ONGOING, *PREPARED}),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.COMPLETE_COMMIT}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.COMPLETE_ABORT}),
    TxnState.DEAD: frozenset(),
}


class TxnImage(NamedTuple):
    """A version of a transaction's state. Times are wall clock milliseconds; -1 stands for none."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    #: The version of the transaction protocol in the producer's last request; with 2, each transaction has a new epoch.
    client_version: int = 0
    #: The previous producer id, if its epochs were used up.
    previous_producer_id: int = NO_PRODUCER_ID
    #: The producer id that is used after the transaction that is being ended, if its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    #: The epoch before the last bump that a producer requested; not stored in the log.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_finished(self) -> bool:
        return self.state in _FINISHED

    @property
    def is_prepared(self) -> bool:
        """Returns whether the outcome is decided and the transaction is not complete (PrepareCommit or
        PrepareAbort)."""
        return self.state in PREPARED

    @property
    def is_epoch_exhausted(self) -> bool:
        """Returns whether no epoch is left for the producer. The very last epoch is reserved, so that the producer
        can always be fenced."""
        return is_exhausted(self.producer_epoch)

    def is_timed_out(self, wall_ms: int) -> bool:
        return self.state is TxnState.ONGOING and self.start_ms + self.timeout_ms < wall_ms


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """The committed image of one transactional id, and the state that a record in flight leads to."""

    __slots__ = ("image", "pending", "transactional_id")

    def __init__(self, transactional_id: str, image: TxnImage) -> None:
        self.transactional_id = transactional_id
        self.image = image
        self.pending: TxnState | None = None
