"""Members of a group as processes that come, go and are killed under load, and a verdict on what they noted.

The verdict, for any client whose members keep a journal as tests/clients/group_member.py does:
- no partition has two owners at once, and none in one generation;
- in the end every partition has one owner;
- a member begins where the group had committed, at least what had been acknowledged before, and reads on without gaps;
- what is committed never goes back, and in the end nothing acknowledged is missing;
- everything that was written was read.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from tests.support.survival import PRODUCER, QUIET, Brokers, wait_until

FOREVER = float("inf")
#: When it was acknowledged, the partition, the offset.
Commit = tuple[float, int, int]


class Owned(NamedTuple):
    member: str
    partition: int
    begin: float
    end: float
    generation: int | None


class Diary:
    """What one member noted. Times are those of `time.monotonic`; `ended_at` is when it was killed or had left."""

    def __init__(self, name: str, journal: Path, instance: str | None = None) -> None:
        self.name = name
        #: A static member that is started again is the same member.
        self.identity = instance or name
        self.journal = journal
        self.ended_at = FOREVER

    def events(self) -> list[dict[str, Any]]:
        text = self.journal.read_text() if self.journal.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def owned(self) -> Iterator[Owned]:
        """What it owned and when."""
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
                        # What was taken from it may have been another one's since the last sign that it had it.
                        end = event["at"] if event["event"] == "revoked" else last_commit.get(partition, begin)
                        yield Owned(self.name, partition, begin, max(begin, end), generation)
            elif event["event"] == "committed":
                last_commit[event["partition"]] = event["at"]
        for partition, (begin, generation) in since.items():
            yield Owned(self.name, partition, begin, self.ended_at, generation)

    def owns_now(self) -> set[int]:
        return {each.partition for each in self.owned() if each.end == FOREVER}


class Process(Diary):
    """One member that runs."""

    def __init__(self, name: str, command: list[str], journal: Path, instance: str | None) -> None:
        super().__init__(name, journal, instance)
        with journal.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return self.journal.with_suffix(".err").read_text(errors="replace")[-2_000:]

    def kill(self) -> None:
        """It owns nothing from now on, though the group does not know yet."""
        self.ended_at = time.monotonic()
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.ended_at = time.monotonic()


class Group:
    """`with Group(...) as group:` is a producer that writes all the time, a watcher of what is committed, and the
    members that the test starts. `settle`, then `judge`."""

    def __init__(
        self, cluster: Brokers, directory: Path, group: str, partitions: int, program: Callable[[str], list[str]]
    ) -> None:
        """`group` is its topic's name, too. `program`: a member's command by its make, without arguments."""
        self.cluster, self.group, self.topic, self._program = cluster, group, group, program
        self.partitions = range(partitions)
        self.members: list[Process] = []
        #: Partition -> offset that the next record will have; of acknowledged ones.
        self.written: dict[int, int] = dict.fromkeys(self.partitions, 0)
        #: (time of asking, partition -> offset), in order.
        self.seen: list[tuple[float, dict[int, int]]] = []
        self._directory = directory
        # One for all questions: librdkafka 2.16 may abort the process when admin clients come and go with its brokers.
        self._admin: Any = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
        self._writing, self._watching = threading.Event(), threading.Event()
        self._threads = [threading.Thread(daemon=True, target=work) for work in (self._write, self._watch)]

    def __enter__(self) -> Group:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writing.set()
        self._watching.set()
        for member in self.members:
            if member.process.poll() is None:
                member.kill()
        for thread in self._threads:
            thread.join(30)

    def start(self, client: str, instance: str | None = None) -> Process:
        """A member of this make."""
        name = f"{len(self.members)}-{client}"
        journal = self._directory / f"{name}.jsonl"
        command = [*self._program(client), self.cluster.bootstrap, self.group, self.topic, str(journal)]
        member = Process(name, [*command, *([instance] if instance else [])], journal, instance)
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Process]:
        return [member for member in self.members if member.ended_at == FOREVER]

    def await_owners(self, timeout_s: float = 40) -> None:
        """All partitions are owned once, and every live member owns its share."""

        def settled() -> bool:
            for member in self.alive:
                assert member.process.poll() is None, f"{member.name} ended by itself: {member.last_words()}"
            shares = [member.owns_now() for member in self.alive]
            owned = [partition for share in shares for partition in share]
            least = len(self.partitions) // max(len(shares), 1)
            return sorted(owned) == list(self.partitions) and all(len(share) >= least for share in shares)

        try:
            wait_until(settled, "every partition has one owner", timeout_s)
        except AssertionError as error:
            owners = {member.name: sorted(member.owns_now()) for member in self.alive}
            raise AssertionError(f"{error}: {owners}") from error

    def coordinator(self) -> int:
        future = self._admin.describe_consumer_groups([self.group], request_timeout=10)[self.group]
        return int(future.result(15).coordinator.id)

    def settle(self, timeout_s: float = 40) -> None:
        """Write no more, and wait until all is read and committed."""
        self._writing.set()
        self._threads[0].join(60)
        wait_until(lambda: self._committed() == self.written, "all is committed", timeout_s)
        self._watching.set()
        self._threads[1].join(60)

    def judge(self) -> None:
        """AssertionError says what is wrong."""
        judge(self.members, self.written, self.seen)

    # -- beside the members

    def _write(self) -> None:
        producer = confluent_kafka.Producer({**PRODUCER, "bootstrap.servers": self.cluster.bootstrap})

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.written[message.partition()] = max(self.written[message.partition()], message.offset() + 1)

        while not self._writing.is_set():
            for partition in self.partitions:
                producer.produce(self.topic, b"x", partition=partition, on_delivery=delivered)
            producer.poll(0)
            time.sleep(0.05)
        producer.flush(60)

    def _watch(self) -> None:
        while not self._watching.is_set():
            asked_at = time.monotonic()
            found = self._committed()
            if found is not None:
                self.seen.append((asked_at, found))
            time.sleep(0.1)

    def _committed(self) -> dict[int, int] | None:
        """None while no coordinator answers."""
        try:
            request = [ConsumerGroupTopicPartitions(self.group)]
            answer = self._admin.list_consumer_group_offsets(request, request_timeout=5)[self.group].result(10)
        except (KafkaException, TimeoutError):
            return None
        return {each.partition: each.offset for each in answer.topic_partitions if each.offset >= 0}


def judge(
    members: Sequence[Diary], written: Mapping[int, int], seen: Sequence[tuple[float, Mapping[int, int]]]
) -> None:
    """`written`: partition -> how many records; `seen`: what was committed, and when that was asked."""
    judge_owners(members, written)
    acknowledged = sorted(
        (event["at"], event["partition"], event["offset"])
        for member in members
        for event in member.events()
        if event["event"] == "committed"
    )
    judge_reading(members, written, acknowledged)
    judge_commits(written, seen, acknowledged)
    assert len(seen) > 5, "the watcher has seen something"
    assert len(acknowledged) > 20, "commits were acknowledged"


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
                    assert first >= least, f"{member.name} begins before what was committed ({least}): {event}"
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
