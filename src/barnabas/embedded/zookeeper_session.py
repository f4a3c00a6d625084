"""A blocking session with ZooKeeper, one request at a time, for commands and tests that look at few znodes.

Brokers use the client of `barnabas.zookeeper.client`, which does not block.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
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


class Found(NamedTuple):
    """A znode: its data and its Stat."""

    data: bytes
    stat: r.Stat


class ZookeeperSession:
    """A session, over one connection; `with` closes it. `connect` is `zookeeper.connect`, hosts and chroot.

    Raises:
        barnabas.embedded.failures.Failure: no server answers, or the session is refused.
    """

    def __init__(self, connect: str, *, session_id: int = 0) -> None:
        try:
            servers = parse_connect_string(connect)
        except ConfigError as error:
            raise Failure(str(error)) from error
        self._chroot = servers.chroot
        self._frames = FrameReader(_FRAME_BYTES_MAX)
        self._socket = self._dial(servers.hosts)
        self._received: list[bytes] = []
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
    def _dial(servers: Sequence[HostPort]) -> socket.socket:
        problem: OSError | None = None
        for server in servers:
            try:
                return socket.create_connection(server, timeout=_TIMEOUT_S)
            except OSError as error:
                problem = error
        names = ",".join(map(str, servers))
        raise Failure(f"cannot reach ZooKeeper at {names} ({problem and (problem.strerror or problem)})")

    def read(self, path: str) -> Found | None:
        """Returns a znode; None if there is none."""
        found = self._request(OpCode.GET_DATA, r.WatchedRequest(self._chroot.on_server(path), False))
        return None if found is None else Found(found.data or b"", found.stat)

    def children(self, path: str) -> list[str]:
        """Returns the names of a znode's children; none for a znode that does not exist."""
        found = self._request(OpCode.GET_CHILDREN, r.WatchedRequest(self._chroot.on_server(path), False))
        return [] if found is None else list(found.names)

    def close(self) -> None:
        """Ends the session: its ephemeral znodes are deleted."""
        with self._socket:
            try:
                self._request(OpCode.CLOSE_SESSION, ())
            except Failure:
                return

    def __enter__(self) -> ZookeeperSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, op: OpCode, request: Record) -> Any:
        """Sends a request. Returns the response, or None if there is no such znode. Raises Failure for any other
        error.
        """
        self._xid += 1
        try:
            self._socket.sendall(request_frame(self._xid, op, request))
            reader = FieldReader(self._receive())
            header = r.read(r.ReplyHeader, reader)
            if header.error == ErrorCode.NO_NODE:
                return None
            if header.error != ErrorCode.OK:
                raise Failure(f"ZooKeeper refuses {op.name}: error {header.error}")
            return () if reader.is_at_end else read_response(op, reader)
        except (OSError, DecodeError) as error:
            raise Failure(f"ZooKeeper does not answer: {error}") from error

    def _receive(self) -> bytes:
        while not self._received:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the connection was closed")
            self._received += self._frames.feed(data)
        return self._received.pop(0)


def expire(connect: str, session_id: int) -> None:
    """Ends another client's session, as an expiry would. ZooKeeper derives the password of a session from its id, so
    any client that knows the id can continue the session and close it. Tests of ZooKeeper clients do the same.
    """
    ZookeeperSession(connect, session_id=session_id).close()
