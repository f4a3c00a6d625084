"""Apache ZooKeeper 3.8.4 from its published jars: the reference of the tests of the ZooKeeper server.

`jars()` has Maven copy the jars named in tools/zookeeper/pom.xml into the cache folder of `kafka_jars`, once;
`ApacheZooKeeper` runs a server in a folder.

    python tools/zookeeper_jars.py                      fetch the jars, print a classpath
    python tools/zookeeper_jars.py start DIR [PORT]     run a server until interrupted
    python tools/zookeeper_jars.py tool CLASS [ARG...]  run one of its command line tools
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_jars import LIGHT_JVM, free_ports, maven_folder

VERSION = "3.8.4"
_POMS = Path(__file__).resolve().parent / "zookeeper"

_LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %p %m %c{1}%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


def jars(*, say: bool = False) -> Path:
    """Returns the folder that holds ZooKeeper's jars and a quiet logback.xml."""
    return maven_folder(_POMS / "pom.xml", f"zookeeper-{VERSION}", {"logback.xml": _LOGBACK}, say=say)


def test_jars() -> Path:
    """Returns the folder with the jars of ZooKeeper's own tests, JUnit among them."""
    return maven_folder(_POMS / "tests.xml", f"zookeeper-tests-{VERSION}", {})


def classpath() -> str:
    return f"{jars()}:{jars()}/*"


def test_classpath() -> str:
    return f"{classpath()}:{test_jars()}/*"


def java_command(main: str, *args: str, properties: Mapping[str, str] | None = None) -> list[str]:
    settings = [f"-D{key}={value}" for key, value in (properties or {}).items()]
    return ["java", *LIGHT_JVM, *settings, "-cp", classpath(), main, *args]


def run_tool(
    main: str, *args: str, timeout_s: float = 120, stdin: str = "", properties: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end. The result has stdout and stderr as text."""
    command = java_command(main, *args, properties=properties)
    return subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=timeout_s, check=False)


def four_letter_word(port: int, word: str, *, timeout_s: float = 5.0) -> str:
    """Returns the answer to a four-letter word. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as link:
        link.sendall(word.encode())
        answer = b""
        while more := link.recv(65536):
            answer += more
    return answer.decode()


def is_serving(port: int) -> bool:
    """Returns whether a ZooKeeper server answers on the port."""
    try:
        return "Zxid:" in four_letter_word(port, "srvr", timeout_s=2.0)
    except OSError:
        return False


class ApacheZooKeeper:
    """A process of Apache ZooKeeper, with its files below `directory`. `properties` are keys of zoo.cfg."""

    def __init__(self, directory: Path, *, port: int = 0, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory.absolute()
        self.port = port or free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = self.directory / "zookeeper.log"
        self.properties = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "preAllocSize": "64",
            **(properties or {}),
        }

    @property
    def data(self) -> Path:
        """Returns the folder of logs and snapshots."""
        return Path(self.properties["dataDir"]) / "version-2"

    def start(self, timeout_s: float = 60.0) -> ApacheZooKeeper:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = java_command("org.apache.zookeeper.server.ZooKeeperServerMain", str(config))
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + timeout_s
        while not is_serving(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Apache ZooKeeper does not serve:\n{self.log_path.read_text()[-4000:]}")
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """Ends the process immediately, as Apache's own scripts do; the log on disk is all that the next start
        needs.
        """
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> ApacheZooKeeper:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()


def _main(argv: Sequence[str]) -> int:
    if not argv:
        jars(say=True)
        print(classpath())
        return 0
    if argv[0] == "start" and len(argv) in (2, 3):
        jars(say=True)
        with ApacheZooKeeper(Path(argv[1]), port=int(argv[2]) if len(argv) == 3 else 0) as server:
            print(f"started: 127.0.0.1:{server.port}", flush=True)
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
