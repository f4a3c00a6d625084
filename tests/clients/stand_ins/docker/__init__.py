"""The part of the Docker SDK that the tests of aiokafka use: a "container" is a broker of ours, or commands."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka_jars

_MODULES = "org.apache.kafka.common.security"
_USERS = {"admin": "admin", "test": "test", "test2": "test2"}
_TOOLS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
#: Options that name ZooKeeper, with their value.
_ZOOKEEPER = ("--authorizer-properties", "--zookeeper")


class _Broker:
    """A process with broker and controller, whose listener PLAINTEXT has this port."""

    def __init__(self, folder: Path, port: int, properties: Mapping[str, str]) -> None:
        chosen = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **properties,
        }
        file, log = folder / "server.properties", folder / "barnabas.log"
        file.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
        self.bootstrap = f"127.0.0.1:{port}"
        with log.open("ab") as output:
            command = [sys.executable, "-m", "barnabas.cli.entry", "broker", str(file)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        kafka_jars.wait_until_serving(port, self._process, log=log, timeout_s=120)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(120)


def _server(folder: Path, environment: Mapping[str, Any], certificates: Path) -> _Broker:
    """Returns the broker that the image would run with this environment."""
    (controller,) = kafka_jars.free_ports(1)
    port = int(environment["ADVERTISED_PORT"])
    listeners = {
        "PLAINTEXT": port,
        "SSL": environment["ADVERTISED_SSL_PORT"],
        "SASL_PLAINTEXT": environment["ADVERTISED_SASL_PLAINTEXT_PORT"],
        "SASL_SSL": environment["ADVERTISED_SASL_SSL_PORT"],
    }
    properties = {
        "listeners": ",".join(f"{name}://127.0.0.1:{each}" for name, each in listeners.items())
        + f",CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT," + ",".join(f"{name}:{name}" for name in listeners),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(certificates / "br_server.keystore.jks"),
        "ssl.keystore.password": "abcdefgh",
        "ssl.key.password": "abcdefgh",
        "ssl.truststore.location": str(certificates / "br_server.truststore.jks"),
        "ssl.truststore.password": "abcdefgh",
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:admin",
        "num.partitions": str(environment["NUM_PARTITIONS"]),
    }
    users = " ".join(f'user_{name}="{password}"' for name, password in _USERS.items())
    for name in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{name}."
        properties[f"{prefix}plain.sasl.jaas.config"] = f"{_MODULES}.plain.PlainLoginModule required {users};"
        for size in ("256", "512"):
            properties[f"{prefix}scram-sha-{size}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
    return _Broker(folder, port, properties)


class Container:
    """A broker, or a place for commands."""

    def __init__(self, environment: Mapping[str, Any] | None, volumes: Mapping[str, Mapping[str, str]]) -> None:
        self._mounted = {each["bind"]: Path(path) for path, each in volumes.items()}
        self._broker: _Broker | None = None
        if environment is not None:
            folder = Path(tempfile.mkdtemp(prefix="aiokafka-"))
            self._broker = _server(folder, environment, self._mounted["/ssl_cert"])
            self._bootstrap = f"127.0.0.1:{environment['ADVERTISED_SASL_PLAINTEXT_PORT']}"
            self._settings = folder / "admin.properties"
            entry = f'{_MODULES}.plain.PlainLoginModule required username="admin" password="admin";'
            self._settings.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={entry}\n"
            )

    def _tool(self, name: str, *arguments: str) -> tuple[int, bytes]:
        options = ["--bootstrap-server", self._bootstrap, "--command-config", str(self._settings), *arguments]
        done = kafka_jars.run_tool(_TOOLS[name], *options)
        return done.returncode, (done.stdout + done.stderr).encode()

    def exec_run(self, command: str | Sequence[str], user: str = "") -> tuple[int, bytes]:
        """Runs a script of a mounted folder, or a tool of Kafka with our broker in ZooKeeper's place."""
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if words[0] == "bash":
            script = self._mounted[words[1]]
            done = subprocess.run(["bash", str(script)], cwd=self._mounted["/ssl_cert"], capture_output=True)
            return done.returncode, done.stdout + done.stderr
        arguments = []
        rest = iter(words[1:])
        for word in rest:
            if word in _ZOOKEEPER:
                next(rest)
            else:
                arguments.append(word)
        tool = Path(words[0]).name
        if "--add-config" not in arguments:
            return self._tool(tool, *arguments)
        # In KRaft mode, Kafka refuses two mechanisms of a user in one request.
        place = arguments.index("--add-config") + 1
        for change in arguments[place].replace("],", "]\n").split("\n"):
            code, output = self._tool(tool, *arguments[:place], change, *arguments[place + 1 :])
            if code != 0:
                return code, output
        return 0, b""

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()


def _run(
    *, environment: Mapping[str, Any] | None = None, volumes: Mapping[Any, Mapping[str, str]], **_ignored: object
) -> Container:
    return Container(environment, {str(path): dict(each) for path, each in volumes.items()})


class Client:
    """The client of the Docker SDK, with the attributes that the tests use."""

    def __init__(self) -> None:
        self.containers = SimpleNamespace(run=_run)
        self.images = SimpleNamespace(pull=lambda image: image)

    def close(self) -> None:
        return None


def from_env() -> Client:
    return Client()


models = SimpleNamespace(containers=SimpleNamespace(Container=Container))
