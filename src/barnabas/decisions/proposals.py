"""Proposals of replicas for topics that move to other brokers, as AdminUtils of Kafka's tools makes them: round robin
from a random broker, alternating racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


def propose(
    racks: Mapping[int, str | None], partition_count: int, factor: int, pick: Callable[[int], int]
) -> list[list[int]]:
    """Proposes replicas for each partition of one topic on these brokers (id -> rack). Racks are respected if every
    broker has one. `pick` draws a number below another one. Raises ValueError if there are fewer brokers than replicas.
    """
    if not 0 < factor <= len(racks):
        raise ValueError(f"a replication factor of {factor} needs more than {len(racks)} brokers")
    known = {rack for rack in racks.values() if rack}
    aware = bool(known) and all(racks.values())
    brokers = _alternating(racks) if aware else sorted(racks)
    count = len(brokers)
    start, shift = pick(count), pick(count)
    placed = []
    for index in range(partition_count):
        if index > 0 and index % count == 0:
            shift += 1
        first = (index + start) % count
        step = shift * len(known) if aware else shift
        replicas = [brokers[first]]
        used = {racks[brokers[first]]}
        turn = 0
        while len(replicas) < factor:
            broker = brokers[(first + 1 + (step + turn) % (count - 1)) % count]
            turn += 1
            if broker in replicas or (aware and racks[broker] in used and len(used) < len(known)):
                continue
            replicas.append(broker)
            used.add(racks[broker])
        placed.append(replicas)
    return placed


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """Returns one broker of each rack, then the next of each, and so on."""
    turns = [
        iter(sorted(broker for broker, rack in racks.items() if rack == name))
        for name in sorted({rack or "" for rack in racks.values()})
    ]
    found: list[int] = []
    while len(found) < len(racks):
        found += [broker for turn in turns if (broker := next(turn, None)) is not None]
    return found
