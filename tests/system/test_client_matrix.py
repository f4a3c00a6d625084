"""Seven unmodified Kafka clients: each reads back what each other writes. Against one broker; in the full suite also
against three, whose topics have one replica, or three, and against three in ZooKeeper mode.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.drivers import CODECS, Client, Clients, Record, Traits
from tests.clients.servers import PARTITIONS, Server, target
from tests.clients.wire import codecs_on_the_wire

NAMES = ("confluent-kafka", "aiokafka", "kafka-python", "kcat", "java", "franz-go", "kafkajs")
#: Compiling this client takes longer than all the others' tests together.
COMPILED = "franz-go"
WRITERS = [pytest.param(name, marks=pytest.mark.full) if name == COMPILED else name for name in NAMES]
Create = Callable[[Client, str], None]
START_MS = 1_700_000_000_000
STEP_MS = 1_000
#: Every client writes these in the ordinary run too, for all others to read; what only it can write, with the rest.
OTHERS = dict.fromkeys(("gzip", "snappy", "lz4"), pytest.mark.full)


class Layout(NamedTuple):
    """The number of replicas of each topic on a cluster of three; None for the one broker that other tests use too."""

    replicas: int | None
    zookeeper: bool = False


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Layout(None), id="one-broker"),
        pytest.param(Layout(1), id="three-brokers", marks=pytest.mark.full),
        pytest.param(Layout(3), id="three-replicas", marks=pytest.mark.full),
        pytest.param(Layout(3, zookeeper=True), id="zookeeper", marks=pytest.mark.full),
    ],
)
def layout(request: pytest.FixtureRequest) -> Layout:
    found: Layout = request.param
    return found


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, layout: Layout) -> Iterator[tuple[Server, Clients]]:
    if layout.replicas is None:
        yield request.getfixturevalue("shared_server"), request.getfixturevalue("shared_clients")
        return
    if target() == "kafka":
        pytest.skip("only Barnabas is run as three brokers here")
    with request.getfixturevalue("three_brokers")(layout.replicas, zookeeper=layout.zookeeper) as made:
        yield made


@pytest.fixture(scope="module")
def server(place: tuple[Server, Clients]) -> Server:
    return place[0]


@pytest.fixture(scope="module")
def clients(place: tuple[Server, Clients]) -> Clients:
    return place[1]


@pytest.fixture
def create(server: Server, layout: Layout) -> Create:
    """Creates a topic: each client its own with one replica, which is what they all ask for."""
    replicas = layout.replicas

    def create(client: Client, topic: str) -> None:
        if replicas is None or replicas == 1:
            client.create_topic(topic, PARTITIONS)
            return
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(120)

    return create


def codecs_of(server: Server, topic: str, partition: int) -> set[str]:
    """Returns the codecs of a partition's batches, fetched from its leader."""
    metadata = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(topic, timeout=60)
    leader = metadata.topics[topic].partitions[partition].leader
    return codecs_on_the_wire(metadata.brokers[leader].port, topic, partition)


def records_for(traits: Traits, seed: str) -> list[Record]:
    """Returns records with every combination that a client can write: keys, nulls, headers, sizes beyond a compression
    block.
    """
    chance = random.Random(seed)
    headers: list[tuple[tuple[str, bytes | None], ...]] = [(), (("trace", b"abc"), ("kind", b"\xc3\xa9t\xc3\xa9"))]
    if traits.null_headers:
        headers.append((("present", b"1"), ("absent", None)))
    if traits.repeated_headers:
        headers.append((("twice", b"1"), ("twice", b"2")))
    shapes: list[tuple[bytes | None, bytes | None]] = [
        (b"key", b"value"),
        (None, b"no key"),
        (b"tombstone", None),
        (b"long", b"the same words again and again, " * 6_000),
        (b"noise", chance.randbytes(50_000).hex().encode()),
        ("schlüssel".encode(), "wörter 数".encode()),
    ]
    if traits.binary:
        shapes += [(b"", b""), (bytes(range(256)), chance.randbytes(70_000))]
    if traits.neither_key_nor_value:
        shapes.append((None, None))
    made = [Record(key, value, each) for each in headers for key, value in shapes]
    made = [replace(record, partition=index % 2) for index, record in enumerate(made)]
    if traits.timestamps:
        made = [replace(record, timestamp=START_MS + index * STEP_MS) for index, record in enumerate(made)]
    return made


def expect_equal(found: Sequence[Record], written: Sequence[Record], *, first_offset: int = 0) -> None:
    """Checks the records: in order, without gaps; a timestamp is compared where the client chose it."""
    stamped = [replace(got, timestamp=None) if want.timestamp is None else got for got, want in zip(found, written)]  # noqa: B905
    assert stamped == list(written)
    assert [each.offset for each in found] == list(range(first_offset, first_offset + len(found)))


def partitions_of(records: Sequence[Record]) -> dict[int, list[Record]]:
    return {number: [each for each in records if each.partition == number] for number in (0, 1)}


@pytest.mark.parametrize("codec", [pytest.param(each, marks=OTHERS.get(each, ())) for each in CODECS])
@pytest.mark.parametrize("name", WRITERS)
def test_client_reads_back_what_it_wrote(
    name: str,
    codec: str,
    clients: Clients,
    server: Server,
    create: Create,
    new_topic_name: Callable[[str], str],
) -> None:
    client = clients(name)
    topic = new_topic_name(f"own-{name}-{codec}")
    written = records_for(client.traits, f"{name} {codec}")
    create(client, topic)

    offsets = client.produce(topic, codec, written)

    # A client sends a batch as it is when compression does not make it smaller.
    assert codec in codecs_of(server, topic, 0) | codecs_of(server, topic, 1)
    for partition, expected in partitions_of(written).items():
        expect_equal(client.consume(topic, partition, len(expected)), expected)
        if offsets:
            own = [offset for offset, record in zip(offsets, written, strict=True) if record.partition == partition]
            assert own == list(range(len(expected)))


@pytest.mark.parametrize("name", WRITERS)
def test_client_seeks_by_offset_and_by_time(
    name: str, clients: Clients, create: Create, new_topic_name: Callable[[str], str]
) -> None:
    client = clients(name)
    topic = new_topic_name(f"seek-{name}")
    create(client, topic)
    written = [Record(f"k{n}".encode(), f"v{n}".encode(), (), START_MS + n * STEP_MS) for n in range(20)]
    # Batches of several records, so that the right one is not always the first of its batch.
    for start in range(0, 20, 5):
        writer = client if client.traits.timestamps else clients("confluent-kafka")
        writer.produce(topic, "gzip" if start == 5 else "none", written[start : start + 5])

    expect_equal(client.consume(topic, 0, 6, offset=7), written[7:13], first_offset=7)
    expect_equal(client.consume(topic, 0, 3, timestamp=START_MS + 12 * STEP_MS), written[12:15], first_offset=12)
    expect_equal(client.consume(topic, 0, 3, timestamp=START_MS + 7 * STEP_MS - 1), written[7:10], first_offset=7)


@pytest.mark.parametrize("writer_name", WRITERS)
def test_every_client_reads_what_one_wrote(
    writer_name: str,
    clients: Clients,
    server: Server,
    create: Create,
    new_topic_name: Callable[[str], str],
    pytestconfig: pytest.Config,
) -> None:
    is_ordinary = "not full" in pytestconfig.getoption("-m")
    readers = [name for name in NAMES if name != COMPILED or not is_ordinary]
    writer = clients(writer_name)
    topic = new_topic_name(f"cross-{writer_name}")
    create(writer, topic)
    # kcat's JSON cannot show bytes that are not text; the binary records are in the clients' own tests.
    traits = replace(writer.traits, binary=False, repeated_headers=False)
    written: list[Record] = []
    for codec in CODECS:
        batch = [replace(each, partition=0) for each in records_for(traits, f"{writer_name} {codec}")]
        writer.produce(topic, codec, batch)
        written += batch
    assert codecs_of(server, topic, 0) == set(CODECS)

    failures = {name: failure for name in readers if (failure := misread(clients(name), topic, written))}
    assert failures == {}


def misread(reader: Client, topic: str, written: Sequence[Record]) -> str:
    try:
        expect_equal(reader.consume(topic, 0, len(written)), written)
    except AssertionError as failure:
        return str(failure)[:2_000]
    return ""
