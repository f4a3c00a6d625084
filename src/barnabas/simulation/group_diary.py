"""What members of groups noted, and the judgement on it.

    one owner      in one generation (classic) or member epoch (KIP-848) a partition has one owner
    at a time      of members that say when they were heard last: nobody else is given a partition before its owner gave
                   it back, or could have been thrown out
    commits        an offset that was acknowledged is not lost, and what is committed never goes back

The last one stands on how members work: each goes on from what the group has committed, and commits nothing any more
once it does not know what became of a commit.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.simulation.story import Place
from barnabas.simulation.world import format_time

#: Clocks of machines do not go alike.
_CLOCKS_US = 100_000


class Owned(NamedTuple):
    """`until_us`: given back then, or as long as the group could not know that its owner is gone."""

    member: str
    generation: int
    since_us: int
    until_us: int


class Seen(NamedTuple):
    """An offset that a group said it has (`asked_us` to `told_us`), or that it acknowledged as committed."""

    asked_us: int
    told_us: int
    offset: int
    is_commit: bool


class _Holding:
    """One partition of one member, as long as it has it."""

    __slots__ = ("generation", "member", "since_us", "until_us")

    def __init__(self, member: str, generation: int, since_us: int) -> None:
        self.member = member
        self.generation = generation
        self.since_us = since_us
        #: None as long as it has not given it back.
        self.until_us: int | None = None


class GroupDiary:
    """Of one group. `member`: one membership; who joins anew is another one."""

    def __init__(self, now_us: Callable[[], int], session_us: int) -> None:
        self._now_us = now_us
        self._session_us = session_us
        self._holdings: dict[Place, list[_Holding]] = defaultdict(list)
        self._held: dict[tuple[str, Place], _Holding] = {}
        #: When a request was sent that was answered.
        self._heard_us: dict[str, int] = {}
        self._seen: dict[Place, list[Seen]] = defaultdict(list)
        #: When a client may have committed what it should not.
        self._excused_us: dict[Place, list[int]] = defaultdict(list)
        self.commits = 0

    def assigned(self, member: str, place: Place, generation: int) -> None:
        holding = self._held[member, place] = _Holding(member, generation, self._now_us())
        self._holdings[place].append(holding)

    def revoked(self, member: str, place: Place) -> None:
        holding = self._held.pop((member, place), None)
        if holding is not None:
            holding.until_us = min(self._now_us(), self._lease_us(holding))

    def _lease_us(self, holding: _Holding) -> int:
        """How long its owner may be sure that nobody else has it."""
        heard_us = self._heard_us.get(holding.member)
        return holding.since_us if heard_us is None else heard_us + self._session_us - _CLOCKS_US

    def heard(self, member: str, sent_us: int) -> None:
        self._heard_us[member] = sent_us

    def saw(self, place: Place, asked_us: int, offset: int, *, is_commit: bool = False) -> None:
        self._seen[place].append(Seen(asked_us, self._now_us(), offset, is_commit))
        self.commits += is_commit

    def excuse(self, place: Place) -> None:
        self._excused_us[place].append(self._now_us())

    # -- judgement

    def problems(self) -> list[str]:
        found = []
        for place, holdings in sorted(self._holdings.items()):
            found += self._one_owner(place, holdings)
        for place, seen in sorted(self._seen.items()):
            found += self._commits(place, sorted(seen, key=lambda each: each.asked_us))
        return found

    def _owned(self, holdings: list[_Holding]) -> Iterator[Owned]:
        for each in holdings:
            until_us = self._lease_us(each) if each.until_us is None else each.until_us
            yield Owned(each.member, each.generation, each.since_us, until_us)

    def _one_owner(self, place: Place, holdings: list[_Holding]) -> list[str]:
        problems = []
        owners: dict[int, str] = {}
        for each in holdings:
            owner = owners.setdefault(each.generation, each.member)
            if owner != each.member:
                problems.append(
                    f"two owners in a generation: {_at(place)} in {each.generation}: {owner}, {each.member}"
                )
        times = sorted(self._owned(holdings), key=lambda each: each.since_us)
        for one, other in itertools.combinations(times, 2):
            if one.member != other.member and other.since_us < one.until_us:
                text = f"owned twice at once: {_at(place)}: {_told(one)} and {_told(other)}"
                problems.append(text)
        return problems

    def _commits(self, place: Place, seen: list[Seen]) -> list[str]:
        """Each against the highest one that was told before it was asked for."""
        problems = []
        told = sorted(seen, key=lambda each: each.told_us)
        for each in seen:
            least = self._least(place, told, each.asked_us)
            if each.offset < least:
                problems.append(
                    f"committed offset went back: {_at(place)} is at {each.offset} at "
                    f"{format_time(each.asked_us)}, and was at {least}"
                )
        return problems

    def _least(self, place: Place, told: list[Seen], before_us: int) -> int:
        begin_us = max((at for at in self._excused_us[place] if at <= before_us), default=-1)
        return max((each.offset for each in told if begin_us < each.told_us < before_us), default=-1)


def _at(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _told(owned: Owned) -> str:
    times = f"{format_time(owned.since_us)} to {format_time(owned.until_us)}"
    return f"{owned.member} in {owned.generation}, {times}"
