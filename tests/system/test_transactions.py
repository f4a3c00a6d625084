"""Transactions of unmodified clients, and Kafka's tools on them. test_exactly_once has chains under kills."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from threading import Thread

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import programs
from tests.clients.drivers import ProcessClient, TransactResult

from barnabas.cli import entry
from barnabas.testing import Cluster

TOOLS = "org.apache.kafka.tools"
QUIET = {"log_level": 0}
PARTITIONS = 3
WAIT_S = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", brokers=3) as cluster:
        admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in ("input", "output")]
        for future in admin.create_topics(topics).values():
            future.result()
        yield cluster


def read(cluster: Cluster, isolation: str = "read_committed", topic: str = "output") -> list[str]:
    """Returns all records that a reader of that isolation level finds, up to the ends."""
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[str] = []
    ends = 0
    deadline = time.monotonic() + WAIT_S
    while ends < PARTITIONS:
        assert time.monotonic() < deadline, "the ends are not reached: a transaction is never ended"
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            ends += 1
    consumer.close()
    return values


def _retried(step: Callable[[], object]) -> None:
    for _ in range(20):
        try:
            step()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    raise AssertionError("never done")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 2 * WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_aiokafkas_transactions(cluster: Cluster) -> None:
    """The client's requests have old versions (AddPartitionsToTxn 0, EndTxn 0)."""

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap, transactional_id="aio", enable_idempotence=True
        )
        await producer.start()
        try:
            for number in range(6):
                await producer.begin_transaction()
                for each in range(3):
                    value = f"{number}-{each}".encode()
                    await producer.send("output", value, partition=each)
                offsets = {aiokafka.TopicPartition("input", 0): number}
                await producer.send_offsets_to_transaction(offsets, "aio-group")
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(write())
    until(lambda: len(read(cluster)) == 9, "what is committed is seen")
    assert sorted(read(cluster)) == [f"{number}-{each}" for number in (0, 2, 4) for each in range(3)]
    assert len(read(cluster, "read_uncommitted")) == 18
    group = Consumer({**QUIET, "bootstrap.servers": cluster.bootstrap, "group.id": "aio-group"})
    (committed,) = group.committed([TopicPartition("input", 0)], timeout=WAIT_S)
    group.close()
    assert committed.offset == 4


# -- Kafka's own tools and the Java client, which speaks version 2 of the protocol


def tool(jvm: ProcessClient, main: str, *args: str) -> str:
    result = jvm.tool(main if "." in main else f"{TOOLS}.{main}", *args)
    assert result.code == 0, result.text
    return result.text


def rows(text: str) -> dict[str, list[str]]:
    """Returns the rows of a table, by its first column."""
    lines = [[cell.strip() for cell in line.split("\t") if cell.strip()] for line in text.strip().splitlines()]
    return {line[0]: line[1:] for line in lines[1:]}


def open_transaction(cluster: Cluster, transactional_id: str) -> tuple[Producer, int]:
    """Returns a producer with one record in `output`-0, and the record's offset."""
    offsets: list[int] = []
    # The command ends it, not its age.
    named = {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
    producer = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap, **named})
    _retried(lambda: producer.init_transactions(20))
    producer.begin_transaction()
    producer.produce("output", "open", partition=0, on_delivery=lambda error, m: offsets.append(m.offset() or 0))
    assert producer.flush(WAIT_S) == 0
    return producer, offsets[0]


def test_javas_chain_and_tools(cluster: Cluster) -> None:
    """The copier aborts some of its transactions at random; then every command of `kafka-transactions.sh`."""
    values = [str(number) for number in range(300)]
    feed = Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
    for value in values:
        feed.produce("input", value, partition=0)
    assert feed.flush(WAIT_S) == 0
    jvm = programs.java(cluster.bootstrap)
    try:
        copier: tuple[str, ...] = (
            "--broker-list",
            cluster.bootstrap,
            "--input-topic",
            "input",
            "--input-partition",
            "0",
        )
        copier += ("--output-topic", "output", "--max-messages", "300", "--consumer-group", "java", "--group-mode")
        copier += ("--transactional-id", "java", "--transaction-size", "20", "--enable-random-aborts")
        tool(jvm, "TransactionalMessageCopier", *copier, "--use-group-metadata")
        assert sorted(read(cluster), key=int) == values
        commands = ("--bootstrap-server", cluster.bootstrap)

        def transactions(*args: str) -> str:
            return tool(jvm, "TransactionsCommand", *commands, *args)

        producer, offset = open_transaction(cluster, "hanging")
        found = rows(transactions("list"))
        assert {key: row[-1] for key, row in found.items()} == {"java": "CompleteCommit", "hanging": "Ongoing"}
        assert list(rows(transactions("list", "--transactional-id-pattern", "hang.*"))) == ["hanging"]
        assert "output-0" in transactions("describe", "--transactional-id", "hanging")
        where = ("--topic", "output", "--partition", "0")
        producer_id = found["hanging"][1]
        assert rows(transactions("describe-producers", *where))[producer_id][-1] == str(offset)
        transactions("abort", *where, "--start-offset", str(offset))
        assert rows(transactions("describe-producers", *where))[producer_id][-1] == "None"
        transactions("forceTerminateTransaction", "--transactionalId", "hanging")
        until(lambda: rows(transactions("list"))["hanging"][-1] != "Ongoing", "it is ended")
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)
        assert sorted(read(cluster), key=int) == values
    finally:
        jvm.close()


def test_kafkas_dump_tool_reads_our_transaction_state(cluster: Cluster) -> None:
    producer, _ = open_transaction(cluster, "dumped")
    _retried(lambda: producer.commit_transaction(20))
    values: list[dict[str, object]] = []
    jvm = programs.java(cluster.bootstrap)
    try:

        def complete() -> bool:
            values.clear()
            for log in sorted(Path(cluster.data_directory_of(1)).glob("__transaction_state-*/*.log")):
                if log.stat().st_size:
                    files = ("--files", str(log))
                    text = tool(
                        jvm, "kafka.tools.DumpLogSegments", "--print-data-log", "--transaction-log-decoder", *files
                    )
                    values.extend(json.loads(found[1])["data"] for found in re.finditer(r"payload: (\{.*\})", text))
            return [value["transactionStatus"] for value in values] == [0, 1, 2, 4]

        until(complete, "Empty, Ongoing, PrepareCommit, CompleteCommit")
    finally:
        jvm.close()
    assert values[1]["transactionPartitions"] == [{"topic": "output", "partitionIds": [0]}]


# -- aborts at any moment, as Kafka Streams, Connect and Spring have them when a task closes (KAFKA-18464)


def numbers_of(values: list[str], name: str) -> list[int]:
    """Returns the transactions of this id of which a record is visible. Raises AssertionError if one is visible
    twice.
    """
    assert len(values) == len(set(values)), "seen twice"
    split = [value.split(":") for value in values]
    return sorted({int(number) for of, number, _ in split if of == name})


@pytest.mark.full
def test_javas_producer_aborts_before_the_last_transaction_is_complete(cluster: Cluster) -> None:
    jvm = programs.java(cluster.bootstrap)
    try:
        result = jvm.transact("output", "aborting", 150, partitions=PARTITIONS)
    finally:
        jvm.close()
    assert (result.failure, result.done) == (None, 150)
    assert len(result.committed) > 40
    assert numbers_of(read(cluster), "aborting") == result.committed


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_two_thousand_of_javas_transactions_and_kills(cluster: Cluster) -> None:
    """Every broker is killed once, whatever it leads and coordinates; then 500 more without a fault."""
    jvm = programs.java(cluster.bootstrap)
    results: dict[str, TransactResult] = {}

    def work(name: str, seed: int) -> None:
        results[name] = jvm.transact("output", name, 500, partitions=PARTITIONS, seed=seed)

    try:
        for victim in (1, 2, 3, None):
            name = f"aborting-{victim}"
            thread = Thread(target=work, args=(name, victim or 4))
            thread.start()
            if victim is not None:
                seen = partial(read, cluster, "read_uncommitted")
                until(lambda name=name, seen=seen: len(numbers_of(seen(), name)) > 20, "it is under way")  # type: ignore[misc]
                cluster.kill(victim)
                time.sleep(1)
                cluster.start_broker(victim)
            thread.join()
            assert name in results
    finally:
        jvm.close()
    values = read(cluster)
    for name, result in results.items():
        assert (name, result.failure, result.done) == (name, None, 500)
        assert numbers_of(values, name) == result.committed


# -- the command line


def barnabas(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ended = entry.run(["transactions", *arguments, "--bootstrap", cluster.bootstrap])
    told = out.getvalue() + err.getvalue()
    assert ended == code, told
    return told


@pytest.mark.full
def test_the_command_line_finds_what_hangs_and_ends_it(cluster: Cluster) -> None:
    producer, offset = open_transaction(cluster, "open")
    (listed,) = json.loads(barnabas(cluster, "list", "--state", "Ongoing", "--pattern", "op.*", "--json"))
    assert (listed["transactional_id"], listed["state"]) == ("open", "Ongoing")
    (described,) = json.loads(barnabas(cluster, "describe", "open", "--json"))
    assert described["partitions"] == ["output-0"]
    assert described["open_ms"] >= 0
    assert json.loads(barnabas(cluster, "find-hanging", "--older-than", "0", "--json")) == []
    where = ("--topic", "output", "--partition", "0", "--broker", "1")
    assert json.loads(barnabas(cluster, "find-hanging", *where, "--older-than", "0", "--json")) == []
    assert "needs --topic" in barnabas(cluster, "find-hanging", "--partition", "0", code=1)
    assert "output-77 does not exist" in barnabas(cluster, "find-hanging", *where[:2], "--partition", "77", code=1)
    # A coordinator that lost it: the open transaction in the partition belongs to no coordinator.
    (written,) = json.loads(barnabas(cluster, "producers", "output-0", "--json"))
    assert (written["producer_id"], written["start_offset"]) == (listed["producer_id"], offset)
    assert "would abort" in barnabas(cluster, "abort", "output-0", "--start-offset", str(offset))
    shown = json.loads(barnabas(cluster, "abort", "output-0", "--start-offset", str(offset), "--json"))
    assert (shown["start_offset"], shown["aborted"]) == (offset, False)
    barnabas(cluster, "abort", "output-0", "--start-offset", str(offset), "--execute")
    (written,) = json.loads(barnabas(cluster, "producers", "output-0", "--json"))
    assert written["start_offset"] is None
    barnabas(cluster, "abort", "output-0", "--producer-id", str(listed["producer_id"]), "--execute", code=1)
    barnabas(cluster, "describe", "nobody", code=1)
    assert "unknown state Unheard" in barnabas(cluster, "list", "--state", "Unheard", code=1)
    assert "INVALID_REGULAR_EXPRESSION" in barnabas(cluster, "list", "--pattern", "(", code=1)
    assert "expected TOPIC-PARTITION" in barnabas(cluster, "producers", "output", code=1)
    assert "give exactly one of" in barnabas(cluster, "abort", "output-0", code=1)
    assert read(cluster) == []
    _retried(lambda: producer.abort_transaction(20))
