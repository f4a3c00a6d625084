"""Transitions from one image of a transaction to the next: the effect of each request in each state. Pure functions.

Every function returns the image to be written, returns None if the request succeeds without a write, or raises
RequestFailed with the error code for the client. `check_settled` comes first: while a record is in flight, it raises
CONCURRENT_TRANSACTIONS, and clients retry. A decided transaction counts as one with a record in flight until it is
complete, as in Kafka (KAFKA-18464, KAFKA-18575): its producer gets its next epoch, and possibly its next producer id,
as soon as the end is decided, and could begin and abort the next transaction before the markers are written. EndTxn
with version 1 and the verification of partitions check the producer id and epoch first.

The end of a transaction depends on the version of the protocol that its producer uses (KIP-890):

    version 1   the epoch stays; a repeated EndTxn has the same epoch and outcome
    version 2   every end bumps the epoch: a repeated EndTxn has the previous epoch, and one with the current epoch
                belongs to the next transaction. An abort of a transaction without partitions is written, too: the
                producer cannot know whether its partitions had been added.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.state import (
    EPOCH_MAX,
    NO_TIMESTAMP,
    TRANSITIONS,
    Transaction,
    TxnImage,
    TxnState,
    is_exhausted,
)
from barnabas.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

#: The version of the protocol since which the end of a transaction bumps the epoch.
EPOCH_BUMP_SINCE: Final = 2
#: A version without the epoch bump.
NO_EPOCH_BUMP: Final = 0

_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class ProducerIdentity(NamedTuple):
    """The producer id and epoch in a request."""

    producer_id: int
    epoch: int


def check_settled(transaction: Transaction) -> None:
    """Raises RequestFailed while a record or the markers of the transaction are in flight."""
    if transaction.pending is not None:
        raise RequestFailed(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_complete(transaction.image)


def _check_complete(image: TxnImage) -> None:
    if image.is_prepared:
        raise RequestFailed(ErrorCode.CONCURRENT_TRANSACTIONS)


def _moved(image: TxnImage, state: TxnState, **changes: object) -> TxnImage:
    assert state in TRANSITIONS[image.state], f"no transition {image.state.shown} -> {state.shown}"
    return image._replace(state=state, **changes)  # type: ignore[arg-type]


# -- InitProducerId


def fresh(producer_id: int, timeout_ms: int, wall_ms: int) -> TxnImage:
    """Returns the image of a transactional id that is not used yet. This image is never written."""
    return TxnImage(producer_id, NO_PRODUCER_EPOCH, timeout_ms, updated_ms=wall_ms)


def needs_new_id(image: TxnImage, expected: ProducerIdentity | None) -> bool:
    """Returns whether InitProducerId needs a new producer id because all epochs of the current one are used up."""
    return (
        image.is_finished and image.is_epoch_exhausted and (expected is None or expected.epoch == image.producer_epoch)
    )


def check_expected(image: TxnImage, expected: ProducerIdentity | None) -> None:
    """Raises RequestFailed unless the identity in the request is the current producer, or the one before its epochs
    were used up (KIP-360)."""
    if expected is None or image.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == image.producer_id:
        return
    if expected.producer_id == image.previous_producer_id and is_exhausted(expected.epoch):
        return
    raise RequestFailed(ErrorCode.PRODUCER_FENCED)


def initialized(
    image: TxnImage, expected: ProducerIdentity | None, timeout_ms: int, wall_ms: int, new_id: int | None
) -> TxnImage:
    """Returns the image after InitProducerId: with the next epoch, or with `new_id` and epoch 0. A repeated request
    gets the same identity again."""
    assert image.is_finished, "an open transaction is aborted first"
    changes = {
        "timeout_ms": timeout_ms,
        "partitions": _NOTHING,
        "start_ms": NO_TIMESTAMP,
        "updated_ms": wall_ms,
        "next_producer_id": NO_PRODUCER_ID,
    }
    if new_id is not None:
        last = NO_PRODUCER_EPOCH if expected is None else image.producer_epoch
        return _moved(
            image,
            TxnState.EMPTY,
            producer_id=new_id,
            previous_producer_id=image.producer_id,
            producer_epoch=0,
            last_producer_epoch=last,
            **changes,
        )
    epoch, last = _bumped(image, expected)
    return _moved(image, TxnState.EMPTY, producer_epoch=epoch, last_producer_epoch=last, **changes)


def _bumped(image: TxnImage, expected: ProducerIdentity | None) -> tuple[int, int]:
    """Returns the producer's next epoch and the one before it, which a repeated InitProducerId names; the same ones for
    a repeated request. Raises RequestFailed(PRODUCER_FENCED) for another epoch.
    """
    epoch = image.producer_epoch
    if expected is None:
        assert not image.is_epoch_exhausted, "another producer id is needed"
        return epoch + 1, NO_PRODUCER_EPOCH
    if epoch == NO_PRODUCER_EPOCH or expected.epoch == epoch:
        assert not image.is_epoch_exhausted, "another producer id is needed"
        return epoch + 1, epoch
    if expected.epoch == image.last_producer_epoch:
        return epoch, image.last_producer_epoch
    raise RequestFailed(ErrorCode.PRODUCER_FENCED)


# -- adding partitions


def check_producer(image: TxnImage, producer: ProducerIdentity) -> None:
    """Raises RequestFailed unless the producer has the transaction's producer id and epoch."""
    if image.producer_id != producer.producer_id:
        raise RequestFailed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if image.producer_epoch != producer.epoch:
        raise RequestFailed(ErrorCode.PRODUCER_FENCED)


def verify(image: TxnImage, producer: ProducerIdentity) -> None:
    """Raises RequestFailed unless records of this producer can belong to the transaction (KIP-890); `image` contains
    its partitions."""
    check_producer(image, producer)
    _check_complete(image)


def with_partitions(
    image: TxnImage, producer: ProducerIdentity, partitions: Set[TopicPartition], client_version: int, wall_ms: int
) -> TxnImage | None:
    """Returns the image with further partitions; None if the transaction has all of them."""
    _check_complete(image)
    check_producer(image, producer)
    ongoing = image.state is TxnState.ONGOING
    if ongoing and partitions <= image.partitions:
        return None
    return _moved(
        image,
        TxnState.ONGOING,
        partitions=image.partitions | partitions,
        start_ms=image.start_ms if ongoing else wall_ms,
        updated_ms=wall_ms,
        client_version=client_version,
    )


# -- ending


def ended(
    image: TxnImage, producer: ProducerIdentity, commit: bool, client_version: int, wall_ms: int, new_id: int | None
) -> TxnImage | None:
    """Returns the image after a producer's EndTxn; None if the request repeats an earlier one. `new_id` is needed if
    `end_needs_new_id` returns True."""
    if client_version < EPOCH_BUMP_SINCE:
        return _ended_by_v1(image, producer, commit, wall_ms)
    return _ended_by_v2(image, producer, commit, client_version, wall_ms, new_id)


def _ended_by_v1(image: TxnImage, producer: ProducerIdentity, commit: bool, wall_ms: int) -> TxnImage | None:
    check_producer(image, producer)
    _check_complete(image)
    if image.state is TxnState.ONGOING:
        return _decided(image, commit, 0, wall_ms, NO_PRODUCER_ID)
    _check_outcome(image, commit)
    return None


def _check_outcome(image: TxnImage, commit: bool) -> None:
    """Raises RequestFailed unless the transaction ended with the requested outcome."""
    if image.state is not (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
        raise RequestFailed(ErrorCode.INVALID_TXN_STATE)


def end_needs_new_id(image: TxnImage, client_version: int) -> bool:
    """Returns whether the producer needs another producer id after this transaction."""
    return client_version >= EPOCH_BUMP_SINCE and image.is_epoch_exhausted and not image.is_prepared


def _ended_by_v2(
    image: TxnImage, producer: ProducerIdentity, commit: bool, client_version: int, wall_ms: int, new_id: int | None
) -> TxnImage | None:
    _check_complete(image)
    is_retry = _check_v2_producer(image, producer)
    next_id = NO_PRODUCER_ID if new_id is None else new_id
    if image.state is TxnState.ONGOING:
        return _decided(image, commit, client_version, wall_ms, next_id)
    if image.is_finished and not is_retry:
        if commit:
            raise RequestFailed(ErrorCode.INVALID_TXN_STATE)
        return _decided(image._replace(start_ms=wall_ms), False, client_version, wall_ms, next_id)
    _check_outcome(image, commit)
    return None


def _check_v2_producer(image: TxnImage, producer: ProducerIdentity) -> bool:
    """Returns whether the request repeats an earlier one. Raises RequestFailed if it is from neither the current nor
    the previous producer."""
    over_rotation = (
        producer.producer_id == image.previous_producer_id
        and producer.epoch == EPOCH_MAX - 1
        and image.producer_epoch == 0
    )
    if producer.producer_id != image.producer_id and not over_rotation:
        raise RequestFailed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # Fencing bumps the epoch, too, and stores its own epoch as the previous one: a fenced producer must not take that
    # abort for its own.
    over_bump = producer.epoch + 1 == image.producer_epoch and image.last_producer_epoch in (
        NO_PRODUCER_EPOCH,
        producer.epoch,
    )
    current = producer.epoch == image.producer_epoch
    is_retry = image.state in _COMPLETE and (over_bump or over_rotation)
    if not is_retry and not current:
        raise RequestFailed(ErrorCode.PRODUCER_FENCED)
    return is_retry


_COMPLETE: Final = frozenset({TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})


def _decided(image: TxnImage, commit: bool, client_version: int, wall_ms: int, next_id: int) -> TxnImage:
    state = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
    epoch, last = image.producer_epoch, image.last_producer_epoch
    if client_version >= EPOCH_BUMP_SINCE:
        # Only an abort gets here at the very last epoch, and it must succeed nonetheless.
        epoch, last = min(epoch + 1, EPOCH_MAX), epoch
    return _moved(
        image,
        state,
        producer_epoch=epoch,
        last_producer_epoch=last,
        next_producer_id=next_id,
        updated_ms=wall_ms,
        client_version=client_version,
    )


def fenced(image: TxnImage, server_version: int, wall_ms: int) -> TxnImage:
    """Returns the image of an open transaction that the coordinator aborts itself: after its timeout, or because
    another producer uses the same transactional id. The epoch is bumped, so that the previous producer can no longer
    write."""
    assert image.state is TxnState.ONGOING, "only an open transaction is fenced"
    epoch = min(image.producer_epoch + 1, EPOCH_MAX)
    raised = image._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    version = server_version if server_version >= EPOCH_BUMP_SINCE else NO_EPOCH_BUMP
    return _decided(raised, False, version, wall_ms, NO_PRODUCER_ID)


def completed(image: TxnImage, wall_ms: int) -> TxnImage:
    """Returns the image of a transaction after all its markers are written."""
    commit = image.state is TxnState.PREPARE_COMMIT
    state = TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT
    done = _moved(image, state, partitions=_NOTHING, updated_ms=wall_ms, next_producer_id=NO_PRODUCER_ID)
    if image.next_producer_id == NO_PRODUCER_ID:
        return done
    return done._replace(producer_id=image.next_producer_id, previous_producer_id=image.producer_id, producer_epoch=0)
