"""The disk after a clean stop, after kill -9 and after a torn write: it contains everything that was acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.clients.drivers import Record
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server
from tests.clients.wire import batch, end_offset, fetch_records, produce, record, wait_until_led

NewServer = Callable[..., Server]

WAIT_S = 120.0


def values(client: ConfluentKafka, topic: str, count: int) -> list[bytes | None]:
    return [each.value for each in client.consume(topic, 0, count)]


def numbered(start: int, stop: int) -> list[Record]:
    return [Record(f"k{n}".encode(), f"v{n}".encode()) for n in range(start, stop)]


def test_a_server_that_does_not_serve_in_time_is_not_left_behind(own_server: NewServer) -> None:
    server = own_server()
    with pytest.raises(RuntimeError, match="did not serve within"):
        server.start(timeout_s=0.0)
    assert server.process is not None
    assert server.process.poll() is not None


def active_segment(server: Server, topic: str, suffix: str = ".log") -> Path:
    return max((server.data_dir / f"{topic}-0").glob(f"*{suffix}"))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_topics_configs_records_and_commits_outlive_the_process(own_server: NewServer, end: str) -> None:
    server = own_server()
    server.start()
    client = ConfluentKafka(server.bootstrap)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    new = confluent_kafka.admin.NewTopic("kept", 3, 1, config={"retention.ms": "123456789"})
    admin.create_topics([new])["kept"].result(WAIT_S)
    client.create_topic("deleted", 1)
    client.produce("kept", "zstd", numbered(0, 100))
    commit(server, "kept", 42)
    admin.delete_topics(["deleted"])["deleted"].result(WAIT_S)
    before = admin.describe_topics(confluent_kafka.TopicCollection(["kept"]))["kept"].result(WAIT_S)

    if end == "stop":
        server.stop()
        assert (server.data_dir / ".kafka_cleanshutdown").exists()
    else:
        server.kill()
        assert not (server.data_dir / ".kafka_cleanshutdown").exists()
    server.start()

    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    after = admin.describe_topics(confluent_kafka.TopicCollection(["kept"]))["kept"].result(WAIT_S)
    assert str(after.topic_id) == str(before.topic_id)
    assert len(after.partitions) == 3
    assert "deleted" not in admin.list_topics(timeout=WAIT_S).topics
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, "kept")
    assert admin.describe_configs([resource])[resource].result(WAIT_S)["retention.ms"].value == "123456789"
    assert values(client, "kept", 100) == [each.value for each in numbered(0, 100)]
    assert committed(server, "kept") == 42
    assert client.produce("kept", "none", numbered(100, 101)) == [100]


def commit(server: Server, topic: str, offset: int) -> None:
    """Commits as a consumer with an assignment of its own, without joining the group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "kept", "log_level": 3})
    where = confluent_kafka.TopicPartition(topic, 0, offset, "with metadata")
    (done,) = consumer.commit(offsets=[where], asynchronous=False)
    assert done.error is None
    consumer.close()


def committed(server: Server, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "kept", "log_level": 3})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
    consumer.close()
    assert found.error is None
    return int(found.offset)


def test_acknowledged_records_outlive_kill_nine_under_load(own_server: NewServer) -> None:
    """The broker is killed three times under a producer that never stops: acknowledged records exist once, in order."""
    server = own_server(log_segment_bytes="1048576")
    server.start()
    ConfluentKafka(server.bootstrap).create_topic("load", 1)
    settings = {"enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 120_000, "log_level": 0}
    settings |= {"retry.backoff.max.ms": 200, "reconnect.backoff.max.ms": 200, "batch.num.messages": 100}
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, **settings})
    acked: list[tuple[int, int]] = []
    failed: list[str] = []
    stop = threading.Event()

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            acked.append((int(message.key() or b""), message.offset() or 0))

    sent = 0

    def send() -> None:
        nonlocal sent
        while not stop.is_set():
            try:
                producer.produce("load", bytes(500), str(sent).encode(), 0, on_delivery=delivered)
                sent += 1
            except BufferError:
                pass
            producer.poll(0.001)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(3):
            wait_for_more(acked, 2_000)
            server.kill()
            server.start()
        wait_for_more(acked, 2_000)
    finally:
        stop.set()
        sender.join()
    assert producer.flush(120) == 0
    server.kill()
    server.start()

    assert failed == []
    found = ConfluentKafka(server.bootstrap).consume("load", 0, sent)
    assert [int(each.key or b"-1") for each in found] == list(range(sent))
    at = {int(each.key or b"-1"): each.offset for each in found}
    assert [(key, at[key]) for key, _ in acked] == acked


def wait_for_more(acked: list[tuple[int, int]], count: int) -> None:
    wanted = len(acked) + count
    pause = threading.Event()
    for _ in range(1200):
        if len(acked) >= wanted:
            return
        pause.wait(0.1)
    raise AssertionError(f"only {len(acked)} of {wanted} records were acknowledged within two minutes")


GOOD = batch([record(number, b"key", b"value") for number in range(3)])
TAILS = {
    "half a batch": GOOD[:40],
    "half a header": GOOD[:15],
    "a batch with a wrong checksum": batch([record(0, b"k", b"v")], base_offset=30, crc_error=1),
    "zeros": bytes(4096),
    "noise": bytes(range(1, 256)) * 8,
}


#: tests/property/test_log_machine.py cuts off, changes and appends bytes of every kind; here it is a real process.
ORDINARY = ("half a batch", "zeros")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in ORDINARY else pytest.mark.full) for each in TAILS]
)
def test_a_torn_tail_is_cut_off(own_server: NewServer, name: str) -> None:
    server = own_server()
    server.start()
    ConfluentKafka(server.bootstrap).create_topic("torn", 1)
    wait_until_led(server.port, "torn")
    for number in range(10):
        assert produce(server.port, "torn", 0, GOOD) == (0, 3 * number)
    before = fetch_records(server.port, "torn", 0)
    server.kill()
    with active_segment(server, "torn").open("ab") as log:
        log.write(TAILS[name])

    server.start()

    assert end_offset(server.port, "torn", 0) == 30
    assert fetch_records(server.port, "torn", 0) == before
    assert active_segment(server, "torn").read_bytes() == before
    assert produce(server.port, "torn", 0, GOOD) == (0, 30)


def test_indexes_and_snapshots_that_are_lost_are_made_again(own_server: NewServer) -> None:
    server = own_server(log_segment_bytes="1048576", log_index_interval_bytes="4096")
    server.start()
    client = ConfluentKafka(server.bootstrap, enable_idempotence=True, batch_num_messages=10)
    client.create_topic("indexed", 1)
    written = [Record(str(n).encode(), bytes(2_000), (), 1_700_000_000_000 + n) for n in range(1_500)]
    client.produce("indexed", "none", written)
    server.kill()
    folder = server.data_dir / "indexed-0"
    indexes = [*folder.glob("*.index"), *folder.glob("*.timeindex")]
    assert len(indexes) >= 4
    for path in [*indexes, *folder.glob("*.snapshot")]:
        path.unlink()

    server.start()

    assert sorted(indexes) == sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    for offset in (0, 1, 499, 733, 1_499):
        (by_offset,) = client.consume("indexed", 0, 1, offset=offset)
        (by_time,) = client.consume("indexed", 0, 1, timestamp=1_700_000_000_000 + offset)
        assert by_offset == by_time == written[offset]
