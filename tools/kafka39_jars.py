"""Apache Kafka 3.9.1, the last release with ZooKeeper mode, from its published jars.

`jars()` has Maven copy the jars named in tools/kafka/zookeeper-mode.xml into the cache folder of `kafka_jars`, once;
`KafkaBroker` runs a broker in ZooKeeper mode; `test_classpath()` adds the test classes that Kafka publishes.

    python tools/kafka39_jars.py                      fetch the jars, print a classpath
    python tools/kafka39_jars.py tool CLASS [ARG...]  run one of Kafka's command line tools
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_jars import LIGHT_JVM, free_ports, maven_folder, wait_until_serving

VERSION = "3.9.1"
_POMS = Path(__file__).resolve().parent / "kafka"

_LOG4J = """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.target=System.err
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def jars(*, say: bool = False) -> Path:
    """Returns the folder that holds Kafka's jars and a quiet log4j.properties."""
    return maven_folder(_POMS / "zookeeper-mode.xml", f"kafka-{VERSION}", {"log4j.properties": _LOG4J}, say=say)


def test_jars() -> Path:
    """Returns the folder with the jars of Kafka's tests, JUnit among them."""
    return maven_folder(_POMS / "zookeeper-mode-tests.xml", f"kafka-tests-{VERSION}", {})


def classpath() -> str:
    return f"{jars()}:{jars()}/*"


def test_classpath() -> str:
    return f"{classpath()}:{test_jars()}/*"


def java_command(main: str, *args: str, jvm: Sequence[str] = LIGHT_JVM) -> list[str]:
    return ["java", *jvm, "-cp", classpath(), main, *args]


def run_tool(main: str, *args: str, timeout_s: float = 120, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a Java tool to its end. The result has stdout and stderr as text."""
    command = java_command(main, *args)
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=timeout_s, check=False)


class KafkaBroker:
    """A process of a broker in ZooKeeper mode, with its files below `directory`.

    `connect` is `zookeeper.connect`; `properties` override those of this class.
    """

    def __init__(
        self,
        directory: Path,
        connect: str,
        broker_id: int,
        *,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (*LIGHT_JVM, "-Xmx512m"),
    ) -> None:
        self.directory = directory.absolute()
        self.broker_id = broker_id
        self.jvm = jvm
        self.port = port or free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = self.directory / "kafka.log"
        self.properties_path = self.directory / "server.properties"
        self.properties = {
            "broker.id": str(broker_id),
            "zookeeper.connect": connect,
            "listeners": f"PLAINTEXT://localhost:{self.port}",
            "log.dirs": str(self.directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
            **(properties or {}),
        }

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def launch(self) -> None:
        """Starts the process and returns immediately."""
        assert self.process is None or self.process.poll() is not None, "the broker runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )

    def command(self) -> list[str]:
        return java_command("kafka.Kafka", str(self.properties_path), jvm=self.jvm)

    def start(self, timeout_s: float = 90.0) -> KafkaBroker:
        self.launch()
        self.wait(timeout_s)
        return self

    def wait(self, timeout_s: float = 90.0) -> None:
        """Returns once the broker serves. Raises RuntimeError if it does not."""
        assert self.process is not None, "the broker has been launched"
        wait_until_serving(self.port, self.process, host="localhost", log=self.log_path, timeout_s=timeout_s)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ends the process as an operator does (SIGTERM: a controlled shutdown). Returns its exit code."""
        assert self.process is not None, "the broker has been launched"
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


def _main(argv: Sequence[str]) -> int:
    if not argv:
        jars(say=True)
        print(classpath())
        return 0
    if argv[0] == "tool" and len(argv) > 1:
        return subprocess.run(java_command(argv[1], *argv[2:]), check=False).returncode
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
