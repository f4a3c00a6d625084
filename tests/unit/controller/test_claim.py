"""The claim of `/controller`."""

from __future__ import annotations

import pytest
from tests.support.znode_memory import ZnodeMemory

from barnabas.controller.zookeeper.claim import Beaten, Claim, Claimed, Won, judge
from barnabas.simulation.host import VirtualTime
from barnabas.znodes import paths
from barnabas.znodes.cluster_znodes import ControllerRegistration, encode_controller, encode_controller_epoch
from barnabas.zookeeper.client.store import ZnodeContent

OWN = ControllerRegistration(1, 1_000)
OTHER = ControllerRegistration(2, 1_000)


def claim_of(
    store: ZnodeMemory, time: VirtualTime | None = None, reports: list[str] | None = None
) -> tuple[Claim, list[Claimed]]:
    found: list[Claimed] = []
    reported = [] if reports is None else reports
    claim = Claim(store, time or VirtualTime(), OWN, found.append, reported.append)
    claim.start()
    return claim, found


def epoch_of(store: ZnodeMemory) -> tuple[bytes | None, int]:
    return store.znodes[paths.CONTROLLER_EPOCH]


def take(store: ZnodeMemory, registration: ControllerRegistration) -> None:
    """Writes another claim first, which wins."""
    data, _ = epoch_of(store)
    store.set(paths.CONTROLLER_EPOCH, encode_controller_epoch(int(data or b"0") + 1))
    store.set(paths.CONTROLLER, encode_controller(registration))


def store_with_epoch(epoch: int = 4, version: int = 4) -> ZnodeMemory:
    return ZnodeMemory({paths.CONTROLLER_EPOCH: ZnodeContent(encode_controller_epoch(epoch), version)})


def test_the_first_controller_of_a_cluster_has_epoch_1() -> None:
    store = ZnodeMemory()
    _, found = claim_of(store)
    store.answer_all()
    assert found == [Won(1, 1)]
    assert epoch_of(store) == (b"1", 1)
    assert store.znodes[paths.CONTROLLER].data == encode_controller(OWN)


def test_a_claim_is_one_multi_that_raises_the_epoch() -> None:
    store = store_with_epoch()
    _, found = claim_of(store)
    store.answer_all()
    assert found == [Won(5, 5)]
    assert [path for _, path in store.log[-1]] == [paths.CONTROLLER, paths.CONTROLLER_EPOCH]


def test_the_second_of_two_claims_is_beaten() -> None:
    store = store_with_epoch()
    _, found = claim_of(store)
    store.answer()
    take(store, OTHER)
    store.answer_all()
    assert found == [Beaten(2)]
    assert epoch_of(store) == (b"5", 5)


def test_a_claim_that_happened_and_whose_answer_was_lost_is_won() -> None:
    """G32: read back, own id and own epoch."""
    store = store_with_epoch()
    claim, found = claim_of(store)
    store.answer()
    store.lose_all(happened=1)
    assert found == []
    claim.resume()
    store.answer_all()
    assert found == [Won(5, 5)]
    assert epoch_of(store) == (b"5", 5)


def test_a_claim_that_did_not_happen_is_made_again() -> None:
    """G32: nobody is the controller, so the claim did not happen."""
    store = store_with_epoch()
    claim, found = claim_of(store)
    store.answer()
    store.lose_all(happened=0)
    claim.resume()
    store.answer_all()
    assert found == [Won(5, 5)]


def test_the_znode_of_an_old_session_is_no_victory() -> None:
    """G32: own id with another epoch is the znode of a session that is about to end."""
    store = store_with_epoch()
    store.set(paths.CONTROLLER, encode_controller(OWN))
    _, found = claim_of(store)
    store.answer_all()
    assert found == [Beaten(1)]
    assert epoch_of(store) == (b"4", 4)


@pytest.mark.parametrize(
    ("controller", "epoch", "version", "outcome"),
    [
        (OWN, b"5", 5, Won(5, 5)),
        (OWN, b"4", 4, Beaten(1)),
        (OWN, b"6", 6, Beaten(1)),
        (OWN, b"5", 6, Beaten(1)),
        (OTHER, b"5", 5, Beaten(2)),
        (None, b"5", 5, None),
        (None, b"4", 4, None),
    ],
)
def test_what_is_read_back(
    controller: ControllerRegistration | None, epoch: bytes, version: int, outcome: Claimed | None
) -> None:
    """G32: the whole table."""
    znode = None if controller is None else ZnodeContent(encode_controller(controller), 0)
    assert judge(1, Won(5, 5), znode, ZnodeContent(epoch, version)) == outcome


def test_a_loss_at_any_step_ends_in_one_answer() -> None:
    """G32: the connection ends before any reply, with the request done or not; there is one controller, and this
    broker knows that it is."""
    for happened in (0, 1):
        for answered in range(8):
            store = ZnodeMemory()
            claim, found = claim_of(store)
            for _ in range(answered):
                if store.waiting:
                    store.answer()
            store.lose_all(happened)
            claim.resume()
            store.answer_all()
            assert len(found) == 1, (happened, answered)
            epoch, version = epoch_of(store)
            assert found == [Won(int(epoch or b""), version)]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_claim_that_an_acl_forbids_is_made_again_after_a_pause(is_first: bool) -> None:
    """The claim repeated itself as fast as ZooKeeper answered."""
    store = ZnodeMemory() if is_first else store_with_epoch()
    store.tree.closed = frozenset({"/"})
    time, reports = VirtualTime(), list[str]()
    _, found = claim_of(store, time, reports)
    for _ in range(20):
        store.answer_all()
    written = paths.CONTROLLER_EPOCH if is_first else paths.CONTROLLER
    assert len(store.log) <= 1
    assert reports == [
        f"no claim of /controller: ZooKeeper refuses to write {written}: NO_AUTH; this is tried again every 10 s"
    ]
    store.tree.closed = frozenset()
    time.run_for(9_999)
    assert not store.waiting
    time.run_for(1)
    store.answer_all()
    assert found == [Won(1, 1) if is_first else Won(5, 5)]


def test_a_closed_claim_is_not_made_again() -> None:
    store, time = store_with_epoch(), VirtualTime()
    store.tree.closed = frozenset({"/"})
    claim, found = claim_of(store, time)
    store.answer_all()
    claim.close()
    time.run_for(60_000)
    assert (store.waiting, found) == (0, [])


def test_broken_znodes_are_reported() -> None:
    store = store_with_epoch()
    store.set(paths.CONTROLLER, b"{")
    _, found = claim_of(store)
    store.answer_all()
    assert isinstance(found[0], Beaten)
    assert found[0].problem is not None
    assert found[0].problem.path == paths.CONTROLLER
    store = ZnodeMemory({paths.CONTROLLER_EPOCH: ZnodeContent(b"four", 4)})
    _, found = claim_of(store)
    store.answer_all()
    assert isinstance(found[0], Beaten)
    assert found[0].problem is not None
    assert found[0].problem.path == paths.CONTROLLER_EPOCH


def test_a_claim_that_was_given_up_is_silent() -> None:
    """G34: after an expiry of the session nothing of the old claim counts."""
    store = store_with_epoch()
    claim, found = claim_of(store)
    store.answer()
    claim.close()
    store.answer_all()
    claim.resume()
    assert found == []
    assert store.waiting == 0
