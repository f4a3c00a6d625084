"""`barnabas up`, `status`, `down`: an embedded cluster from the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from barnabas.cli import output
from barnabas.cli.cluster_view import ClusterView, view_of
from barnabas.cli.contexts import choice, started
from barnabas.cli.options import Json, key_values
from barnabas.embedded.cluster import EmbeddedCluster, Node, log_tail
from barnabas.embedded.failures import Failure

DEFAULT_DIRECTORY = Path("barnabas-data")


def _directory(ctx: typer.Context, value: Path) -> Path:
    """Returns the given directory, else that of the context that --context names."""
    source = ctx.get_parameter_source("directory")
    if source is not None and source.name == "COMMANDLINE":
        return value
    return choice.directory_of_requested() or value


Directory = Annotated[
    Path,
    typer.Option("--dir", help="Directory for all files of the cluster", show_default=True, callback=_directory),
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
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when the cluster is ready, and leave it running")
    ] = False,
) -> None:
    """Start a cluster on this machine and print `bootstrap: HOST:PORT` when clients can connect

    Without --detach the cluster runs until Ctrl-C, or until its last broker ends. The data stays in the directory for
    the next start. If some brokers of a running cluster are stopped, the command starts them again and leaves the
    cluster running.
    """
    cluster = EmbeddedCluster(directory)
    with interruptible():
        if _is_in_part(cluster):
            _complete(cluster, brokers, override, racks)
            return
        nodes = cluster.start(
            brokers=brokers,
            port=port,
            racks=[each.strip() for each in racks.split(",")] if racks else (),
            properties=key_values(override or [], "--override"),
        )
        started.record(cluster.directory, [node.bootstrap for node in nodes])
        line = f"bootstrap: {','.join(node.bootstrap for node in nodes)}"
        if detach:
            print(line, flush=True)
            return
        try:
            print(line, flush=True)
            logs = nodes[0].log_path if len(nodes) == 1 else cluster.directory / "broker-*" / "broker.log"
            for node in nodes:
                if node.metrics_url is not None:
                    output.say(f"metrics of broker {node.node_id}: {node.metrics_url}")
            output.say(f"running in {cluster.directory} (log: {logs}); Ctrl-C stops it")
            ended = cluster.wait(lambda node: output.say(_told_of(node, directory)))
            raise Failure(f"broker {ended.node_id} ended unexpectedly\n{log_tail(ended)}", f"its log: {ended.log_path}")
        except KeyboardInterrupt:
            output.say("stopping")
        finally:
            cluster.stop()


def _told_of(ended: Node, directory: Path) -> str:
    return (
        f"broker {ended.node_id} ended; the others continue (its log: {ended.log_path}); "
        f"start it again with: barnabas up --dir {directory}"
    )


def _is_in_part(cluster: EmbeddedCluster) -> bool:
    """Whether some brokers of the cluster run and others do not."""
    return len({node.running for node in cluster.nodes}) > 1


def _complete(cluster: EmbeddedCluster, brokers: int | None, override: list[str] | None, racks: str | None) -> None:
    if brokers is not None:
        cluster.check_count(brokers)
    if override or racks:
        raise Failure(
            "some brokers of the cluster run, and a broker that is started again keeps its properties, so "
            f"{'--override' if override else '--racks'} cannot be applied",
            f"stop the whole cluster first: barnabas down --dir {cluster.directory}",
        )
    for node in cluster.start_again(*(node.node_id for node in cluster.nodes if not node.running)):
        output.say(f"started again: broker {node.node_id} (pid {node.pid})")
    started.record(cluster.directory, [node.bootstrap for node in cluster.nodes])
    print(f"bootstrap: {cluster.bootstrap}", flush=True)


def status(directory: Directory = DEFAULT_DIRECTORY, as_json: Json = False) -> None:
    """Show the processes of a cluster, its active controller and the lag of its brokers

    The exit code is 1 unless all processes run.
    """
    nodes = EmbeddedCluster(directory).nodes
    if not nodes:
        raise Failure(f"no cluster has been started in {directory}", f"start one with: barnabas up --dir {directory}")
    rows = [(node, node.running) for node in nodes]
    view = view_of((node.host, node.port) for node, running in rows if running)
    if as_json:
        output.show_json(
            {
                "bootstrap": ",".join(node.bootstrap for node in nodes),
                "controller": view.controller,
                "controller_epoch": view.epoch,
                "metadata_high_watermark": view.high_watermark,
                "nodes": [
                    {
                        **asdict(node),
                        "running": running,
                        "serving": node.serving,
                        "fenced": view.fenced.get(node.node_id),
                        "metadata_lag": view.lag(node.node_id),
                        "metrics": node.metrics_url,
                    }
                    for node, running in rows
                ],
            }
        )
    else:
        with_racks = any(node.rack for node in nodes)
        columns = ["node", "state", "quorum", "lag", "pid", "bootstrap", "controller port", "roles", "directory"]
        output.show_table(
            ["rack", *columns] if with_racks else columns,
            [
                (
                    *((node.rack,) if with_racks else ()),
                    node.node_id,
                    _state(node, running, view),
                    _place(node, running, view),
                    view.lag(node.node_id),
                    node.pid if running else None,
                    node.bootstrap,
                    node.controller_port,
                    node.roles,
                    node.directory,
                )
                for node, running in rows
            ],
        )
    if not all(running for _, running in rows):
        if any(running for _, running in rows):
            output.say(f"start the stopped brokers with: barnabas up --dir {directory}")
        raise typer.Exit(1)


def _state(node: Node, running: bool, view: ClusterView) -> str:
    if not running:
        return "stopped"
    if view.fenced.get(node.node_id):
        return "fenced"
    return "serving" if node.serving else "running"


def _place(node: Node, running: bool, view: ClusterView) -> str | None:
    """Returns the role of a process in the metadata quorum; a stopped process has none."""
    if not running:
        return None
    if view.controller < 0:
        return "no leader"
    return "active controller" if node.node_id == view.controller else "follower"


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
        raise Failure(f"no cluster has been started in {directory}")
    if unknown := sorted(set(broker or ()).difference(there)):
        raise Failure(f"there is no broker {unknown[0]} in {directory}, but {', '.join(map(str, there))}")
    choice.use_of_directory(cluster.directory)
    choice.warn_if_production(f"{'kills' if kill else 'stops'} brokers in {cluster.directory}")
    stopped = cluster.kill(*broker or ()) if kill else cluster.stop(*broker or ())
    for node in stopped:
        print(f"{'killed' if kill else 'stopped'}: broker {node.node_id} (pid {node.pid})")
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
