"""Clusters in ZooKeeper mode as processes: our ZooKeeper, and brokers of ours and of Apache Kafka 3.9.1."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.support.process_nodes import call, until
from tests.support.zookeeper_process import OurZooKeeper

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka39_jars import KafkaBroker
from zookeeper_jars import ApacheZooKeeper

WAIT_S = 120.0
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}


class OurBroker(KafkaBroker):
    """A broker of ours, started and stopped in the same way as one of Apache's."""

    def launch(self) -> None:
        assert self.process is None or self.process.poll() is not None, "the broker is already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = [sys.executable, "-m", "barnabas.server.main", "broker", str(self.properties_path)]
        begun = len(self.log)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._begun = begun

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait(self, timeout_s: float = WAIT_S) -> None:
        process = self.process
        assert process is not None, "the broker has been launched"

        def is_started() -> bool:
            assert process.poll() is None, f"the broker ended:\n{self.log[-4000:]}"
            return "started: " in self.log[self._begun :]

        until(f"start of broker {self.broker_id}", is_started, timeout_s)


class ZooKeeperModeCluster:
    """A cluster of three brokers, whose kinds a test chooses, below the chroot /kafka."""

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[type[KafkaBroker]],
        settings: Mapping[str, str] = {},
        zookeeper: type[OurZooKeeper] | type[ApacheZooKeeper] = OurZooKeeper,
    ) -> None:
        self.zookeeper = zookeeper(folder / "zookeeper").start()
        self._client = KazooClient(f"127.0.0.1:{self.zookeeper.port}")
        self._client.start(timeout=15)
        connect = f"127.0.0.1:{self.zookeeper.port}/kafka"
        self.brokers = {
            number: kind(folder / f"broker-{number}", connect, number, properties={**SETTINGS, **settings})
            for number, kind in enumerate(kinds, 1)
        }
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
            print(f"--- broker {broker.broker_id} ({type(broker).__name__})")
            print(broker.log_path.read_text(errors="replace")[-3000:])
        self._client.stop()
        self._client.close()
        self.zookeeper.kill()

    # -- what ZooKeeper has

    def znode(self, path: str) -> Any:
        """Returns the content of a znode; None if there is none."""
        try:
            return json.loads(self._client.retry(self._client.get, f"/kafka{path}")[0] or b"null")
        except NoNodeError:
            return None

    def put(self, path: str, content: object) -> None:
        """Creates a znode, as tools do that work on ZooKeeper."""
        self._client.retry(self._client.create, f"/kafka{path}", json.dumps(content).encode())

    def remove(self, path: str) -> None:
        with suppress(NoNodeError):
            self._client.retry(self._client.delete, f"/kafka{path}")

    def owner(self, path: str) -> int:
        """Returns the session of an ephemeral znode; 0 if there is none."""
        stat = self._client.exists(f"/kafka{path}")
        return 0 if stat is None else int(stat.ephemeralOwner)

    @property
    def controller_id(self) -> int:
        found = self.znode("/controller")
        return -1 if found is None else int(found["brokerid"])

    def await_controller(self, excluded: frozenset[int] = frozenset()) -> int:
        """Returns the controller, once it is none of those that are excluded."""

        def found() -> int | None:
            controller_id = self.controller_id
            return controller_id if controller_id not in excluded | {-1} else None

        return until("a controller", found, WAIT_S)

    def state(self, topic: str, partition: int) -> Any:
        """Returns the content of the state znode; None if there is none."""
        return self.znode(f"/brokers/topics/{topic}/partitions/{partition}/state")

    def isrs(self, topic: str) -> list[set[int]]:
        assignment = self.znode(f"/brokers/topics/{topic}")
        return [set(self.state(topic, number)["isr"]) for number in assignment["partitions"]]

    def await_isrs(self, topic: str) -> None:
        until(f"full ISRs of {topic}", lambda: all(isr == set(self.brokers) for isr in self.isrs(topic)), WAIT_S)

    def await_other_leader(self, topic: str, partition: int, than: int) -> None:
        """Waits until a partition has a leader, which is another broker than this one."""
        until(
            f"another leader of {topic}-{partition}",
            lambda: self.state(topic, partition)["leader"] not in (than, -1),
            WAIT_S,
        )

    def await_deletion(self, topic: str) -> None:
        # The mark is the last znode that a controller deletes; as long as it exists, no topic can have the name.
        znodes = (f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}")
        until(f"deletion of {topic}", lambda: all(self.znode(path) is None for path in znodes), WAIT_S)

    # -- faults

    def start_again(self, number: int) -> None:
        """Starts a broker that was killed or stopped. Apache Kafka's broker refuses to start as long as the session of
        its last process lives; ours waits for its end.
        """
        broker = self.brokers[number]
        if not isinstance(broker, OurBroker):
            until(f"end of the session of broker {number}", lambda: not self.owner(f"/brokers/ids/{number}"), WAIT_S)
        broker.start(WAIT_S)

    def pause(self, *numbers: int) -> None:
        """Stops the processes with SIGSTOP: their connections stay open."""
        self._signal(signal.SIGSTOP, numbers)

    def resume(self, *numbers: int) -> None:
        self._signal(signal.SIGCONT, numbers)

    def _signal(self, number: signal.Signals, brokers: Sequence[int]) -> None:
        for broker in brokers:
            process = self.brokers[broker].process
            assert process is not None, "the broker has been launched"
            process.send_signal(number)

    def let_decide(self, kind: type[KafkaBroker]) -> int:
        """Makes a broker of this kind the controller, and returns it when every broker knows it."""
        self.let_claim(kind)
        until("every broker knows the controller", self._is_controller_known, WAIT_S)
        return self.controller_id

    def let_claim(self, kind: type[KafkaBroker]) -> None:
        """Makes a broker of this kind the controller. The brokers of the other kind are paused meanwhile; the former
        controller finds a successor when it continues.
        """
        others = [number for number, broker in self.brokers.items() if type(broker) is not kind]
        if self.await_controller() in others:
            self.pause(*others)
            try:
                self.remove("/controller")
                self.await_controller(frozenset(others))
            finally:
                self.resume(*others)

    def _is_controller_known(self) -> bool:
        return {self.metadata(number).controller_id for number in self.brokers} == {self.controller_id}

    def metadata(self, broker: int, *topics: str) -> MetadataResponse:
        """Returns how this very broker describes the cluster and these topics to clients."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return call(("localhost", self.brokers[broker].port), request, 12, MetadataResponse, timeout_s=10)

    # -- clients

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def admin(self, *numbers: int) -> AdminClient:
        """Returns a client of these brokers, or of all."""
        chosen = [self.brokers[number].bootstrap for number in numbers] or [self.bootstrap]
        return AdminClient({"bootstrap.servers": ",".join(chosen), "log_level": 0})

    def create(self, topic: str, partitions: int = 3) -> None:
        def is_created() -> bool:
            client = self.admin()  # a client that is not referenced does not answer
            (future,) = client.create_topics([NewTopic(topic, partitions, 3)]).values()
            error = future.exception(WAIT_S)
            return error is None or "already exists" in str(error)

        until(f"topic {topic}", is_created, WAIT_S)

    def produce(self, topic: str, values: Sequence[str]) -> None:
        """Writes the values; each must be acknowledged by the ISR."""
        failed: list[Any] = []

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                failed.append(error)

        settings = {"bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        producer = Producer(settings)
        for value in values:
            producer.produce(topic, value.encode(), on_delivery=on_delivery)
        assert producer.flush(WAIT_S) == 0
        assert failed == []

    def consume(self, topic: str, count: int) -> list[str]:
        """Reads this number of values with a group."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{topic}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        found: list[str] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
        consumer.close()
        return found
