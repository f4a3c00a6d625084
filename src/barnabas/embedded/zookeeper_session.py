"""A blocking session with ZooKeeper, for commands and tests. It sends the reads of many znodes in windows, so that they
take one round trip per window.

Brokers use the client of `barnabas.zookeeper.client`, which does not block.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ConfigError, DecodeError
from barnabas.embedded.failures import Failure
from barnabas.zookeeper.client.hosts import HostPort, parse_connect_string
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.server.sessions import password_of
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import ErrorCode, OpCode
from barnabas.zookeeper.wire.frames import FrameReader, framed, request_frame
from barnabas.zookeeper.wire.operations import Record, read_response

_FRAME_BYTES_MAX: Final = 0xFFFFF
_TIMEOUT_MS: Final = 10_000
_TIMEOUT_S: Final = 2.0
#: The maximum number of requests that wait for responses. Together they fit into the buffers of a connection, so that
#: sending them never waits for the reading of a response.
_WINDOW: Final = 100


class Found(NamedTuple):
    """A znode: its data and its Stat."""

    data: bytes
    stat: r.Stat


class ZookeeperSession:
    """A session, over one connection; `with` closes it. `connect` is `zookeeper.connect`, hosts and chroot; without a
    TLS context the connection is plain text.

    Raises:
        barnabas.embedded.failures.Failure: no server answers, or the session is refused.
    """

    def __init__(self, connect: str, *, session_id: int = 0, tls: ssl.SSLContext | None = None) -> None:
        try:
            servers = parse_connect_string(connect)
        except ConfigError as error:
            raise Failure(str(error)) from error
        self._chroot = servers.chroot
        self._frames = FrameReader(_FRAME_BYTES_MAX)
        self._socket = self._dial(servers.hosts, tls)
        self._received: deque[bytes] = deque()
        self._xid = 0
        password = password_of(session_id) if session_id else bytes(16)
        try:
            self._socket.sendall(framed(r.ConnectRequest(0, 0, _TIMEOUT_MS, session_id, password)))
            opened = r.decode(r.ConnectResponse, self._receive())
        except (OSError, DecodeError) as error:
            self._socket.close()
            raise Failure(f"ZooKeeper at {connect} does not answer: {error}") from error
        if opened.timeout_ms <= 0:
            self._socket.close()
            raise Failure(f"ZooKeeper at {connect} refuses the session {session_id:#x}: it has expired")

    @staticmethod
    def _dial(servers: Sequence[HostPort], tls: ssl.SSLContext | None) -> socket.socket:
        problem: OSError | None = None
        for server in servers:
            try:
                dialled = socket.create_connection(server, timeout=_TIMEOUT_S)
                return dialled if tls is None else tls.wrap_socket(dialled, server_hostname=server.host)
            except OSError as error:
                problem = error
        names = ",".join(map(str, servers))
        raise Failure(f"cannot reach ZooKeeper at {names} ({problem and (problem.strerror or problem)})")

    def read(self, path: str) -> Found | None:
        """Returns a znode; None if there is none."""
        return self.read_all((path,)).get(path)

    def read_all(self, paths: Iterable[str]) -> dict[str, Found]:
        """Returns these znodes, without those that do not exist."""
        found = self._read_each(OpCode.GET_DATA, paths)
        return {path: Found(each.data or b"", each.stat) for path, each in found if each is not None}

    def children(self, path: str) -> list[str]:
        """Returns the names of a znode's children; none for a znode that does not exist."""
        return self.children_of_all((path,))[path]

    def children_of_all(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Returns the names of the children of each of these znodes; none for one that does not exist."""
        found = self._read_each(OpCode.GET_CHILDREN, paths)
        return {path: [] if each is None else list(each.names) for path, each in found}

    def close(self) -> None:
        """Ends the session: its ephemeral znodes are deleted."""
        with self._socket:
            try:
                self._requests(OpCode.CLOSE_SESSION, ((),))
            except Failure:
                return

    def __enter__(self) -> ZookeeperSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_each(self, op: OpCode, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
        wanted = list(paths)
        for begin in range(0, len(wanted), _WINDOW):
            window = wanted[begin : begin + _WINDOW]
            requests = [r.WatchedRequest(self._chroot.on_server(path), False) for path in window]
            yield from zip(window, self._requests(op, requests), strict=True)

    def _requests(self, op: OpCode, requests: Sequence[Record]) -> list[Any]:
        """Sends these requests together. Returns their responses, or None where there is no such znode. Raises Failure
        for any other error.
        """
        try:
            self._socket.sendall(b"".join(self._frame(op, request) for request in requests))
            return [self._response(op) for _ in requests]
        except (OSError, DecodeError) as error:
            raise Failure(f"ZooKeeper does not answer: {error}") from error

    def _frame(self, op: OpCode, request: Record) -> bytes:
        self._xid += 1
        return request_frame(self._xid, op, request)

    def _response(self, op: OpCode) -> Any:
        reader = FieldReader(self._receive())
        header = r.read(r.ReplyHeader, reader)
        if header.error == ErrorCode.NO_NODE:
            return None
        if header.error != ErrorCode.OK:
            raise Failure(f"ZooKeeper refuses {op.name}: error {header.error}")
        return () if reader.is_at_end else read_response(op, reader)

    def _receive(self) -> bytes:
        while not self._received:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the connection was closed")
            self._received += self._frames.feed(data)
        return self._received.popleft()


def expire(connect: str, session_id: int) -> None:
    """Ends another client's session, as an expiry would. ZooKeeper derives the password of a session from its id, so
    any client that knows the id can continue the session and close it. Tests of ZooKeeper clients do the same.
    """
    ZookeeperSession(connect, session_id=session_id).close()
