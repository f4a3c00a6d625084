"""The answer to every request in every state of a transaction, compared with Kafka 4.1: each state of the automaton,
with and without a pending record, by producers with an older, the last, the present and the next epoch, and by another
id, with both versions of the protocol (KIP-98, KIP-360, KIP-890, KAFKA-18464, KAFKA-18575).

AddOffsetsToTxn and TxnOffsetCommit 5 add the group's partition ("add"), TxnOffsetCommit 0-4 verifies it ("verify").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest
from tests.support.txn_world import A, Answered, B, TransactionWorld

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.transactions.state import Transaction, TxnImage, TxnState
from barnabas.coordinators.transactions.transitions import ProducerIdentity

S = TxnState
PID: Final = 7
EPOCH: Final = 5
PRODUCERS: Final = {
    "older": ProducerIdentity(PID, EPOCH - 2),
    "last": ProducerIdentity(PID, EPOCH - 1),
    "present": ProducerIdentity(PID, EPOCH),
    "next": ProducerIdentity(PID, EPOCH + 1),
    "stranger": ProducerIdentity(PID + 1, EPOCH),
}
CODES: Final = {
    "ok": ErrorCode.NONE,
    "fenced": ErrorCode.PRODUCER_FENCED,
    "mapping": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "wait": ErrorCode.CONCURRENT_TRANSACTIONS,
    "invalid": ErrorCode.INVALID_TXN_STATE,
    "abortable": ErrorCode.TRANSACTION_ABORTABLE,
}


class Situation(NamedTuple):
    state: TxnState
    pending: TxnState | None = None

    @property
    def shown(self) -> str:
        return self.state.shown + (f"->{self.pending.shown}" if self.pending is not None else "")


AT_REST: Final = (Situation(S.EMPTY), Situation(S.COMPLETE_COMMIT), Situation(S.COMPLETE_ABORT))
OPEN: Final = (Situation(S.ONGOING),)
#: The transaction is decided, and the markers or the Complete record are pending: Kafka makes no difference.
DECIDED: Final = (
    Situation(S.PREPARE_COMMIT),
    Situation(S.PREPARE_ABORT),
    Situation(S.PREPARE_COMMIT, S.COMPLETE_COMMIT),
    Situation(S.PREPARE_ABORT, S.COMPLETE_ABORT),
)
WRITING: Final = (
    *(Situation(one.state, to) for one in AT_REST for to in (S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD)),
    *(Situation(S.ONGOING, to) for to in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)),
)
EVERYWHERE: Final = (*AT_REST, *OPEN, *DECIDED, *WRITING)

ADDING: Final = [
    ((*AT_REST, *OPEN), "fenced fenced ok fenced mapping"),
    ((*DECIDED, *WRITING), "wait wait wait wait wait"),
]

#: Request -> (situations, what older, last, present, next epoch and another id are answered). For each request the
#: situations are all there are.
TABLE: Final[dict[str, list[tuple[tuple[Situation, ...], str]]]] = {
    "commit 1": [
        ((Situation(S.EMPTY),), "fenced fenced invalid fenced mapping"),
        (OPEN, "fenced fenced ok fenced mapping"),
        ((*DECIDED, *WRITING), "fenced fenced wait fenced mapping"),
        ((Situation(S.COMPLETE_COMMIT),), "fenced fenced ok fenced mapping"),
        ((Situation(S.COMPLETE_ABORT),), "fenced fenced invalid fenced mapping"),
    ],
    "abort 1": [
        ((Situation(S.EMPTY),), "fenced fenced invalid fenced mapping"),
        (OPEN, "fenced fenced ok fenced mapping"),
        ((*DECIDED, *WRITING), "fenced fenced wait fenced mapping"),
        ((Situation(S.COMPLETE_COMMIT),), "fenced fenced invalid fenced mapping"),
        ((Situation(S.COMPLETE_ABORT),), "fenced fenced ok fenced mapping"),
    ],
    "commit 2": [
        ((Situation(S.EMPTY),), "fenced fenced invalid fenced mapping"),
        (OPEN, "fenced fenced ok fenced mapping"),
        ((*DECIDED, *WRITING), "wait wait wait wait wait"),
        ((Situation(S.COMPLETE_COMMIT),), "fenced ok invalid fenced mapping"),
        ((Situation(S.COMPLETE_ABORT),), "fenced invalid invalid fenced mapping"),
    ],
    "abort 2": [
        ((Situation(S.EMPTY),), "fenced fenced ok fenced mapping"),
        (OPEN, "fenced fenced ok fenced mapping"),
        ((*DECIDED, *WRITING), "wait wait wait wait wait"),
        ((Situation(S.COMPLETE_COMMIT),), "fenced invalid ok fenced mapping"),
        ((Situation(S.COMPLETE_ABORT),), "fenced ok ok fenced mapping"),
    ],
    "add 1": ADDING,
    "add 2": ADDING,
    # Whether A, which is part of what is open or decided, may be written to.
    "verify": [
        (AT_REST, "fenced fenced abortable fenced mapping"),
        (tuple(one for one in WRITING if one.state is not S.ONGOING), "fenced fenced abortable fenced mapping"),
        ((*OPEN, *(one for one in WRITING if one.state is S.ONGOING)), "fenced fenced ok fenced mapping"),
        (DECIDED, "fenced fenced wait fenced mapping"),
    ],
    # A producer that names its id and epoch (KIP-360); an open transaction is aborted first.
    "init": [
        (AT_REST, "fenced ok ok fenced fenced"),
        (OPEN, "wait wait wait wait fenced"),
        ((*DECIDED, *WRITING), "wait wait wait wait wait"),
    ],
    # A producer that does not name them.
    "init anew": [
        (AT_REST, "ok ok ok ok ok"),
        ((*OPEN, *DECIDED, *WRITING), "wait wait wait wait wait"),
    ],
}


def cases() -> Iterator[object]:
    for request, rows in TABLE.items():
        for situations, words in rows:
            for situation in situations:
                for who, word in zip(PRODUCERS, words.split(), strict=True):
                    yield pytest.param(request, situation, who, word, id=f"{request}-{situation.shown}-{who}")


def test_the_table_has_every_situation() -> None:
    for request, rows in TABLE.items():
        met = [situation for situations, _ in rows for situation in situations]
        assert sorted(met, key=str) == sorted(EVERYWHERE, key=str), request


def lead_into(world: TransactionWorld, situation: Situation) -> Transaction:
    """Puts a transaction into a state, as if its records had been written and the next one were pending."""
    open_or_decided = situation.state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    image = TxnImage(
        PID,
        EPOCH,
        60_000,
        situation.state,
        frozenset({A}) if open_or_decided else frozenset(),
        start_ms=-1 if situation.state is S.EMPTY else 500,
        updated_ms=600,
        last_producer_epoch=EPOCH - 1,
    )
    (shard,) = world.coordinator.shards()
    transaction = shard.find_or_create("t", image)
    transaction.pending = situation.pending
    return transaction


def call(world: TransactionWorld, request: str, producer: ProducerIdentity) -> ErrorCode | None:
    verb, _, version = request.partition(" ")
    asks: dict[str, Callable[[], Answered]] = {
        "commit": lambda: world.end(producer, True, version=0 if version == "1" else 2),
        "abort": lambda: world.end(producer, False, version=0 if version == "1" else 2),
        "add": lambda: world.add(producer, B, version=0 if version == "1" else 2),
        "init": lambda: world.init(expected=None if version == "anew" else producer),
    }
    if verb == "verify":
        return world.coordinator.verify_partitions("t", producer, {A})[A]
    return asks[verb]().code


@pytest.mark.parametrize(("request_", "situation", "who", "word"), list(cases()))
def test_every_request_in_every_state(request_: str, situation: Situation, who: str, word: str) -> None:
    world = TransactionWorld()
    transaction = lead_into(world, situation)
    before = transaction.image
    assert call(world, request_, PRODUCERS[who]) is CODES[word]
    if situation in DECIDED or situation in WRITING:
        assert transaction.image == before, "nothing changes while a record or a marker is on its way"


@pytest.mark.parametrize("commits", [True, False])
def test_an_abort_of_nothing_right_after_an_end_waits(commits: bool) -> None:
    """The producer has its next epoch as soon as the end is decided; PRODUCER_FENCED would be fatal to it."""
    world = TransactionWorld()
    producer = world.begin()
    world.add(producer, A)
    world.leaders.holding = True
    after = world.end(producer, commits).producer
    world.run()
    assert world.image().state is (S.PREPARE_COMMIT if commits else S.PREPARE_ABORT)
    for commit in (True, False):
        assert world.end(after, commit).code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.leaders.release()
    world.run()
    aborted = world.end(after, False)
    world.run()
    assert aborted.code is ErrorCode.NONE
    assert aborted.producer == (after.producer_id, after.epoch + 1)
    assert world.image().state is S.COMPLETE_ABORT
