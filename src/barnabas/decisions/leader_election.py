"""Leader election as a pure function of one partition's replicas, ISR and ELR.

KIP-966, and KIP-460 for the preferred kind. A replica is "valid" if it can lead and is in the ISR, or in the ELR while
the ISR is empty.

    preferred    AR[0] if valid; otherwise as `online`
    online       the current leader if valid; else the first valid replica in AR order, or the one that the strategy
                 selects (see `strategies.py`); else, with ELR enabled and both ISR and ELR empty, the last known
                 leader, which counts as unclean
    unclean      as `online`; else the first replica in AR order that can lead at all. Callers choose it for
                 topics that allow it, and at an operator's request
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from barnabas.decisions.partition import NO_LEADER


class Election(Enum):
    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class Elected(NamedTuple):
    leader: int
    #: Records that only the ISR had are possibly lost.
    unclean: bool


class Candidates(NamedTuple):
    """The input of an election. `last_known_elr` contains the last known leader while the partition has no leader."""

    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    elr: Sequence[int] = ()
    last_known_elr: Sequence[int] = ()
    elr_enabled: bool = False


def elect(
    candidates: Candidates,
    may_lead: Callable[[int], bool],
    election: Election,
    choose: Callable[[Sequence[int]], int] | None = None,
) -> Elected:
    """Returns the leader. `choose` selects one of the valid replicas, which it gets in AR order; without it the first
    one leads.
    """

    def valid(replica: int) -> bool:
        eligible = replica in candidates.isr or (not candidates.isr and replica in candidates.elr)
        return eligible and may_lead(replica)

    if election is Election.PREFERRED and candidates.replicas and valid(candidates.replicas[0]):
        return Elected(candidates.replicas[0], False)
    if valid(candidates.leader):
        return Elected(candidates.leader, False)
    clean = [replica for replica in candidates.replicas if valid(replica)]
    if clean:
        leader = clean[0] if choose is None else choose(clean)
        assert leader in clean, f"{leader} of {clean}"
        return Elected(leader, False)
    if candidates.elr_enabled and not candidates.isr and not candidates.elr and len(candidates.last_known_elr) == 1:
        last_known = candidates.last_known_elr[0]
        if last_known in candidates.replicas and may_lead(last_known):
            return Elected(last_known, True)
    if election is Election.UNCLEAN:
        for replica in candidates.replicas:
            if may_lead(replica):
                return Elected(replica, True)
    return Elected(NO_LEADER, False)
