"""Three brokers of Apache Kafka, each a controller too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka_jars


class KafkaVoter(kafka_jars.KafkaServer):
    """One of several whose properties name the voters."""

    controller = ""

    def format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        arguments = ("format", "-t", kafka_jars.CLUSTER_ID, "-c", str(self.properties_path))
        done = kafka_jars.run_tool("kafka.tools.StorageTool", *arguments)
        assert done.returncode == 0, done.stderr

    def await_serving(self) -> None:
        assert self.process is not None
        kafka_jars.wait_until_serving(self.port, self.process, log=self.log_path, timeout_s=300)


@contextmanager
def kafka_voters(directory: Path) -> Iterator[list[KafkaVoter]]:
    ports = kafka_jars.free_ports(6)
    voters = ",".join(f"{number}@127.0.0.1:{ports[2 + number]}" for number in (1, 2, 3))
    servers = []
    for number in (1, 2, 3):
        port, controller_port = ports[number - 1], ports[2 + number]
        properties = {
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": voters,
            "broker.session.timeout.ms": "4000",
            # On a busy machine three JVMs need more than the minute that is the default.
            "initial.broker.registration.timeout.ms": "300000",
        }
        server = KafkaVoter(directory / f"kafka-{number}", port=port, properties=properties)
        del server.properties["controller.quorum.bootstrap.servers"]
        server.controller = f"127.0.0.1:{controller_port}"
        servers.append(server)
    try:
        for server in servers:
            server.format()
            server.launch()
        for server in servers:
            server.await_serving()
        yield servers
    finally:
        for server in servers:
            server.kill()
