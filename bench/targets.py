"""The two brokers under measurement, started the same way: fresh data on the same disk, the same properties file.

Apache Kafka runs with the options of its start script (-Xmx1G -Xms1G, G1); its data folder is formatted beforehand,
outside any measurement. Barnabas runs as `barnabas broker FILE` and formats its folder itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import kafka39_jars  # noqa: E402
import kafka_jars  # noqa: E402

__all__ = [
    "ROOT",
    "TARGETS",
    "Barnabas",
    "Kafka39",
    "Target",
    "addresses",
    "cpu_percent",
    "installed_environment",
    "kafka_jars",
    "resident_mb",
]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: Properties that both have in addition to the addresses and folders that every node needs.
PROPERTIES = {"num.partitions": "1", "auto.create.topics.enable": "true"}


def installed_environment() -> dict[str, str]:
    """Returns the environment of a process that keeps its bytecode, as after any installation; otherwise every start
    would compile the whole package.
    """
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


class Target(Protocol):
    """A broker that can be started once."""

    name: str
    bootstrap: str
    port: int
    data_dir: Path

    @property
    def process(self) -> subprocess.Popen[bytes]: ...

    @property
    def pid(self) -> int: ...

    def prepare(self) -> None:
        """Does all that a cold start does not include."""

    def launch(self) -> None:
        """Starts the process and returns immediately."""

    def wait(self) -> None:
        """Returns once requests are answered."""

    def end(self) -> None:
        """Stops the process with SIGTERM; its files stay."""

    def kill(self) -> None:
        """Kills the process (SIGKILL): no shutdown code runs, and the files stay."""

    def stop(self) -> None:
        """Stops the process with SIGTERM and removes its files."""

    def log_tail(self) -> str: ...


class TargetClass(Protocol):
    """The constructor of a target: its directory, and properties in addition to `PROPERTIES`."""

    def __call__(self, directory: Path, properties: Mapping[str, str] | None = None) -> Target: ...


def addresses() -> dict[str, str]:
    """Returns two free ports, as properties: brokers that take turns on one directory must have the same."""
    port, controller_port = kafka_jars.free_ports(2)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
    }


def _settings(directory: Path, properties: Mapping[str, str] | None) -> kafka_jars.KafkaServer:
    """Returns the files, ports and properties of a broker, so that both kinds read the same."""
    merged = {**PROPERTIES, **(properties or {})}
    listeners = merged.get("listeners", "")
    port = int(listeners.partition(",")[0].rpartition(":")[2]) if listeners else 0
    server = kafka_jars.KafkaServer(directory, port=port, properties=merged, jvm=kafka_jars.SERVER_JVM)
    if "zookeeper.connect" in merged:
        # Properties of a node with a metadata quorum are left out.
        server.properties = merged
    return server


class Kafka:
    name = "kafka"

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._server = _settings(directory, properties)
        self.bootstrap = self._server.bootstrap
        self.port = self._server.port
        self.data_dir = self._server.data_dir

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._server.process is not None, "launched first"
        return self._server.process

    @property
    def pid(self) -> int:
        return self._server.pid

    def prepare(self) -> None:
        self._server.format()

    def launch(self) -> None:
        self._server.launch()

    def wait(self) -> None:
        kafka_jars.wait_until_serving(self.port, self.process, log=self._server.log_path)

    def end(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log_tail(self) -> str:
        return _tail(self._server.log_path)


class Kafka39:
    """Apache Kafka 3.9.1 in ZooKeeper mode."""

    name = "kafka"

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        given = {**PROPERTIES, **(properties or {})}
        self._directory = directory
        self.port = int(given["listeners"].rpartition(":")[2])
        connect, broker_id = given["zookeeper.connect"], int(given["broker.id"])
        self._broker = kafka39_jars.KafkaBroker(
            directory, connect, broker_id, port=self.port, properties=given, jvm=kafka_jars.SERVER_JVM
        )
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.data_dir = Path(given["log.dirs"])

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._broker.process is not None, "launched first"
        return self._broker.process

    @property
    def pid(self) -> int:
        return self.process.pid

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        self._broker.launch()

    def wait(self) -> None:
        kafka_jars.wait_until_serving(self.port, self.process, log=self._broker.log_path)

    def end(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        self._broker.kill()

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log_tail(self) -> str:
        return _tail(self._broker.log_path)


class Barnabas:
    name = "barnabas"
    #: Arguments of the command after the file.
    arguments: tuple[str, ...] = ()

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / "barnabas.log"
        self._settings = _settings(directory, properties)
        self.bootstrap = self._settings.bootstrap
        self.port = self._settings.port
        self.data_dir = self._settings.data_dir

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "launched first"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in self._settings.properties.items()]
        self._settings.properties_path.write_text("".join(lines))

    def launch(self) -> None:
        program = str(Path(sys.executable).parent / "barnabas")
        command = [program, "broker", str(self._settings.properties_path), *self.arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=installed_environment(),
            )

    def wait(self) -> None:
        kafka_jars.wait_until_serving(self.port, self.process, log=self._log)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def stop(self) -> None:
        self.end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log_tail(self) -> str:
        return _tail(self._log)


TARGETS: dict[str, TargetClass] = {"kafka": Kafka, "barnabas": Barnabas}


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""


def resident_mb(pid: int, field: str = "VmRSS") -> float:
    """Returns the resident memory of a process in MB (10^6 bytes); with the field VmHWM, the most until now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} reports no {field}")


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds that all threads of a process have used until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def cpu_percent(pid: int, duration_s: float) -> float:
    """Returns the CPU use over the next `duration_s`, in percent of one core."""
    used, begun = cpu_s(pid), time.monotonic()
    time.sleep(duration_s)
    return 100 * (cpu_s(pid) - used) / (time.monotonic() - begun)
