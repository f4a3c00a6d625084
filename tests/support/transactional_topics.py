"""Topics that need a broker with transactions and compaction, and the records that a consumer must see."""

from __future__ import annotations

import confluent_kafka
from tests.clients.drivers import Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server
from tests.support import served
from tests.support.served import READ_COMMITTED, READ_UNCOMMITTED, WAIT_S, Partition
from tests.support.varied_topics import TINY, alter, create, numbered

TRANSACTIONS = 6
ABORTED = (1, 4)
#: A lag that is longer than any record is old: nothing is compacted any more.
FROZEN_MS = str(10**14)
COMPACTED = {**TINY, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
COMPACTED_TOPICS = ("compacted", "compacted-txn")


class Transactions:
    """Committed, aborted and open transactions over several topics, one of them with tiny segments."""

    def __init__(self, server: Server) -> None:
        create(server, "txn", {}, 2)
        create(server, "txn-rolled", TINY)
        create(server, "txn-open")
        self.committed: dict[Partition, list[bytes]] = {("txn", 0): [], ("txn", 1): [], ("txn-rolled", 0): []}
        self._begun = 0

    def run(self, server: Server) -> None:
        """Runs some transactions, two of them aborted, with other records between them."""
        producer = transactional(server, "mover")
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for at in self.committed:
                for n in range(6):
                    value = b"%d-%d " % (self._begun, n) + bytes(30)
                    producer.produce(at[0], value, partition=at[1])
                    if number not in ABORTED:
                        self.committed[at].append(value)
                producer.flush(WAIT_S)
            if number in ABORTED:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
            plain = b"plain %d" % self._begun
            ConfluentKafka(server.bootstrap).produce("txn", "none", [Record(None, plain)])
            self.committed["txn", 0].append(plain)
            self._begun += 1
        self.check(server)

    def leave_open(self, server: Server) -> None:
        """Leaves a transaction open: records after it stay hidden from readers of committed records."""
        producer = transactional(server, "left-open")
        producer.begin_transaction()
        for n in range(5):
            producer.produce("txn-open", b"undecided %d" % n)
        assert producer.flush(WAIT_S) == 0
        del producer
        ConfluentKafka(server.bootstrap).produce("txn-open", "none", [Record(None, b"behind")])
        at = ("txn-open", 0)
        assert len(served.read(server, [at], READ_UNCOMMITTED)[at]) == 6
        assert served.read(server, [at], READ_COMMITTED)[at] == []

    def end_the_open_one(self, server: Server) -> None:
        """Aborts the open transaction: initializes another producer with its transactional id."""
        producer = transactional(server, "left-open")
        producer.begin_transaction()
        producer.produce("txn-open", b"decided")
        producer.commit_transaction(WAIT_S)
        at = ("txn-open", 0)
        found = [value for *_, value, _ in served.read(server, [at], READ_COMMITTED)[at]]
        assert found[0] == b"behind"
        assert found[-1] == b"decided"
        assert b"undecided 0" not in found

    def check(self, server: Server) -> None:
        found = served.read(server, list(self.committed), READ_COMMITTED)
        assert {at: [value for *_, value, _ in records] for at, records in found.items()} == self.committed


def transactional(server: Server, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def make_compacted(server: Server) -> None:
    for topic in COMPACTED_TOPICS:
        create(server, topic, COMPACTED)


def compact(server: Server, *, with_transactions: bool, first: int) -> None:
    """Overwrites a few keys until older values are gone; then prevents further changes."""
    for topic in COMPACTED_TOPICS:
        alter(server, topic, min_compaction_lag_ms="0")
    client = ConfluentKafka(server.bootstrap, batch_num_messages=7)
    tombstones = [Record(b"key-3", None, (), each.timestamp) for each in numbered(first + 150, first + 151)]
    client.produce("compacted", "none", numbered(first, first + 150))
    client.produce("compacted", "zstd", [*tombstones, *numbered(first + 151, first + 170)])
    if with_transactions:
        producer = transactional(server, "compacting")
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for each in numbered(first + 10 * number, first + 10 * number + 10):
                producer.produce("compacted-txn", each.value, each.key)
            if number in ABORTED:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
    client.produce("compacted-txn", "lz4", numbered(first + 100, first + 170))
    wanted = [(topic, 0) for topic in COMPACTED_TOPICS]

    def compacted() -> bool | None:
        # Only the active segment can contain a key twice, and it contains less than 1000 bytes.
        found = served.read(server, wanted, READ_UNCOMMITTED)
        return True if all(len(records) < 40 for records in found.values()) else None

    served.until("compaction", compacted)
    for topic in COMPACTED_TOPICS:
        alter(server, topic, min_compaction_lag_ms=FROZEN_MS)
    seen: list[object] = [None]

    def at_rest() -> bool | None:
        seen.append(served.read(server, wanted, READ_UNCOMMITTED))
        return True if seen[-1] == seen[-2] else None

    served.until("rest after compaction", at_rest)


def commit_in_a_modern_group(server: Server, offset: int) -> None:
    """Commits in a group whose members get partitions from the coordinator (KIP-848)."""
    served.wait_for_coordinator(server.port, "modern")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "modern", "group.protocol": "consumer", "log_level": 0}
    )
    assigned: list[confluent_kafka.TopicPartition] = []
    consumer.subscribe(["txn"], on_assign=lambda _, found: assigned.extend(found))

    def joined() -> bool | None:
        consumer.poll(0.1)
        return bool(assigned) or None

    served.until("assignment in a modern group", joined)
    where = confluent_kafka.TopicPartition("txn", 0, offset, "modern")
    for done in consumer.commit(offsets=[where], asynchronous=False) or ():
        assert done.error is None
    consumer.close()
