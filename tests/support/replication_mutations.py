"""Mistakes that were once made in systems like this one, patched in from outside, for the explorer to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.own_registration import AfterOwnRegistration
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.metadata.topics import PartitionImage
from barnabas.replication import fetcher
from barnabas.replication.leadership import Leadership
from barnabas.replication.partition import Partition
from barnabas.simulation.faults import FaultKind
from barnabas.storage import follower_append
from barnabas.storage import log as storage_log
from barnabas.storage.log import AppendInfo, Log

Mutation = Callable[[pytest.MonkeyPatch], None]


def truncate_to_the_hw(patch: pytest.MonkeyPatch) -> None:
    """Before KIP-101: a follower cuts itself back to the HW that it knows (G1)."""
    become_follower = Partition.become_follower

    def mutated(self: Partition, image: PartitionImage) -> None:
        is_new_epoch = image.leader_epoch != self.leader_epoch
        become_follower(self, image)
        if is_new_epoch:
            self.truncate_to(self.high_watermark)

    patch.setattr(Partition, "become_follower", mutated)


def no_look_for_divergence(patch: pytest.MonkeyPatch) -> None:
    """A follower does not say which epoch it has fetched last (G2)."""

    class Silent(fetcher._Asked):
        def __init__(self, **fields: Any) -> None:
            super().__init__(**{**fields, "last_fetched_epoch": -1})

    patch.setattr(fetcher, "_Asked", Silent)


def isr_by_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """Who is proposed to leave is not waited for any more, whatever the controller says."""
    patch.setattr(
        Leadership, "maximal_isr", property(lambda self: self.isr if self.proposed is None else self.proposed)
    )


def hw_beyond_the_log(patch: pytest.MonkeyPatch) -> None:
    """A follower believes the leader's HW although it has not got that far."""
    append = Partition.append_as_follower

    def mutated(self: Partition, records: Buffer, high_watermark: int, log_start_offset: int) -> None:
        append(self, records, high_watermark, log_start_offset)
        self.high_watermark = max(self.high_watermark, high_watermark)

    patch.setattr(Partition, "append_as_follower", mutated)


def roles_of_the_last_life(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts again leads what it led, before the controller knows that it was away."""
    patch.setattr(AfterOwnRegistration, "on_image", lambda self, delta, image: self._subscriber(delta, image))


def ends_are_told_too_early(patch: pytest.MonkeyPatch) -> None:
    """A new leader answers with a HW that is older than what clients have seen (G6)."""
    patch.setattr(Partition, "is_end_known", property(lambda self: True))


def followers_do_not_know_producers(patch: pytest.MonkeyPatch) -> None:
    """Producer state is kept by the leader only (G20)."""
    append = Log.append_as_follower
    note = storage_log.note_producer

    def mutated(self: Log, batches: Buffer) -> AppendInfo | None:
        for room in (storage_log, follower_append):
            patch.setattr(room, "note_producer", lambda *state: None)
        try:
            return append(self, batches)
        finally:
            for room in (storage_log, follower_append):
                patch.setattr(room, "note_producer", note)

    patch.setattr(Log, "append_as_follower", mutated)


def acks_of_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered when the leader has it."""
    patch.setattr(Partition, "await_commit", lambda self, offset, done: done(ErrorCode.NONE))


def hw_of_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for (G8)."""
    patch.setattr(Leadership, "high_watermark", lambda self, leo, now_ms, lag_ms, may_join: leo)


#: The first seed that finds it, with these kinds of faults in place of the seed's own, and what it says.
FOUND_BY: dict[Mutation, tuple[int, tuple[FaultKind, ...], str]] = {
    truncate_to_the_hw: (7, (), "committed records are lost"),
    no_look_for_divergence: (1, (), "logs differ below the HW"),
    isr_by_the_leader_alone: (6, (), "committed records are lost"),
    hw_beyond_the_log: (1, (), "orders-1 on broker1 cannot be read"),
    hw_of_the_leader_alone: (1, (), "logs differ below the HW"),
    acks_of_the_leader_alone: (1, (), "idempotent producer was refused"),
    roles_of_the_last_life: (16, (FaultKind.POWER,), "committed records are lost"),
    ends_are_told_too_early: (14, (), "the end went back for clients"),
    followers_do_not_know_producers: (1, (FaultKind.KILL,), "idempotent producer was refused"),
}
