"""A leader's knowledge of its followers in one leader epoch, and the ISR that follows from it. Pure: offsets and times
in, decisions out.

    committed ISR   the controller's decision, with its partition epoch
    proposed ISR    requested from the controller and not answered yet; one at a time
    maximal ISR     the union of both: all its members must have a record before it counts as replicated (G8)

Invariants
- The HW never exceeds the LEO of a member of the maximal ISR, nor of a replica that is about to join it.
- A replica joins only after a fetch in this epoch that reached the HW and the epoch's start offset (G7), and only as
  the incarnation that fetched (broker epoch, KIP-903).
- A member leaves if it has not been caught up with the leader's LEO for `replica.lag.time.max.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.metadata.topics import UNASSIGNED_DIRECTORY, PartitionImage
from barnabas.protocol.message import UnknownTags

#: (broker id, broker epoch, directory of its replica) -> whether that replica can be in an ISR.
MayJoin = Callable[[int, int, bytes], bool]

UNKNOWN: Final = -1
_NEVER_MS: Final = -(1 << 62)
_UNREACHABLE: Final = 1 << 62
#: Idle followers fetch every 500 ms (`replica.fetch.wait.max.ms`): this is twice as long.
FOLLOWED_MS: Final = 1_000


class SessionFetch:
    """The time of a fetch session's last fetch, which does not name partitions without changes."""

    __slots__ = ("ms",)

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms


class FollowerState:
    """The state of one follower, as its fetches in this epoch report it."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "directory",
        "fetched_ms",
        "leader_leo",
        "leo",
        "log_start_offset",
        "session_fetch",
    )

    def __init__(self, caught_up_ms: int) -> None:
        #: The follower's LEO as of its last fetch; UNKNOWN before the first one.
        self.leo = UNKNOWN
        self.log_start_offset = UNKNOWN
        #: The log directory of the follower's replica, from the metadata.
        self.directory = UNASSIGNED_DIRECTORY
        #: Broker epoch of the incarnation that fetched; UNKNOWN if not sent.
        self.broker_epoch = UNKNOWN
        #: The time at which the follower was last caught up with the leader's LEO of that time.
        self.caught_up_ms = caught_up_ms
        #: The time of the follower's last fetch, and the leader's LEO at that time.
        self.fetched_ms = 0
        self.leader_leo = _UNREACHABLE
        #: The follower's fetch session while it is caught up: each of its fetches counts for this partition too.
        self.session_fetch: SessionFetch | None = None

    def begin_idle(self, session_fetch: SessionFetch) -> None:
        """Credits the session's fetches to this follower, which is caught up and not named in them."""
        self.session_fetch = session_fetch

    def end_idle(self, session_fetch: SessionFetch) -> None:
        """Stops crediting the session's fetches to this follower. Its last fetch and the last time it was caught up are
        those of the session's last fetch.
        """
        if self.session_fetch is session_fetch:
            self.caught_up_ms = self.fetched_ms = session_fetch.ms
            self.session_fetch = None

    def on_fetch(self, offset: int, log_start_offset: int, broker_epoch: int, leader_leo: int, now_ms: int) -> None:
        self.session_fetch = None
        if offset >= leader_leo:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_leo:
            # The follower has reached the LEO of its previous fetch: the LEO of a busy log is always a little ahead.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leo = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_leo = leader_leo

    def is_caught_up(self, leader_leo: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.leo == leader_leo or now_ms - self.caught_up_at() <= lag_ms_max

    def fetched_within(self, now_ms: int, duration_ms: int) -> bool:
        """Returns whether the follower has fetched in this epoch, and its last fetch is not older than this."""
        fetched_ms = self.fetched_ms if self.session_fetch is None else self.session_fetch.ms
        return self.leo != UNKNOWN and now_ms - fetched_ms <= duration_ms

    def caught_up_at(self) -> int:
        """Returns the time, in ms, when the follower was last caught up with the leader's LEO of that time."""
        return self.caught_up_ms if self.session_fetch is None else self.session_fetch.ms


class Leadership:
    """The leadership of a partition in one leader epoch. `is_alone` is stored, so that appends to an unreplicated log
    only check a flag.
    """

    __slots__ = (
        "epoch",
        "epoch_start_offset",
        "followers",
        "is_alone",
        "isr",
        "node_id",
        "partition_epoch",
        "proposed",
        "reason",
        "replication_factor",
    )

    def __init__(self, node_id: int, image: PartitionImage, epoch_start_offset: int, now_ms: int) -> None:
        assert node_id in image.isr, "the leader is in its ISR"
        self.node_id = node_id
        self.epoch = image.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.followers: dict[int, FollowerState] = {}
        self.isr: tuple[int, ...] = image.isr
        self.proposed: tuple[int, ...] | None = None
        #: The reason for the proposal (`replication.isr_reasons`).
        self.reason: UnknownTags = ()
        self.partition_epoch = image.partition_epoch
        self.replication_factor = len(image.replicas)
        self.is_alone = False
        self._take_replicas(image, now_ms)

    # -- decisions of the controller

    def on_image(self, image: PartitionImage, now_ms: int) -> None:
        """Applies an image with the same leader epoch, with other replicas or another ISR."""
        if image.partition_epoch > self.partition_epoch:
            self._commit(image.isr, image.partition_epoch)
        self.replication_factor = len(image.replicas)
        self._take_replicas(image, now_ms)

    def _take_replicas(self, image: PartitionImage, now_ms: int) -> None:
        """Adopts the replicas of an image: known followers keep their state; a new one in the ISR counts as caught up
        now.
        """
        before = self.followers
        self.followers = {}
        directories = image.directories or (UNASSIGNED_DIRECTORY,) * len(image.replicas)
        for replica, directory in zip(image.replicas, directories, strict=True):
            if replica != self.node_id:
                known = before.get(replica)
                follower = known or FollowerState(now_ms if replica in self.isr else _NEVER_MS)
                follower.directory = directory
                self.followers[replica] = follower
        self._update_is_alone()

    def commit_answer(self, isr: Sequence[int], partition_epoch: int) -> bool:
        """Applies an accepted proposal. Returns False if a newer partition epoch is known already."""
        if partition_epoch <= self.partition_epoch:
            return False
        self._commit(tuple(isr), partition_epoch)
        return True

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        assert partition_epoch > self.partition_epoch, "a partition epoch only increases"
        assert self.node_id in isr, "the leader is in its ISR"
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.proposed = None
        self._update_is_alone()

    def propose(self, isr: tuple[int, ...]) -> None:
        assert self.proposed is None, "one proposal at a time"
        assert self.node_id in isr, "the leader is in its ISR"
        assert all(replica == self.node_id or replica in self.followers for replica in isr), "the ISR has only replicas"
        self.proposed = isr
        self._update_is_alone()

    def withdraw(self) -> None:
        """Drops the proposal, which the controller refused; the committed ISR remains."""
        self.proposed = None
        self._update_is_alone()

    def _update_is_alone(self) -> None:
        self.is_alone = not self.followers and self.isr == (self.node_id,)

    # -- fetches of followers

    def on_fetch(
        self, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int, leader_leo: int, now_ms: int
    ) -> bool:
        """Records a fetch. Returns False if the replica is not a follower of this partition, or is outdated
        (KIP-903).
        """
        follower = self.followers.get(replica_id)
        if follower is None or UNKNOWN != broker_epoch < follower.broker_epoch:
            return False
        follower.on_fetch(offset, log_start_offset, broker_epoch, leader_leo, now_ms)
        return True

    # -- results

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr if self.proposed is None else (*self.isr, *(r for r in self.proposed if r not in self.isr))

    def is_followed(self, now_ms: int, within_ms: int = FOLLOWED_MS) -> bool:
        """Returns whether all other members of the maximal ISR have fetched within this time: then none of them has led
        a later epoch for longer, because a leader does not fetch; and only members are elected cleanly.
        """
        followers = (self.followers.get(replica) for replica in self.maximal_isr if replica != self.node_id)
        return all(follower is None or follower.fetched_within(now_ms, within_ms) for follower in followers)

    def high_watermark(self, leader_leo: int, now_ms: int, lag_ms_max: int, may_join: MayJoin) -> int:
        """Returns the high watermark that follows from the LEOs: the lowest one of the replicas to wait for. UNKNOWN
        while a member has not fetched in this epoch.
        """
        lowest = leader_leo
        members = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.leo >= lowest:
                continue
            if replica in members or (
                follower.leo >= 0
                and follower.is_caught_up(leader_leo, now_ms, lag_ms_max)
                and may_join(replica, follower.broker_epoch, follower.directory)
            ):
                lowest = follower.leo
        return lowest

    def enlarged(self, replica_id: int, high_watermark: int, may_join: MayJoin) -> tuple[int, ...] | None:
        """Returns the ISR with this replica; None if the replica cannot join now, or a proposal is in flight."""
        if self.proposed is not None or replica_id in self.isr:
            return None
        follower = self.followers.get(replica_id)
        if follower is None or follower.leo < max(high_watermark, self.epoch_start_offset):
            return None
        return (*self.isr, replica_id) if may_join(replica_id, follower.broker_epoch, follower.directory) else None

    def reduced(self, leader_leo: int, now_ms: int, lag_ms_max: int) -> tuple[int, ...] | None:
        """Returns the ISR without lagging members; None if there are none, or a proposal is in flight."""
        if self.proposed is not None:
            return None
        kept = tuple(
            replica
            for replica in self.isr
            if replica == self.node_id
            or replica not in self.followers
            or self.followers[replica].is_caught_up(leader_leo, now_ms, lag_ms_max)
        )
        return kept if len(kept) < len(self.isr) else None

    def low_watermark(self, own_log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Returns the lowest log start offset of the replicas on live brokers (KIP-107)."""
        return min(
            [own_log_start_offset]
            + [follower.log_start_offset for replica, follower in self.followers.items() if is_alive(replica)]
        )
