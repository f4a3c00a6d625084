"""The promise that writes with acks=all continue during faults.

It applies to each partition with at least `min.insync.replicas` healthy replicas that reach each other and a majority
of the controllers, one of which can lead without a loss. Such a partition takes writes again within a bound that
depends on the faults of the rest of the cluster, counted from their last change, and keeps taking them. On the brokers
this means that it has a healthy leader which knows that it leads, that its ISR is large enough, and that its HW follows
its LEO. For clients it means that not all writes are refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from barnabas.common.types import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.replication.partition import Role
from barnabas.replication.quotas import FOLLOWER, LEADER
from barnabas.simulation.conditions import (
    BROKEN,
    COLD,
    CUT,
    DEAD,
    FULL,
    OFF,
    PAUSED,
    PAUSED_US,
    REFUSES,
    SLOW,
    WAITS,
    Condition,
    condition_of,
)
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.exchanges import Exchange, Exchanges, Listener
from barnabas.simulation.history import Violation
from barnabas.simulation.request_frames import PRODUCE, Request
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US, SECOND_US

_INTERVAL_US: Final = SECOND_US // 4
#: The bound without faults, and for faults that are noticed immediately: 3 s, and a second for what seeds draw (slow
#: links, long request times).
_SHORT_MS: Final = 4_000
#: The tick of a ZooKeeper server, by default.
_TICK_MS: Final = 3_000
_SLOW_DISK_MS: Final = 16_000
#: The time from the start of a process until its replicas are in their ISRs again, apart from heartbeats.
_RESTART_MS: Final = 3_000
#: A directory that was full takes replicas again after 10 s of success (decision 0012).
_WAS_FULL_MS: Final = 20_000
#: The time that clients have to find a new leader.
_CLIENTS_MS: Final = 5_000
#: The errors that say that a partition takes no writes now.
_UNAVAILABLE: Final = frozenset({3, 5, 6, 7, 19, 20, 56, 74})
#: A link between two machines that is cut or slow.
WAY: Final = "way"
#: Troubles with which a broker can still serve and lead.
_SERVES: Final = frozenset({SLOW, REFUSES, COLD})


class Bounds:
    """The bounds of docs/replication.md, for the properties of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        own = cluster.layout.properties

        def ms(key: str, default: int) -> int:
            return int(own.get(key, default))

        has_quorum = cluster.zookeeper is None
        election_ms = (
            ms("controller.quorum.fetch.timeout.ms", 2_000)
            + ms("controller.quorum.election.timeout.ms", 1_000) // 2
            + ms("controller.quorum.election.backoff.max.ms", 1_000)
        )
        session_ms = (
            ms("broker.session.timeout.ms", 9_000) if has_quorum else ms("zookeeper.session.timeout.ms", 18_000)
        )
        # ZooKeeper ends sessions at multiples of its tick.
        session_ms += election_ms if has_quorum else election_ms + _TICK_MS
        lag_ms = max(ms("replica.lag.time.max.ms", 30_000) * 3 // 2 + 1_000, session_ms)
        self._during = {
            OFF: session_ms,
            PAUSED: session_ms,
            CUT: session_ms,
            WAY: lag_ms,
            REFUSES: lag_ms,
            SLOW: max(session_ms, _SLOW_DISK_MS),
            BROKEN: _SHORT_MS,
            FULL: _SHORT_MS,
            # In ZooKeeper mode only the end of a broker's session shows that it is dead.
            DEAD: _SHORT_MS if has_quorum else session_ms,
            WAITS: session_ms,
        }
        heartbeat_ms = 2 * ms("broker.heartbeat.interval.ms", 2_000)
        #: The time that a node needs to recover after a trouble has ended.
        self.recovery_us = MILLISECOND_US * (_RESTART_MS + heartbeat_ms)
        self.recovery_from_full_us = MILLISECOND_US * _WAS_FULL_MS
        #: The time after the last trouble in which a cluster can still notice it and recover.
        self.aftermath_ms = max(self._during.values()) + _RESTART_MS + heartbeat_ms + _WAS_FULL_MS

    def of(self, kinds: Iterable[str]) -> int:
        """Returns the bound in milliseconds while these kinds of troubles last, or have just ended."""
        return max((self._during[kind] for kind in kinds), default=_SHORT_MS)


@dataclass(slots=True)
class _Watched:
    """A partition to which the promise applies. `since_us`: from when; `stalled_us`: since when it takes no writes."""

    replicas: tuple[int, ...]
    least: int
    since_us: int
    stalled_us: int | None = None
    high_watermark: int = -1
    log: object = None


class WritesContinue(Listener):
    """Checks that writes continue. `longest_ms`: the longest stall for each set of troubles."""

    is_periodic = True

    api_keys = (PRODUCE,)

    def __init__(self, cluster: Cluster, decided: DecidedMetadata, exchanges: Exchanges) -> None:
        self._cluster = cluster
        self._exchanges = exchanges
        exchanges.listen(self)
        #: Partition -> the first and the last refusal that clients got since the last acknowledgement.
        self._refused_us: dict[TopicPartition, tuple[int, int]] = {}
        self._decided = decided
        self._bounds = Bounds(cluster)
        self._looked_us = 0
        self._condition: tuple[object, ...] = ()
        self._kinds: frozenset[str] = frozenset()
        self._before: frozenset[str] = frozenset()
        self._changed_us = 0
        self._well: list[frozenset[int]] = []
        #: Machine, or link between two machines -> the time by which its recovery must be complete.
        self._recovers_us: dict[str | tuple[str, str], int] = {}
        self._starts: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._troubles: Mapping[str, str] = {}
        self._watched: dict[tuple[TopicPartition, bytes], _Watched] = {}
        self.longest_ms: dict[str, int] = {}
        #: The number of checks of partitions to which the promise applied during faults.
        self.looks = 0

    def on_answer(self, exchange: Exchange, request: Request, frame: bytes) -> None:
        if exchange.is_of_node:
            return
        now_us = self._cluster.world.now_us
        for row in self._exchanges.produced(request, frame):
            place = self._exchanges.place(row.place)
            if row.error in _UNAVAILABLE:
                self._refused_us[place] = (self._refused_us.get(place, (now_us,))[0], now_us)
            else:
                self._refused_us.pop(place, None)

    def check(self, cluster: Cluster) -> None:
        now_us = cluster.world.now_us
        if now_us < self._looked_us + _INTERVAL_US:
            return
        condition = condition_of(cluster)
        if now_us > self._looked_us + PAUSED_US:
            condition = condition._replace(troubles=dict.fromkeys(cluster.programs, PAUSED) | condition.troubles)
        self._looked_us = now_us
        self._take(condition, now_us)
        image = self._decided.image()
        if _is_limited(image, TRANSACTION_STATE_TOPIC):
            # Coordinators with too few replicas in sync refuse what producers write in transactions, to any partition.
            self._refused_us.clear()
        there = {}
        for topic in sorted(image.topics_by_id.values(), key=attrgetter("name")):
            for index, partition in enumerate(topic.partitions):
                key = (TopicPartition(topic.name, index), topic.topic_id)
                watched = self._promised(key, partition, image, now_us)
                if watched is not None:
                    there[key] = watched
                    self._look(key[0], partition, watched, now_us)
        self._watched = there

    def _take(self, condition: Condition, now_us: int) -> None:
        programs = self._cluster.programs
        troubles = {name: each for name, each in condition.troubles.items() if name in programs and each != COLD}
        links = {pair: each for pair, each in condition.links.items() if pair[0] in programs and pair[1] in programs}
        self._note_recoveries(troubles, links, condition, now_us)
        # In ZooKeeper mode no controller learns that a disk is full, and the broker continues to lead.
        may_lead_full = self._cluster.zookeeper is not None and FULL in troubles.values()
        recovering = {each for each, until_us in self._recovers_us.items() if until_us > now_us}
        self._well = [] if may_lead_full else list(_groups(self._cluster, recovering))
        condition_now = (troubles, links, condition.starts)
        if condition_now != self._condition:
            self._condition, self._changed_us, self._troubles = condition_now, now_us, troubles
            kinds = set(troubles.values()) | _kinds_of_links(links, list(programs))
            self._before, self._kinds = self._kinds, frozenset(kinds)

    def _note_recoveries(
        self,
        troubles: Mapping[str, str],
        links: Mapping[tuple[str, str], str],
        condition: Condition,
        now_us: int,
    ) -> None:
        until_us = now_us + self._bounds.recovery_us
        self._recovers_us.update(dict.fromkeys(troubles, until_us))
        self._recovers_us.update(dict.fromkeys(links, until_us))
        for name, number in condition.refusals.items():
            # A disk can have been full between two looks.
            if troubles.get(name) == FULL or self._refusals.get(name, 0) != number:
                self._refusals[name] = number
                self._recovers_us[name] = now_us + self._bounds.recovery_from_full_us
        for name, number in condition.starts.items():
            if self._starts.get(name) != number:
                self._starts[name] = number
                self._recovers_us[name] = until_us

    @property
    def bound_ms(self) -> int:
        """The bound for the present troubles and those that have just ended."""
        return self._bounds.of(self._kinds | self._before)

    # -- one partition

    def _promised(
        self, key: tuple[TopicPartition, bytes], partition: PartitionImage, image: MetadataImage, now_us: int
    ) -> _Watched | None:
        """Returns the partition if the promise applies to it now. It does not while an operator limits the traffic of
        the topic's replicas.
        """
        if _is_limited(image, key[0].topic):
            return None
        configured = image.topic_config(key[0].topic).get("min.insync.replicas") or self._cluster.layout.properties.get(
            "min.insync.replicas", "1"
        )
        least = min(int(configured), len(partition.replicas))
        can_lead = {*partition.isr, *partition.elr}
        replicas = set(partition.replicas)
        if not any(len(well & replicas) >= least and well & can_lead for well in self._well):
            return None
        watched = self._watched.get(key)
        if watched is None or watched.replicas != partition.replicas or watched.least != least:
            return _Watched(partition.replicas, least, now_us)
        return watched

    def _look(self, tp: TopicPartition, partition: PartitionImage, watched: _Watched, now_us: int) -> None:
        problem = self._stall(tp, partition, watched)
        self.looks += bool(self._kinds)
        if not problem:
            watched.stalled_us = None
            self._look_at_clients(tp, watched, now_us)
            return
        if watched.stalled_us is None:
            watched.stalled_us = now_us
        began_us = max(watched.stalled_us, watched.since_us, self._changed_us)
        stalled_ms = (now_us - began_us) // MILLISECOND_US
        what = ", ".join(sorted(self._kinds | self._before)) or "nothing"
        self.longest_ms[what] = max(stalled_ms, self.longest_ms.get(what, 0))
        if stalled_ms > self.bound_ms:
            allowed = f"{self.bound_ms} allowed during these troubles: {what}"
            raise Violation(f"writes do not continue: {tp} for {stalled_ms} ms ({allowed}): {problem}")

    def _look_at_clients(self, tp: TopicPartition, watched: _Watched, now_us: int) -> None:
        first_us, last_us = self._refused_us.get(tp, (now_us, 0))
        if now_us - last_us > SECOND_US:
            return
        refused_ms = (last_us - max(first_us, watched.since_us, self._changed_us)) // MILLISECOND_US
        allowed_ms = self.bound_ms + _CLIENTS_MS
        if refused_ms > allowed_ms:
            raise Violation(
                f"writes do not continue for clients: {tp} was refused for {refused_ms} ms ({allowed_ms} allowed), "
                "although it has a leader and enough in sync"
            )

    def _stall(self, tp: TopicPartition, decided: PartitionImage, watched: _Watched) -> str:
        """Returns why the partition takes no writes with acks=all now, or ""."""
        if not decided.has_leader:
            return f"it has no leader, ISR {decided.isr}, ELR {decided.elr}"
        name = f"broker{decided.leader}"
        if self._troubles.get(name, "") not in ("", *_SERVES):
            return f"its leader {name} is {self._troubles[name]}"
        if len(decided.isr) < watched.least:
            return f"its ISR is {decided.isr}, {watched.least} are needed"
        node = self._cluster.nodes[name]
        found = None if node.broker is None else node.broker.replicas.find(*tp)
        if found is None or found.role is not Role.LEADER or found.leader_epoch != decided.leader_epoch:
            return f"{name} does not know that it leads in epoch {decided.leader_epoch}"
        end, high_watermark = found.log.log_end_offset, found.high_watermark
        is_moving = found.log is not watched.log or high_watermark > watched.high_watermark
        watched.log, watched.high_watermark = found.log, high_watermark
        if end > high_watermark and not is_moving:
            return f"its HW stays at {high_watermark}, {name} ends at {end}, ISR {decided.isr}"
        return ""


def _is_limited(image: MetadataImage, topic: str) -> bool:
    """Returns whether an operator limits the traffic of a topic's replicas."""
    config = image.topic_config(topic)
    return any(config.get(f"{side}.replicas") for side in (LEADER, FOLLOWER))


def _kinds_of_links(links: Mapping[tuple[str, str], str], programs: list[str]) -> set[str]:
    """Returns WAY for links that are cut or slow, and CUT if one machine is cut off from all others."""
    cut = {pair for pair, each in links.items() if each == CUT}
    alone = {name for name in programs if all((name, other) in cut for other in programs if other != name)}
    ways = {pair for pair in links if alone.isdisjoint(pair)}
    return ({CUT} if alone and len(programs) > 1 else set()) | ({WAY} if ways else set())


def _groups(cluster: Cluster, troubled: Collection[str | tuple[str, str]]) -> Iterator[frozenset[int]]:
    """Yields the ids of brokers that are healthy and reach each other and a majority of the controllers, or the
    ZooKeeper server.
    """

    def connected(names: tuple[str, ...]) -> bool:
        return all(pair not in troubled for pair in itertools.combinations(names, 2))

    healthy = [name for name in cluster.programs if name not in troubled]
    brokers = [name for name in healthy if name.startswith("broker")]
    if cluster.zookeeper is not None:
        voters, majority = [cluster.zookeeper.name], 1
    else:
        voters = [name for name in cluster.nodes if not name.startswith("broker")] or list(cluster.nodes)
        majority = len(voters) // 2 + 1
    quorums = [
        some for some in itertools.combinations([v for v in voters if v in healthy], majority) if connected(some)
    ]
    for size in range(1, len(brokers) + 1):
        for some in itertools.combinations(brokers, size):
            if any(connected((*dict.fromkeys((*some, *quorum)),)) for quorum in quorums):
                yield frozenset(int(name.removeprefix("broker")) for name in some)
