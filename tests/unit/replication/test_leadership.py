"""A leader's state of its followers, and the ISR and HW that follow from it (guards G7, G8, KIP-903, KIP-966)."""

from __future__ import annotations

from barnabas.metadata.topics import PartitionImage
from barnabas.replication.leadership import UNKNOWN, Leadership, SessionFetch

LAG_MS = 1000


def image(isr: tuple[int, ...] = (1, 2, 3), *, epoch: int = 5, partition_epoch: int = 10, **fields: tuple[int, ...]):  # type: ignore[no-untyped-def]
    return PartitionImage(fields.get("replicas", (1, 2, 3)), isr, 1, epoch, partition_epoch)


def leading(isr: tuple[int, ...] = (1, 2, 3), *, start: int = 100, now_ms: int = 0) -> Leadership:
    return Leadership(1, image(isr), start, now_ms)


def anyone(broker_id: int, broker_epoch: int, directory: bytes) -> bool:
    return True


def nobody(broker_id: int, broker_epoch: int, directory: bytes) -> bool:
    return False


def fetch(lead: Leadership, replica: int, offset: int, *, leo: int, now_ms: int = 0, broker_epoch: int = 7) -> bool:
    return lead.on_fetch(replica, offset, 0, broker_epoch, leo, now_ms)


def hw(lead: Leadership, leo: int, now_ms: int = 0, may_join=anyone) -> int:  # type: ignore[no-untyped-def]
    return lead.high_watermark(leo, now_ms, LAG_MS, may_join)


def test_the_hw_is_the_least_leo_of_the_isr() -> None:
    lead = leading()
    fetch(lead, 2, 110, leo=120)
    fetch(lead, 3, 105, leo=120)
    assert hw(lead, 120) == 105


def test_no_hw_before_every_member_has_fetched_in_this_epoch() -> None:
    lead = leading()
    fetch(lead, 2, 120, leo=120)
    assert hw(lead, 120) == UNKNOWN


def test_a_replica_outside_of_the_isr_is_not_waited_for() -> None:
    lead = leading((1, 2))
    fetch(lead, 2, 120, leo=120)
    fetch(lead, 3, 50, leo=120)
    assert hw(lead, 120) == 120


def test_a_replica_that_is_about_to_join_is_waited_for() -> None:
    """G8: it was at the leader's LEO a moment ago, so the controller may have it in the ISR any time."""
    lead = leading((1, 2))
    fetch(lead, 2, 130, leo=130)
    fetch(lead, 3, 120, leo=120)
    assert hw(lead, 130) == 120
    assert hw(lead, 130, now_ms=LAG_MS + 1) == 130, "it was too long ago"
    assert hw(lead, 130, may_join=nobody) == 130, "a fenced broker cannot join"


def test_what_is_proposed_counts_until_it_is_answered() -> None:
    """G8: the maximal ISR."""
    lead = leading((1, 2))
    fetch(lead, 2, 130, leo=130)
    fetch(lead, 3, 110, leo=130)
    lead.propose((1, 2, 3))
    assert lead.maximal_isr == (1, 2, 3)
    assert hw(lead, 130, now_ms=LAG_MS + 1) == 110
    lead.withdraw()
    assert hw(lead, 130, now_ms=LAG_MS + 1) == 130


def test_who_is_to_leave_is_waited_for_until_the_controller_has_agreed() -> None:
    lead = leading()
    fetch(lead, 2, 130, leo=130)
    lead.propose((1, 2))
    assert hw(lead, 130, now_ms=5 * LAG_MS) == UNKNOWN
    assert lead.commit_answer((1, 2), 11)
    assert hw(lead, 130, now_ms=5 * LAG_MS) == 130


def test_a_replica_joins_at_the_hw_and_the_epochs_start() -> None:
    """G7: all three of LEO >= HW, LEO >= start of the epoch, and a fetch in this epoch."""
    lead = leading((1, 2), start=100)
    assert lead.enlarged(3, 0, anyone) is None, "no fetch in this epoch"
    fetch(lead, 3, 99, leo=130)
    assert lead.enlarged(3, 90, anyone) is None, "below the start of the epoch"
    fetch(lead, 3, 104, leo=130)
    assert lead.enlarged(3, 105, anyone) is None, "below the HW"
    assert lead.enlarged(3, 104, anyone) == (1, 2, 3)
    assert lead.enlarged(3, 104, nobody) is None, "a fenced broker, or another incarnation"
    lead.propose((1, 2, 3))
    assert lead.enlarged(3, 104, anyone) is None, "one proposal at a time"


def test_a_new_epoch_forgets_what_was_fetched_before() -> None:
    """G7: removed and added again inside one metadata batch comes as a new epoch."""
    lead = leading((1, 2))
    fetch(lead, 3, 130, leo=130)
    again = Leadership(1, image((1, 2), epoch=6), 130, 0)
    assert again.followers[3].leo == UNKNOWN
    assert again.enlarged(3, 0, anyone) is None


def test_a_replica_removed_and_added_again_has_to_fetch_anew() -> None:
    lead = leading((1, 2))
    fetch(lead, 3, 130, leo=130)
    lead.on_image(image((1, 2), partition_epoch=11, replicas=(1, 2)), 0)
    assert not fetch(lead, 3, 130, leo=130)
    lead.on_image(image((1, 2), partition_epoch=12), 0)
    assert lead.followers[3].leo == UNKNOWN
    assert lead.followers[2] is not None


def test_may_join_is_asked_with_the_incarnation_that_fetched() -> None:
    """KIP-903: the controller compares broker epochs, and so does the leader before it asks."""
    lead = leading((1, 2))
    fetch(lead, 3, 130, leo=130, broker_epoch=41)
    requested: list[tuple[int, int, bytes]] = []
    lead.enlarged(3, 100, lambda *incarnation: bool(requested.append(incarnation)))  # type: ignore[func-returns-value]
    assert [incarnation[:2] for incarnation in requested] == [(3, 41)]


def test_a_fetch_of_an_earlier_incarnation_counts_no_more() -> None:
    """KIP-903: it was under way when its broker died; what it says of the log may be lost."""
    lead = leading()
    assert fetch(lead, 3, 0, leo=130, broker_epoch=9)
    assert not fetch(lead, 3, 130, leo=130, broker_epoch=8)
    assert lead.followers[3].leo == 0
    assert fetch(lead, 3, 10, leo=130, broker_epoch=UNKNOWN), "old versions do not say"


def test_a_silent_member_leaves_after_the_lag_time() -> None:
    lead = leading(now_ms=0)
    fetch(lead, 2, 130, leo=130, now_ms=0)
    assert lead.reduced(130, LAG_MS, LAG_MS) is None, "3 has had no time to show itself yet"
    assert lead.reduced(130, LAG_MS + 1, LAG_MS) == (1, 2), "2 has all there is, however long ago it fetched"
    assert lead.reduced(131, LAG_MS + 1, LAG_MS) == (1,)
    lead.propose((1, 2))
    assert lead.reduced(131, LAG_MS + 1, LAG_MS) is None, "one proposal at a time"


def test_who_has_what_was_there_at_its_last_fetch_counts_as_caught_up_then() -> None:
    """A busy log is always a little ahead of its followers."""
    lead = leading(now_ms=0)
    for step in range(20):
        fetch(lead, 2, 130 + 10 * step, leo=140 + 10 * step, now_ms=step * LAG_MS // 2)
        fetch(lead, 3, 131, leo=140 + 10 * step, now_ms=step * LAG_MS // 2)
    assert lead.reduced(330, 10 * LAG_MS, LAG_MS) == (1, 2)


def test_metadata_overtakes_a_proposal() -> None:
    lead = leading()
    lead.propose((1, 2))
    lead.on_image(image((1, 3), partition_epoch=11), 0)
    assert lead.proposed is None
    assert lead.isr == (1, 3)
    assert not lead.commit_answer((1, 2), 11), "the answer comes too late"
    assert lead.isr == (1, 3)


def test_the_low_watermark_is_that_of_the_replicas_that_live() -> None:
    lead = leading()
    assert lead.low_watermark(50, lambda replica: True) == UNKNOWN
    lead.on_fetch(2, 130, 30, 7, 130, 0)
    lead.on_fetch(3, 130, 40, 7, 130, 0)
    assert lead.low_watermark(50, lambda replica: True) == 30
    assert lead.low_watermark(50, lambda replica: replica == 3) == 40
    assert lead.low_watermark(50, lambda replica: False) == 50


def test_alone_is_who_has_no_followers() -> None:
    assert Leadership(1, image((1,), replicas=(1,)), 0, 0).is_alone
    assert not Leadership(1, image((1,)), 0, 0).is_alone


def test_a_leader_is_followed_while_every_member_fetches() -> None:
    """One member that does not fetch possibly leads in a later epoch."""
    lead = leading((1, 2))
    assert not lead.is_followed(0), "broker 2 has not fetched in this epoch"
    fetch(lead, 2, 100, leo=100, now_ms=0)
    assert lead.is_followed(1_000)
    assert not lead.is_followed(1_001)
    session = SessionFetch(5_000)
    lead.followers[2].begin_idle(session)
    assert lead.is_followed(6_000), "fetches of its session count"
    assert not lead.is_followed(6_001)
    lead.propose((1, 2, 3))
    assert not lead.is_followed(6_000), "the controller may have broker 3 in the ISR already"


def test_a_leader_alone_in_its_isr_has_no_successor() -> None:
    assert leading((1,)).is_followed(1 << 40)


def test_a_follower_that_leaves_its_session_was_caught_up_at_the_last_fetch_of_it() -> None:
    lead = leading()
    fetch(lead, 2, 120, leo=120)
    follower, session = lead.followers[2], SessionFetch(0)
    follower.begin_idle(session)
    session.ms = 700
    follower.end_idle(SessionFetch(5_000))
    assert follower.session_fetch is session, "another session does not end this one"
    follower.end_idle(session)
    session.ms = 5_000
    assert (follower.caught_up_at(), follower.fetched_within(1_700, 1_000)) == (700, True)
    assert not follower.fetched_within(1_701, 1_000)
    follower.end_idle(session)
    assert follower.caught_up_at() == 700, "it has ended already"


def test_an_image_that_is_older_than_an_answer_changes_replicas_and_no_isr() -> None:
    """The answer to a proposal overtakes the metadata."""
    lead = leading((1, 2, 3))
    lead.propose((1, 2))
    assert lead.commit_answer((1, 2), 11)
    lead.on_image(image((1, 2, 3), partition_epoch=10, replicas=(1, 2, 3, 4)), 0)
    assert (lead.isr, lead.partition_epoch, sorted(lead.followers)) == ((1, 2), 11, [2, 3, 4])
    assert not lead.commit_answer((1, 2, 3), 11), "the same epoch is no newer one"


def test_an_empty_replica_that_is_about_to_join_is_waited_for() -> None:
    lead = leading((1, 2), start=0)
    fetch(lead, 2, 10, leo=10)
    fetch(lead, 3, 0, leo=0)
    assert hw(lead, 10) == 0
