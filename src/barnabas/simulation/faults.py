"""Faults of a run as values: which occurs, where, when and for how long, and at which event it strikes.

A schedule is a list of `Fault`s. It can be printed, reduced to fewer faults and run again. A fault strikes at a fixed
time, or is tied to an event of the product (`Trigger`): then it strikes when the event happens, at a node that is named
or where the event is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from barnabas.simulation.world import format_time


class FaultKind(Enum):
    """The kinds of faults; the unit of a `Fault`'s `amount` is given for each."""

    KILL = "kill"  # kill -9, started again after the duration
    STOP = "stop"  # SIGTERM, started again after the duration
    POWER = "power"  # power failure; amount: 0 keeps, 1 loses some, 2 loses all of what was not synced
    LOSE_DISK = "lose-disk"  # the process is killed and comes back, after the duration, on an empty disk
    PAUSE = "pause"  # SIGSTOP, SIGCONT after the duration
    SLOW_DISK = "slow-disk"  # amount: times slower
    FULL_DISK = "full-disk"
    BROKEN_DISK = "broken-disk"  # every call gives EIO; afterwards the process is started again
    COLD_CACHE = "cold-cache"  # amount: percent of reads that miss the page cache
    PARTITION = "partition"  # nothing passes between node and peer
    ONE_WAY = "one-way"  # nothing passes from node to peer
    SLOW_LINK = "slow-link"  # amount: milliseconds more, both ways
    LOSSY_LINK = "lossy-link"  # amount: percent of segments lost, both ways
    RESET = "reset"  # every connection between node and peer breaks
    REFUSE = "refuse"  # new connections to the node are refused
    CLOCK = "clock"  # the wall clock jumps; amount: milliseconds
    EXPIRE = "expire"  # ZooKeeper ends the session of a running node
    LOSE_ANSWER = "lose-answer"  # the next write of a node to ZooKeeper is done, but its answer is lost
    ISOLATE = "isolate"  # nothing passes between the node and all other nodes; clients reach it
    HOLD_ANSWER = "hold-answer"  # the next answer to a request of the node waits for newer metadata; amount: API key
    AWAY_AND_BACK = "away-and-back"  # leaderships of the node move to others, and come back after the duration
    KILL_CLIENT = "kill-client"  # kill -9 of a client, which starts again after the duration
    PAUSE_CLIENT = "pause-client"  # SIGSTOP of a client, SIGCONT after the duration


class FaultEvent(Enum):
    """The events of the product to which a fault can be tied (`fault_events`)."""

    APPEND = "append"  # a leader has appended a batch that no follower has fetched yet
    DECISION = "decision"  # the active controller has decided; nothing is in its log yet
    LEADER = "leader"  # a replica begins to lead
    ISR_SHRINK = "isr-shrink"  # a leader proposes a smaller ISR
    ISR_GROWTH = "isr-growth"  # a leader proposes a larger ISR
    LOG_CUT = "log-cut"
    ROLL = "roll"  # a segment of a partition rolls
    COMPACTION = "compaction"  # a pass of the cleaner begins
    SNAPSHOT = "snapshot"  # a node begins to write a metadata snapshot
    INSTALL = "install"  # a node installs a metadata snapshot
    MOVE = "move"  # a leader sees that its replicas are moved
    PREPARE = "prepare"  # a transaction is decided, and has no markers yet
    REBALANCE = "rebalance"  # a group begins to rebalance, or a member must give up partitions
    CONTROLLER = "controller"  # another controller becomes active
    LOAD = "load"  # a coordinator begins to load a partition
    SHIFT = "shift"  # the copy of a move to another log directory is complete, or has replaced the log


#: The node field of a fault that is to strike whichever node its event happens on.
THERE: Final = "there"
_ANY: Final = "any"
_WITHIN_MS: Final = 10_000
#: The time in which a fault whose event did not happen waits for an append.
LATE_MS: Final = 1_000


class Trigger(NamedTuple):
    """The event at which a fault strikes: the first one, or a later one, at or after the time of the fault."""

    event: FaultEvent
    #: The node on which the event must happen; "" for any.
    node: str = ""
    occurrence: int = 1
    #: A fault whose event has not happened after this time strikes at the next append.
    within_ms: int = _WITHIN_MS

    def __str__(self) -> str:
        where = f" at {self.node}" if self.node else ""
        times = f"{self.occurrence} times {self.event.value}" if self.occurrence > 1 else self.event.value
        return f"at {times}{where} within {self.within_ms} ms"


DESTRUCTIVE = frozenset({FaultKind.POWER, FaultKind.LOSE_DISK})
#: The pause in which replicas catch up before the next node can lose data.
_RECOVERY_MS = 30_000


class Fault(NamedTuple):
    """One fault of a schedule. `peer` is a machine's name for faults of a link."""

    at_ms: int
    kind: FaultKind
    node: str
    peer: str = ""
    duration_ms: int = 0
    amount: int = 0
    #: The event that the fault waits for; None if it strikes at `at_ms`.
    trigger: Trigger | None = None

    @property
    def latest_ms(self) -> int:
        """The last time at which it can strike."""
        return self.at_ms if self.trigger is None else self.at_ms + self.trigger.within_ms + LATE_MS

    def __str__(self) -> str:
        between = f"{self.node} - {self.peer}" if self.peer else self.node
        amount = f", {self.amount}" if self.amount else ""
        tied = f", {self.trigger}" if self.trigger is not None else ""
        return f"{format_time(self.at_ms * 1000)}  {self.kind.value:<11} {between}, {self.duration_ms} ms{amount}{tied}"


def fault_spec(fault: Fault) -> str:
    """Returns a fault as a command names it: AT_MS:KIND:NODE[-PEER]:DURATION_MS[:AMOUNT], and if it is tied to an event
    @EVENT[:NODE[:OCCURRENCE[:WITHIN_MS]]].
    """
    between = f"{fault.node}-{fault.peer}" if fault.peer else fault.node
    amount = [str(fault.amount)] if fault.amount else []
    spec = ":".join([str(fault.at_ms), fault.kind.value, between, str(fault.duration_ms), *amount])
    if fault.trigger is None:
        return spec
    event, node, occurrence, within_ms = fault.trigger
    return f"{spec}@{event.value}:{node or _ANY}:{occurrence}:{within_ms}"


def fault_of(spec: str) -> Fault:
    """Parses the format of `fault_spec`. Raises ValueError."""
    plain, at, tied = spec.partition("@")
    at_ms, kind, between, duration_ms, *amount = plain.split(":")
    if len(amount) > 1:
        raise ValueError(f"{spec}: too many parts")
    node, _, peer = between.partition("-")
    trigger = _trigger_of(tied) if at else None
    if trigger is None and node == THERE:
        raise ValueError(f"{spec}: a fault without an event must name its node")
    return Fault(int(at_ms), FaultKind(kind), node, peer, int(duration_ms), int(amount[0]) if amount else 0, trigger)


def _trigger_of(text: str) -> Trigger:
    event, *rest = text.split(":")
    defaults = [_ANY, "1", str(_WITHIN_MS)]
    if len(rest) > len(defaults):
        raise ValueError(f"{text}: too many parts")
    node, occurrence, within_ms = [*rest, *defaults[len(rest) :]]
    if int(occurrence) < 1 or int(within_ms) < 0:
        raise ValueError(f"{text}: never")
    return Trigger(FaultEvent(event), "" if node == _ANY else node, int(occurrence), int(within_ms))


class FaultStep(NamedTuple):
    """The data of a time line entry: a fault begins or ends. `tied`: the fault of the schedule, if it struck at an
    event; `fault` is then the same one with the time and node at which it struck.
    """

    fault: Fault
    begins: bool
    tied: Fault | None = None


def within_limits(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yields the faults, which are in order, without those that destroy data before another node had time to
    recover. Such a fault has a node of its own, even if it is tied to an event.
    """
    destroyed_at: dict[str, int] = {}
    for fault in faults:
        if fault.kind in DESTRUCTIVE:
            others = [when for node, when in destroyed_at.items() if node != fault.node or node == THERE]
            if others and fault.at_ms - max(others) < _RECOVERY_MS:
                continue
            destroyed_at[fault.node] = max(destroyed_at.get(fault.node, 0), fault.latest_ms + fault.duration_ms)
        yield fault
