"""Second decisions about where replicas go: placements of new partitions, proposals, and strategies of elections.

Randomness of the product is not drawn again: a placement is compared with the turns that its state implies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.decisions.strategies import Choice
from barnabas.simulation.host import SeededRandom
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

# -- strategies


def _fewest(choice: Any) -> int:
    ranked = [(choice.leaders.get(each, 0), place) for place, each in enumerate(choice.candidates)]
    found: int = choice.candidates[min(ranked)[1]]
    return found


def _near_fewest(choice: Any) -> Iterator[Arguments]:
    for leaders in ({}, {1: 2, 2: 1, 3: 1}, {choice.candidates[0]: 1}, dict.fromkeys(choice.candidates[1:], 5)):
        yield (choice._replace(leaders=Counter(leaders)),)


def _elected(elector: Any, topic: str, partition: int, candidates: Any) -> object:
    """Returns the candidate that the strategy names, or else the first one; and how many partitions each broker leads
    afterwards.
    """
    cluster, counted = elector._cluster, elector._leaders
    leaders = Counter(cluster.leaders() if counted is None else counted)
    chosen = candidates[0]
    if len(candidates) > 1:
        try:
            named = elector._strategy.choose(
                Choice(topic, partition, tuple(candidates), Counter(leaders), cluster.racks())
            )
        except Exception:  # operators' code can raise anything
            named = None
        chosen = named if isinstance(named, int) and named in candidates else chosen
    before = cluster.leader_of(topic, partition)
    leaders.update([chosen])
    leaders.subtract([before] if before >= 0 else [])
    return chosen, {each: count for each, count in leaders.items() if count}


def _elected_of(chosen: Any, elector: Any, *_: Any) -> object:
    return chosen, {each: count for each, count in elector._leaders.items() if count}


def _near_elections(elector: Any, topic: str, partition: int, candidates: Any) -> Iterator[Arguments]:
    """The candidates in another order, and each alone, for an elector with its own counts."""
    for others in (candidates[::-1], candidates[:1], candidates[-1:]):
        other = copy(elector)
        other._leaders = None if elector._leaders is None else Counter(elector._leaders)
        yield other, topic, partition, others


# -- placement


class _Draws:
    """Randomness that draws these numbers, one after the other."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)

    def below(self, bound: int) -> int:
        return self._numbers.pop(0) % bound


def _shuffled(items: Any, random: Any) -> object:
    """Returns the items as `Collections.shuffle` of Java orders them with these draws."""
    if not isinstance(random, _Draws | SeededRandom):
        return UNJUDGED
    draws, left, taken = deepcopy(random), list(items), []
    while len(left) > 1:
        place = draws.below(len(left))
        left[place], left[-1] = left[-1], left[place]
        taken.append(left.pop())
    return left + taken[::-1]


def _items_of(_: Any, items: Any, random: Any) -> object:
    return list(items)


def _near_shuffles(items: Any, random: Any) -> Iterator[Arguments]:
    for count in (1, 2, 3, 5):
        for number in range(6):
            yield list(range(count)), _Draws([number + more * number for more in range(count)])


def _checked(placement: Any, factor: int) -> None:
    if factor < 1 or factor > placement._broker_count or not placement._unfenced_count:
        raise RequestFailed(ErrorCode.INVALID_REPLICATION_FACTOR)


def _near_factors(placement: Any, factor: int) -> Iterator[Arguments]:
    count = placement._broker_count
    for other in {-1, 0, 1, count - 1, count, count + 1}:
        yield placement, other


def _turns(turn: Any, number: int) -> list[int]:
    """Returns the brokers of a rack in the order of this round, which begins one further than the last one."""
    brokers: list[int] = turn.brokers
    begin = (turn._offset + (turn._round != number)) % max(len(brokers), 1)
    return brokers[begin:] + brokers[:begin]


def _placed(placement: Any, factor: int) -> object:
    """Returns the replicas by the turns: a leader of the first rack with one, then one of each rack, in laps."""
    if not 0 < factor <= placement._broker_count or not placement._unfenced_count:
        raise RequestFailed(ErrorCode.INVALID_REPLICATION_FACTOR)
    if placement._until_shuffle == 0:
        return UNJUDGED
    count = len(placement._racks)
    first = placement._offset % count
    racks = [placement._racks[(first + more) % count] for more in range(count)]
    unfenced = [_turns(rack.unfenced, placement._round) for rack in racks]
    fenced = [_turns(rack.fenced, placement._round) for rack in racks]
    lead = next(place for place, brokers in enumerate(unfenced) if brokers)
    laps: list[list[int]] = [[] for _ in range(factor + 1)]
    for place in range(count):
        for lap, broker in enumerate([*unfenced[place], *fenced[place]]):
            if lap <= factor and (place, lap) != (lead, 0):
                laps[lap].append(broker)
    return [unfenced[lead][0], *(broker for lap in laps for broker in lap)][:factor], first + 1


def _placed_of(replicas: Any, placement: Any, factor: int) -> object:
    return list(replicas), placement._offset


def _is_spread(placement: Any, factor: int) -> str:
    if not 0 < factor <= placement._broker_count or not placement._unfenced_count:
        raise RequestFailed(ErrorCode.INVALID_REPLICATION_FACTOR)
    return ""


def _spread(replicas: Any, placement: Any, factor: int) -> str:
    """Describes what is wrong with a placement."""
    unfenced = [set(rack.unfenced.brokers) for rack in placement._racks]
    fenced = [set(rack.fenced.brokers) for rack in placement._racks]
    chosen = set(replicas)
    if len(replicas) != factor or len(chosen) != factor:
        return "not as many brokers as replicas"
    if chosen - set().union(*unfenced, *fenced) or not any(replicas[0] in rack for rack in unfenced):
        return "led by a broker that cannot lead"
    if sum(bool(chosen & (up | down)) for up, down in zip(unfenced, fenced, strict=True)) < min(factor, len(unfenced)):
        return "not in as many racks as possible"
    if any(chosen & down and up - chosen for up, down in zip(unfenced, fenced, strict=True)):
        return "on a fenced broker although another one of its rack is free"
    if not 0 <= placement._until_shuffle < placement._unfenced_count:
        return "not shuffled in time"
    return ""


def _racks_of(placement: Any, brokers: Any, random: Any) -> object:
    """Returns the brokers by rack, those without a rack first; of each rack those that are unfenced, and the others."""
    names = sorted({broker.rack or "" for broker in brokers})
    by_rack = [
        tuple(
            sorted(each.broker_id for each in brokers if (each.rack or "") == name and each.fenced == fenced)
            for fenced in (False, True)
        )
        for name in names
    ]
    return by_rack, len(brokers), sum(not each.fenced for each in brokers), True


def _begun(_: Any, placement: Any, brokers: Any, random: Any) -> object:
    by_rack = [(list(rack.unfenced.brokers), list(rack.fenced.brokers)) for rack in placement._racks]
    offsets = [(placement._offset, len(placement._racks))]
    offsets += [(turn._offset, len(turn.brokers)) for rack in placement._racks for turn in (rack.unfenced, rack.fenced)]
    are_valid = all(0 <= offset < max(count, 1) for offset, count in offsets)
    return by_rack, placement._broker_count, placement._until_shuffle, are_valid


# -- proposals


def _begun_at(brokers: Sequence[int], racks: Any, count: int, factor: int, start: int, shift: int) -> list[list[int]]:
    """Returns the replicas as AdminUtils chooses them: brokers lead in turns, and the others follow in a round that
    begins further behind the leader after each of these turns. Racks without a replica come first.
    """
    size, known = len(brokers), len({racks[broker] for broker in brokers})
    aware = all(racks.values())
    found = []
    for partition in range(count):
        place = (start + partition) % size
        others = [brokers[(place + 1 + more) % size] for more in range(size - 1)]
        begin = (shift + partition // size) * (known if aware else 1)
        replicas = [brokers[place]]
        round_ = [others[(begin + more) % len(others)] for more in range(len(others))] if others else []
        for broker in round_ * factor:
            used = {racks[each] for each in replicas}
            is_fitting = not aware or racks[broker] not in used or len(used) == known
            if len(replicas) < factor and broker not in replicas and is_fitting:
                replicas.append(broker)
        found.append(replicas)
    return found


def _in_turns(racks: Any) -> list[int]:
    """Returns the brokers in the order of AdminUtils: a broker of each rack, then another one of each."""
    if not all(racks.values()):
        return sorted(racks)
    ranked = [
        (sum(racks[other] == rack and other < broker for other in racks), rack, broker)
        for broker, rack in racks.items()
    ]
    return [broker for _, _, broker in sorted(ranked)]


def _proposed(racks: Any, partition_count: int, factor: int, pick: Any) -> object:
    random = getattr(pick, "__self__", None)
    if not 0 < factor <= len(racks) or not isinstance(random, _Draws | SeededRandom):
        return UNJUDGED
    draws, brokers = deepcopy(random), _in_turns(racks)
    start, shift = draws.below(len(brokers)), draws.below(len(brokers))
    return _begun_at(brokers, racks, partition_count, factor, start, shift)


def _near_proposals(racks: Any, partition_count: int, factor: int, pick: Any) -> Iterator[Arguments]:
    """The same brokers without and with racks, and other ones, for more partitions than there are brokers."""
    for names in ((None,), ("a",), ("a", "b"), ("a", "b", "c"), ("a", None)):
        for count in (len(racks), 4):
            some = {each: names[each % len(names)] for each in (racks if count == len(racks) else range(count))}
            for start in range(2):
                yield some, 2 * count + 1, min(factor, len(some)), _Draws([start, start + partition_count]).below


_PLACEMENT: Final = "decisions.placement:StripedPlacement."

PLACEMENT_DECISIONS: Final = costly(
    SecondDecision("decisions.strategies:least_leaders", _fewest, _near_fewest),
    SecondDecision("decisions.strategies:Elector.choose", _elected, _near_elections, _elected_of),
    SecondDecision("decisions.placement:_shuffle", _shuffled, _near_shuffles, _items_of),
    SecondDecision(_PLACEMENT + "check", _checked, _near_factors),
    SecondDecision(_PLACEMENT + "__init__", _racks_of, shown=_begun),
    SecondDecision(_PLACEMENT + "place", _placed, shown=_placed_of),
    SecondDecision(_PLACEMENT + "place", _is_spread, shown=_spread),
    SecondDecision("decisions.proposals:propose", _proposed, _near_proposals),
)
