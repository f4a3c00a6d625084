"""Requests of many rows, at full speed on two connections, next to an unrelated producer.

Every test checks that no turn of the broker takes more than 50 ms of CPU (`support/turn_watch.py`); times by the wall
clock are those of a machine on which other tests run. `support/hostile_requests.py` has the requests;
`tests/unit/broker/test_hostile_requests.py` sends each once, in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.clients import wire
from tests.clients.servers import Server, new_server, target
from tests.support.bystander import Bystander, repeated
from tests.support.hostile_requests import (
    ATTACKS,
    QUIET,
    SEARCHED,
    SEARCHED_MS,
    TOPICS,
    WIDE,
    WIDE_PARTITIONS,
    fetch_rows,
)

#: A bystander waits some milliseconds on an idle machine; other tests run at the same time as this one.
WAIT_MS_MAX = 500
ROWS = 60_000
#: The number of partitions that are created at the same time.
STEP = 500
QUICK = [
    "OffsetCommit",
    "CreateTopics and DeleteTopics of 500",
    "CreateTopics of names of 32,767 letters",
    "Metadata of all",
    "Fetch sessions of 200 partitions",
    "ListOffsets by time within a batch",
    "Produce",
    "Fetch",
    "WriteTxnMarkers of producers",
    "AddPartitionsToTxn",
    "IncrementalAlterConfigs of keys",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if target() == "kafka":
        pytest.skip("Apache Kafka serves each connection in a thread of its own")
    path: Path = tmp_path_factory.mktemp("bystanders")
    made = new_server(path)
    made.start()
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    created = admin.create_topics([NewTopic(name, min(partitions, STEP), 1) for name, partitions in TOPICS.items()])
    for future in created.values():
        future.result(120)
    # A topic of thousands of partitions is a single decision, which these tests do not measure.
    for count in range(2 * STEP, WIDE_PARTITIONS + 1, STEP):
        admin.create_partitions([NewPartitions(WIDE, count)])[WIDE].result(120)
    for name, partitions in TOPICS.items():
        wire.wait_until_led(made.port, name, partitions - 1)
    records = [wire.record(place, b"k", b"v") for place in range(10_000)]
    assert wire.produce(made.port, SEARCHED, 0, wire.batch(records, timestamp=SEARCHED_MS))[0] == 0
    yield made
    made.stop()


def beside(server: Server, name: str, answers: int, rows: int = ROWS) -> None:
    requests = [request.encoded() for request in ATTACKS[name](rows)]
    with Bystander(server.port, QUIET) as bystander, repeated(server.port, requests) as hostile:
        bystander.serves(answers=answers)
    assert hostile.count > 0
    assert hostile.ended == 0, "the requests are served, and no connection is closed"
    assert bystander.percentile_ms(0.99) < WAIT_MS_MAX, sorted(bystander.waits_ms)[-10:]


@pytest.mark.parametrize("name", QUICK)
def test_a_bystander_is_served(server: Server, name: str) -> None:
    beside(server, name, answers=50)


@pytest.mark.full
@pytest.mark.parametrize("name", ATTACKS)
def test_a_bystander_is_served_for_long(server: Server, name: str) -> None:
    beside(server, name, answers=1_000, rows=100_000)


@contextmanager
def readers(port: int, count: int, max_wait_ms: int) -> Iterator[list[int]]:
    """Runs `count` readers of the same partitions, each waiting for more records on its own connection, again and
    again.
    """
    (request,) = (request.encoded() for request in fetch_rows(200, epoch=0, max_wait_ms=max_wait_ms))
    stopped, served = threading.Event(), [0]

    def read() -> None:
        with wire.Wire(port) as connection:
            while not stopped.is_set():
                connection.request(*request)
                served[0] += 1

    threads = [threading.Thread(target=read, name=f"reader-{place}") for place in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield served
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def test_connections_that_come_and_go_hold_up_nobody(server: Server) -> None:
    stopped = threading.Event()
    count = [0]

    def come_and_go() -> None:
        while not stopped.is_set():
            with wire.Wire(server.port):
                count[0] += 1

    threads = [threading.Thread(target=come_and_go, name=f"guest-{place}") for place in range(2)]
    with Bystander(server.port, QUIET) as bystander:
        for thread in threads:
            thread.start()
        bystander.serves(answers=50)
        stopped.set()
        for thread in threads:
            thread.join()
    assert count[0] > 50
    assert bystander.percentile_ms(0.99) < WAIT_MS_MAX


def test_readers_that_wait_hold_up_nobody(server: Server) -> None:
    """All of them wait at 200 partitions, and their time is up at about the same moment."""
    with Bystander(server.port, QUIET) as bystander, readers(server.port, 40, max_wait_ms=200) as served:
        bystander.serves(answers=100)
    assert served[0] > 40
    assert bystander.percentile_ms(0.99) < WAIT_MS_MAX
    assert wire.end_offset(server.port, WIDE, WIDE_PARTITIONS - 1) >= 0


def test_readers_that_one_append_completes_hold_up_nobody(server: Server) -> None:
    """All of them wait at 200 partitions, and read all of these again after an append to one."""
    with Bystander(server.port, QUIET) as bystander, readers(server.port, 40, max_wait_ms=20_000) as served:
        bystander.serves(answers=50)
        assert wire.produce(server.port, WIDE, 0, wire.batch([wire.record(0, b"k", b"v")]))[0] == 0
        bystander.serves(answers=50)
        assert served[0] >= 40
    assert bystander.percentile_ms(0.99) < WAIT_MS_MAX
