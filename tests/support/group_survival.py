"""Members of a group as processes that start, leave and are killed under load; tests/support/group_verdict.py judges
them.

Committed offsets are requested over a bare socket: librdkafka 2.16 ends its process ("eonce->refcnt > 0") or waits
forever when the coordinator dies during a request of its admin client.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import confluent_kafka
from tests.support.group_verdict import COMMITS_MIN, FOREVER, SEEN_MIN, Diary, judge
from tests.support.served import call
from tests.support.survival import PRODUCER, WAIT_S, Brokers, wait_until

from barnabas.protocol.message import Message
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest


class Process(Diary):
    """A running member."""

    def __init__(self, name: str, command: list[str], journal: Path, instance: str | None) -> None:
        super().__init__(name, journal, instance)
        with journal.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def last_words(self) -> str:
        """Returns the last lines that the process wrote to stderr."""
        return self.journal.with_suffix(".err").read_text(errors="replace")[-2_000:]

    def kill(self) -> None:
        """Kills the process. From now on it owns nothing, though the group does not know yet."""
        self.ended_at = time.monotonic()
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)
        self.ended_at = time.monotonic()


class Group:
    """A group under load. `with Group(...) as group:` is a producer that writes all the time, a watcher of the
    committed offsets, and the members that the test starts. `settle`, then `judge`.
    """

    def __init__(
        self, cluster: Brokers, directory: Path, group: str, partitions: int, program: Callable[[str], list[str]]
    ) -> None:
        """Creates a group. `group` is also its topic's name. `program` returns the command of a member of a client,
        without arguments.
        """
        self.cluster, self.group, self.topic, self._program = cluster, group, group, program
        self.partitions = range(partitions)
        self.members: list[Process] = []
        #: The offset of the next record of each partition, after the acknowledged ones.
        self.written: dict[int, int] = dict.fromkeys(self.partitions, 0)
        #: Committed offsets as (time of the request, offset by partition), in order.
        self.seen: list[tuple[float, dict[int, int]]] = []
        self._directory = directory
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
            thread.join(WAIT_S)

    def start(self, client: str, instance: str | None = None) -> Process:
        """Starts a member of this client."""
        name = f"{len(self.members)}-{client}"
        journal = self._directory / f"{name}.jsonl"
        command = [*self._program(client), self.cluster.bootstrap, self.group, self.topic, str(journal)]
        member = Process(name, [*command, *([instance] if instance else [])], journal, instance)
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Process]:
        return [member for member in self.members if member.ended_at == FOREVER]

    def await_owners(self, timeout_s: float = WAIT_S) -> None:
        """Waits until all partitions have one owner and every live member owns its share."""

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
        """Returns the coordinator, once there is one."""
        found = -1

        def look() -> bool:
            nonlocal found
            try:
                found = int(self._found().node_id)
            except OSError:
                return False
            return found >= 0

        wait_until(look, f"{self.group} has a coordinator")
        return found

    def settle(self, timeout_s: float = WAIT_S) -> None:
        """Waits for a load, stops writing, and waits until all is read and committed."""
        wait_until(lambda: len(self.seen) > SEEN_MIN, "the watcher reads all committed records", timeout_s)
        wait_until(lambda: self._commits() > COMMITS_MIN, "the members commit", timeout_s)
        self._writing.set()
        self._threads[0].join(2 * WAIT_S)
        wait_until(lambda: self._committed() == self.written, "all is committed", timeout_s)
        self._watching.set()
        self._threads[1].join(WAIT_S)

    def judge(self) -> None:
        """Checks the diaries. Raises AssertionError with a description of the fault."""
        judge(self.members, self.written, self.seen)

    def _commits(self) -> int:
        return sum(event["event"] == "committed" for member in self.members for event in member.events())

    # -- in the background

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
        producer.flush(WAIT_S)

    def _watch(self) -> None:
        while not self._watching.is_set():
            asked_at = time.monotonic()
            found = self._committed()
            if found is not None:
                self.seen.append((asked_at, found))
            time.sleep(0.1)

    def _committed(self) -> dict[int, int] | None:
        """Returns the committed offsets, or None while no coordinator answers."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=None)]
        )
        try:
            (answer,) = call(self._found().port, request, 8).groups
        except (OSError, AssertionError):
            return None
        rows = [row for topic in answer.topics for row in topic.partitions]
        if answer.error_code or any(row.error_code for row in rows):
            return None
        return {row.partition_index: row.committed_offset for row in rows}

    def _found(self) -> Any:
        """Returns the group's coordinator. Raises OSError if no broker answers."""
        return self._call_any(FindCoordinatorRequest(key=self.group, key_type=0), 3)

    def _call_any(self, request: Message, version: int) -> Any:
        for address in self.cluster.bootstrap.split(","):
            try:
                return call(int(address.rpartition(":")[2]), request, version)
            except (OSError, AssertionError):
                continue
        raise ConnectionError("no broker answers")
