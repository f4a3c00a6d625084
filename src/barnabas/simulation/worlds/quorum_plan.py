"""The plan of a run of the quorum: its size, and the faults that its seed selects."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """The world and the faults of one seed: a random subset of all faults (swarm testing)."""

    seed: int
    voters: int = 3
    observers: int = 0
    dynamic: bool = False
    snapshots: bool = False
    losses: bool = False
    cuts: bool = False
    crashes: bool = False
    power: bool = False
    pauses: bool = False
    skew: bool = False
    wipes: bool = False
    changes: bool = False
    #: The change from static voters to dynamic ones.
    upgrades: bool = False
    on_wire: bool = False
    #: Whether each answer to a fetch has a single batch.
    small_fetches: bool = False
    #: Whether answers arrive damaged, and whether disks are full for a while.
    damages: bool = False
    full_disks: bool = False

    @staticmethod
    def of(seed: int) -> Plan:
        chance = random.Random(seed)

        def some(share: float = 0.5) -> bool:
            return chance.random() < share

        dynamic = some()
        return Plan(
            seed,
            voters=chance.choice([1, 2, 3, 3, 3, 3, 5]),
            observers=chance.choice([0, 0, 1]),
            dynamic=dynamic,
            snapshots=some(),
            losses=some(),
            cuts=some(0.7),
            crashes=some(0.7),
            power=some(),
            pauses=some(),
            skew=some(),
            wipes=dynamic and some(0.3),
            changes=dynamic and some(),
            on_wire=some(0.05),
            small_fetches=seed % 5 == 3,
            upgrades=not dynamic and some(0.3),
            damages=some(0.3),
            full_disks=some(0.3),
        )
