"""The history of group members, and the check of it.

    one owner      in one generation (classic) or member epoch (KIP-848) a partition has one owner; a group that could
                   be empty and counts from the begin is another one, because a member of the other protocol replaces
                   an empty group, as in Kafka
    no overlap     for members that note their last contact: no other member is assigned a partition before its owner
                   gave it back, or could have been removed
    commits        an acknowledged offset is not lost, and the committed offset never goes back

The last rule relies on how members work: each continues from what the group has committed, and commits nothing more
after a commit with an unknown result.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import NamedTuple

from barnabas.simulation.history import Place, Problem
from barnabas.simulation.world import Note, format_time

#: The largest difference allowed between the clocks of two machines.
_CLOCKS_US = 100_000


class Owned(NamedTuple):
    """A member's ownership of a partition. `until_us`: when it was given back, or until when the group could not know
    that its owner had ended.
    """

    member: str
    generation: int
    since_us: int
    until_us: int


class Seen(NamedTuple):
    """An offset that a group returned between `requested_us` and `returned_us`, or acknowledged as committed."""

    requested_us: int
    returned_us: int
    offset: int
    is_commit: bool


class _Holding:
    """The time for which one member has one partition."""

    __slots__ = ("generation", "member", "since_us", "until_us")

    def __init__(self, member: str, generation: int, since_us: int) -> None:
        self.member = member
        self.generation = generation
        self.since_us = since_us
        #: The time when the member gave it back; None until then.
        self.until_us: int | None = None


_since = attrgetter("since_us")


class GroupHistory:
    """The history of one group. `member`: one membership; a member that joins again is another one, except a static
    member, which is its instance.
    """

    def __init__(self, now_us: Callable[[], int], session_us: int) -> None:
        self._now_us = now_us
        self._session_us = session_us
        self._holdings: dict[Place, list[_Holding]] = defaultdict(list)
        self._held: dict[tuple[str, Place], _Holding] = {}
        #: The partitions of static members when they ended, until they are back.
        self._left: dict[str, list[_Holding]] = defaultdict(list)
        #: The send time of the last request of each member that got a response.
        self._contacted_us: dict[str, int] = {}
        self._seen: dict[Place, list[Seen]] = defaultdict(list)
        #: The times at which a client can have committed a wrong offset.
        self._excused_us: dict[Place, list[int]] = defaultdict(list)
        self.commits = 0

    def assigned(self, member: str, place: Place, generation: int) -> None:
        holding = self._held[member, place] = _Holding(member, generation, self._now_us())
        self._holdings[place].append(holding)

    def revoked(self, member: str, place: Place) -> None:
        holding = self._held.pop((member, place), None)
        if holding is not None:
            holding.until_us = min(self._now_us(), self._lease_us(holding))

    def left(self, member: str) -> None:
        """Records that a static member ended without giving partitions back: it keeps them for a time."""
        for owner, place in tuple(self._held):
            if owner == member:
                holding = self._held.pop((owner, place))
                holding.until_us = self._lease_us(holding)
                self._left[owner].append(holding)

    def _lease_us(self, holding: _Holding) -> int:
        """Returns the time until which the owner can be sure that no other member has the partition."""
        contacted_us = self._contacted_us.get(holding.member)
        return holding.since_us if contacted_us is None else contacted_us + self._session_us - _CLOCKS_US

    def contacted(self, member: str, sent_us: int) -> None:
        self._contacted_us[member] = sent_us
        for holding in self._left.pop(member, ()):
            # The static member is back, and owns what it is assigned from now on.
            assert holding.until_us is not None
            holding.until_us = min(holding.until_us, sent_us)

    def saw(self, place: Place, requested_us: int, offset: int, *, is_commit: bool = False) -> None:
        self._seen[place].append(Seen(requested_us, self._now_us(), offset, is_commit))
        self.commits += is_commit

    def excuse(self, place: Place) -> None:
        self._excused_us[place].append(self._now_us())

    # -- checks

    def problems(self) -> list[Problem]:
        """Returns the broken promises, each with the assignments of the members concerned."""
        found = []
        replaced_us = self._replaced_us()
        for place, holdings in sorted(self._holdings.items()):
            found += self._one_owner(place, holdings, replaced_us)
        for place, seen in sorted(self._seen.items()):
            found += self._commits(place, sorted(seen, key=lambda each: each.requested_us))
        return found

    def _owned(self, holdings: list[_Holding]) -> Iterator[Owned]:
        for each in holdings:
            yield Owned(each.member, each.generation, each.since_us, self._until_us(each))

    def _life(self, place: Place, members: Collection[str]) -> tuple[Note, ...]:
        """Returns when these members got and gave back a partition."""
        notes = []
        for each in self._holdings[place]:
            if each.member in members:
                notes.append(Note(each.since_us, each.member, f"is assigned {_at(place)} in {each.generation}"))
                if each.until_us is None:
                    lease = f"can have lost {_at(place)}: the group can have removed it"
                    notes.append(Note(self._lease_us(each), each.member, lease))
                else:
                    notes.append(Note(each.until_us, each.member, f"gives {_at(place)} back"))
        return tuple(sorted(notes, key=lambda note: note.time_us))

    def _replaced_us(self) -> list[int]:
        """Returns the times at which the generations began anew in a group that could be empty."""
        found, highest = [], 0
        every = sorted((each for holdings in self._holdings.values() for each in holdings), key=_since)
        for each in every:
            if each.generation >= highest:
                highest = each.generation
            elif not any(one.since_us < each.since_us < self._until_us(one) for one in every):
                found.append(each.since_us)
                highest = each.generation
        return found

    def _until_us(self, holding: _Holding) -> int:
        return self._lease_us(holding) if holding.until_us is None else holding.until_us

    def _one_owner(self, place: Place, holdings: list[_Holding], replaced_us: list[int]) -> list[Problem]:
        problems = []
        owners: dict[tuple[int, int], str] = {}
        for each in holdings:
            number = bisect_right(replaced_us, each.since_us)
            owner = owners.setdefault((number, each.generation), each.member)
            if owner != each.member:
                text = f"two owners in a generation: {_at(place)} in {each.generation}: {owner}, {each.member}"
                problems.append(Problem(text, notes=self._life(place, (owner, each.member))))
        times = sorted(self._owned(holdings), key=lambda each: each.since_us)
        for one, other in itertools.combinations(times, 2):
            if one.member != other.member and other.since_us < one.until_us:
                text = f"owned twice at once: {_at(place)}: {_period(one)} and {_period(other)}"
                problems.append(Problem(text, notes=self._life(place, (one.member, other.member))))
        return problems

    def _commits(self, place: Place, seen: list[Seen]) -> list[Problem]:
        """Compares each offset with the highest one that was returned before it was requested."""
        problems = []
        by_return = sorted(seen, key=lambda each: each.returned_us)
        for each in seen:
            least = self._least(place, by_return, each.requested_us)
            if each.offset < least:
                text = (
                    f"committed offset went back: {_at(place)} is at {each.offset} at "
                    f"{format_time(each.requested_us)}, and was at {least}"
                )
                notes = [_seen_note(place, one) for one in by_return if least <= one.offset or one is each]
                problems.append(Problem(text, notes=tuple(note for note in notes if note.time_us <= each.returned_us)))
        return problems

    def _least(self, place: Place, by_return: list[Seen], before_us: int) -> int:
        begin_us = max((at for at in self._excused_us[place] if at <= before_us), default=-1)
        return max((each.offset for each in by_return if begin_us < each.returned_us < before_us), default=-1)


def _seen_note(place: Place, seen: Seen) -> Note:
    what = "acknowledges the commit of" if seen.is_commit else "says that it is at"
    asked = format_time(seen.requested_us)
    return Note(seen.returned_us, "group", f"{what} offset {seen.offset} of {_at(place)}, asked at {asked}")


def _at(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _period(owned: Owned) -> str:
    times = f"{format_time(owned.since_us)} to {format_time(owned.until_us)}"
    return f"{owned.member} in {owned.generation}, {times}"
