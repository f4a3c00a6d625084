"""`barnabas status`: the processes of an embedded cluster, and its active controller."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import cluster_view, leaderless, output, zookeeper_view
from barnabas.cli.cluster_view import ClusterView
from barnabas.cli.contexts import choice
from barnabas.cli.contexts.choice import Reason
from barnabas.cli.leaderless import Leaderless
from barnabas.cli.local_cluster import DEFAULT_DIRECTORY
from barnabas.cli.options import Json, is_given
from barnabas.cli.zookeeper_view import ZookeeperView
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node, Recorded


def _directory(ctx: typer.Context, value: Path) -> Path:
    """Returns the given directory, else that of the context in use. A cluster that was started in the default directory
    of the working directory, under no context, comes before the current context.
    """
    if is_given(ctx, "directory"):
        return value
    if choice.requested() is None:
        if os.environ.get("BARNABAS_BOOTSTRAP"):
            # Given addresses exclude every context.
            return value
        chosen = choice.use()
        is_the_last_resort = chosen is None or chosen.reason is Reason.CURRENT
        if is_the_last_resort and EmbeddedCluster(value).state_path.exists():
            return value
    return choice.directory_in_use() or value


def status(
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            help="Directory of the cluster; default: that of the context in use, else barnabas-data",
            show_default=False,
            callback=_directory,
        ),
    ] = DEFAULT_DIRECTORY,
    as_json: Json = False,
) -> None:
    """Show the processes of a cluster, its active controller and the lag of its brokers

    In ZooKeeper mode it shows the sessions of the brokers instead of lags. Partitions without a leader are listed, each
    with the action that restores it. The exit code is 1 unless all processes run.
    """
    recorded = EmbeddedCluster(directory).recorded
    if not recorded.nodes:
        raise Failure(f"no cluster has been started in {directory}", f"start one with: barnabas up --dir {directory}")
    security = EmbeddedCluster(directory).security
    choice.set_client_settings({} if security is None else security.client_settings())
    running = {server.pid: server.running for server in recorded.servers}
    lost = leaderless.leaderless((node.host, node.port) for node in recorded.nodes if running[node.pid])
    if recorded.connect:
        _show_with_zookeeper(recorded, running, lost, as_json)
    else:
        _show_with_quorum(recorded, running, lost, as_json)
    if not as_json:
        for line in leaderless.lines_of(lost):
            print(line)
    if not all(running.values()):
        if any(running.values()):
            output.say(f"start the stopped brokers with: barnabas up --dir {directory}")
        raise typer.Exit(1)


def _show_with_quorum(recorded: Recorded, running: dict[int, bool], lost: Sequence[Leaderless], as_json: bool) -> None:
    nodes = recorded.nodes
    view = cluster_view.view_of((node.host, node.port) for node in nodes if running[node.pid])
    if as_json:
        output.show_json(
            {
                "bootstrap": ",".join(node.bootstrap for node in nodes),
                "controller": view.controller,
                "controller_epoch": view.epoch,
                "metadata_high_watermark": view.high_watermark,
                "nodes": [
                    {
                        **_facts(node, running[node.pid]),
                        "fenced": view.fenced.get(node.node_id),
                        "metadata_lag": view.lag(node.node_id),
                    }
                    for node in nodes
                ],
                "leaderless": [each.to_json() for each in lost],
            }
        )
        return
    _show_table(
        nodes,
        ["node", "state", "quorum", "lag", "pid", "bootstrap", "controller port", "roles", "directory"],
        [
            (
                node.node_id,
                _state(node, running[node.pid], "fenced" if view.fenced.get(node.node_id) else ""),
                _place(node, running[node.pid], view),
                view.lag(node.node_id),
                node.pid if running[node.pid] else None,
                node.bootstrap,
                node.controller_port,
                node.roles,
                node.directory,
            )
            for node in nodes
        ],
    )


def _show_with_zookeeper(
    recorded: Recorded, running: dict[int, bool], lost: Sequence[Leaderless], as_json: bool
) -> None:
    nodes, server = recorded.nodes, recorded.zookeeper
    view = zookeeper_view.view_of(recorded.connect)
    if as_json:
        output.show_json(
            {
                "bootstrap": ",".join(node.bootstrap for node in nodes),
                "controller": view.controller,
                "controller_epoch": view.controller_epoch,
                "zookeeper": {
                    "connect": recorded.connect,
                    "problem": view.problem or None,
                    "invalid_znodes": list(view.invalid),
                    "server": None if server is None else {**asdict(server), "running": running[server.pid]},
                },
                "nodes": [{**_facts(node, running[node.pid]), **_registration(node, view)} for node in nodes],
                "leaderless": [each.to_json() for each in lost],
            }
        )
        return
    _show_table(
        nodes,
        ["node", "state", "role", "session", "broker epoch", "pid", "bootstrap", "directory"],
        [
            (
                node.node_id,
                _state(node, running[node.pid], "" if view.problem or node.node_id in view.brokers else "unregistered"),
                ("controller" if node.node_id == view.controller else "broker") if running[node.pid] else None,
                *_registration(node, view).values(),
                node.pid if running[node.pid] else None,
                node.bootstrap,
                node.directory,
            )
            for node in nodes
        ],
    )
    if view.problem:
        output.say(view.problem)
    else:
        print(f"controller: {view.controller}, controller epoch: {view.controller_epoch}")
    for line in view.invalid:
        print(f"invalid {line}; its topic is left out")
    if server is not None:
        print(f"zookeeper: {recorded.connect}, {f'pid {server.pid}' if running[server.pid] else 'stopped'}")
    else:
        print(f"zookeeper: {recorded.connect}")


def _show_table(nodes: Sequence[Node], columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    """Prints the rows as a table, with a column of racks if any broker has a rack."""
    if any(node.rack for node in nodes):
        columns = ["rack", *columns]
        rows = [(node.rack, *row) for node, row in zip(nodes, rows, strict=True)]
    output.show_table(columns, rows)


def _facts(node: Node, is_running: bool) -> dict[str, Any]:
    return {**asdict(node), "running": is_running, "serving": node.serving, "metrics": node.metrics_url}


def _registration(node: Node, view: ZookeeperView) -> dict[str, Any]:
    found = view.brokers.get(node.node_id)
    if found is None:
        return {"session": None, "broker_epoch": None}
    return {"session": f"{found.session_id:#x}", "broker_epoch": found.broker_epoch}


def _state(node: Node, is_running: bool, exclusion: str) -> str:
    """Returns the state of a process; `exclusion` is why a running broker does not serve, if the metadata says so."""
    if not is_running:
        return "stopped"
    return exclusion or ("serving" if node.serving else "running")


def _place(node: Node, is_running: bool, view: ClusterView) -> str | None:
    """Returns the role of a process in the metadata quorum; a stopped process has none."""
    if not is_running:
        return None
    if view.controller < 0:
        return "no leader"
    return "active controller" if node.node_id == view.controller else "follower"
