"""`barnabas up` and `down`: an embedded cluster from the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from barnabas.cli import output
from barnabas.cli.contexts import choice, started
from barnabas.cli.options import is_given, key_values
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node, ZookeeperServer, log_tail

DEFAULT_DIRECTORY = Path("barnabas-data")
_CONSOLE_PORT: Final = 8088
#: The console's history of the cluster, in the cluster's directory.
_HISTORY: Final = "history.db"


def _directory(ctx: typer.Context, value: Path) -> Path:
    """Returns the given directory, else that of the context that --context names."""
    if is_given(ctx, "directory"):
        return value
    return choice.directory_of_requested() or value


Directory = Annotated[
    Path,
    typer.Option("--dir", help="Directory for all files of the cluster", show_default=True, callback=_directory),
]


ZookeeperAddress = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="[HOST:PORT/CHROOT]",
        help="Keep the metadata in ZooKeeper: in the servers at this address, or in one that the cluster starts. "
        "Default: as last time, or a metadata quorum",
    ),
]
ZookeeperPort = Annotated[
    int | None,
    typer.Option(
        help="Port of the cluster's own ZooKeeper server; 0 picks a free port. Default: as last time, or 2181",
        min=0,
        max=65535,
    ),
]


def up(
    directory: Directory = DEFAULT_DIRECTORY,
    brokers: Annotated[int | None, typer.Option(help="Number of brokers; default: as last time, or 1", min=1)] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Client port of the first broker; 0 picks free ports. Default: as last time, or 9092",
            min=0,
            max=65535,
        ),
    ] = None,
    racks: Annotated[
        str | None,
        typer.Option("--racks", metavar="A,B,...", help="The rack of each broker; default: as last time"),
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="A broker property; repeatable")
    ] = None,
    zookeeper: ZookeeperAddress = None,
    zookeeper_port: ZookeeperPort = None,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Use TLS and SASL on all listeners, with a user admin; only for a new --dir"),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when the cluster is ready, and leave it running")
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Also serve the console's page, with the lab (`barnabas console`)")
    ] = False,
    console_port: Annotated[
        int, typer.Option(help="Port of that page; 0 picks a free one", min=0, max=65535)
    ] = _CONSOLE_PORT,
) -> None:
    """Start a cluster on this machine and print `bootstrap: HOST:PORT` when clients can connect

    Without --detach the cluster runs until Ctrl-C, or until its last broker ends. The data stays in the directory for
    the next start. If some brokers of a running cluster are stopped, the command starts them again and leaves the
    cluster running.
    """
    _refuse_detached_console(console and detach)
    cluster = EmbeddedCluster(directory)
    with interruptible():
        if _is_in_part(cluster):
            _complete(cluster, brokers, override, racks, zookeeper)
            return
        nodes = cluster.start(
            brokers=brokers,
            port=port,
            racks=[each.strip() for each in racks.split(",")] if racks else (),
            properties=key_values(override or [], "--override"),
            zookeeper=zookeeper,
            zookeeper_port=zookeeper_port,
            secure=secure,
        )
        if detach:
            _announce(cluster, nodes)
        else:
            _run(cluster, nodes, directory, console_port if console else None)


def _announce(cluster: EmbeddedCluster, nodes: Sequence[Node]) -> None:
    security = cluster.security
    settings = None if security is None else security.client_settings()
    started.record(cluster.directory, [node.bootstrap for node in nodes], settings)
    print(f"bootstrap: {cluster.bootstrap}", flush=True)
    if security is not None:
        output.say(f"clients log in over TLS; settings of the user admin: {security.admin_file}")
        for key, value in (settings or {}).items():
            output.say(f"  {key}={'(in the file)' if key == 'sasl.password' else value}")
        output.say(f"for Java: {security.java_file}")


def _run(cluster: EmbeddedCluster, nodes: Sequence[Node], directory: Path, console_port: int | None) -> None:
    """Announces the cluster, waits until the user ends it, and stops it. Raises Failure if its last broker ends."""
    console: subprocess.Popen[bytes] | None = None
    try:
        # A program that has read the announcement can send SIGINT before this process continues.
        _announce(cluster, nodes)
        logs = nodes[0].log_path if len(nodes) == 1 else cluster.directory / "broker-*" / "broker.log"
        for node in nodes:
            if node.metrics_url is not None:
                output.say(f"metrics of broker {node.node_id}: {node.metrics_url}")
        if connect := cluster.recorded.connect:
            output.say(f"zookeeper: {connect}")
        if console_port is not None:
            console = _start_console(directory, console_port)
        output.say(f"running in {cluster.directory} (log: {logs}); Ctrl-C stops it")
        ended = cluster.wait(lambda node: output.say(_ended_text(node, directory)))
        raise Failure(f"broker {ended.node_id} ended unexpectedly\n{log_tail(ended)}", f"its log: {ended.log_path}")
    except KeyboardInterrupt:
        output.say("stopping")
    finally:
        if console is not None:
            console.terminate()
        cluster.stop()
        if console is not None:
            console.wait()


def _refuse_detached_console(wanted: bool) -> None:
    if wanted:
        raise Failure(
            "--console runs until Ctrl-C, so it cannot be combined with --detach",
            "start `barnabas console` in another terminal",
        )


def _start_console(directory: Path, port: int) -> subprocess.Popen[bytes]:
    """Starts the console as a separate process, which prints its address and ends with this command."""
    where = directory.absolute()
    command = [sys.executable, "-m", "barnabas.cli", "console", "--dir", str(where), "--port", str(port)]
    command += ["--history", str(where / _HISTORY)]
    # A session of its own: a Ctrl-C in the terminal reaches only this command, which then ends it.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def _ended_text(ended: Node | ZookeeperServer, directory: Path) -> str:
    return (
        f"{ended.name} ended; the others continue (its log: {ended.log_path}); "
        f"start it again with: barnabas up --dir {directory}"
    )


def _is_in_part(cluster: EmbeddedCluster) -> bool:
    """Whether some processes of the cluster run and others do not."""
    return len({server.running for server in cluster.recorded.servers}) > 1


def _complete(
    cluster: EmbeddedCluster,
    brokers: int | None,
    override: list[str] | None,
    racks: str | None,
    zookeeper: str | None,
) -> None:
    if brokers is not None:
        cluster.check_count(brokers)
    refused = {"--override": override, "--racks": racks, "--zookeeper": zookeeper}
    for option, value in refused.items():
        if value or value == "":
            raise Failure(
                "some brokers of the cluster run, and a broker that is started again keeps its properties, so "
                f"{option} cannot be applied",
                f"stop the whole cluster first: barnabas down --dir {cluster.directory}",
            )
    server = cluster.recorded.zookeeper
    if server is not None and not server.running:
        output.say(f"started again: {server.name} (pid {cluster.start_zookeeper_again().pid})")
    for node in cluster.start_again(*(node.node_id for node in cluster.nodes if not node.running)):
        output.say(f"started again: broker {node.node_id} (pid {node.pid})")
    started.record(cluster.directory, [node.bootstrap for node in cluster.nodes])
    print(f"bootstrap: {cluster.bootstrap}", flush=True)


def down(
    directory: Directory = DEFAULT_DIRECTORY,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", metavar="ID", help="Only this broker; repeatable")
    ] = None,
    kill: Annotated[bool, typer.Option("--kill", help="Use kill -9, which ends a broker as a crash does")] = False,
) -> None:
    """Stop a cluster cleanly, or some of its brokers

    The data stays. `barnabas up` starts the stopped brokers again.
    """
    cluster = EmbeddedCluster(directory)
    there = [node.node_id for node in cluster.nodes]
    if not there:
        raise Failure(f"no cluster has been started in {directory}", choice.other_directory_hint(cluster.directory))
    if unknown := sorted(set(broker or ()).difference(there)):
        raise Failure(f"there is no broker {unknown[0]} in {directory}; its brokers are {', '.join(map(str, there))}")
    choice.use_of_directory(cluster.directory)
    choice.warn_if_production(f"{'kills' if kill else 'stops'} brokers in {cluster.directory}")
    stopped: list[Node | ZookeeperServer] = []
    stopped += cluster.kill(*broker or there) if kill else cluster.stop(*broker or there)
    if not broker and (server := cluster.kill_zookeeper() if kill else cluster.stop_zookeeper()):
        stopped.append(server)
    for ended in stopped:
        print(f"{'killed' if kill else 'stopped'}: {ended.name} (pid {ended.pid})")
    if not stopped:
        print("no broker was running")


class Interruption:
    """Records whether the user, or the calling program, wants the command to end.

    The signal raises KeyboardInterrupt immediately. If it arrives while a C library calls back into Python, that
    exception can get lost; long loops therefore call `check`.
    """

    def __init__(self) -> None:
        self._wanted = False

    def check(self) -> None:
        if self._wanted:
            raise KeyboardInterrupt

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._wanted = True
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Ends the command in the same way on Ctrl-C, SIGTERM and a closed terminal, so that it still stops its brokers."""
    interruption = Interruption()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32":
        numbers.append(signal.SIGHUP)
    before = [(number, signal.signal(number, interruption.on_signal)) for number in numbers]
    try:
        yield interruption
    finally:
        for number, handler in before:
            signal.signal(number, handler)
