"""The diaries of a group's members, and a verdict on them.

The verdict, for any client whose members keep a journal as tests/clients/group_member.py does:
- no partition has two owners at the same time, and none in one generation;
- in the end every partition has one owner;
- a member begins where the group had committed, at least what had been acknowledged before, and reads on without gaps;
- the committed offset never decreases, and in the end nothing acknowledged is missing;
- everything that was written was read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOREVER = float("inf")
#: The smallest numbers that make a verdict meaningful.
SEEN_MIN, COMMITS_MIN = 5, 20
#: The time of the acknowledgement, the partition, the offset.
Commit = tuple[float, int, int]


class Owned(NamedTuple):
    member: str
    partition: int
    begin: float
    end: float
    generation: int | None


class Diary:
    """The events of one member. Times are those of `time.monotonic`; `ended_at` is when it was killed or had left."""

    def __init__(self, name: str, journal: Path, instance: str | None = None) -> None:
        self.name = name
        #: The identity: a static member that is started again is the same member.
        self.identity = instance or name
        self.journal = journal
        self.ended_at = FOREVER

    def events(self) -> list[dict[str, Any]]:
        text = self.journal.read_text() if self.journal.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def owned(self) -> Iterator[Owned]:
        """Yields the partitions that the member owned, with the times."""
        since: dict[int, tuple[float, int | None]] = {}
        last_commit: dict[int, float] = {}
        for event in self.events():
            if event["event"] == "assigned":
                for partition in event["partitions"]:
                    since[partition] = (event["at"], event["generation"])
            elif event["event"] in ("revoked", "lost"):
                for partition in event["partitions"]:
                    if partition in since:
                        begin, generation = since.pop(partition)
                        # Another member can own the partition after the last sign that this one had it.
                        end = event["at"] if event["event"] == "revoked" else last_commit.get(partition, begin)
                        yield Owned(self.name, partition, begin, max(begin, end), generation)
            elif event["event"] == "committed":
                last_commit[event["partition"]] = event["at"]
        for partition, (begin, generation) in since.items():
            yield Owned(self.name, partition, begin, self.ended_at, generation)

    def owns_now(self) -> set[int]:
        return {each.partition for each in self.owned() if each.end == FOREVER}


def judge(
    members: Sequence[Diary], written: Mapping[int, int], seen: Sequence[tuple[float, Mapping[int, int]]]
) -> None:
    """Checks the diaries. `written`: number of records by partition; `seen`: committed offsets with the time of the
    request.
    """
    judge_owners(members, written)
    acknowledged = sorted(
        (event["at"], event["partition"], event["offset"])
        for member in members
        for event in member.events()
        if event["event"] == "committed"
    )
    judge_reading(members, written, acknowledged)
    judge_commits(written, seen, acknowledged)
    assert len(seen) > SEEN_MIN, "the watcher has seen something"
    assert len(acknowledged) > COMMITS_MIN, "commits were acknowledged"


def judge_owners(members: Sequence[Diary], partitions: Collection[int]) -> None:
    times = sorted((each for member in members for each in member.owned()), key=lambda each: each.begin)
    for index, one in enumerate(times):
        for other in times[index + 1 :]:
            if one.partition == other.partition and one.member != other.member:
                assert other.begin >= one.end, f"owned twice at once: {one} {other}"
    identities = {member.name: member.identity for member in members}
    by_generation: dict[tuple[int, int], str] = {}
    for each in times:
        if each.generation is not None and each.generation >= 0:
            identity = identities[each.member]
            owner = by_generation.setdefault((each.generation, each.partition), identity)
            assert owner == identity, f"two owners in a generation: {owner} {each}"
    now = sorted(each.partition for each in times if each.end == FOREVER)
    assert now == sorted(partitions), f"in the end these have an owner: {now}"


def judge_reading(members: Sequence[Diary], written: Mapping[int, int], acknowledged: Sequence[Commit]) -> None:
    read: dict[int, set[int]] = {partition: set() for partition in written}
    for member in members:
        expected: dict[int, int] = {}
        given_at: dict[int, float] = {}
        for event in member.events():
            if event["event"] == "assigned":
                for partition in event["partitions"]:
                    expected.pop(partition, None)
                    given_at[partition] = event["at"]
            elif event["event"] == "read":
                partition, first = event["partition"], event["first"]
                read[partition].update(range(first, event["last"] + 1))
                if partition in expected:
                    assert first == expected[partition], f"{member.name} skips or repeats: {event}"
                else:
                    least = _highest(acknowledged, partition, given_at[partition])
                    assert first >= least, f"{member.name} begins before the committed offset ({least}): {event}"
                expected[partition] = event["last"] + 1
    for partition, end in written.items():
        missing = set(range(end)) - read[partition]
        assert not missing, f"partition {partition}: nobody read {sorted(missing)[:10]}"


def judge_commits(
    written: Mapping[int, int], seen: Sequence[tuple[float, Mapping[int, int]]], acknowledged: Sequence[Commit]
) -> None:
    highest = dict.fromkeys(written, 0)
    for asked_at, offsets in seen:
        for partition in written:
            least = max(highest[partition], _highest(acknowledged, partition, asked_at))
            offset = offsets.get(partition, 0)
            assert offset >= least, f"partition {partition}: {offset} is committed after {least} was"
            highest[partition] = offset


def _highest(acknowledged: Sequence[Commit], partition: int, before: float) -> int:
    return max((offset for at, which, offset in acknowledged if which == partition and at < before), default=0)
