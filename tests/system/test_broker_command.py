"""`barnabas broker FILE` as a process: Kafka's own configuration works unchanged, and mistakes in it are reported."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

BROKER = [sys.executable, "-m", "barnabas.cli", "broker"]
#: Kafka 4.1's config/server.properties, without its comments.
EXAMPLE = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def places(directory: Path) -> list[str]:
    """Overrides that only move the example to free ports and a directory of the test."""
    port, controller_port = free_ports(2)
    pairs = [
        f"listeners=PLAINTEXT://:{port},CONTROLLER://:{controller_port}",
        f"advertised.listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller_port}",
        f"controller.quorum.bootstrap.servers=localhost:{controller_port}",
        f"log.dirs={directory}",
    ]
    return [part for pair in pairs for part in ("--override", pair)]


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A serving broker and its address; stopped cleanly at the end."""
    process = subprocess.Popen([*BROKER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("started: "), process.communicate(timeout=120)[1]
        yield process, line.removeprefix("started: ").strip()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def refused(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*BROKER, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "started: " not in done.stdout
    return done


def test_kafkas_example_configuration_starts_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(EXAMPLE)
    with broker(str(file), *places(tmp_path / "logs")) as (process, address):
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).brokers.keys() == {1}
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert (tmp_path / "logs" / "meta.properties").exists()
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_ctrl_c_stops_in_order_too(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(EXAMPLE)
    with broker(str(file), *places(tmp_path / "logs")) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_unknown_keys_warn_and_wrong_values_stop(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(EXAMPLE + "no.such.key=1\n")
    with broker(str(file), *places(tmp_path / "logs")) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert "no.such.key" in errors
    file.write_text(EXAMPLE + "log.retention.hours=soon\n")
    done = refused(str(file), *places(tmp_path / "other"))
    assert "log.retention.hours" in done.stderr
    assert "soon" in done.stderr
    assert not (tmp_path / "other").exists()


def test_two_brokers_never_share_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(EXAMPLE)
    with broker(str(file), *places(tmp_path / "logs")) as (_, address):
        done = refused(str(file), *places(tmp_path / "logs"))
        assert str(tmp_path / "logs") in done.stderr
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).brokers.keys() == {1}


def test_a_port_in_use_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(EXAMPLE)
    overrides = places(tmp_path / "logs")
    with broker(str(file), *overrides):
        done = refused(str(file), *overrides, "--override", f"log.dirs={tmp_path / 'other'}")
    assert "Traceback" not in done.stderr
    assert "use" in done.stderr


def test_missing_files_and_wrong_arguments_are_named(tmp_path: Path) -> None:
    assert "cannot read" in refused(str(tmp_path / "nothing.properties")).stderr
    assert "usage" in refused().stderr
    assert "--override" in refused(str(tmp_path / "x"), "--override", "novalue").stderr
