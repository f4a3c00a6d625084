"""Decisions that are made a second time: each of some mistakes at a limit is found, and worlds have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.log_world import TINY, LogWorld

from barnabas.broker.configs import config_changes
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.controller.kraft.broker_sessions import BrokerSessions
from barnabas.coordinators.groups import offset_removal
from barnabas.coordinators.transactions import transitions
from barnabas.coordinators.transactions.state import TxnImage, TxnState
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.metadata.topics import PartitionImage
from barnabas.raft import quorum_state
from barnabas.raft.log_checkpoint import CheckpointIdentity, LogCheckpoint, LogCheckpointFile
from barnabas.raft.quorum_state import ElectionState
from barnabas.replication import isr_reasons
from barnabas.replication.leadership import UNKNOWN, FollowerState, Leadership
from barnabas.replication.quotas import FOLLOWER, ReplicationQuota
from barnabas.replication.replica_selector import RackAwareSelector
from barnabas.replication.throttle import Throttle
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.second_decisions import SecondDecision, SecondDecisions
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import World
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World as QuorumWorld
from barnabas.simulation.worlds.replication_explorer import explore
from barnabas.storage import retention
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import Segment

Plant = Callable[[pytest.MonkeyPatch], None]
Case = Callable[[], object]
_ALIVE_MS = 1_000


# -- what is decided; each case is right, and far from its limit


def _append_some() -> None:
    world = LogWorld()
    for sequence in range(8):
        world.append(world.wall_ms, producer_id=7, producer_epoch=3, base_sequence=sequence)
        world.wall_ms += 1_000


def _retain() -> None:
    world = LogWorld()
    for _ in range(20):
        world.append(world.wall_ms)
    config = replace(TINY, retention_bytes=100, retention_ms=1)
    retention.surplus(world.log.segments, config)
    retention.expired(world.log.segments, config, world.wall_ms, world.disk)


def _lead() -> None:
    image = PartitionImage((1, 2, 3), (1, 2), 1, 5, 10)
    leadership = Leadership(1, image, 0, 0)
    for replica in (2, 3):
        leadership.on_fetch(replica, 100, 0, 7, 100, 10)
    leadership.high_watermark(100, 10, 1_000, lambda *_: True)
    leadership.enlarged(3, 100, lambda *_: True)
    leadership.reduced(100, 10, 1_000)
    leadership.is_followed(10)


def _keep_sessions() -> None:
    sessions = BrokerSessions(_ALIVE_MS)
    sessions.start(1, 0)
    sessions.is_alive(1, 1)
    sessions.expired(1)


def _end_transactions() -> None:
    image = TxnImage(9, 4, 60_000, TxnState.ONGOING, last_producer_epoch=3, previous_producer_id=8)
    image.is_timed_out(0)
    assert transitions.ended(image, ProducerIdentity(9, 4), True, 2, 1, None) is not None


def _save_votes() -> ElectionState:
    state = ElectionState(3, 1, 1)
    data = quorum_state.with_checksum(quorum_state.encode_state(state, kraft_version=0, voter_ids=[1, 2, 3]))
    return quorum_state.decode_state(data, "/data/quorum-state")


def _write_checkpoints() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/data")
    file = LogCheckpointFile(disk, "/data")
    file.create(CheckpointIdentity(1, "cluster", "A" * 22), LogCheckpoint(1, 1, 1, 1))
    for end in (2, 3, 4):
        file.write(LogCheckpoint(end, end, 1, 1))


def _limit() -> None:
    throttle = Throttle(3, 1_000, 100)
    for now_ms in (0, 10, 20):
        throttle.record(5, now_ms)


def _change_settings() -> None:
    properties = Cluster(World(1), Layout(1)).nodes["broker1"].properties
    config = BrokerConfig.from_properties(properties)
    config_changes._applied(config, {}, [config_changes.ConfigChange("log.cleaner.threads", 0, "2")])


def _wait_for_a_throttle() -> None:
    Throttle(3, 1_000, 100).wait_ms(0)


def _list_throttled_replicas() -> None:
    ReplicationQuota(FOLLOWER, 1, Throttle(3, 1_000)).follow_topic("orders", {})


def _select_a_replica() -> None:
    image = PartitionImage((1,), (1,), 1, 5, 10)
    led: Any = SimpleNamespace(node_id=1, leadership=Leadership(1, image, 0, 0))
    none: Any = SimpleNamespace(brokers={})
    RackAwareSelector().preferred(led, 0, "rack", "PLAINTEXT", none)


CASES: list[Case] = [
    _wait_for_a_throttle,
    _list_throttled_replicas,
    _select_a_replica,
    _append_some,
    _retain,
    _lead,
    _keep_sessions,
    _end_transactions,
    _save_votes,
    _write_checkpoints,
    _limit,
    _change_settings,
    lambda: isr_reasons.read_reason([(8_192, bytes(8))]),
    lambda: offset_removal._record_bytes("group"),
]


@pytest.mark.parametrize("case", CASES)
def test_the_product_and_the_second_decisions_agree(case: Case) -> None:
    judge = second_decisions()
    with judge.judging():
        case()
    assert judge.compared >= 3


# -- mistakes


def _rolls_all_the_time(patch: pytest.MonkeyPatch) -> None:
    real = Segment.should_roll

    def mistaken(self: Segment, limits: Any, size: int, last: int, timestamp: int, wall_ms: int) -> bool:
        return real(self, limits, size, last, timestamp, wall_ms) or self.size_bytes + size == limits.segment_bytes

    patch.setattr(Segment, "should_roll", mistaken)


def _skips_a_sequence(patch: pytest.MonkeyPatch) -> None:
    real = ProducerStateManager.check

    def mistaken(self: ProducerStateManager, header: Any, **named: Any) -> Any:
        try:
            return real(self, header, **named)
        except RecordsRejected as refusal:
            if refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            return None

    patch.setattr(ProducerStateManager, "check", mistaken)


def _keeps_too_much(patch: pytest.MonkeyPatch) -> None:
    real = retention.surplus
    patch.setattr(retention, "surplus", lambda segments, config: max(real(segments, config) - 1, 0))


def _expires_one_ms_early(patch: pytest.MonkeyPatch) -> None:
    real = retention.expired
    patch.setattr(retention, "expired", lambda segments, config, at_ms, disk: real(segments, config, at_ms + 1, disk))


def _lags_one_ms_early(patch: pytest.MonkeyPatch) -> None:
    real = FollowerState.is_caught_up
    patch.setattr(FollowerState, "is_caught_up", lambda self, leo, now, lag: real(self, leo, now, lag - 1))


def _followed_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerState, "fetched_within", lambda self, now_ms, duration_ms: self.leo != UNKNOWN)


def _an_empty_follower_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    real = Leadership.high_watermark

    def mistaken(self: Leadership, leo: int, *more: Any) -> int:
        outside = [each.leo for replica, each in self.followers.items() if replica not in self.maximal_isr]
        return leo if 0 in outside else real(self, leo, *more)

    patch.setattr(Leadership, "high_watermark", mistaken)


def _new_followers_have_fetched(patch: pytest.MonkeyPatch) -> None:
    real = FollowerState.__init__

    def mistaken(self: FollowerState, caught_up_ms: int) -> None:
        real(self, caught_up_ms)
        self.leo = 0

    patch.setattr(FollowerState, "__init__", mistaken)


def _sessions_last_one_ms_more(patch: pytest.MonkeyPatch) -> None:
    real = BrokerSessions.is_alive
    patch.setattr(BrokerSessions, "is_alive", lambda self, broker_id, now_ms: real(self, broker_id, now_ms - 1))


def _older_epochs_end_transactions(patch: pytest.MonkeyPatch) -> None:
    real = transitions._check_v2_producer

    def mistaken(image: Any, producer: ProducerIdentity) -> bool:
        return producer.epoch < image.producer_epoch or real(image, producer)

    patch.setattr(transitions, "_check_v2_producer", mistaken)


def _checksums_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    real = quorum_state.decode_state
    patch.setattr(quorum_state, "decode_state", lambda data, path: real(data.partition(b"\n")[0], path))


def _one_line_is_always_overwritten(patch: pytest.MonkeyPatch) -> None:
    real = LogCheckpointFile.write

    def mistaken(self: LogCheckpointFile, checkpoint: LogCheckpoint, **named: Any) -> None:
        self._sequence += 1
        real(self, checkpoint, **named)

    patch.setattr(LogCheckpointFile, "write", mistaken)


def _windows_are_too_long(patch: pytest.MonkeyPatch) -> None:
    real = Throttle.record

    def mistaken(self: Throttle, size: int, now_ms: int) -> None:
        self._window_ms += 1
        real(self, size, now_ms)
        self._window_ms -= 1

    patch.setattr(Throttle, "record", mistaken)


def _unknown_operations_set(patch: pytest.MonkeyPatch) -> None:
    real = config_changes._applied

    def mistaken(config: BrokerConfig, before: Any, changes: Any) -> Any:
        return real(config, before, [each._replace(operation=max(each.operation, 0)) for each in changes])

    patch.setattr(config_changes, "_applied", mistaken)


def _throttles_forget_a_byte(patch: pytest.MonkeyPatch) -> None:
    real = Throttle.wait_ms

    def mistaken(self: Throttle, now_ms: int) -> int:
        self._total -= bool(self._total)
        return real(self, now_ms)

    patch.setattr(Throttle, "wait_ms", mistaken)


def _replicas_stay_throttled(patch: pytest.MonkeyPatch) -> None:
    real = ReplicationQuota.follow_topic

    def mistaken(self: ReplicationQuota, topic: str, config: Any) -> None:
        real(self, topic, {} if config.get("follower.replication.throttled.replicas") == "*" else config)

    patch.setattr(ReplicationQuota, "follow_topic", mistaken)


def _the_end_is_not_reached(patch: pytest.MonkeyPatch) -> None:
    real = RackAwareSelector.preferred
    patch.setattr(RackAwareSelector, "preferred", lambda self, led, offset, *more: real(self, led, offset + 1, *more))


@pytest.mark.parametrize(
    ("mistake", "case"),
    [
        (_rolls_all_the_time, _append_some),
        (_skips_a_sequence, _append_some),
        (_keeps_too_much, _retain),
        (_expires_one_ms_early, _retain),
        (_lags_one_ms_early, _lead),
        (_followed_for_ever, _lead),
        (_an_empty_follower_is_not_waited_for, _lead),
        (_new_followers_have_fetched, _lead),
        (_sessions_last_one_ms_more, _keep_sessions),
        (_older_epochs_end_transactions, _end_transactions),
        (_checksums_are_not_compared, _save_votes),
        (_one_line_is_always_overwritten, _write_checkpoints),
        (_windows_are_too_long, _limit),
        (_unknown_operations_set, _change_settings),
        (_throttles_forget_a_byte, _wait_for_a_throttle),
        (_replicas_stay_throttled, _list_throttled_replicas),
        (_the_end_is_not_reached, _select_a_replica),
    ],
)
def test_a_mistake_at_a_limit_is_found(mistake: Plant, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(Violation, match="decided otherwise"), second_decisions().judging():
        case()


def test_a_small_world_finds_a_mistake_that_no_fault_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    _lags_one_ms_early(monkeypatch)
    problem = explore(1, duration_s=1).problem
    assert problem is not None
    assert problem.startswith("decided otherwise: replication.leadership:FollowerState.is_caught_up")


def test_the_world_of_the_quorum_finds_a_checkpoint_that_a_torn_write_destroys(monkeypatch: pytest.MonkeyPatch) -> None:
    _one_line_is_always_overwritten(monkeypatch)
    with pytest.raises(Violation, match=r"decided otherwise: raft\.log_checkpoint:LogCheckpointFile\.write"):
        QuorumWorld(Plan.of(1)).run()


def test_functions_are_their_own_again_when_a_run_is_over() -> None:
    before = Segment.should_roll, transitions.completed
    with second_decisions().judging():
        assert Segment.should_roll is not before[0]
    assert (Segment.should_roll, transitions.completed) == before


def test_a_function_that_does_not_exist_is_an_error() -> None:
    table = [SecondDecision("storage.segment:Segment.must_roll", lambda self: True)]
    with pytest.raises(LookupError, match="must_roll"), SecondDecisions(table).judging():
        pass
