"""Apache Kafka 4.1.0 from its published jars: the reference of the tests and of the benchmarks.

`jars()` has Maven copy the jars named in tools/kafka/pom.xml into a cache folder, once; `KafkaServer` formats a data
folder, starts one combined broker and controller in it, waits until it answers requests, and stops it.

    python tools/kafka_jars.py                      fetch the jars, print a classpath
    python tools/kafka_jars.py start DIR [PORT]     run a broker until interrupted
    python tools/kafka_jars.py tool CLASS [ARG...]  run one of Kafka's command line tools

The cache is $BARNABAS_CACHE, or barnabas/ below $XDG_CACHE_HOME or ~/.cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

VERSION = "4.1.0"
CLUSTER_ID = "QmFybmFiYXMtVGVzdHMtMQ"
#: Ports below the range of outgoing connections (Linux: from 32768), so that no client takes the port of a server while
#: it is down.
FREE_PORTS = range(20_000, 32_768)
POM = Path(__file__).resolve().parent / "kafka" / "pom.xml"

# The options that kafka-server-start.sh gives a broker, so that measurements compare with Kafka as it is usually run.
SERVER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# Options for tests and tools: a fast start, little memory, one compiler tier.
LIGHT_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")

_LOG4J2 = """\
Configuration:
  Appenders:
    Console:
      name: OUT
      target: SYSTEM_ERR
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: OUT
"""


def cache_dir() -> Path:
    if configured := os.environ.get("BARNABAS_CACHE"):
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "barnabas"


@contextlib.contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """Holds a lock while one process fills a part of the cache, because test workers start at the same time."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def maven_folder(pom: Path, name: str, files: Mapping[str, str], *, say: bool = False) -> Path:
    """Returns the cache folder with the jars of a pom, and with these files. Maven fetches it if it does not exist
    yet. Raises RuntimeError if it cannot.
    """
    key = hashlib.sha256(pom.read_bytes() + "".join(files.values()).encode()).hexdigest()[:8]
    target = cache_dir() / f"{name}-{key}"
    if target.is_dir():
        return target
    if shutil.which("mvn") is None:
        raise RuntimeError(f"Maven (mvn) is needed to fetch the jars of {name}: run tools/install_system_deps.sh")
    with cache_lock(name.partition("-")[0]):
        if target.is_dir():
            return target
        if say:
            print(f"fetching {name} with Maven (about a minute, once)", file=sys.stderr)
        partial = Path(tempfile.mkdtemp(prefix=f"{name.partition('-')[0]}-", dir=cache_dir()))
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            shutil.rmtree(partial)
            raise RuntimeError(f"Maven could not fetch the jars of {name}:\n{done.stdout}{done.stderr}")
        for file, text in files.items():
            (partial / file).write_text(text)
        partial.chmod(0o755)
        partial.rename(target)
    return target


def jars(*, say: bool = False) -> Path:
    """Returns the folder that holds Kafka's jars and a quiet log4j2.yaml."""
    return maven_folder(POM, f"kafka-{VERSION}", {"log4j2.yaml": _LOG4J2}, say=say)


def classpath() -> str:
    return f"{jars()}/*"


def java_command(main: str, *args: str, jvm: Sequence[str] = LIGHT_JVM, extra_classpath: str = "") -> list[str]:
    path = f"{extra_classpath}:{classpath()}" if extra_classpath else classpath()
    log4j = f"-Dlog4j2.configurationFile={jars() / 'log4j2.yaml'}"
    return ["java", *jvm, log4j, "-cp", path, main, *args]


def run_tool(main: str, *args: str, timeout_s: float = 120, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a Java tool to its end. The result has stdout and stderr as text."""
    command = java_command(main, *args)
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=timeout_s, check=False)


def free_ports(count: int) -> list[int]:
    """Returns unused ports from FREE_PORTS, chosen at random because other processes search the same range."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
            if len(found) == count:
                break
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found


def answers(host: str, port: int, *, timeout_s: float = 2.0) -> bool:
    """Returns whether a process behind the port answers an ApiVersions v0 request, so that requests are served."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((host, port), timeout_s) as link:
            link.settimeout(timeout_s)
            link.sendall(struct.pack(">i", len(request)) + request)
            head = link.recv(8, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 8 and head[4:] == b"\x00\x00\x00\x07"


def wait_until_serving(
    port: int,
    process: subprocess.Popen[bytes],
    *,
    host: str = "127.0.0.1",
    log: Path | None = None,
    timeout_s: float = 60.0,
) -> None:
    """Returns once the process answers on the port. If the process dies or takes too long, ends it and raises
    RuntimeError with the end of its log.
    """
    deadline = time.monotonic() + timeout_s
    while not answers(host, port):
        code = process.poll()
        if code is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-4000:] if log is not None and log.exists() else ""
            what = f"ended with code {code}" if code is not None else f"did not serve within {timeout_s} s"
            process.kill()
            process.wait()
            raise RuntimeError(f"server on port {port} {what}; its log ends:\n{tail}")
        time.sleep(0.02)


class KafkaServer:
    """A process of Apache Kafka 4.1.0, broker and controller in one, with its files below `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = LIGHT_JVM,
    ) -> None:
        self.directory = directory.absolute()
        self.jvm = jvm
        self.process: subprocess.Popen[bytes] | None = None
        free, controller_port = free_ports(2)
        self.port = port or free
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "kafka.log"
        self.properties_path = self.directory / "server.properties"
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(properties or {}),
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server has not been started"
        return self.process.pid

    def format(self) -> None:
        """Formats the data folder, unless it is formatted already."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        if (self.data_dir / "meta.properties").exists():
            return
        done = run_tool(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties_path), "--standalone"
        )
        if done.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")

    def launch(self) -> None:
        """Starts the process and returns immediately."""
        assert self.process is None or self.process.poll() is not None, "the server is already running"
        command = java_command("kafka.Kafka", str(self.properties_path), jvm=self.jvm)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )

    def start(self, timeout_s: float = 60.0) -> KafkaServer:
        self.format()
        self.launch()
        assert self.process is not None
        wait_until_serving(self.port, self.process, log=self.log_path, timeout_s=timeout_s)
        return self

    def stop(self, timeout_s: float = 30.0) -> int:
        """Ends the process as an operator would (SIGTERM), by force if it does not end. Returns its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()

    def kill(self) -> None:
        """Kills the process (`kill -9`): no shutdown code runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> KafkaServer:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _main(argv: Sequence[str]) -> int:
    if not argv:
        jars(say=True)
        print(classpath())
        return 0
    if argv[0] == "start" and len(argv) in (2, 3):
        jars(say=True)
        server = KafkaServer(Path(argv[1]), port=int(argv[2]) if len(argv) == 3 else 0)
        with server:
            print(f"started: {server.bootstrap}", flush=True)
            assert server.process is not None
            with contextlib.suppress(KeyboardInterrupt):
                server.process.wait()
        return 0
    if argv[0] == "tool" and len(argv) > 1:
        return subprocess.run(java_command(argv[1], *argv[2:]), check=False).returncode
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
