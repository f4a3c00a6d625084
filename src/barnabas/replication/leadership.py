"""What a leader knows of its followers in one leader epoch, and which ISR that means. Pure: offsets and times in,
decisions out.

    committed ISR   what the controller has decided, with the partition epoch that goes with it
    proposed ISR    what was asked of the controller and is not yet answered; one at a time
    maximal ISR     both together: nobody of it may be missing from what counts as replicated (G8)

Invariants
- The HW never passes the LEO of a member of the maximal ISR, nor of a replica that is about to join it.
- A replica joins only after a fetch in this epoch that reached the HW and the epoch's start offset (G7), and only as
  the incarnation that fetched (broker epoch, KIP-903).
- Who leaves: a member that has not been at the leader's LEO for `replica.lag.time.max.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.metadata.topics import UNASSIGNED_DIRECTORY, PartitionImage
from barnabas.protocol.message import UnknownTags

#: (broker, its epoch, directory of its replica) -> whether that replica may be in an ISR.
MayJoin = Callable[[int, int, bytes], bool]

UNKNOWN: Final = -1
_NEVER_MS: Final = -(1 << 62)
_UNREACHABLE: Final = 1 << 62


class Heard:
    """When a follower was last heard of by a session, which does not name the partitions where nothing changes."""

    __slots__ = ("ms",)

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms


class Follower:
    """One follower, as its fetches in this epoch show it."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "directory",
        "fetched_ms",
        "heard",
        "leader_leo",
        "leo",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int) -> None:
        #: It has everything before this offset; UNKNOWN until it fetched.
        self.leo = UNKNOWN
        self.log_start_offset = UNKNOWN
        #: Where its replica lies, as the metadata say.
        self.directory = UNASSIGNED_DIRECTORY
        #: Which incarnation fetched; UNKNOWN where it does not say.
        self.broker_epoch = UNKNOWN
        #: When it last had all that the leader had then.
        self.caught_up_ms = caught_up_ms
        #: Its last fetch, and the leader's LEO at that time.
        self.fetched_ms = 0
        self.leader_leo = _UNREACHABLE
        #: While it has all that there is: its session, whose fetches count for this partition, too.
        self.heard: Heard | None = None

    def rest(self, heard: Heard) -> None:
        """It has all, and its fetches do not say so for each partition."""
        self.heard = heard

    def rouse(self, heard: Heard) -> None:
        """Its next fetch counts by itself again. Until the session's last one it had all."""
        if self.heard is heard:
            self.caught_up_ms = self.fetched_ms = heard.ms
            self.heard = None

    def on_fetch(self, offset: int, log_start_offset: int, broker_epoch: int, leader_leo: int, now_ms: int) -> None:
        self.heard = None
        if offset >= leader_leo:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_leo:
            # It has by now what was there when it asked last: a busy log is always a little ahead.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leo = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_leo = leader_leo

    def is_caught_up(self, leader_leo: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.leo == leader_leo or now_ms - self.caught_up_at() <= lag_ms_max

    def caught_up_at(self) -> int:
        """When it last had all that the leader had then, in ms."""
        return self.caught_up_ms if self.heard is None else self.heard.ms


class Leadership:
    """A partition's term as leader. `is_alone` is kept so that an append to an unreplicated partition asks nothing."""

    __slots__ = (
        "epoch",
        "epoch_start_offset",
        "followers",
        "is_alone",
        "isr",
        "node_id",
        "partition_epoch",
        "proposed",
        "replication_factor",
        "seen",
    )

    def __init__(self, node_id: int, image: PartitionImage, epoch_start_offset: int, now_ms: int) -> None:
        self.node_id = node_id
        self.epoch = image.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.followers: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = image.isr
        self.proposed: tuple[int, ...] | None = None
        #: Why that was proposed (`replication.isr_sightings`).
        self.seen: UnknownTags = ()
        self.partition_epoch = image.partition_epoch
        self.replication_factor = len(image.replicas)
        self.is_alone = False
        self._take_replicas(image, now_ms)

    # -- what the controller decided

    def on_image(self, image: PartitionImage, now_ms: int) -> None:
        """The same leader epoch again: other replicas, or another ISR."""
        if image.partition_epoch > self.partition_epoch:
            self._commit(image.isr, image.partition_epoch)
        self.replication_factor = len(image.replicas)
        self._take_replicas(image, now_ms)

    def _take_replicas(self, image: PartitionImage, now_ms: int) -> None:
        """Who was a follower before keeps its progress; a new one in the ISR has all its time to show itself."""
        before = self.followers
        self.followers = {}
        directories = image.directories or (UNASSIGNED_DIRECTORY,) * len(image.replicas)
        for replica, directory in zip(image.replicas, directories, strict=True):
            if replica != self.node_id:
                known = before.get(replica)
                follower = known or Follower(now_ms if replica in self.isr else _NEVER_MS)
                follower.directory = directory
                self.followers[replica] = follower
        self._look()

    def commit_answer(self, isr: Sequence[int], partition_epoch: int) -> bool:
        """The controller accepted a proposal. False if something newer is known already."""
        if partition_epoch <= self.partition_epoch:
            return False
        self._commit(tuple(isr), partition_epoch)
        return True

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.proposed = None
        self._look()

    def propose(self, isr: tuple[int, ...]) -> None:
        assert self.proposed is None, "one proposal at a time"
        self.proposed = isr
        self._look()

    def withdraw(self) -> None:
        """The controller refused: what it decided before stands."""
        self.proposed = None
        self._look()

    def _look(self) -> None:
        self.is_alone = not self.followers and self.isr == (self.node_id,)

    # -- what followers tell

    def on_fetch(
        self, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int, leader_leo: int, now_ms: int
    ) -> bool:
        """False if it is none of this partition's followers, or an incarnation of one that is over (KIP-903)."""
        follower = self.followers.get(replica_id)
        if follower is None or UNKNOWN != broker_epoch < follower.broker_epoch:
            return False
        follower.on_fetch(offset, log_start_offset, broker_epoch, leader_leo, now_ms)
        return True

    # -- what follows from it

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr if self.proposed is None else (*self.isr, *(r for r in self.proposed if r not in self.isr))

    def high_watermark(self, leader_leo: int, now_ms: int, lag_ms_max: int, may_join: MayJoin) -> int:
        """The least LEO that must be waited for; UNKNOWN while a member has not fetched in this epoch."""
        lowest = leader_leo
        members = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.leo >= lowest:
                continue
            joins = follower.is_caught_up(leader_leo, now_ms, lag_ms_max) and may_join(
                replica, follower.broker_epoch, follower.directory
            )
            if replica in members or (joins and follower.leo >= 0):
                lowest = follower.leo
        return lowest

    def enlarged(self, replica_id: int, high_watermark: int, may_join: MayJoin) -> tuple[int, ...] | None:
        """The ISR with this replica, if it belongs there and nothing is proposed."""
        if self.proposed is not None or replica_id in self.isr:
            return None
        follower = self.followers.get(replica_id)
        if follower is None or follower.leo < max(high_watermark, self.epoch_start_offset):
            return None
        return (*self.isr, replica_id) if may_join(replica_id, follower.broker_epoch, follower.directory) else None

    def reduced(self, leader_leo: int, now_ms: int, lag_ms_max: int) -> tuple[int, ...] | None:
        """The ISR without those that lag, if there are any and nothing is proposed."""
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
        """The least log start offset of the replicas whose brokers live (KIP-107)."""
        return min(
            [own_log_start_offset]
            + [follower.log_start_offset for replica, follower in self.followers.items() if is_alive(replica)]
        )
