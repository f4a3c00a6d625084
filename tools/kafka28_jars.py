"""Apache Kafka 2.8.2: the last release whose command line tools take `--zookeeper`, and an old broker.

`jars()` has Maven copy the jars named in tools/kafka/zookeeper-tools.xml into the cache folder of `kafka_jars`, once;
`KafkaBroker28` runs a broker in ZooKeeper mode.

    python tools/kafka28_jars.py                      fetch the jars, print a classpath
    python tools/kafka28_jars.py tool CLASS [ARG...]  run one of the tools
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kafka39_jars import KafkaBroker
from kafka_jars import LIGHT_JVM, maven_folder

VERSION = "2.8.2"
_POM = Path(__file__).resolve().parent / "kafka" / "zookeeper-tools.xml"

_LOG4J = """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.target=System.err
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def jars(*, say: bool = False) -> Path:
    """Returns the folder that holds Kafka's jars and a quiet log4j.properties."""
    return maven_folder(_POM, f"kafka-{VERSION}", {"log4j.properties": _LOG4J}, say=say)


def classpath() -> str:
    return f"{jars()}:{jars()}/*"


def java_command(main: str, *args: str, jvm: Sequence[str] = LIGHT_JVM) -> list[str]:
    return ["java", *jvm, "-cp", classpath(), main, *args]


def run_tool(main: str, *args: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end. The result has stdout and stderr as text."""
    return subprocess.run(java_command(main, *args), capture_output=True, text=True, timeout=timeout_s, check=False)


class KafkaBroker28(KafkaBroker):
    """A process of a broker of this release."""

    def command(self) -> list[str]:
        return java_command("kafka.Kafka", str(self.properties_path), jvm=self.jvm)


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
