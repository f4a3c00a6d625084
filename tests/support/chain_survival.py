"""A consume-transform-produce chain of unmodified clients under load, whose links can be killed, and a verdict.

`with Chain(...) as chain:` is a producer that writes to `input`, links that carry its records over to `output`, each
with its transactional id (tests/clients/chain.py), and a reader of `output`. `settle`, then `judge`:
- what is committed in `output` is what was written to `input`, once;
- no reader got a record whose transaction was aborted or not yet committed; none was lost, duplicated or skipped (the
  rules of docs/check.md, over the histories of all processes).
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import confluent_kafka
from tests.support.survival import PRODUCER, QUIET, WAIT_S, Brokers, create_topic, known_leader_of, wait_until

from barnabas.histories import judge
from barnabas.testing import History

PARTITIONS = 3
#: The smallest number of records that pass through the chain.
LOAD = 100
#: The exit code of a link whose client hangs.
HUNG = 75
#: Kafka's number of partitions of `__transaction_state`.
_STATE_PARTITIONS = 50


class Link:
    """A transactional id, and the consecutive processes that had it."""

    def __init__(self, name: str, command: list[str], more: list[str], directory: Path) -> None:
        self.name = name
        self._command, self._more, self._directory = command, more, directory
        self.histories: list[Path] = []
        self.start()

    def start(self) -> None:
        path = self._directory / f"{self.name}-{len(self.histories)}.jsonl"
        self.histories.append(path)
        with path.with_suffix(".err").open("ab") as errors:
            command = [*self._command, self.name, str(path), *self._more]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)

    def committed(self) -> int:
        """Returns the number of transactions whose commit was acknowledged."""
        return sum(
            '"ok"' in line and '"commit"' in line
            for path in self.histories
            if path.exists()
            for line in path.read_text().splitlines()
        )

    def last_words(self) -> str:
        return self.histories[-1].with_suffix(".err").read_text(errors="replace")[-2_000:]


class Chain:
    """A chain of links. `program` returns the command of a link of this client, without arguments."""

    def __init__(
        self, cluster: Brokers, directory: Path, client: str, program: Callable[[str], list[str]], links: int = 2
    ) -> None:
        self.cluster = cluster
        self.links: list[Link] = []
        self._directory, self._client, self._program = directory, client, program
        self._names = [f"link-{number}" for number in range(links)]
        self._history = History(directory / "feed-and-reader.jsonl")
        self._written: list[str] = []
        self._feeding, self._reading = threading.Event(), threading.Event()
        self._seen: set[str] = set()
        self._failed: list[BaseException] = []
        self._feeder = threading.Thread(daemon=True, target=self._watched, args=(self._feed,))
        self._reader = threading.Thread(daemon=True, target=self._watched, args=(self._read,))

    def __enter__(self) -> Chain:
        for name in ("input", "output"):
            create_topic(self.cluster, name, PARTITIONS)
        for index, name in enumerate(self._names):
            own = [str(each) for each in range(PARTITIONS) if each % len(self._names) == index]
            command = [*self._program(self._client), self.cluster.bootstrap]
            # A link whose group assigns the partitions gets no partition numbers.
            self.links.append(Link(name, command, own if self._client == "aiokafka" else [], self._directory))
        self._feeder.start()
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feeding.set()
        self._reading.set()
        for link in self.links:
            if link.process.poll() is None:
                link.kill()
        self._feeder.join(2 * WAIT_S)
        self._reader.join(WAIT_S)
        self._history.close()

    def go_on(self, transactions: int = 3, timeout_s: float = 2 * WAIT_S) -> None:
        """Waits until every link has committed this many more transactions."""
        goals = [(link, link.committed() + transactions) for link in self.links]

        def reached() -> bool:
            self._revive()
            return all(link.committed() >= goal for link, goal in goals)

        wait_until(reached, "the chain continues", timeout_s)

    def transaction_coordinator(self, name: str) -> int:
        return known_leader_of(self.cluster, "__transaction_state", _java_hash(name) % _STATE_PARTITIONS)

    def group_coordinator(self) -> int:
        return known_leader_of(self.cluster, "__consumer_offsets", _java_hash("chain") % 50)

    def settle(self, timeout_s: float = 2 * WAIT_S) -> None:
        """Waits for a load, stops writing, waits until all records have passed through, and ends the links with
        SIGTERM.
        """
        wait_until(lambda: bool(self._failed) or len(self._written) > LOAD, "there is a load", timeout_s)
        self._feeding.set()
        self._feeder.join(2 * WAIT_S)

        def through() -> bool:
            self._revive()
            return bool(self._failed) or self._seen >= set(self._written)

        wait_until(through, "all comes through", timeout_s)
        for link in self.links:
            link.end()

    def judge(self) -> None:
        """Checks the histories. Raises AssertionError with a description of the fault."""
        self._reading.set()
        self._reader.join(WAIT_S)
        if self._failed:
            raise self._failed[0]
        drained = f"drain-{self._history._drains + 1}"
        self._history.drain(self.cluster.bootstrap, ["input", "output"])
        self._history.close()
        merged = merge([self._history.path, *(path for link in self.links for path in link.histories)])
        (self._directory / "merged.jsonl").write_text("".join(merged))
        judge_chain(merged, self._written, drained)

    def _revive(self) -> None:
        """Restarts links that ended because their client hung (tests/clients/chain.py); no other link is allowed to
        end.
        """
        for link in self.links:
            code = link.process.poll()
            if code is not None:
                assert code == HUNG, f"{link.name} ended by itself: {link.last_words()}"
                link.start()

    # -- in the background

    def _watched(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failed.append(error)

    def _feed(self) -> None:
        settings = {**PRODUCER, "bootstrap.servers": self.cluster.bootstrap}
        producer = self._history.producer(confluent_kafka.Producer(settings), "feed")
        while not self._feeding.wait(0.05):
            for partition in range(PARTITIONS):
                value = f"value-{len(self._written)}"
                self._written.append(value)
                producer.produce("input", value, partition=partition)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def _read(self) -> None:
        settings = {**QUIET, "bootstrap.servers": self.cluster.bootstrap, "group.id": "reader"}
        settings |= {"isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = self._history.consumer(confluent_kafka.Consumer(settings), "reader")
        consumer.assign([confluent_kafka.TopicPartition("output", each, 0) for each in range(PARTITIONS)])
        while not self._reading.is_set():
            for message in consumer.consume(100, 0.2):
                if message.error() is None:
                    self._seen.add(message.value().decode().partition("@")[0])
        consumer.close()


def judge_chain(lines: Sequence[str], written: Sequence[str], drain: str) -> None:
    """Checks a history. `written` are the records that were written to `input`; `drain` is the process that read all of
    `output`.
    """
    verdict = judge(lines)
    told = [f"{finding.kind.value}: {finding.text} {finding.lines}" for finding in verdict.findings]
    assert verdict.valid, "\n".join(told[:20])
    came, sent = Counter(value.partition("@")[0] for value in read_by(drain, "output", lines)), Counter(written)
    assert came == sent, f"missing: {(sent - came).most_common(5)}, too often: {(came - sent).most_common(5)}"


def merge(paths: list[Path]) -> list[str]:
    """Returns the lines of all histories in the order of their times; the lines of one file are in order already. A
    line cut off by a kill is left out.
    """
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines(keepends=True)]
    whole = [line for line in lines if line.endswith("\n")]
    return sorted(whole, key=lambda line: int(json.loads(line)["time"]))


def read_by(process: str, topic: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields the values that this process read."""
    for line in lines:
        operation: dict[str, Any] = json.loads(line)
        if operation["process"] == process and operation["f"] == "poll":
            for place, records in operation["records"].items():
                if place.rpartition("-")[0] == topic:
                    yield from (value for _, value in records)


def _java_hash(text: str) -> int:
    """Returns the hash of a string that Kafka uses for partitions: without its sign."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
