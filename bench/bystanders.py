"""The rows of bystanders: how long a producer waits while one client sends requests of many rows at full speed.

The requests are those of the tests (`tests/support/hostile_requests.py`). A separate process sends them, encoded
beforehand, on two connections; the producer here sends a small batch every few milliseconds over a bare socket.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import report
import wire
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from targets import ROOT, TARGETS
from workloads import Experiment, Goal, Metric

sys.path.insert(0, str(ROOT))

from tests.support import hostile_requests

_CONNECTIONS = 2
_PAUSE_S = 0.005
_PRODUCE_VERSION = 7
_CREATED_AT_ONCE = 500
_TIMEOUT_S = 120
#: The request of each row of the table, as a name in `hostile_requests.ATTACKS`.
ROWS = {
    "bystander_alone": None,
    "bystander_commit": "OffsetCommit",
    "bystander_create": "CreateTopics and DeleteTopics of 500",
    "bystander_long_names": "CreateTopics of names of 32,767 letters",
    "bystander_metadata": "Metadata of all",
    "bystander_sessions": "Fetch sessions of 200 partitions",
    "bystander_search": "ListOffsets by time within a batch",
    "bystander_produce": "Produce",
    "bystander_fetch": "Fetch",
    "bystander_unknown": "Fetch of unknown topics",
    "bystander_list_offsets": "ListOffsets",
    "bystander_epochs": "OffsetForLeaderEpoch",
    "bystander_delete": "DeleteRecords",
    "bystander_markers": "WriteTxnMarkers of producers",
    "bystander_txn": "AddPartitionsToTxn",
    "bystander_producers": "DescribeProducers",
    "bystander_elect": "ElectLeaders",
    "bystander_keys": "IncrementalAlterConfigs of keys",
}
BYSTANDERS = Experiment(
    "bystanders",
    tuple(
        Metric(name, f"a producer's p99 next to {attack or 'nobody'}", "ms", Goal(50, absolute=True))
        for name, attack in ROWS.items()
    ),
    {"rounds": 3, "seconds": 5.0, "rows": 100_000},
    {"rounds": 1, "seconds": 2.0},
)


def table(experiment: Experiment) -> report.Table:
    options = experiment.options
    return report.Table(
        "Bystanders",
        f"Rounds: {options['rounds']}. A producer of one small batch after the other, while another client sends "
        f"requests of up to {3 * options['rows']:,} rows on two connections as fast as they are answered.",
        experiment.metrics,
    )


def run(experiment: Experiment, data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all rounds. Each round starts each broker once; the order alternates from round to round."""
    options = experiment.options
    for index in range(options["rounds"]):
        for name in targets if index % 2 == 0 else targets[::-1]:
            target = TARGETS[name](data / f"bystanders-{name}-{index}")
            target.prepare()
            try:
                target.launch()
                target.wait()
                _create_topics(target.bootstrap)
                for metric in experiment.metrics:
                    p99_ms = _p99_ms(target.port, ROWS[metric.name], options["rows"], options["seconds"])
                    values.setdefault(metric.name, {}).setdefault(name, []).append(p99_ms)
                    print(f"  {name:9} {metric.title:70} {report.number(p99_ms):>10} {metric.unit}", flush=True)
            except BaseException:
                print(f"{name}'s log ends:\n{target.log_tail()}", file=sys.stderr)
                raise
            finally:
                target.stop()


def _create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = hostile_requests.TOPICS
    new = [NewTopic(name, min(count, _CREATED_AT_ONCE), 1) for name, count in topics.items()]
    for future in admin.create_topics(new).values():
        future.result(_TIMEOUT_S)
    for name, partitions in topics.items():
        for count in range(2 * _CREATED_AT_ONCE, partitions + 1, _CREATED_AT_ONCE):
            admin.create_partitions([NewPartitions(name, count)])[name].result(_TIMEOUT_S)


def _p99_ms(port: int, attack: str | None, rows: int, seconds: float) -> float:
    """Returns the p99 of a producer's waits while the attack runs."""
    attacker = None
    try:
        if attack is not None:
            command = [sys.executable, __file__, str(port), attack, str(rows)]
            attacker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert attacker.stdout is not None
            if not attacker.stdout.readline():
                raise RuntimeError(f"no request of {attack} was answered")
        waits = _waits_ms(port, seconds)
    finally:
        if attacker is not None:
            attacker.kill()
            attacker.wait()
    return sorted(waits)[int(len(waits) * 0.99)]


def _waits_ms(port: int, seconds: float) -> list[float]:
    records = encode_batch([Record(0, 1_700_000_000_000, b"k", b"bystander", [])])
    rows = [ProduceRequest.PartitionProduceData(index=0, records=bytes(records))]
    topics = [ProduceRequest.TopicProduceData(name=hostile_requests.QUIET, partition_data=rows)]
    frame = wire.framed(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), _PRODUCE_VERSION)
    ends_at = time.monotonic() + seconds
    return waits_ms(port, frame, lambda: time.monotonic() < ends_at)


def waits_ms(port: int, frame: bytes, goes_on: Callable[[], bool]) -> list[float]:
    """Returns the waits for the answers to a request that is sent every few milliseconds."""
    link = wire.Link(port)
    link.exchange(frame)
    found: list[float] = []
    while not found or goes_on():
        begun = time.perf_counter()
        link.exchange(frame)
        found.append((time.perf_counter() - begun) * 1000)
        time.sleep(_PAUSE_S)
    link.close()
    return found


def _attack(port: int, name: str, rows: int) -> None:
    """Sends the requests until the process is killed. Prints a line when the first one is answered."""
    frames = []
    for request in hostile_requests.ATTACKS[name](rows):
        key, version, body = request.encoded()
        frame = struct.pack(">hhih", key, version, 7, -1) + body
        frames.append(len(frame).to_bytes(4, "big") + frame)
    links: list[wire.Link] = []
    at = 0
    # One thread is enough: a connection has its next request before its turn comes again.
    while True:
        try:
            while len(links) < _CONNECTIONS:
                links.append(wire.Link(port))
                links[-1].send(frames[at % len(frames)])
                at += 1
            for link in links:
                link.receive()
                link.send(frames[at % len(frames)])
                at += 1
        except (OSError, EOFError):
            links.clear()  # a broker that closes the connection has answered, too
        if at <= 2 * _CONNECTIONS:
            print("begun", flush=True)


if __name__ == "__main__":
    _attack(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
