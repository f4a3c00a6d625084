"""The 36 steps of the recording of Kafka 3.9.1 in ZooKeeper mode (tests/data/znodes), to be repeated.

The steps are those of the recording: three brokers, the same topics, the same tools and requests, the same kills. Where
two brokers race for `/controller`, the loser of the recording is held back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.support.golden_writes import Run, Seen

import kafka39_jars
from zookeeper_jars import four_letter_word

ORDERS: Final = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2], [2, 1, 0]]
QUIET_S: Final = 2.0
ELECTION_TOOL: Final = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN_TOOL: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_PREFERRED_PATH: Final = "/admin/preferred_replica_election"
_REASSIGN_PATH: Final = "/admin/reassign_partitions"
_BLOB: Final = os.urandom(100_000)


class Broker(Protocol):
    """A broker process, ours or Kafka's."""

    port: int
    process: Any

    def launch(self) -> None: ...
    def wait(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> int: ...


#: Makes the broker with an id and its properties.
MakeBroker = Callable[[int, Mapping[str, str]], Broker]


def properties(number: int) -> dict[str, str]:
    """Returns the properties of the recorded brokers, except id, listeners, folders and `zookeeper.connect`."""
    return {
        "zookeeper.session.timeout.ms": "6000",
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.num.partitions": "1",
        "num.recovery.threads.per.data.dir": "1",
        "broker.rack": f"rack{number}",
        "unclean.leader.election.enable": "false",
    }


class GoldenSteps:
    """Runs the steps against a ZooKeeper on this port. `after_step` gets the name of each step at its end, `say` lines
    for a reader.
    """

    def __init__(
        self,
        port: int,
        folder: Path,
        make_broker: MakeBroker,
        *,
        after_step: Callable[[str], None] = lambda step: None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._port = port
        self._folder = folder
        self._after_step = after_step
        self._say = say
        self._begin = time.monotonic()
        self.client = KazooClient(f"127.0.0.1:{port}")
        self.brokers = {number: make_broker(number, properties(number)) for number in range(3)}
        self._trees: dict[str, dict[str, Seen]] = {}
        self._zxids: dict[str, int] = {}
        self._producer: Producer | None = None

    def run(self) -> Run:
        """Runs all steps, and stops the processes that it has started."""
        parts = (
            self._first_brokers,
            self._first_failures,
            self._failures_of_the_controller,
            self._partitions_without_leader,
            self._configs,
            self._clients,
            self._reassignments,
            self._deletions,
        )
        return self._run(parts)

    def run_the_first(self) -> Run:
        """Runs the steps 00 to 06: a topic, a broker that dies and returns, a preferred election."""
        return self._run((self._first_brokers, self._first_failures))

    def _run(self, parts: Sequence[Callable[[], None]]) -> Run:
        self.client.start(timeout=15)
        try:
            for part in parts:
                part()
        finally:
            for broker in self.brokers.values():
                broker.kill()
            self.client.stop()
            self.client.close()
        ports = {number: broker.port for number, broker in self.brokers.items()}
        return Run(self._trees, self._zxids, ports)

    # -- the steps

    def _first_brokers(self) -> None:
        self._step("empty-zookeeper")
        self._start(0)
        self._step("first-broker")
        self._start(1)
        self._start(2)
        self._step("start")
        self._create("orders", ORDERS, {"min.insync.replicas": "2"})
        self._step("topic-created")

    def _first_failures(self) -> None:
        self._kill(1)
        self._step("broker1-killed")
        self._start(1)
        self._until(self._isrs_are_full)
        self._step("broker1-restarted")
        self._tool(ELECTION_TOOL, "--election-type", "PREFERRED", "--all-topic-partitions")
        self._step("preferred-election")

    def _failures_of_the_controller(self) -> None:
        with self._held_back(1):
            self._kill(0)
        self._step("controller-killed")
        self._start(0)
        self._until(self._isrs_are_full)
        self._step("controller-restarted")
        wanted = [{"topic": "orders", "partition": number} for number in range(6)]
        self.client.create(_PREFERRED_PATH, _json({"version": 1, "partitions": wanted}))
        self._until(lambda: not self.client.exists(_PREFERRED_PATH))
        self._step("preferred-election-znode")
        with self._held_back(0):
            self.brokers[2].stop()
            self._until(lambda: self.client.exists("/controller"))
        self._step("broker2-controlled-shutdown")
        self._start(2)
        self._until(self._isrs_are_full)
        self._step("broker2-restarted")

    def _partitions_without_leader(self) -> None:
        self._create("solo", [[0], [1], [2]], {})
        self._create("duo", [[1, 2]], {"unclean.leader.election.enable": "false"})
        self._step("solo-created")
        with self._held_back(2):
            self._kill(1)
        self._until(lambda: self._state("solo", 1)["leader"] == -1)
        self._step("solo-offline")
        self._kill(2)
        self._until(lambda: self._state("duo", 0)["leader"] == -1)
        self._step("duo-offline")
        self._start(1)
        self._until(lambda: self._state("solo", 1)["leader"] == 1)
        self._until(lambda: all(1 in self._state("orders", number)["isr"] for number in range(6)))
        self._step("solo-online")
        self._tool(ELECTION_TOOL, "--election-type", "UNCLEAN", "--topic", "duo", "--partition", "0")
        self._step("unclean-election")
        self._start(2)
        self._until(self._isrs_are_full)
        self._tool(ELECTION_TOOL, "--election-type", "PREFERRED", "--all-topic-partitions")
        self._step("all-back")

    def _configs(self) -> None:
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        self._config(*entity, "--add-config", "log.cleaner.threads=2,background.threads=11")
        self._step("config-broker")
        entity = ("--entity-type", "brokers", "--entity-default")  # type: ignore[assignment]
        self._config(*entity, "--add-config", "num.io.threads=9,log.retention.ms=100000000")
        self._step("config-cluster-default")
        entity = ("--entity-type", "topics", "--entity-name", "orders")
        self._config(*entity, "--add-config", "retention.ms=86400000,cleanup.policy=[compact,delete]")
        self._step("config-topic")
        self._config(*entity, "--delete-config", "retention.ms")
        self._step("config-topic-deleted")
        alice = ("--entity-type", "users", "--entity-name", "alice")
        self._config("--entity-type", "clients", "--entity-name", "c 1/x", "--add-config", "producer_byte_rate=1024")
        self._config(*alice, "--add-config", "consumer_byte_rate=2048")
        self._config(*alice, "--entity-type", "clients", "--entity-default", "--add-config", "request_percentage=50")
        address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
        self._config(*address, "--add-config", "connection_creation_rate=10")
        self._step("quotas")
        self._config(*alice, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")
        self._step("scram")

    def _clients(self) -> None:
        self._ask(lambda admin: admin.create_partitions([NewPartitions("solo", 4, [[2]])])["solo"].result())
        self._step("partitions-added")
        self._producer = Producer({**self._client_configuration(), "enable.idempotence": True})
        self._produce("orders", 120)
        self._step("producer-id")
        consumer = Consumer({**self._client_configuration(), "group.id": "g1", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        try:
            self._until(lambda: consumer.poll(1.0))
        finally:
            consumer.close()
        self._step("consumer-group")

    def _reassignments(self) -> None:
        self._produce("solo", 60)
        self._produce("duo", 60)
        # The producer's metadata refresh would create deleted topics again.
        self._producer = None
        moves = {("solo", 0): [1], ("duo", 0): [0, 1], ("orders", 1): [1, 2]}
        plan = self._folder / "plan.json"
        plan.write_bytes(_json(_reassignment(moves, directories=True)))
        arguments = ("--reassignment-json-file", str(plan))
        self._tool(REASSIGN_TOOL, *arguments, "--execute", "--throttle", "200000")
        self._step("reassign-under-way", 1.0)
        self._tool(REASSIGN_TOOL, *arguments, "--execute", "--additional", "--throttle", "50000000")
        self._until(self._nothing_moves)
        self._step("reassign-finished")
        self._tool(REASSIGN_TOOL, *arguments, "--verify")
        self._step("reassign-verified")
        back = _json(_reassignment({("orders", 1): [1, 2, 0], ("solo", 0): [0]}, directories=False))
        self.client.create(_REASSIGN_PATH, back)
        self._until(lambda: not self.client.exists(_REASSIGN_PATH) and self._nothing_moves())
        self._step("reassign-znode")

    def _deletions(self) -> None:
        self._ask(lambda admin: admin.delete_topics(["solo"])["solo"].result())
        self._until(lambda: not self.client.exists("/brokers/topics/solo"))
        self._step("topic-deleted")
        self._kill(1)
        admin = AdminClient(self._client_configuration())
        with contextlib.suppress(Exception):  # the request times out: the deletion waits for broker 1
            admin.delete_topics(["orders"], operation_timeout=1, request_timeout=5)["orders"].result()
        self._step("topic-deletion-pending")
        self._start(1)
        self._until(lambda: not self.client.exists("/brokers/topics/orders"))
        self._step("topic-deletion-done")
        self._create("orders", ORDERS, {})
        self._step("topic-recreated")
        with self._held_back(1):
            self.brokers[0].stop()
        self.brokers[1].stop()
        self.brokers[2].stop()
        self._step("cluster-stopped", 1.0)

    # -- brokers

    def _start(self, number: int) -> None:
        self.brokers[number].launch()
        self.brokers[number].wait()
        self._until(lambda: self.client.exists(f"/brokers/ids/{number}"))

    def _kill(self, number: int) -> None:
        self.brokers[number].kill()
        self._until(lambda: not self.client.exists(f"/brokers/ids/{number}"))
        self._until(lambda: self.client.exists("/controller"))

    @contextlib.contextmanager
    def _held_back(self, number: int) -> Iterator[None]:
        """Lets a broker run only for moments, enough for its session, until another one is the controller."""
        process = self.brokers[number].process
        before = self.client.get("/controller")[1].czxid
        done: list[bool] = []

        def hold() -> None:
            while not done:
                process.send_signal(signal.SIGSTOP)
                end = time.monotonic() + 1.5
                while time.monotonic() < end and not done:
                    time.sleep(0.01)
                    with contextlib.suppress(NoNodeError):
                        if self.client.get("/controller")[1].czxid != before:
                            done.append(True)
                process.send_signal(signal.SIGCONT)
                time.sleep(0.05)

        holding = self.client.handler.spawn(hold)
        try:
            yield
            holding.join(30)
        finally:
            done.append(True)
            holding.join(30)
            process.send_signal(signal.SIGCONT)

    # -- requests and tools

    def _client_configuration(self) -> dict[str, Any]:
        addresses = ",".join(f"localhost:{broker.port}" for broker in self.brokers.values())
        return {"bootstrap.servers": addresses, "log_level": 0}

    def _ask(self, request: Callable[[AdminClient], object]) -> None:
        """Sends a request, and repeats it from a new client as long as clients see the old controller."""
        for trial in range(5):
            try:
                request(AdminClient(self._client_configuration()))
            except Exception as error:
                self._say(f"  asked again: {error}")
                if trial == 4:
                    raise
                time.sleep(1)
            else:
                return

    def _create(self, topic: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str]) -> None:
        rows = [list(row) for row in assignment]
        new = NewTopic(topic, len(rows), replica_assignment=rows, config=dict(config))
        self._ask(lambda admin: admin.create_topics([new])[topic].result())

    def _produce(self, topic: str, count: int) -> None:
        assert self._producer is not None, "the producer is made in its step"
        for number in range(count):
            # A key, because the topic is compacted.
            self._producer.produce(topic, _BLOB, partition=0, key=str(number).encode(), on_delivery=_delivered)
            self._producer.flush()

    def _tool(self, name: str, *arguments: str) -> None:
        addresses = self._client_configuration()["bootstrap.servers"]
        done = kafka39_jars.run_tool(name, "--bootstrap-server", addresses, *arguments)
        if done.returncode != 0:
            self._say(f"  {name}: code {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")

    def _config(self, *arguments: str) -> None:
        self._tool("kafka.admin.ConfigCommand", "--alter", *arguments)

    # -- what is looked at

    def _json_of(self, path: str) -> Any:
        return json.loads(self.client.get(path)[0])

    def _state(self, topic: str, partition: int) -> Any:
        return self._json_of(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def _topics(self) -> dict[str, Any]:
        return {name: self._json_of(f"/brokers/topics/{name}") for name in self.client.get_children("/brokers/topics")}

    def _isrs_are_full(self) -> bool:
        topics = {name: topic for name, topic in self._topics().items() if name != "solo"}
        return all(
            sorted(self._state(name, int(number))["isr"]) == sorted(replicas)
            for name, topic in topics.items()
            for number, replicas in topic["partitions"].items()
        )

    def _nothing_moves(self) -> bool:
        return not any(topic["adding_replicas"] or topic["removing_replicas"] for topic in self._topics().values())

    def _until(self, done: Callable[[], object], timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(NoNodeError):
                if done():
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s} s, after step {list(self._zxids)[-1:]}")
            time.sleep(0.1)

    def _step(self, name: str, quiet_s: float = QUIET_S) -> None:
        """Ends a step: waits until nothing more is written, and stores the tree."""
        step = f"{len(self._zxids):02d}-{name}"
        last, since = self._zxid(), time.monotonic()
        deadline = since + 40
        while time.monotonic() < min(since + quiet_s, deadline):
            time.sleep(0.1)
            zxid = self._zxid()
            if zxid != last:
                last, since = zxid, time.monotonic()
        self._zxids[step] = last
        self._trees[step] = dict(self._tree("/"))
        self._say(f"{time.monotonic() - self._begin:6.1f} s {step}: zxid {last:#x}, {len(self._trees[step])} znodes")
        self._after_step(step)

    def _zxid(self) -> int:
        lines = four_letter_word(self._port, "srvr").splitlines()
        return int(next(line for line in lines if line.startswith("Zxid")).split()[1], 16)

    def _tree(self, path: str) -> Iterator[tuple[str, Seen]]:
        try:
            data, stat = self.client.get(path)
            names = self.client.get_children(path)
        except NoNodeError:
            return
        yield path, Seen(data.decode() if data or stat.dataLength else _empty(data), stat.version)
        for name in sorted(names):
            yield from self._tree(f"{path.rstrip('/')}/{name}")


def _delivered(error: object, message: object) -> None:
    assert error is None, error


def _empty(data: bytes | None) -> str | None:
    return None if data is None else ""


def _reassignment(moves: Mapping[tuple[str, int], Sequence[int]], *, directories: bool) -> dict[str, Any]:
    rows = []
    for (topic, partition), replicas in moves.items():
        row: dict[str, Any] = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        if directories:
            row["log_dirs"] = ["any"] * len(replicas)
        rows.append(row)
    return {"version": 1, "partitions": rows}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
