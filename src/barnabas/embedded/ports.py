"""Ports of an embedded cluster: those of its last start where they are free, else free ones."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node, ZookeeperServer

HOST: Final = "127.0.0.1"
#: The default port of the ZooKeeper server of a new cluster, as in Apache's example file.
ZOOKEEPER_PORT: Final = 2181
#: The range of free ports: below the ephemeral ports (Linux: from 32768), or an outgoing connection could take the port
#: of a broker that is down for a moment.
FREE_PORTS = range(20_000, 32_768)


def check_free(nodes: Iterable[Node], directory: Path) -> None:
    """Raises Failure if another process uses the client port of one of the nodes."""
    for node in nodes:
        if not _is_free(node.port):
            raise Failure(
                f"port {node.port} on {HOST}, the last port of broker {node.node_id} in {directory}, is in use",
                "stop the process that uses it, or choose another port with --port; 0 picks free ports",
            )


def choose_ports(count: int, wanted: int, before: Mapping[int, Node]) -> dict[int, tuple[int, int]]:
    """Returns node id -> (port for clients, port of the controller). `wanted` is the first client port, and the
    others follow it. If it is 0, the ports are those of the last run, or any free ones.
    """
    taken: set[int] = set()

    def claim(candidates: Iterable[int]) -> int:
        for candidate in candidates:
            if candidate not in taken and _is_free(candidate):
                taken.add(candidate)
                return candidate
        raise Failure(f"no free port on {HOST}")

    clients: dict[int, int] = {}
    for node_id in range(1, count + 1):
        last = before.get(node_id)
        if not wanted:
            clients[node_id] = claim([*([last.port] if last else []), *_any_ports()])
            continue
        port = wanted + node_id - 1
        if port > 65535:
            raise Failure(
                f"--port {wanted}: {count} brokers need the ports {wanted} to {wanted + count - 1}, above 65535"
            )
        if not _is_free(port):
            raise Failure(f"port {port} on {HOST} is in use", "choose another port with --port; 0 picks free ports")
        clients[node_id] = port
        taken.add(port)
    ports: dict[int, tuple[int, int]] = {}
    for node_id, port in clients.items():
        last = before.get(node_id)
        follow = range(max(clients.values()) + 1, min(port + 200, 65536))
        wanted_again = [last.controller_port] if last and last.controller_port else []
        ports[node_id] = (port, claim([*wanted_again, *follow, *_any_ports()]))
    return ports


def choose_metrics_ports(ports: Mapping[int, tuple[int, int]], before: Mapping[int, Node]) -> dict[int, int]:
    """Returns node id -> port of its /metrics: the one of the last start, else one after the cluster's other ports,
    else any.
    """
    taken = {port for pair in ports.values() for port in pair}
    first = max(taken) + 1
    found: dict[int, int] = {}
    for node_id in ports:
        last = before.get(node_id)
        wanted = [last.metrics_port] if last is not None and last.metrics_port else []
        candidates = [*wanted, *range(first, min(first + 100, 65536)), *_any_ports()]
        port = next((each for each in candidates if each not in taken and _is_free(each)), 0)
        taken.add(port)
        found[node_id] = port
    return found


def choose_zookeeper_port(wanted: int | None, before: ZookeeperServer | None, taken: Collection[int]) -> int:
    """Returns the port of the ZooKeeper server. None takes that of the last start, else ZOOKEEPER_PORT; 0 takes that of
    the last start where it is free, else any free one. Raises Failure if the port is in use.
    """
    last = before.port if before is not None else 0
    if wanted == 0:
        candidates = [*([last] if last else []), *_any_ports()]
        return next(port for port in candidates if port not in taken and _is_free(port))
    port = wanted or last or ZOOKEEPER_PORT
    if port in taken or not _is_free(port):
        raise Failure(
            f"port {port} on {HOST}, for the ZooKeeper server, is in use",
            "choose another port with --zookeeper-port; 0 picks a free one",
        )
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _any_ports() -> list[int]:
    """Returns candidates for free ports: many, because other programs take ports too, and finally one that the system
    assigns.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        given: int = probe.getsockname()[1]
    return [*random.sample(FREE_PORTS, min(200, len(FREE_PORTS))), given]
