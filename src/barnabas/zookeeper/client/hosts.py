"""The connect string: servers, and the chroot below which all of a client's paths are.

host1:2181,host2,[::1]:2183/kafka/one      the port is 2181 if it is missing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common.errors import ConfigError
from barnabas.common.host import Random
from barnabas.zookeeper.wire.operations import MultiResponse, Part, Record
from barnabas.zookeeper.wire.records import PathResponse
from barnabas.zookeeper.znode_paths import problem_of

DEFAULT_PORT: Final = 2181
_PORT_MAX: Final = 65535


class HostPort(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Chroot(NamedTuple):
    """The root of a client's paths on the server; "" is the server's own root."""

    path: str

    def on_server(self, path: str) -> str:
        if not self.path:
            return path
        return self.path if path == "/" else self.path + path

    def of_client(self, path: str) -> str:
        """Returns the client's form of a path on the server; a path that is not below the chroot is returned
        unchanged.
        """
        if not self.path or not (path + "/").startswith(self.path + "/"):
            return path
        return path[len(self.path) :] or "/"

    def request(self, record: Record) -> Record:
        """Returns a request with the server's form of its path. The path is the first field of all requests that have
        one.
        """
        return type(record)(self.on_server(record[0]), *record[1:])

    def response(self, record: Record) -> Record:
        """Returns a response with the client's form of its paths."""
        if isinstance(record, PathResponse):
            return PathResponse(self.of_client(record.path))
        if isinstance(record, MultiResponse):
            return MultiResponse(tuple(Part(part.type, self.response(part.record)) for part in record.parts))
        return record


class ConnectString(NamedTuple):
    hosts: tuple[HostPort, ...]
    chroot: Chroot

    def __str__(self) -> str:
        return ",".join(map(str, self.hosts)) + self.chroot.path


def parse_connect_string(text: str) -> ConnectString:
    """Parses a connect string. Raises ConfigError."""
    servers, slash, below = text.partition("/")
    chroot = slash + below if below else ""
    if chroot and (problem := problem_of(chroot)) is not None:
        raise ConfigError(f"zookeeper.connect: {text!r}: the chroot {chroot!r} is not a path: {problem}")
    hosts = tuple(_host_port(text, server.strip()) for server in servers.split(",") if server.strip())
    if not hosts:
        raise ConfigError(f"zookeeper.connect: {text!r} names no server; expected host:port,host:port/chroot")
    return ConnectString(hosts, Chroot(chroot))


def _host_port(text: str, server: str) -> HostPort:
    if server.startswith("["):
        host, _, rest = server[1:].partition("]")
        port = rest.removeprefix(":") if rest else ""
    elif server.count(":") > 1:
        raise ConfigError(f"zookeeper.connect: {text!r}: an IPv6 address stands in brackets: [{server}]:{DEFAULT_PORT}")
    else:
        host, _, port = server.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX)):
        raise ConfigError(f"zookeeper.connect: {text!r}: {server!r} is not host:port")
    return HostPort(host, int(port) if port else DEFAULT_PORT)


class HostList:
    """The servers of a client in a random order; `next` returns them one after another, again and again."""

    def __init__(self, hosts: Sequence[HostPort], random: Random) -> None:
        left = list(hosts)
        self._hosts = [left.pop(random.below(len(left))) for _ in hosts]
        self._next = 0

    def __len__(self) -> int:
        return len(self._hosts)

    def next(self) -> HostPort:
        host = self._hosts[self._next]
        self._next = (self._next + 1) % len(self._hosts)
        return host
