"""The client side of one workload, in a separate process: confluent-kafka (librdkafka), the same for both brokers.

    client.py WORKLOAD BOOTSTRAP '{"option": value, ...}'

Prints one JSON object with what was measured. Clocks are CLOCK_MONOTONIC, the same in all processes of a machine.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

Options = dict[str, Any]
Measured = dict[str, float]

_TIMEOUT_S = 60.0
_QUIET = {"log_level": 4}
#: Limits that avoid pauses: with its defaults librdkafka stops fetching for a second whenever 100,000 records or 64 MB
#: wait for the application. The number of such pauses depends on chance, and is larger with the faster broker.
_NO_PAUSES = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 2_097_151, "fetch.queue.backoff.ms": 1}
_LOW_LATENCY = {**_QUIET, "linger.ms": 0, "socket.nagle.disable": True, "acks": "1"}


#: Settings that all clients of this process have, such as those of TLS and of a log-in.
_CLIENT: Options = {}


def _to(bootstrap: str) -> Options:
    return {"bootstrap.servers": bootstrap, **_CLIENT}


def percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that at least this share of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def create_topic(bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1) -> None:
    admin = AdminClient({**_to(bootstrap), **_QUIET})
    for future in admin.create_topics([NewTopic(topic, partitions, replicas)], operation_timeout=30).values():
        future.result(60)


def end_offset(bootstrap: str, topic: str) -> int:
    consumer = Consumer({**_to(bootstrap), "group.id": "bench"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
    finally:
        consumer.close()


def payload(size_bytes: int) -> bytes:
    """Returns text that does not repeat within a record."""
    words = b"".join(b"%08d" % (index * 7919) for index in range(size_bytes // 8 + 1))
    return words[:size_bytes]


# Workloads


def cold_start(bootstrap: str, options: Options) -> Measured:
    """Measures the time from the launch of the broker to the first acknowledged record, including the creation of the
    topic.

    librdkafka is started when the broker answers: its own reconnecting would add a random delay of up to 0.4 s.
    """
    print("ready", flush=True)
    launched_at = float(sys.stdin.readline())
    deadline = launched_at + _TIMEOUT_S
    while not _answers(bootstrap):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the broker did not answer within {_TIMEOUT_S} s")
        time.sleep(0.002)
    settings = {"topic.metadata.refresh.fast.interval.ms": 10, "retry.backoff.ms": 10, **_LOW_LATENCY}
    producer = Producer({**_to(bootstrap), **settings})
    acked_at: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"the first record failed: {error}")
        acked_at.append(time.monotonic())

    producer.produce(options["topic"], b"first", partition=0, on_delivery=delivered)
    producer.flush(_TIMEOUT_S)
    if not acked_at:
        raise RuntimeError(f"the first record was not acknowledged within {_TIMEOUT_S} s")
    return {"s": acked_at[0] - launched_at}


def _answers(bootstrap: str) -> bool:
    """Returns whether the broker answers an ApiVersions request now."""
    try:
        _call_api_versions(bootstrap).close()
    except (OSError, EOFError):
        return False
    return True


def _call_api_versions(bootstrap: str) -> socket.socket:
    """Returns a connection on which one request was answered."""
    host, _, port = bootstrap.rpartition(":")
    link = socket.create_connection((host, int(port)), 30)
    request = struct.pack(">hhih", 18, 0, 7, -1)
    link.sendall(struct.pack(">i", len(request)) + request)
    head = link.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        link.close()
        raise EOFError("the connection ended without an answer")
    link.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    return link


def one_in_flight(bootstrap: str, options: Options) -> Measured:
    """Sends one record, waits for its acknowledgement (acks=1 unless `acks` is given), and sends the next."""
    create_topic(bootstrap, options["topic"], replicas=options.get("replicas", 1))
    producer = Producer({**_to(bootstrap), **_LOW_LATENCY, "acks": options.get("acks", "1")})
    value = payload(options["size_bytes"])
    done: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"a record failed: {error}")
        done.append(time.perf_counter())

    latencies_ms = []
    for index in range(options["warm_up"] + options["records"]):
        begun = time.perf_counter()
        producer.produce(options["topic"], value, partition=0, on_delivery=delivered)
        while not done:
            producer.poll(_TIMEOUT_S)
        if index >= options["warm_up"]:
            latencies_ms.append((done.pop() - begun) * 1000)
        done.clear()
    return {"p50_ms": percentile(latencies_ms, 0.5), "p99_ms": percentile(latencies_ms, 0.99)}


def produce(bootstrap: str, options: Options) -> Measured:
    """Sends records as fast as possible; all are acknowledged (acks=1 unless `acks` is given). `settings` are
    librdkafka's.
    """
    topic, records, size_bytes = options["topic"], options["records"], options["size_bytes"]
    if not options.get("is_created"):
        create_topic(bootstrap, topic, replicas=options.get("replicas", 1))
    producer = Producer(
        {
            **_to(bootstrap),
            "acks": options.get("acks", "1"),
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            **options.get("settings", {}),
        }
    )
    value = payload(size_bytes)
    _produce_all(producer, topic, value, options.get("warm_up", 0))
    begun = time.perf_counter()
    _produce_all(producer, topic, value, records)
    elapsed_s = time.perf_counter() - begun
    stored = end_offset(bootstrap, topic)
    expected = records + options.get("warm_up", 0)
    if stored != expected:
        raise RuntimeError(f"{stored} records are in {topic}, {expected} were sent")
    return {"records_per_s": records / elapsed_s, "mb_per_s": records * size_bytes / elapsed_s / 1e6}


def _produce_all(producer: Producer, topic: str, value: bytes, count: int) -> None:
    send = producer.produce
    for _ in range(count):
        try:
            send(topic, value, partition=0)
        except BufferError:
            producer.poll(0.1)
            _retry(producer, topic, value)
    left = producer.flush(_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged within {_TIMEOUT_S} s")


def _retry(producer: Producer, topic: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=0)
            return
        except BufferError:
            producer.poll(0.1)


def transactions(bootstrap: str, options: Options) -> Measured:
    """Measures consecutive transactions of `records` records, each from its begin to the answer to its commit."""
    topic, partitions, value = options["topic"], options["partitions"], payload(options["size_bytes"])
    create_topic(bootstrap, topic, partitions, options.get("replicas", 1))
    producer = Producer({**_to(bootstrap), **_QUIET, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(_TIMEOUT_S)
    latencies_ms = []
    begun_s = 0.0
    for index in range(options["warm_up"] + options["transactions"]):
        if index == options["warm_up"]:
            begun_s = time.perf_counter()
        begin_s = time.perf_counter()
        producer.begin_transaction()
        for record in range(options["records"]):
            producer.produce(topic, value, partition=record % partitions)
        producer.commit_transaction(_TIMEOUT_S)
        if index >= options["warm_up"]:
            latencies_ms.append((time.perf_counter() - begin_s) * 1000)
    return {
        "per_s": len(latencies_ms) / (time.perf_counter() - begun_s),
        "p50_ms": percentile(latencies_ms, 0.5),
        "p99_ms": percentile(latencies_ms, 0.99),
    }


def consume(bootstrap: str, options: Options) -> Measured:
    """Reads all records of a topic that was just written; measures from the arrival of the first record to that of the
    last.
    """
    expected = options["records"]
    consumer = Consumer({**_to(bootstrap), "group.id": "bench", "enable.auto.commit": False, **_NO_PAUSES})
    consumer.assign([TopicPartition(options["topic"], 0, OFFSET_BEGINNING)])
    first = consumer.consume(1, _TIMEOUT_S)
    if not first:
        raise RuntimeError("nothing came within the time limit")
    begun = time.perf_counter()
    received = 0
    while received < expected - 1:
        # A request for more records than are left would wait for them until the time limit.
        messages = consumer.consume(min(10_000, expected - 1 - received), 10.0)
        if not messages:
            raise RuntimeError(f"only {received + 1} of {expected} records came")
        failed = messages[0].error() or messages[-1].error()
        if failed is not None:
            raise RuntimeError(f"consuming failed: {failed}")
        received += len(messages)
    elapsed_s = time.perf_counter() - begun
    consumer.close()
    return {"records_per_s": received / elapsed_s, "mb_per_s": received * options["size_bytes"] / elapsed_s / 1e6}


def _send_stamps(bootstrap: str, topic: str, count: int, interval_s: float) -> None:
    producer = Producer({**_to(bootstrap), **_LOW_LATENCY})
    for _ in range(count):
        producer.produce(topic, struct.pack(">q", time.monotonic_ns()), partition=0)
        producer.poll(interval_s)
        time.sleep(interval_s)
    producer.flush(_TIMEOUT_S)


def tail(bootstrap: str, options: Options) -> Measured:
    """Measures from a producer's call to the arrival at one consumer that waits at the end of the log; two
    processes.
    """
    topic, count = options["topic"], options["warm_up"] + options["records"]
    create_topic(bootstrap, topic)
    consumer = Consumer(
        {**_to(bootstrap), "group.id": "bench", "enable.auto.commit": False, "socket.nagle.disable": True}
    )
    # The assignment starts at the first record, the end of a new topic: no record is missed, however late the client is
    # ready.
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(1.0)
    context = multiprocessing.get_context("spawn")
    sender = context.Process(target=_send_stamps, args=(bootstrap, topic, count, options["interval_s"]))
    sender.start()
    latencies_ms = []
    for index in range(count):
        message = consumer.poll(_TIMEOUT_S)
        if message is None or message.error() is not None:
            raise RuntimeError(f"record {index} did not come: {message and message.error()}")
        now_ns = time.monotonic_ns()
        value = message.value()
        assert value is not None, "every record carries its time"
        if index >= options["warm_up"]:
            latencies_ms.append((now_ns - struct.unpack(">q", value)[0]) / 1e6)
    sender.join()
    consumer.close()
    return {"p50_ms": percentile(latencies_ms, 0.5), "p99_ms": percentile(latencies_ms, 0.99)}


def idle(bootstrap: str, options: Options) -> Measured:
    """Holds connections open, with idle partitions behind them, until the caller ends it; the caller measures."""
    topics = options["partitions"] // options["partitions_per_topic"]
    for index in range(topics):
        create_topic(bootstrap, f"{options['topic']}-{index}", options["partitions_per_topic"])
    links = [_call_api_versions(bootstrap) for _ in range(options["connections"])]
    print("ready", flush=True)
    sys.stdin.readline()
    for link in links:
        link.close()
    return {}


WORKLOADS: dict[str, Callable[[str, Options], Measured]] = {
    "cold_start": cold_start,
    "one_in_flight": one_in_flight,
    "produce": produce,
    "transactions": transactions,
    "consume": consume,
    "tail": tail,
    "idle": idle,
}


def main() -> int:
    workload, bootstrap, text = sys.argv[1:]
    options = json.loads(text)
    _CLIENT.update(options.pop("client", {}))
    print(json.dumps(WORKLOADS[workload](bootstrap, options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
