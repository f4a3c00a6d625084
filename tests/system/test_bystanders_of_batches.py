"""Batches that are expensive to decompress, at full speed, next to an unrelated producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import wire
from tests.clients.servers import Server, new_server, target
from tests.support.bystander import Bystander, HostileRequest, repeated
from tests.support.poisoned import batch, record

from barnabas.records import walk
from barnabas.records.compression import Codec

TOO_LARGE = b"\x00\x0a"
#: On an idle machine, a bystander waits some milliseconds; here other tests run at the same time.
WAIT_MS_MAX = 500
TOPICS = {
    "quiet": {},
    "plain": {},
    "compact": {"cleanup.policy": "compact"},
    "gzip": {"compression.type": "gzip"},
    "before": {"message.timestamp.before.max.ms": "3600000"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose operator has raised the limits: a request above a limit is refused, which is no work."""
    if target() == "kafka":
        pytest.skip("Apache Kafka serves each connection in a thread of its own")
    path: Path = tmp_path_factory.mktemp("bystanders")
    limits = {"barnabas.max.batch.records": "20000000", "barnabas.max.decompressed.batch.bytes": "300000000"}
    made = new_server(path, limits)
    made.start()
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    ).values():
        future.result(120)
    for name in TOPICS:
        wire.wait_until_led(made.port, name)
    yield made
    made.stop()


def many(count: int, codec: Codec, *, numbered: bool = True) -> bytes:
    """Returns a batch of `count` records of a few bytes."""
    one = record(key=b"k", value=None)
    body = bytes(walk.renumbered(one * count, 0, count)) if numbered else one * count
    return batch(body, count, codec=codec)


def bomb(codec: Codec, size: int) -> bytes:
    return batch(record(value=bytes(size)), 1, codec=codec)


Attack = Callable[[], tuple[str, bytes]]
ATTACKS: dict[str, Attack] = {
    "10^5 records to a compacted topic": lambda: ("compact", many(100_000, Codec.GZIP)),
    "10^6 records to a topic with a lower bound": lambda: ("before", many(1_000_000, Codec.ZSTD, numbered=False)),
    "8 kB of zstd that are 250 MB, packed anew": lambda: ("gzip", bomb(Codec.ZSTD, 250_000_000)),
    "100,000 records that are not packed": lambda: ("plain", many(100_000, Codec.NONE)),
}
FULL: dict[str, Attack] = {
    "10^4 records to a compacted topic": lambda: ("compact", many(10_000, Codec.GZIP)),
    "10^6 records to a compacted topic": lambda: ("compact", many(1_000_000, Codec.GZIP, numbered=False)),
    "250 kB of gzip that are 250 MB": lambda: ("plain", bomb(Codec.GZIP, 250_000_000)),
    "1 MB of lz4 that are 200 MB": lambda: ("plain", bomb(Codec.LZ4, 200_000_000)),
    "10^7 records to a compacted topic": lambda: ("compact", many(10_000_000, Codec.GZIP, numbered=False)),
}


def beside(server: Server, topic: str, data: bytes, answers: int) -> None:
    request = HostileRequest(wire.PRODUCE, 7, wire.produce_body(topic, 0, data))
    with Bystander(server.port, "quiet") as bystander, repeated(server.port, [request]) as hostile:
        bystander.serves(answers=answers)
    assert hostile.count > 0
    assert not any(answer[4 + 2 + len(topic) + 4 + 4 :].startswith(TOO_LARGE) for answer in hostile.answers), "no work"
    assert bystander.percentile_ms(0.99) < WAIT_MS_MAX, sorted(bystander.waits_ms)[-10:]


@pytest.mark.parametrize("name", ATTACKS)
def test_a_bystander_is_served(server: Server, name: str) -> None:
    beside(server, *ATTACKS[name](), answers=50)


@pytest.mark.full
@pytest.mark.parametrize("name", ATTACKS | FULL)
def test_a_bystander_is_served_for_long(server: Server, name: str) -> None:
    beside(server, *(ATTACKS | FULL)[name](), answers=1_000)
