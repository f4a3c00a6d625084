"""The effect of each request in each state of a transaction: the whole table, by version of the protocol."""

from __future__ import annotations

import pytest
from tests.support.txn_world import A, B

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.transactions import transitions
from barnabas.coordinators.transactions.state import EPOCH_MAX, TRANSITIONS, Transaction, TxnImage, TxnState
from barnabas.coordinators.transactions.transitions import ProducerIdentity

PID = 7
EPOCH = 5
NEXT = 99
NOW_MS = 10_000
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
S = TxnState


def image(state: TxnState, epoch: int = EPOCH, **fields: object) -> TxnImage:
    open_or_decided = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    plain = TxnImage(
        PID,
        epoch,
        60_000,
        state,
        frozenset({A}) if open_or_decided else frozenset(),
        start_ms=-1 if state is S.EMPTY else 500,
        updated_ms=600,
    )
    return plain._replace(**fields)  # type: ignore[arg-type]


def end(
    of: TxnImage, commit: bool, version: int, *, epoch: int = EPOCH, producer_id: int = PID, new_id: int | None = None
) -> TxnImage | ErrorCode | None:
    """Returns the next image, None if it is done already, or the error code."""
    try:
        return transitions.ended(of, ProducerIdentity(producer_id, epoch), commit, version, NOW_MS, new_id)
    except RequestFailed as failure:
        return failure.code


def outcome(result: TxnImage | ErrorCode | None) -> object:
    return (result.state, result.producer_epoch) if isinstance(result, TxnImage) else result


#: state -> (commit, abort) of the producer with the coordinator's epoch.
V1 = {
    S.EMPTY: (INVALID, INVALID),
    S.ONGOING: ((S.PREPARE_COMMIT, EPOCH), (S.PREPARE_ABORT, EPOCH)),
    S.PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    S.PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    S.COMPLETE_COMMIT: (None, INVALID),
    S.COMPLETE_ABORT: (INVALID, None),
}


@pytest.mark.parametrize("state", V1)
def test_version_1_ends_a_transaction(state: TxnState) -> None:
    assert tuple(outcome(end(image(state), commit, 0)) for commit in (True, False)) == V1[state]


@pytest.mark.parametrize("state", V1)
@pytest.mark.parametrize("epoch, code", [(EPOCH - 1, FENCED), (EPOCH + 1, FENCED)])
def test_version_1_fences_other_epochs(state: TxnState, epoch: int, code: ErrorCode) -> None:
    assert end(image(state), True, 0, epoch=epoch) is code
    assert end(image(state), True, 0, epoch=EPOCH, producer_id=PID + 1) is MAPPING


BUMPED = EPOCH + 1
#: state -> commit and abort with the coordinator's epoch, commit and abort with the one before (a retry).
V2 = {
    S.EMPTY: (INVALID, (S.PREPARE_ABORT, BUMPED), FENCED, FENCED),
    S.ONGOING: ((S.PREPARE_COMMIT, BUMPED), (S.PREPARE_ABORT, BUMPED), FENCED, FENCED),
    S.PREPARE_COMMIT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    S.PREPARE_ABORT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    S.COMPLETE_COMMIT: (INVALID, (S.PREPARE_ABORT, BUMPED), None, INVALID),
    S.COMPLETE_ABORT: (INVALID, (S.PREPARE_ABORT, BUMPED), INVALID, None),
}


@pytest.mark.parametrize("state", V2)
def test_version_2_ends_a_transaction(state: TxnState) -> None:
    requested = [(True, EPOCH), (False, EPOCH), (True, EPOCH - 1), (False, EPOCH - 1)]
    assert tuple(outcome(end(image(state), commit, 2, epoch=epoch)) for commit, epoch in requested) == V2[state]


@pytest.mark.parametrize("state", [state for state in V2 if not image(state).is_prepared])
def test_version_2_fences_epochs_that_are_neither(state: TxnState) -> None:
    for epoch in (EPOCH - 2, EPOCH + 1):
        assert end(image(state), False, 2, epoch=epoch) is FENCED
    assert end(image(state), False, 2, producer_id=PID + 1) is MAPPING


def test_an_abort_without_partitions_begins_when_it_ends() -> None:
    aborted = end(image(S.EMPTY), False, 2)
    assert isinstance(aborted, TxnImage)
    assert (aborted.partitions, aborted.start_ms, aborted.client_version) == (frozenset(), NOW_MS, 2)


@pytest.mark.parametrize("server_version, epochs", [(1, 1), (2, 2)])
def test_who_is_fenced_does_not_take_it_for_its_own_abort(server_version: int, epochs: int) -> None:
    """Guard G24: a fence and a producer's own abort lead to the same state."""
    fenced = transitions.fenced(image(S.ONGOING), server_version, NOW_MS)
    assert (fenced.state, fenced.producer_epoch) == (S.PREPARE_ABORT, EPOCH + epochs)
    done = transitions.completed(fenced, NOW_MS)
    for version in (0, 2) if server_version == 2 else (0,):
        for of in (fenced, done):
            waits = version == 2 and of is fenced
            assert end(of, False, version) is (CONCURRENT if waits else FENCED)
            assert end(of, True, version) is (CONCURRENT if waits else FENCED)


def test_a_fence_at_the_last_epochs_goes_through() -> None:
    """KAFKA-19999: the epoch must not overflow, nor the abort be impossible."""
    for epoch in (EPOCH_MAX - 2, EPOCH_MAX - 1, EPOCH_MAX):
        fenced = transitions.fenced(image(S.ONGOING, epoch), 2, NOW_MS)
        assert fenced.producer_epoch == EPOCH_MAX
        done = transitions.completed(fenced, NOW_MS)
        assert transitions.needs_new_id(done, None)
        begun = transitions.initialized(done, None, 60_000, NOW_MS, NEXT)
        assert (begun.producer_id, begun.producer_epoch) == (NEXT, 0)


def test_the_epoch_after_the_last_is_the_first_of_another_id() -> None:
    last = EPOCH_MAX - 1
    of = image(S.ONGOING, last)
    assert transitions.end_needs_new_id(of, 2)
    assert not transitions.end_needs_new_id(of, 0)
    decided = end(of, True, 2, epoch=last, new_id=NEXT)
    assert isinstance(decided, TxnImage)
    assert (decided.producer_id, decided.producer_epoch, decided.next_producer_id) == (PID, EPOCH_MAX, NEXT)
    # The producer knows its new id already; its requests wait until the old one is done with.
    assert end(decided, False, 2, epoch=0, producer_id=NEXT) is CONCURRENT
    assert end(decided, True, 2, epoch=last) is CONCURRENT
    with pytest.raises(RequestFailed) as failed:
        transitions.with_partitions(decided, ProducerIdentity(NEXT, 0), {A}, 2, NOW_MS)
    assert failed.value.code is CONCURRENT
    done = transitions.completed(decided, NOW_MS)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (NEXT, 0, PID)
    # A retry of the commit is still known.
    assert end(done, True, 2, epoch=last) is None
    assert end(done, False, 2, epoch=last) is INVALID


@pytest.mark.parametrize("state", list(TxnState)[:-1])
def test_partitions_are_added_to_what_is_not_decided(state: TxnState) -> None:
    of, producer = image(state), ProducerIdentity(PID, EPOCH)
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        with pytest.raises(RequestFailed) as failed:
            transitions.with_partitions(of, producer, {A, B}, 2, NOW_MS)
        assert failed.value.code is CONCURRENT
        return
    added = transitions.with_partitions(of, producer, {A, B}, 2, NOW_MS)
    assert added is not None
    assert (added.state, added.partitions, added.client_version) == (S.ONGOING, frozenset({A, B}), 2)
    assert added.start_ms == (500 if state is S.ONGOING else NOW_MS)
    assert transitions.with_partitions(added, producer, {A}, 2, NOW_MS + 1) is None


@pytest.mark.parametrize("producer, code", [((PID + 1, EPOCH), MAPPING), ((PID, EPOCH - 1), FENCED)])
def test_only_its_producer_adds_partitions(producer: tuple[int, int], code: ErrorCode) -> None:
    with pytest.raises(RequestFailed) as failed:
        transitions.with_partitions(image(S.ONGOING), ProducerIdentity(*producer), {B}, 2, NOW_MS)
    assert failed.value.code is code


def begun(of: TxnImage, expected: tuple[int, int] | None, new_id: int | None = None) -> tuple[int, int]:
    who = None if expected is None else ProducerIdentity(*expected)
    transitions.check_expected(of, who)
    after = transitions.initialized(of, who, 30_000, NOW_MS, new_id)
    assert (after.state, after.timeout_ms, after.start_ms, after.updated_ms) == (S.EMPTY, 30_000, -1, NOW_MS)
    return after.producer_id, after.producer_epoch


def test_a_new_producer_begins_with_epoch_0() -> None:
    fresh = transitions.fresh(PID, 1000, NOW_MS)
    assert begun(fresh, None) == (PID, 0)
    assert begun(fresh, (3, 4)) == (PID, 0)  # the producer's id was forgotten (KIP-360)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_another_producer_gets_the_next_epoch(state: TxnState) -> None:
    assert begun(image(state), None) == (PID, EPOCH + 1)
    assert begun(image(state), (PID, EPOCH)) == (PID, EPOCH + 1)


def test_who_asks_for_a_bump_again_gets_the_same() -> None:
    first = transitions.initialized(image(S.EMPTY), ProducerIdentity(PID, EPOCH), 1000, NOW_MS, None)
    assert begun(first, (PID, EPOCH)) == (PID, EPOCH + 1)
    # Another producer was initialized in between: the first one is fenced.
    other = transitions.initialized(first, None, 1000, NOW_MS, None)
    with pytest.raises(RequestFailed) as failed:
        begun(other, (PID, EPOCH))
    assert failed.value.code is FENCED


@pytest.mark.parametrize("expected", [(PID + 1, EPOCH), (PID, EPOCH - 1), (PID, EPOCH + 1)])
def test_who_is_not_the_producer_is_fenced(expected: tuple[int, int]) -> None:
    with pytest.raises(RequestFailed) as failed:
        begun(image(S.EMPTY), expected)
    assert failed.value.code is FENCED


def test_a_bump_at_the_last_epoch_is_another_id_and_its_retry_is_known() -> None:
    last = EPOCH_MAX - 1
    of = image(S.EMPTY, last)
    assert transitions.needs_new_id(of, ProducerIdentity(PID, last))
    after = transitions.initialized(of, ProducerIdentity(PID, last), 1000, NOW_MS, NEXT)
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (NEXT, 0, PID)
    assert begun(after, (PID, last)) == (NEXT, 0)


def test_one_record_at_a_time() -> None:
    transaction = Transaction("t", image(S.ONGOING))
    transitions.check_settled(transaction)
    transaction.pending = S.PREPARE_COMMIT
    with pytest.raises(RequestFailed) as failed:
        transitions.check_settled(transaction)
    assert failed.value.code is CONCURRENT


def test_the_table_of_states_is_kafkas() -> None:
    at_rest = {S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD}
    assert {
        S.EMPTY: at_rest,
        S.COMPLETE_COMMIT: at_rest,
        S.COMPLETE_ABORT: at_rest,
        S.ONGOING: {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT},
        S.PREPARE_COMMIT: {S.COMPLETE_COMMIT},
        S.PREPARE_ABORT: {S.COMPLETE_ABORT},
        S.DEAD: frozenset(),
    } == TRANSITIONS
    with pytest.raises(AssertionError):
        transitions.fenced(image(S.EMPTY), 2, NOW_MS)
