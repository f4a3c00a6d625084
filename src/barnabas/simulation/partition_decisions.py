"""Second decisions about partitions: leader, ISR, ELR, reassignment and epochs after a change.

`after` is KIP-966 and KIP-455 on sets: who is out, who stays, who may lead. Probes take the partition of a run
with other brokers alive, other kinds of elections, other limits of the ISR, and reassignments that are almost complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.decisions.leader_election import Election
from barnabas.decisions.partition import PartitionImage
from barnabas.decisions.partition_change import PartitionChange
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

_NOBODY: Final = -1
_SAME_LEADER: Final = -2
_RECOVERED, _RECOVERING = 0, 1
_LOST, _MIGRATING = bytes(15) + b"\x02", bytes(16)
_PROBES: Final = 24


class State(NamedTuple):
    """A partition after a change; epochs as they are raised by it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[bytes, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    recovery: int
    elr: tuple[int, ...]
    last_known: tuple[int, ...]


def state_of(partition: Any) -> State:
    return State(
        tuple(partition.replicas),
        tuple(partition.isr),
        partition.leader,
        partition.leader_epoch,
        tuple(partition.directories),
        tuple(partition.removing_replicas),
        tuple(partition.adding_replicas),
        partition.leader_recovery_state,
        tuple(partition.elr),
        tuple(partition.last_known_elr),
    )


def changed_by(partition: Any, record: Any) -> State:
    """Returns the partition with the fields of a PartitionChangeRecord that it has."""
    state = state_of(partition)
    given: dict[str, Any] = {
        "replicas": record.replicas,
        "isr": record.isr,
        "directories": record.directories,
        "removing": record.removing_replicas,
        "adding": record.adding_replicas,
        "elr": record.eligible_leader_replicas,
        "last_known": record.last_known_elr,
    }
    found: dict[str, Any] = {name: tuple(value) for name, value in given.items() if value is not None}
    state = state._replace(**found)
    if record.directories is None and len(state.directories) != len(state.replicas):
        state = state._replace(directories=(_MIGRATING,) * len(state.replicas))
    if record.leader_recovery_state >= 0:
        state = state._replace(recovery=record.leader_recovery_state)
    if record.leader != _SAME_LEADER:
        state = state._replace(leader=record.leader, leader_epoch=state.leader_epoch + 1)
    return state


class Target(NamedTuple):
    """The wanted state of a partition, before anybody is elected."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    recovery: int
    directories: Mapping[int, bytes]
    #: Brokers that have possibly lost records.
    careless: Collection[int] = ()


def target_of(partition: Any) -> Target:
    directories = dict(zip(partition.replicas, partition.directories, strict=False))
    removing, adding = partition.removing_replicas, partition.adding_replicas
    return Target(partition.isr, partition.replicas, removing, adding, partition.leader_recovery_state, directories)


def _finished(target: Target) -> Target:
    """Returns the target without its reassignment, if all replicas that stay are in sync."""
    final = [each for each in target.replicas if each not in target.removing]
    if not final or any(each not in target.isr for each in final):
        return target
    isr = [each for each in target.isr if each in final]
    return target._replace(replicas=tuple(final), isr=tuple(isr), removing=(), adding=())


def _winner(partition: Any, target: Target, elr: Collection[int], rules: Any, index: int) -> tuple[int, bool]:
    """Returns the leader, and whether records can be lost by its election."""
    safe = target.isr or elr
    clean = [each for each in target.replicas if each in safe and rules.may_lead(each)]
    if rules.election is Election.PREFERRED and clean and clean[0] == target.replicas[0]:
        return clean[0], False
    if partition.leader in safe and rules.may_lead(partition.leader):
        return partition.leader, False
    if clean:
        return (clean[0] if rules.choose is None else rules.choose(index, clean)), False
    last = partition.last_known_elr
    anybody = [each for each in target.replicas if rules.may_lead(each)]
    if rules.elr_enabled and not safe and len(last) == 1 and last[0] in anybody:
        return last[0], True
    if rules.election is Election.UNCLEAN and anybody:
        return anybody[0], True
    return _NOBODY, False


def _eligible(partition: Any, target: Target, elr: Iterable[int], rules: Any) -> tuple[int, ...]:
    """Returns the ELR: below the min ISR, everybody who was in sync and is assigned, and has lost nothing. An ELR from
    before ELRs were disabled can still be elected from, once.
    """
    if not rules.elr_enabled:
        return tuple(elr)
    if len(target.isr) >= rules.min_isr:
        return ()
    out = {*target.isr, *target.careless}
    return tuple(sorted({*elr, *partition.isr}.intersection(target.replicas) - out))


def after(partition: Any, target: Target, rules: Any, index: int = 0, elr: Iterable[int] | None = None) -> Any:
    """Returns the partition after a change to this target; None if nothing changes. A leader outside the
    target's ISR is not judged: no caller asks for one.
    """
    if target.adding or target.removing:
        target = _finished(target)
    eligible = _eligible(partition, target, partition.elr if elr is None else elr, rules)
    leader, is_unclean = _winner(partition, target, eligible, rules, index)
    isr, recovery = target.isr, target.recovery
    if leader != partition.leader:
        if is_unclean:
            isr, eligible = (leader,), ()
            recovery = _RECOVERING if partition.leader_recovery_state == _RECOVERED else recovery
        elif leader in eligible:
            isr, eligible = (leader,), tuple(each for each in eligible if each != leader)
    if leader not in (*isr, _NOBODY):
        return UNJUDGED
    if not rules.elr_enabled:
        isr, eligible = isr or partition.isr, ()  # Without ELRs the last members of the ISR stay in it.
    last = partition.last_known_elr
    if rules.elr_enabled:
        if not isr and partition.isr:
            last = (partition.leader,)
        elif leader != _NOBODY:
            last = ()
    named = target.directories
    directories = tuple(named[each] if each in named else rules.default_directory(each) for each in target.replicas)
    reassigned = (target.adding, target.removing) != (partition.adding_replicas, partition.removing_replicas)
    bumped = leader != partition.leader or bool(set(partition.replicas) - set(target.replicas))
    bumped = bumped or (rules.raises_when_reassigned and reassigned)
    now = State(
        target.replicas,
        isr,
        leader,
        partition.leader_epoch + bumped,
        directories,
        target.removing,
        target.adding,
        recovery,
        eligible,
        last,
    )
    if now == state_of(partition):
        return None
    if rules.raises_leader_epoch and not bumped:
        now = now._replace(leader_epoch=now.leader_epoch + 1)
    return now


# -- PartitionChange.build


def _build(change: Any, topic_id: bytes, index: int) -> object:
    rules, partition = change._rules, change.partition
    if len(partition.directories) != len(partition.replicas) or _has_strategy(rules):
        return UNJUDGED
    target = Target(
        change.target_isr,
        change.target_replicas,
        change.target_removing,
        change.target_adding,
        change.target_recovery_state,
        change.target_directories,
        change.unclean_shutdown,
    )
    state = after(partition, target, rules, index, change.target_elr)
    return (topic_id, index, state) if isinstance(state, State) else state


def _has_strategy(rules: Any) -> bool:
    """Returns whether the choice counts leaderships, so that asking twice would be an effect."""
    return rules.choose is not None and not getattr(rules.choose, "is_pure", False)


def _built(record: Any, change: Any, *_: Any) -> object:
    if record is None:
        return None
    return record.topic_id, record.partition_id, changed_by(change.partition, record)


def _last(index: int, candidates: Sequence[int]) -> int:
    return candidates[-1]


_last.is_pure = True  # type: ignore[attr-defined]


def near_changes(change: Any, topic_id: bytes, index: int) -> Iterator[Arguments]:
    """Changes of the same partition under other circumstances, drawn from the partition itself."""
    partition = change.partition
    if len(partition.directories) != len(partition.replicas) or not partition.replicas:
        return
    random = Random(repr((state_of(partition), index)))
    for _ in range(_PROBES):
        yield _drawn(random, partition, change._rules), topic_id, index


def _some(random: Random, items: Iterable[int], chance: float) -> tuple[int, ...]:
    return tuple(each for each in items if random.random() < chance)


def drawn_partition(random: Random, partition: Any) -> PartitionImage:
    """Returns the partition with another ISR, ELR, leader or reassignment."""
    replicas = partition.replicas
    if len(replicas) < 3 or random.random() < 0.2:
        more = [each for each in range(1, 9) if each not in replicas]
        replicas = (*replicas, *random.sample(more, min(2, len(more))))
    isr = _some(random, replicas, random.choice((0.0, 0.4, 0.7, 1.0)))
    elr = _some(random, (each for each in replicas if each not in isr), random.choice((0.0, 0.5)))
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    if random.random() < 0.4:
        cut = random.randrange(1, len(replicas) + 1)
        removing = replicas[cut:]
        adding = _some(random, replicas[:cut], 0.4)
    leader = random.choice((*isr, _NOBODY)) if isr else _NOBODY
    last = () if isr and leader != _NOBODY else random.choice(((), replicas[:1], replicas[-1:], replicas[:2], (77,)))
    if random.random() < 0.15:
        last = replicas[-1:]
    return PartitionImage(
        replicas,
        isr,
        leader,
        partition.leader_epoch,
        partition.partition_epoch,
        tuple(bytes(14) + bytes([each % 250, 7]) for each in replicas),
        removing,
        adding,
        random.choice((_RECOVERED, _RECOVERED, _RECOVERING)),
        elr,
        last,
    )


def drawn_rules(random: Random, rules: Any, replicas: Sequence[int]) -> Any:
    alive = set(_some(random, replicas, random.choice((0.0, 0.5, 0.8, 1.0))))
    return replace(
        rules,
        may_lead=alive.__contains__,
        election=random.choice(list(Election)),
        elr_enabled=random.random() < 0.6,
        min_isr=random.randrange(1, 4),
        raises_leader_epoch=random.random() < 0.3,
        raises_when_reassigned=random.random() < 0.3,
        choose=_last if random.random() < 0.3 else None,
    )


def _drawn(random: Random, before: Any, rules: Any) -> PartitionChange:
    partition = drawn_partition(random, before)
    rules = drawn_rules(random, rules, partition.replicas)
    change = PartitionChange(partition, rules)
    what = random.randrange(6)
    if what < 3:
        isr = partition.isr if random.random() < 0.5 else _some(random, partition.replicas, 0.7)
        kept = _some(random, isr, random.choice((0.0, 0.5, 0.9)))
        change.target_isr = kept if partition.leader in kept or random.random() < 0.6 else isr
        if random.random() < 0.4:
            change.unclean_shutdown = random.sample(partition.replicas, 1)
    elif what == 3:
        cut = random.randrange(1, len(partition.replicas) + 1)
        new = [each for each in (9, 10) if random.random() < 0.4]
        change.target_replicas = (*partition.replicas[:cut], *new, *partition.replicas[cut:])
        change.target_removing = partition.replicas[cut:]
        change.target_adding = tuple(new)
    elif what == 4:
        kept = tuple(each for each in partition.replicas if each not in partition.adding_replicas)
        change.target_replicas = kept or partition.replicas
        change.target_isr = tuple(each for each in partition.isr if each in change.target_replicas)
        change.target_adding = change.target_removing = ()
        change.target_recovery_state = random.choice((_RECOVERED, _RECOVERING))
    elif random.random() < 0.5:
        change.target_directories[random.choice(partition.replicas)] = bytes(15) + b"\x99"
    return change


# -- brokers that leave and join


def _change_at(brokers: Any, event: Any, partition: Any, rules: Any) -> object:
    gone = {event.removed, event.unclean} - {_NOBODY}
    isr = tuple(each for each in partition.isr if each not in gone)
    return _writable(brokers, partition, isr, rules.may_lead), {event.unclean} - {_NOBODY}


def _isr_and_careless(change: Any, *_: Any) -> object:
    return change.target_isr, set(change.unclean_shutdown)


def _writable(brokers: Any, partition: Any, isr: tuple[int, ...], may_lead: Callable[[int], bool]) -> tuple[int, ...]:
    """Returns who stays when nothing can be written to the others: nobody goes if nobody who stays could lead."""
    kept = [each for each in isr if brokers.takes_writes(each, _directory(partition, each))]
    return tuple(kept) if any(map(may_lead, kept)) else isr


def _directory(partition: Any, replica: int) -> bytes:
    found: bytes = dict(zip(partition.replicas, partition.directories, strict=True))[replica]
    return found


class _Brokers:
    """The facts about brokers of a probe: sets of those that are alive, full, and without a directory."""

    def __init__(self, active: Collection[int], full: Collection[int], lost: Collection[int]) -> None:
        self._active, self._full, self._lost = active, full, lost

    def is_active(self, broker_id: int) -> bool:
        return broker_id in self._active

    def has_lost(self, broker_id: int, directory: bytes) -> bool:
        return broker_id in self._lost

    def takes_writes(self, broker_id: int, directory: bytes) -> bool:
        return broker_id not in self._full


def _groups(replicas: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(min(len(replicas), 3) + 1):
        yield from combinations(replicas[:3], size)


def _near_writable(brokers: Any, partition: Any, isr: tuple[int, ...], may_lead: Any) -> Iterator[Arguments]:
    for full in _groups(partition.replicas):
        for alive in _groups(partition.replicas):
            yield _Brokers(alive, full, ()), partition, partition.replicas, set(alive).__contains__


def _concerns(event: Any, partition: Any) -> bool:
    holds = {*partition.isr, *partition.elr} - {_NOBODY}
    if event.unclean in holds or (event.removed in partition.isr and event.removed != _NOBODY):
        return True
    return bool(partition.leader == _NOBODY and event.added != _NOBODY)


def _near_concerns(event: Any, partition: Any) -> Iterator[Arguments]:
    for leader in {_NOBODY, partition.leader}:
        other = partition._replace(leader=leader, elr=(70,))
        for name in ("removed", "added", "unclean"):
            for broker_id in (_NOBODY, *partition.isr[:1], 70, 99):
                rest = dict.fromkeys(("removed", "added", "unclean"), _NOBODY)
                yield replace(event, **{**rest, name: broker_id}), other


def _leads_after(event: Any, brokers: Any) -> object:
    known = _known(event)
    out = {event.removed, event.unclean}
    return {each: each not in out and (each == event.added or brokers.is_active(each)) for each in known}


def _known(event: Any) -> set[int]:
    return {*range(10), event.removed, event.added, event.unclean} - {_NOBODY}


def _answers_of(may_lead: Any, event: Any, brokers: Any) -> object:
    return {each: may_lead(each) for each in _known(event)}


def _near_leads(event: Any, brokers: Any) -> Iterator[Arguments]:
    for name in ("removed", "added", "unclean"):
        for alive in ((), (1, 2), (2, 3)):
            rest = dict.fromkeys(("removed", "added", "unclean"), _NOBODY)
            yield replace(event, **{**rest, name: 2}), _Brokers(alive, (), ())


def _can_lead(brokers: Any, partition: Any) -> object:
    return {
        replica: not brokers.has_lost(replica, directory) and brokers.is_active(replica)
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    }


def _leaders_of(may_lead: Any, brokers: Any, partition: Any) -> object:
    return {replica: may_lead(replica) for replica in partition.replicas}


def _near_can_lead(brokers: Any, partition: Any) -> Iterator[Arguments]:
    for alive in _groups(partition.replicas):
        for lost in _groups(partition.replicas):
            yield _Brokers(alive, (), lost), partition


def _needs(partition: Any, election: Any) -> bool:
    wanted = partition.replicas[0] if partition.replicas else _NOBODY
    return bool(wanted != partition.leader if election is Election.PREFERRED else partition.leader == _NOBODY)


def _near_needs(partition: Any, election: Any) -> Iterator[Arguments]:
    for each in Election:
        for leader in (_NOBODY, *partition.replicas):
            yield partition._replace(leader=leader), each


def _can_move(brokers: Any, partition: Any) -> bool:
    wanted = partition.replicas[0] if partition.replicas else _NOBODY
    if partition.leader == wanted or wanted not in partition.isr:
        return False
    return bool(brokers.is_active(wanted)) and not brokers.has_lost(wanted, _directory(partition, wanted))


def _near_moves(brokers: Any, partition: Any) -> Iterator[Arguments]:
    if partition.replicas:
        for leader in (_NOBODY, *partition.replicas[:2]):
            for isr in (partition.replicas, partition.replicas[1:]):
                for alive, lost in ((partition.replicas, ()), ((), ()), (partition.replicas, partition.replicas)):
                    yield _Brokers(alive, (), lost), partition._replace(leader=leader, isr=isr)


# -- ZooKeeper mode


def _online(partition: Any, registered: Any) -> list[int]:
    pairs = zip(partition.replicas, partition.directories, strict=True)
    return [replica for replica, directory in pairs if directory != _LOST and registered(replica)]


def _near_online(partition: Any, registered: Any) -> Iterator[Arguments]:
    for place in range(len(partition.replicas)):
        directories = (*partition.directories[:place], _LOST, *partition.directories[place + 1 :])
        yield partition._replace(directories=directories), lambda _: True
        yield partition, [partition.replicas[place]].__contains__


def _zk_leads(partition: Any, online: Any, is_active: Any) -> object:
    return {each: each in online and (is_active(each) or each == partition.leader) for each in partition.replicas}


def _zk_leaders_of(may_lead: Any, partition: Any, *_: Any) -> object:
    return {each: may_lead(each) for each in partition.replicas}


def _near_zk_leads(partition: Any, online: Any, is_active: Any) -> Iterator[Arguments]:
    for group in _groups(partition.replicas):
        for active in ((), partition.replicas[:1]):
            yield partition, list(group), set(active).__contains__


def _isr_online(partition: Any, online: Any) -> tuple[int, ...] | None:
    kept = tuple(each for each in partition.isr if each in online)
    return kept if kept else None


def _near_isr_online(partition: Any, online: Any) -> Iterator[Arguments]:
    for group in _groups(partition.replicas):
        yield partition._replace(isr=partition.replicas), list(group)


def _isr_stopping(partition: Any, broker_id: int, online: Any, is_active: Any) -> tuple[int, ...] | None:
    """Returns the ISR without a broker that stops; a leader takes only members along that are online and stay."""
    kept = [each for each in partition.isr if each != broker_id]
    if broker_id == partition.leader:
        kept = [each for each in partition.isr if each in online and is_active(each)]
    leads = _zk_leads(partition, online, is_active)
    assert isinstance(leads, dict), "by replica"
    return tuple(kept) if any(leads.get(each) for each in kept) else None


def _near_stopping(partition: Any, broker_id: int, online: Any, is_active: Any) -> Iterator[Arguments]:
    for leader in (_NOBODY, *partition.replicas[:2]):
        full = partition._replace(leader=leader, isr=partition.replicas)
        for group in _groups(partition.replicas):
            for stopping in partition.replicas[:2]:
                staying = set(partition.replicas) - {stopping}
                yield full, stopping, list(group), staying.__contains__
                yield full, stopping, list(group), set(group[1:]).__contains__


_EVENTS: Final = "decisions.broker_events:"
_ZOOKEEPER: Final = "decisions.zookeeper_rules:"

PARTITION_DECISIONS: Final = costly(
    SecondDecision("decisions.partition_change:PartitionChange.build", _build, near_changes, _built),
    SecondDecision(_EVENTS + "change_at", _change_at, shown=_isr_and_careless),
    SecondDecision(_EVENTS + "without_unwritable", _writable, _near_writable),
    SecondDecision(_EVENTS + "BrokerEvent.concerns", _concerns, _near_concerns),
    SecondDecision(_EVENTS + "BrokerEvent.may_lead", _leads_after, _near_leads, _answers_of),
    SecondDecision(_EVENTS + "can_lead", _can_lead, _near_can_lead, _leaders_of),
    SecondDecision(_EVENTS + "needs_election", _needs, _near_needs),
    SecondDecision(_EVENTS + "prefers_possible_leader", _can_move, _near_moves),
    SecondDecision(_ZOOKEEPER + "online_replicas", _online, _near_online),
    SecondDecision(_ZOOKEEPER + "may_lead", _zk_leads, _near_zk_leads, _zk_leaders_of),
    SecondDecision(_ZOOKEEPER + "isr_of_online", _isr_online, _near_isr_online),
    SecondDecision(_ZOOKEEPER + "isr_without_stopping", _isr_stopping, _near_stopping),
)
