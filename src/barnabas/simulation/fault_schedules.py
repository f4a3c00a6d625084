"""Schedules of faults, drawn from the seed: which kinds occur, when, where, for how long, and at which events.

Each seed first draws its own subset of kinds (a swarm): runs with few kinds reach states that runs with all of them
never do. About half of the faults are tied to events.

The generator respects the limits within which the checkers expect the cluster to be safe. A fault that can destroy data
(`DESTRUCTIVE`) strikes another node only after the last one had time to recover, so that the same data is never lost on
more replicas than the replication factor covers; and of data that only one node has, only unsynced parts are destroyed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Final

from barnabas.simulation.faults import (
    DESTRUCTIVE,
    LATE_MS,
    THERE,
    Fault,
    FaultEvent,
    FaultKind,
    Trigger,
    within_limits,
)
from barnabas.simulation.simulated_cluster import ZOOKEEPER, Layout
from barnabas.simulation.world import World

_GAP_MS_MEAN = 12_000
_WITH_PEER = frozenset(
    {FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.SLOW_LINK, FaultKind.LOSSY_LINK, FaultKind.RESET}
)
_OF_CLIENTS = (FaultKind.KILL_CLIENT, FaultKind.PAUSE_CLIENT)
_CLIENT_GAP_MS_MEAN = 20_000
_AIMED_GAP_MS_MEAN = 20_000

#: Kinds that strike brokers only. Faults of disks would end a ZooKeeper server each time it starts.
_OF_BROKERS = frozenset({FaultKind.FULL_DISK, FaultKind.BROKEN_DISK, FaultKind.REFUSE})
_OF_SESSIONS = frozenset({FaultKind.EXPIRE, FaultKind.LOSE_ANSWER})
#: The share of link faults that cut a broker off from ZooKeeper only.
_ZOOKEEPER_LINK_CHANCE = 0.3
#: Kinds whose effect depends on what the cluster is doing. They are drawn separately from the others.
_AIMED = (FaultKind.ISOLATE, FaultKind.HOLD_ANSWER, FaultKind.AWAY_AND_BACK)
#: The requests of a node whose answer can be held back: any, or fetches, ISR changes, heartbeats.
_HELD_KEYS: Final = (0, 0, 1, 56, 63)
_AWAY_MS_MAX: Final = 1_000
_HELD_MS_MAX: Final = 3_000

_TIED_SHARE: Final = 0.5
_TIED_WITHIN_MS: Final = 20_000
#: Destructive faults exclude others of their kind for the whole time in which they can strike.
_DESTRUCTIVE_WITHIN_MS: Final = 10_000
#: Kinds that can strike any node, and hence the one at which an event happens.
_ANYWHERE: Final = frozenset(
    {
        FaultKind.KILL,
        FaultKind.STOP,
        FaultKind.PAUSE,
        FaultKind.SLOW_DISK,
        FaultKind.PARTITION,
        FaultKind.ONE_WAY,
        FaultKind.SLOW_LINK,
        FaultKind.RESET,
        FaultKind.ISOLATE,
        FaultKind.HOLD_ANSWER,
        FaultKind.AWAY_AND_BACK,
    }
)
_THERE_SHARE: Final = 0.7
#: Events that are frequent, so that a fault can wait for a later occurrence.
_FREQUENT: Final = frozenset({FaultEvent.APPEND, FaultEvent.DECISION, FaultEvent.PREPARE})
_FREQUENT_SHARE: Final = 0.4
#: Events of the one active controller: a fault that waits for them at another node waits in vain.
_OF_ONE_NODE: Final = frozenset({FaultEvent.DECISION, FaultEvent.CONTROLLER})
_OCCURRENCES: Final = (1, 1, 1, 2, 4, 10)
_OCCURRENCES_OF_RARE: Final = (1, 1, 1, 2)


class Ties:
    """The events of one seed; `tie` ties about half of the faults to one of these events. They wait for it no longer
    than until `end_ms`.
    """

    def __init__(self, random: Random, events: Sequence[FaultEvent], within_ms: int, end_ms: int | None = None) -> None:
        self._random = random
        self._within_ms = within_ms
        self._end_ms = end_ms
        self._events = [event for event in events if random.random() < 0.5] or list(events)
        self._frequent = [event for event in events if event in _FREQUENT] or self._events

    def tie(self, fault: Fault) -> Fault:
        random = self._random
        if not self._events or random.random() >= _TIED_SHARE:
            return fault
        event = random.choice(self._frequent if random.random() < _FREQUENT_SHARE else self._events)
        occurrence = random.choice(_OCCURRENCES if event in _FREQUENT else _OCCURRENCES_OF_RARE)
        where = random.choice(("", fault.node)) if fault.node.startswith("broker") else ""
        if event in _OF_ONE_NODE:
            where = ""
        if fault.kind in _ANYWHERE and random.random() < _THERE_SHARE:
            fault, where = fault._replace(node=THERE), ""
        return fault._replace(trigger=Trigger(event, where, occurrence, self._within(fault)))

    def _within(self, fault: Fault) -> int:
        within_ms = min(self._within_ms, _DESTRUCTIVE_WITHIN_MS) if fault.kind in DESTRUCTIVE else self._within_ms
        return within_ms if self._end_ms is None else max(0, min(within_ms, self._end_ms - LATE_MS - fault.at_ms))


def draw_aimed(random: Random, kind: FaultKind, at_ms: int, node: str, duration_ms: int) -> Fault:
    """Draws a fault of a kind whose effect depends on what the cluster is doing."""
    amount = 0
    if kind is FaultKind.AWAY_AND_BACK:
        duration_ms = random.randint(20, _AWAY_MS_MAX)
    elif kind is FaultKind.HOLD_ANSWER:
        duration_ms, amount = random.randint(100, _HELD_MS_MAX), random.choice(_HELD_KEYS)
    return Fault(at_ms, kind, node, duration_ms=duration_ms, amount=amount)


class FaultGenerator:
    """Draws schedules of faults from a seed."""

    def __init__(
        self,
        layout: Layout,
        clients: Sequence[str],
        kinds: Collection[FaultKind] = tuple(FaultKind),
        events: Sequence[FaultEvent] = (),
    ) -> None:
        """Creates a generator of schedules. `events`: those to which faults can be tied."""
        self._brokers = list(layout.node_properties())
        self._nodes = [*self._brokers, *([ZOOKEEPER] if layout.zookeeper else [])]
        self._in_zookeeper = layout.zookeeper
        self._clients = list(clients)
        self._events = list(events)
        has_voters_apart = layout.controllers > 0 and layout.replication_factor > 2
        self._replaceable = [name for name in self._nodes if name.startswith("broker")] if has_voters_apart else []
        possible = [kind for kind in FaultKind if kind in kinds and kind not in _OF_CLIENTS and self._victims(kind)]
        self._kinds = [kind for kind in possible if kind not in _AIMED]
        self._kinds_aimed = [kind for kind in possible if kind in _AIMED]
        self._kinds_of_clients = [kind for kind in _OF_CLIENTS if kind in kinds and self._clients]

    def schedule(self, world: World, begin_ms: int, end_ms: int) -> tuple[Fault, ...]:
        """Draws the faults of nodes and clients in the given period, in order."""
        faults = self.draw(world.stream("atlas"), begin_ms, end_ms)
        faults += self.draw_aimed(world.stream("aimed faults"), begin_ms, end_ms)
        ties = self.ties(world.stream("ties"), end_ms)
        faults = list(within_limits(map(ties.tie, sorted(faults, key=lambda fault: fault.at_ms))))
        of_clients = self.draw_of_clients(world.stream("clients"), begin_ms, end_ms)
        faults += map(self.ties(world.stream("ties of clients"), end_ms).tie, of_clients)
        return tuple(sorted(faults, key=lambda fault: fault.at_ms))

    def ties(self, random: Random, end_ms: int) -> Ties:
        """Draws the events to which the faults of a seed are tied; the faults end at `end_ms`."""
        return Ties(random, self._events, _TIED_WITHIN_MS, end_ms)

    def draw_aimed(self, random: Random, begin_ms: int, end_ms: int) -> list[Fault]:
        """Draws the faults whose effect depends on what the cluster is doing, independently of the others."""
        swarm = [kind for kind in self._kinds_aimed if random.random() < 0.4]
        faults: list[Fault] = []
        at_ms = begin_ms
        while swarm and (at_ms := at_ms + 1 + int(random.expovariate(1 / _AIMED_GAP_MS_MEAN))) < end_ms:
            kind = random.choice(swarm)
            faults.append(draw_aimed(random, kind, at_ms, random.choice(self._victims(kind)), _duration_ms(random)))
        return faults

    def draw_of_clients(self, random: Random, begin_ms: int, end_ms: int) -> list[Fault]:
        """Draws the faults of clients in the given period, independently of those of nodes."""
        swarm = [kind for kind in self._kinds_of_clients if random.random() < 0.4]
        faults: list[Fault] = []
        at_ms = begin_ms
        while swarm and (at_ms := at_ms + 1 + int(random.expovariate(1 / _CLIENT_GAP_MS_MEAN))) < end_ms:
            kind = random.choice(swarm)
            faults.append(Fault(at_ms, kind, random.choice(self._clients), duration_ms=_duration_ms(random)))
        return faults

    def draw(self, random: Random, begin_ms: int, end_ms: int) -> list[Fault]:
        """Draws the faults of nodes in the given period, in order."""
        swarm = [kind for kind in self._kinds if random.random() < 0.5]
        if not swarm and self._kinds:
            swarm = [random.choice(self._kinds)]
        faults: list[Fault] = []
        at_ms = begin_ms
        while swarm:
            at_ms += 1 + int(random.expovariate(1 / _GAP_MS_MEAN))
            if at_ms >= end_ms:
                break
            faults.append(self._draw_one(random, random.choice(swarm), at_ms))
        return list(within_limits(faults))

    def _victims(self, kind: FaultKind) -> list[str]:
        """Returns the programs that a fault can strike. Voters never lose a disk, which has their votes in the quorum.
        In ZooKeeper mode no broker loses unsynced records, which nobody notices there; and the server needs its disk.
        """
        if kind is FaultKind.LOSE_DISK:
            return self._replaceable
        if kind in _AIMED and len(self._nodes) == 1:
            return []
        if kind in _OF_SESSIONS:
            return self._brokers if self._in_zookeeper else []
        if self._in_zookeeper and kind is FaultKind.POWER:
            return [ZOOKEEPER]
        return self._brokers if kind in _OF_BROKERS or kind in _AIMED else self._nodes

    def _draw_one(self, random: Random, kind: FaultKind, at_ms: int) -> Fault:
        node = random.choice(self._victims(kind))
        peer = ""
        if kind in _WITH_PEER:
            peer = random.choice([name for name in (*self._nodes, *self._clients) if name != node])
            if self._in_zookeeper and node != ZOOKEEPER and random.random() < _ZOOKEEPER_LINK_CHANCE:
                peer = ZOOKEEPER
        amounts = {
            FaultKind.POWER: (0, 2),
            FaultKind.SLOW_DISK: (5, 300),
            FaultKind.COLD_CACHE: (10, 100),
            FaultKind.SLOW_LINK: (5, 2_000),
            FaultKind.LOSSY_LINK: (1, 40),
            FaultKind.CLOCK: (-1_800_000, 1_800_000),
        }
        low, high = amounts.get(kind, (0, 0))
        duration_ms = _duration_ms(random)
        return Fault(at_ms, kind, node, peer, duration_ms, random.randint(low, high))


def _duration_ms(random: Random) -> int:
    """Draws a duration: most faults are short, some outlast every timeout."""
    return int(random.choice((200, 2_000, 8_000, 20_000, 45_000)) * (0.25 + random.random()))
