"""A follower's fetcher: its session, and its reaction to each answer."""

from __future__ import annotations

import pytest
from tests.support.follower_world import BROKER_EPOCH, SELF, FollowerWorld, batch, diverging, row
from tests.support.log_world import TOPIC_ID

from barnabas.common.errors import ErrorCode
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.fetch import FetchResponse


def test_the_first_fetch_names_all_and_says_who_asks() -> None:
    world = FollowerWorld()
    world.follower(0)
    world.follower(1, epoch=7)
    request = world.request()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (SELF, BROKER_EPOCH)
    assert world.requested() == {0: (5, 0, -1), 1: (7, 0, -1)}


def test_a_session_names_only_what_changed() -> None:
    world = FollowerWorld()
    first, _ = world.follower(0), world.follower(1)
    world.answer(row(0, records=batch(0, 3), hw=2), row(1))
    assert (first.log.log_end_offset, first.high_watermark) == (3, 2)
    request = world.request()
    assert (request.session_id, request.session_epoch) == (900, 1)
    assert world.requested() == {0: (5, 3, 5)}
    world.answer()
    assert world.requested() == {}
    assert world.request().session_epoch == 2


def test_who_is_no_longer_followed_is_forgotten() -> None:
    world = FollowerWorld()
    world.follower(0)
    second = world.follower(1)
    world.answer(row(0), row(1))
    world.fetcher.remove(second.topic_id, 1)
    world.answer()
    forgotten = world.request().forgotten_topics_data
    assert [(topic.topic_id, topic.partitions) for topic in forgotten] == [(second.topic_id, [1])]
    world.answer()
    assert world.request().forgotten_topics_data == []


def test_forgotten_and_followed_again_before_the_next_request() -> None:
    world = FollowerWorld()
    world.follower(0)
    second = world.follower(1)
    world.answer(row(0), row(1))
    world.fetcher.remove(second.topic_id, 1)
    world.fetcher.add(second)
    world.answer()
    assert world.request().forgotten_topics_data == []
    assert world.requested() == {1: (5, 0, -1)}


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_lost_session_is_begun_anew(code: ErrorCode) -> None:
    world = FollowerWorld()
    world.follower(0)
    world.follower(1)
    world.answer(row(0, records=batch(0, 3)), row(1))
    world.answer(error=code)
    assert world.request().session_epoch == 0
    assert world.requested() == {0: (5, 3, 5), 1: (5, 0, -1)}


def test_a_lost_link_begins_a_new_session() -> None:
    world = FollowerWorld()
    world.follower(0)
    world.answer(row(0, records=batch(0, 3)))
    world.reply(None)
    assert (world.request().session_id, world.request().session_epoch) == (0, 0)
    assert world.requested() == {0: (5, 3, 5)}


def test_an_overdue_answer_ends_the_link_soon_and_a_slow_leader_gets_more_time_each_time() -> None:
    """The old connection can stay silent as long again after a cut; a new one is made after the wait and 2 s."""
    world = FollowerWorld()
    world.follower(0)
    times = []
    for _ in range(6):
        world.request()
        times.append(world.channel.timeout_ms)
        world.channel.last_error = TimeoutError("no answer in time")
        world.reply(None)
    assert times == [2_500, 4_500, 8_500, 16_500, 30_000, 30_000]
    world.answer(row(0, records=batch(0, 3)))
    world.request()
    assert world.channel.timeout_ms == 2_500
    world.channel.last_error = ConnectionResetError()
    world.channel.is_ready = False
    world.reply(None)
    for _ in range(3):
        world.request()
        assert world.channel.timeout_ms == 2_500, "nobody was reached: it is no slow leader"
        world.channel.last_error = TimeoutError("no answer in time")
        world.reply(None)


def test_a_leader_without_room_for_a_session_is_followed_all_the_same() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0, 3)), session=False)
    assert partition.log.log_end_offset == 3
    assert world.request().session_epoch == 0
    assert world.requested() == {0: (5, 3, 5)}


def test_an_answer_to_an_earlier_epoch_is_not_appended() -> None:
    """The records were requested in epoch 5; epoch 6 can have other ones at the same offset."""
    world = FollowerWorld()
    partition = world.follower(0)
    world.request()
    world.follow(0, 6)
    world.answer(row(0, records=batch(0, 3), hw=3))
    assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)
    assert world.requested() == {0: (6, 0, -1)}


def test_an_answer_for_a_replica_that_leads_by_now_is_not_appended() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.request()
    partition.become_leader(PartitionImage((1, SELF), (SELF,), SELF, 6, 6))
    world.answer(row(0, records=batch(0, 3)))
    assert partition.log.log_end_offset == 0


def test_an_answer_from_another_position_is_not_appended() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0, 3)))
    world.request()
    partition.truncate_to(0)
    world.answer(row(0, records=batch(3, 3)))
    assert partition.log.log_end_offset == 0
    assert world.requested() == {0: (5, 0, -1)}


def test_the_hw_is_taken_over_as_far_as_the_log_goes() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0, 3), hw=100))
    assert partition.high_watermark == 3
    world.answer(row(0, hw=1))
    assert partition.high_watermark == 3, "it does not go back"


def test_the_log_start_follows_the_leaders() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0, 3) + batch(3, 3), hw=4))
    world.answer(row(0, hw=4, start=5))
    assert partition.log.log_start_offset == 4, "not above its HW"
    world.answer(row(0, hw=6, start=5))
    assert partition.log.log_start_offset == 5
    assert world.request().topics[0].partitions[0].log_start_offset == 5


def test_divergence_is_cut_off_and_fetched_from_there() -> None:
    world = FollowerWorld()
    partition = world.follower(0, epoch=7)
    world.answer(row(0, records=batch(0, 3, epoch=5) + batch(3, 3, epoch=6)))
    world.answer(diverging(5, 2))
    assert partition.log.log_end_offset == 0, "the batch that holds offset 2 goes as a whole"
    assert world.requested() == {0: (7, 0, -1)}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_are_tried_again_soon_then_later(code: ErrorCode) -> None:
    world = FollowerWorld()
    world.follower(0)
    pauses = []
    for _ in range(9):
        world.answer(row(0, code))
        waited = 0
        while not world.channel.requested:
            world.run(1)
            waited += 1
        pauses.append(waited)
        assert world.requested() == {0: (5, 0, -1)}
    assert pauses[0] == 20
    assert pauses[:4] == [20, 40, 80, 160]
    assert pauses[-1] == 1000
    world.answer(row(0))
    world.answer(row(0, code))
    assert not world.channel.requested
    world.run(20)
    assert world.channel.requested, "an answer that went well ends the long pauses"


def test_one_that_pauses_is_left_out_and_the_others_go_on() -> None:
    world = FollowerWorld()
    world.follower(0)
    second = world.follower(1)
    world.answer(row(0, ErrorCode.UNKNOWN_LEADER_EPOCH), row(1, records=batch(0)))
    assert world.requested() == {1: (5, 1, 5)}
    world.run(25)
    world.answer(row(1))
    assert world.requested() == {0: (5, 0, -1)}
    assert second.log.log_end_offset == 1


def test_a_fenced_follower_waits_for_the_metadata() -> None:
    world = FollowerWorld()
    world.follower(0)
    world.answer(row(0, ErrorCode.FENCED_LEADER_EPOCH))
    world.run(60_000)
    assert not world.channel.requested
    world.follow(0, 6)
    assert world.requested() == {0: (6, 0, -1)}


def test_a_leader_that_cannot_be_asked_is_not_asked_without_end() -> None:
    """The connection is open, but the peer offers no version of Fetch: the channel answers immediately."""
    world = FollowerWorld()
    world.follower(0)
    requested = 0
    for _ in range(1_000):
        if world.channel.requested:
            requested += 1
            world.reply(None, link_stands=True)
        world.run(10)
    assert 5 < requested < 30
    world.run(1_000)
    world.answer(row(0, records=batch(0)))
    assert world.partitions[0].log.log_end_offset == 1


def test_a_broken_batch_is_reported_and_tried_again() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    broken = bytearray(batch(0, 3))
    broken[-1] ^= 1
    world.answer(row(0, records=bytes(broken)))
    assert partition.log.log_end_offset == 0
    assert "cannot follow" in world.host.faults.reported[0][0]
    world.run(20)
    world.answer(row(0, records=batch(0, 3)))
    assert partition.log.log_end_offset == 3


def test_a_leader_that_ends_before_its_follower_cuts_it_back() -> None:
    """OFFSET_OUT_OF_RANGE above: the leader was elected uncleanly."""
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0) + batch(1) + batch(2), hw=1))
    world.answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    requested = world.answer_offsets(2)
    assert requested.replica_id == SELF
    assert (requested.topics[0].partitions[0].timestamp, requested.topics[0].partitions[0].current_leader_epoch) == (
        -1,
        5,
    )
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 1)
    assert world.requested() == {0: (5, 2, 5)}, "without a pause"


def test_a_leader_that_begins_after_its_follower_has_it_begin_anew() -> None:
    """OFFSET_OUT_OF_RANGE below: what is missing was deleted there."""
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0)))
    world.answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    world.answer_offsets(90)
    assert world.answer_offsets(50).topics[0].partitions[0].timestamp == -4
    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (50, 50, 50)
    assert world.requested() == {0: (5, 50, -1)}


def test_a_leader_that_does_not_say_where_it_ends_is_asked_again() -> None:
    world = FollowerWorld()
    world.follower(0)
    world.answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    world.answer_offsets(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.run(20)
    assert world.requested() == {0: (5, 0, -1)}


def test_what_the_leader_said_to_an_earlier_epoch_moves_nothing() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.answer(row(0, records=batch(0) + batch(1)))
    world.answer(row(0, ErrorCode.OFFSET_OUT_OF_RANGE))
    partition.become_follower(PartitionImage((1, SELF), (1, SELF), 1, 6, 6))
    world.answer_offsets(1)
    assert partition.log.log_end_offset == 2


def test_nobody_left_to_follow() -> None:
    world = FollowerWorld()
    partition = world.follower(0)
    world.request()
    world.fetcher.remove(partition.topic_id, 0)
    assert world.fetcher.is_idle
    world.answer(row(0, records=batch(0)))
    assert partition.log.log_end_offset == 0
    world.run(5000)
    assert not world.channel.requested


def test_a_throttled_replica_that_is_behind_waits_for_its_rate_and_the_others_go_on() -> None:
    """KIP-73: the replica is left out of the session, and comes back by itself when its rate allows it."""
    world = FollowerWorld()
    world.follower(0)
    world.follower(1)
    world.quota.follow_topic("orders", {"follower.replication.throttled.replicas": f"0:{SELF},1:77"})
    world.quota.throttle.rate_bytes = 10
    world.answer(row(0, records=batch(0, 3), hw=50), row(1, records=batch(0, 3), hw=50))
    assert set(world.requested()) == {1}
    assert [topic.partitions for topic in world.request().forgotten_topics_data] == [[0]]
    world.run(15_000)
    world.answer(row(1, records=batch(3, 3), hw=50))
    assert set(world.requested()) == {0, 1}, "what was copied is paid for"


def test_a_throttled_replica_that_is_in_sync_does_not_wait() -> None:
    world = FollowerWorld()
    world.follower(0)
    world.quota.follow_topic("orders", {"follower.replication.throttled.replicas": "*"})
    world.quota.throttle.rate_bytes = 1
    world.answer(row(0, records=batch(0, 3), hw=3))
    assert set(world.requested()) == {0}


def test_when_all_are_throttled_the_fetcher_comes_back_by_itself() -> None:
    world = FollowerWorld()
    world.follower(0)
    world.quota.follow_topic("orders", {"follower.replication.throttled.replicas": "*"})
    world.quota.throttle.rate_bytes = 10
    world.answer(row(0, records=batch(0, 3), hw=50))
    assert world.channel.requested == []
    world.run(15_000)
    assert set(world.requested()) == {0}


def test_a_large_answer_is_taken_in_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are served in between; the next request goes when all is taken, and what is no longer wanted is not."""
    monkeypatch.setattr("barnabas.replication.fetcher._EVENT_BYTES_MAX", 1)
    world = FollowerWorld()
    followers = [world.follower(index) for index in range(4)]
    world.run()
    _, reply = world.channel.requested.pop(0)
    buffer = bytearray(batch(0, 3))
    rows = [row(index, records=memoryview(buffer)) for index in range(4)]  # type: ignore[arg-type]
    answer = FetchResponse(
        session_id=900, responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)]
    )
    reply(answer)
    assert [partition.log.log_end_offset for partition in followers] == [3, 0, 0, 0]
    buffer[:] = bytes(len(buffer))  # the next thing that is received
    world.fetcher.remove(TOPIC_ID, 2)
    world.follow(3, 6)
    assert world.channel.requested == []
    world.run()
    assert [partition.log.log_end_offset for partition in followers] == [3, 3, 0, 0]
    assert world.requested() == {0: (5, 3, 5), 1: (5, 3, 5), 3: (6, 0, -1)}
    assert world.host.faults.reported == []
