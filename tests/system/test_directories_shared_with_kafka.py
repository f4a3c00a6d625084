"""Barnabas and Apache Kafka 4.1.0 use one data directory in turns, and each serves all that the other wrote."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients import programs
from tests.clients.drivers import ProcessClient, Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server
from tests.support import served, transactional_topics, varied_topics
from tests.support.shared_directory import SharedDirectory
from tests.support.transactional_topics import COMPACTED_TOPICS, Transactions
from tests.support.varied_topics import SETTINGS, LongLived, Replayer, numbered

from barnabas.common.types import EVENTS_TOPIC


@pytest.fixture(scope="module")
def jvm() -> Iterator[ProcessClient]:
    """A JVM in which all of Kafka's tools run."""
    made = programs.java("127.0.0.1:1")
    yield made
    made.close()


@pytest.fixture
def shared(tmp_path: Path, jvm: ProcessClient) -> SharedDirectory:
    return SharedDirectory(tmp_path, jvm, SETTINGS)


def must_equal(found: Any, expected: Any) -> None:
    lines = list(differences(found, expected))
    assert not lines, f"{len(lines)} differences (now / before):\n" + "\n".join(lines[:40])


def differences(now: Any, before: Any, path: str = "") -> Iterator[str]:
    if isinstance(now, dict) and isinstance(before, dict):
        for key in {**now, **before}:
            yield from differences(now.get(key), before.get(key), f"{path}.{key}")
    elif isinstance(now, list) and isinstance(before, list):
        pairs = itertools.zip_longest(now, before)
        different = [(at, a, b) for at, (a, b) in enumerate(pairs) if a != b]
        for at, a, b in different[:3]:
            yield f"{path}[{at}]: {a!r:.200} / {b!r:.200} ({len(different)} such of {len(now)} / {len(before)})"
    elif now != before:
        yield f"{path}: {now!r:.300} / {before!r:.300}"


def must_hold(found: dict[str, Any], written: dict[str, list[Record]]) -> None:
    """Checks that a broker serves what was sent to it."""
    for topic, records in written.items():
        partitions = found["topics"][topic][1]
        got = {number: [each[2:] for each in found["read_uncommitted"][topic, number]] for number in range(partitions)}
        sent = {
            number: [
                (each.timestamp, each.key, each.value, each.headers) for each in records if each.partition == number
            ]
            for number in range(partitions)
        }
        must_equal(got, sent)


def must_pass_on(found: dict[str, Any], left: dict[str, Any]) -> None:
    """Checks that the other broker serves all that one served. Look-ups by time in compacted logs are not compared:
    Kafka searches the first segment that can have the time, takes an empty one for as young as its file, and then finds
    nothing. Nor is the journal, which Barnabas creates when it notices that a broker was killed.
    """
    must_equal(comparable(found), comparable(left))


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the answers by kind, and then by topic, or by (topic, partition)."""
    return {
        kind: {
            at: each
            for at, each in answers.items()
            if EVENTS_TOPIC not in (at, at[0]) and not (kind == "times" and at[0] in COMPACTED_TOPICS)
        }
        for kind, answers in found.items()
    }


def must_find_by_time(found: dict[str, Any]) -> None:
    """Checks that a look-up by time returns the first record that is not older; transaction markers count too, but are
    not read.
    """
    for at, answers in found["times"].items():
        if at[0].startswith(("txn", "compacted-txn", "__transaction_state")):
            continue
        records = found["read_uncommitted"][at]
        for time, *answer, _ in answers:
            first = next(((seen[2], seen[0]) for seen in records if seen[2] >= time), (-1, -1))
            assert answer == [0, *first], f"{at} at time {time}"


class Life:
    """The work that continues on either broker: producers, groups, additional topics at every turn."""

    def __init__(self, server: Server) -> None:
        self.written = varied_topics.write(server)
        self.replayer = Replayer(server, "replayed")
        self.long_lived = LongLived(server, "long-lived")
        self.turns = 0
        self.go_on(server)

    def go_on(self, server: Server) -> dict[str, Any]:
        """Runs one turn: appends to existing topics and creates new ones. Returns all that is served at its end."""
        self.turns += 1
        if self.turns > 1:
            self.replayer.check(server)
        self.replayer.send(server)
        self.long_lived.send()
        client = ConfluentKafka(server.bootstrap, batch_num_messages=5)
        for topic, codec in (("codec-none", "zstd"), ("rolled", "none"), ("trimmed", "lz4"), ("trimmed-whole", "none")):
            records = numbered(1000 * self.turns, 1000 * self.turns + 30)
            client.produce(topic, codec, records)
            self.written[topic] += records
        varied_topics.commit(server, "lasting", 100 * self.turns, f"turn {self.turns}")
        varied_topics.commit(server, f"turn-{self.turns}", self.turns)
        new = f"turn-{self.turns}"
        varied_topics.create(server, new, {"retention.bytes": str(10**9 + self.turns)}, 2)
        self.written[new] = numbered(0, 20, partition=self.turns % 2)
        client.produce(new, "snappy", self.written[new])
        varied_topics.alter(server, "empty", max_message_bytes=str(10**6 + self.turns))
        found = served.everything(server)
        must_hold(found, self.written)
        return found


@pytest.mark.full
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_kafka_serves_and_continues_what_barnabas_left_and_back(shared: SharedDirectory, end: str) -> None:
    with shared.barnabas(end) as server:
        life = Life(server)
        transactional_topics.make_compacted(server)
        transactional_topics.compact(server, with_transactions=False, first=0)
        left = served.everything(server)
    with shared.kafka(end) as server:
        must_pass_on(served.everything(server), left)
        left = life.go_on(server)
    with shared.barnabas(end) as server:
        must_pass_on(served.everything(server), left)
        must_find_by_time(life.go_on(server))


@pytest.mark.full
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_barnabas_serves_and_continues_what_kafka_left_three_times(shared: SharedDirectory, end: str) -> None:
    shared.format()
    left: dict[str, Any] = {}
    for turn in range(3):
        with shared.kafka(end) as server:
            if turn == 0:
                life = Life(server)
                transactions = Transactions(server)
                transactional_topics.make_compacted(server)
                transactions.leave_open(server)
            else:
                must_pass_on(served.everything(server), left)
                life.go_on(server)
            transactions.run(server)
            transactional_topics.compact(server, with_transactions=True, first=1000 * turn)
            transactional_topics.commit_in_a_modern_group(server, turn)
            if turn == 2:
                transactions.end_the_open_one(server)
            left = served.everything(server)
        # Kafka's tool finds fault with segments that Kafka has compacted.
        tolerated = frozenset(each for each in shared.faults() if "compacted" in each)
        with shared.barnabas(end, tolerated) as server:
            must_pass_on(served.everything(server), left)
            transactions.check(server)
            life.go_on(server)
            transactions.check(server)
            transactional_topics.compact(server, with_transactions=False, first=1000 * turn + 500)
            left = served.everything(server)
            must_find_by_time(left)


@pytest.mark.full
def test_a_directory_goes_from_barnabas_to_kafka_and_back(shared: SharedDirectory) -> None:
    configs = {"rolled": varied_topics.TINY, "zstd": {"compression.type": "zstd"}}
    with shared.barnabas() as server:
        for topic, settings in configs.items():
            varied_topics.create(server, topic, settings, 2)
            ConfluentKafka(server.bootstrap, batch_num_messages=7).produce(topic, "lz4", numbered(0, 100))
        left = served.everything(server)
        must_hold(left, dict.fromkeys(configs, numbered(0, 100)))
    with shared.kafka() as server:
        must_pass_on(served.everything(server), left)
        for topic in configs:
            assert ConfluentKafka(server.bootstrap).produce(topic, "none", numbered(100, 101)) == [100]
        left = served.everything(server)
    with shared.barnabas() as server:
        must_pass_on(served.everything(server), left)
        must_hold(left, dict.fromkeys(configs, numbered(0, 101)))
