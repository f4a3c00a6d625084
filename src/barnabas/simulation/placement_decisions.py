"""Second decisions about where replicas go: placements of new partitions, proposals, and strategies of elections.

Randomness of the product is not drawn again: a placement is compared with the turns that its state implies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

# -- strategies


def _fewest(choice: Any) -> int:
    ranked = [(choice.leaders.get(each, 0), place) for place, each in enumerate(choice.candidates)]
    found: int = choice.candidates[min(ranked)[1]]
    return found


def _near_fewest(choice: Any) -> Iterator[Arguments]:
    for leaders in ({}, {1: 2, 2: 1, 3: 1}, dict.fromkeys(choice.candidates[1:], 5)):
        yield (choice._replace(leaders=Counter(leaders)),)


# -- placement


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


def _is_proposed(racks: Any, partition_count: int, factor: int, pick: Any) -> object:
    return "" if 0 < factor <= len(racks) else UNJUDGED


def _proposed(placed: Any, racks: Any, partition_count: int, factor: int, pick: Any) -> str:
    """Describes what is wrong with a proposal: as AdminUtils, it spreads leaders evenly, and replicas over racks."""
    if len(placed) != partition_count:
        return "not as many partitions as wanted"
    if any(len(set(each)) != factor or len(each) != factor or not set(each) <= set(racks) for each in placed):
        return "not as many brokers as replicas"
    leaders = Counter(each[0] for each in placed)
    if partition_count and max(leaders.values()) > -(-partition_count // len(racks)):
        return "leaders are not spread"
    known = {rack for rack in racks.values() if rack}
    if known and all(racks.values()):
        wanted = min(len(known), factor)
        if any(len({racks[broker] for broker in each}) < wanted for each in placed):
            return "not in as many racks as possible"
    return ""


_PLACEMENT: Final = "decisions.placement:StripedPlacement."

PLACEMENT_DECISIONS: Final = costly(
    SecondDecision("decisions.strategies:least_leaders", _fewest, _near_fewest),
    SecondDecision(_PLACEMENT + "__init__", _racks_of, shown=_begun),
    SecondDecision(_PLACEMENT + "place", _placed, shown=_placed_of),
    SecondDecision(_PLACEMENT + "place", _is_spread, shown=_spread),
    SecondDecision("decisions.proposals:propose", _is_proposed, shown=_proposed),
)
