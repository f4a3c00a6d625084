"""Four-letter words: four bytes in place of a connect request, answered in text (`FourLetterCommands`).

Only the words of the whitelist are answered; `srvr` always is. The texts are those of ZooKeeper 3.8.4. `mntr` has the
metrics that exist in this server, under Apache's names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from barnabas.common.host import Clock
from barnabas.zookeeper.server.connection import Connection
from barnabas.zookeeper.server.ports import Process
from barnabas.zookeeper.server.request_pipeline import Pipeline
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.server.sessions import SessionTracker
from barnabas.zookeeper.server.stats import ServerStats
from barnabas.zookeeper.server.watches import Watches
from barnabas.zookeeper.tree.database import Database

_WORD_BYTES: Final = 4
#: `stmk` is followed by its mask.
_MASK_BYTES: Final = 8
DEFAULT_TRACE_MASK: Final = 306
_ALL: Final = "*"
#: The bytes that telnet sends when it ends are a word, too.
_TELNET_CLOSE: Final = b"\xff\xf4\xff\xfd"


class Served(Protocol):
    """The interface of the server that four-letter words use (`zookeeper.server.zookeeper_server.ZooKeeperServer`)."""

    trace_mask: int

    @property
    def settings(self) -> ServerSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def process(self) -> Process: ...
    @property
    def database(self) -> Database: ...
    @property
    def stats(self) -> ServerStats: ...
    @property
    def tracker(self) -> SessionTracker: ...
    @property
    def watches(self) -> Watches: ...
    @property
    def pipeline(self) -> Pipeline: ...
    @property
    def connections(self) -> Mapping[Connection, None]: ...
    @property
    def started_ms(self) -> int: ...


def bytes_of(word: bytes) -> int:
    """Returns the length of a word with its argument; 0 if the bytes are not a word."""
    if word == b"stmk":
        return _WORD_BYTES + _MASK_BYTES
    return _WORD_BYTES if word in _ANSWERS else 0


def answer(server: Served, word: bytes) -> bytes:
    """Returns the answer to a four-letter word. The word `stmk` is followed by its mask."""
    name = word[:_WORD_BYTES]
    text = "telnet close" if name == _TELNET_CLOSE else name.decode()
    allowed = server.settings.four_letter_words
    if text != "srvr" and text not in allowed and _ALL not in allowed:
        return f"{text} is not executed because it is not in the whitelist.\n".encode()
    if name == b"stmk":
        (server.trace_mask,) = struct.unpack_from(">q", word, _WORD_BYTES)
    return "".join(_ANSWERS[name](server)).encode()


def _mask(server: Served) -> Iterator[str]:
    yield str(server.trace_mask)


def _ruok(server: Served) -> Iterator[str]:
    yield "imok"


def _isro(server: Served) -> Iterator[str]:
    yield "rw"


def _nothing(server: Served) -> Iterator[str]:
    yield from ()


def _srvr(server: Served) -> Iterator[str]:
    yield f"Zookeeper version: {server.settings.version}\n"
    yield from _figures(server)


def _stat(server: Served) -> Iterator[str]:
    yield f"Zookeeper version: {server.settings.version}\nClients:\n"
    for connection in server.connections:
        yield f" {_summary(connection)})\n"
    yield "\n"
    yield from _figures(server)


def _figures(server: Served) -> Iterator[str]:
    stats = server.stats
    latency = stats.latency
    yield f"Latency min/avg/max: {latency.min_ms}/{latency.average_ms}/{latency.max_ms}\n"
    yield f"Received: {stats.packets_received}\nSent: {stats.packets_sent}\n"
    yield f"Connections: {len(server.connections)}\nOutstanding: {len(server.pipeline)}\n"
    yield f"Zxid: {_hex(server.database.last_zxid)}\nMode: standalone\n"
    yield f"Node count: {server.database.tree.node_count}\n"


def _cons(server: Served) -> Iterator[str]:
    for connection in server.connections:
        yield f" {_summary(connection)}{_details(connection)})\n"
    yield "\n"


def _summary(connection: Connection) -> str:
    stats = connection.stats
    operations = 1 if connection.session is not None and connection.is_read else 0
    figures = f"queued={connection.outstanding},recved={stats.packets_received},sent={stats.packets_sent}"
    return f"{connection.address}[{operations}]({figures}"


def _details(connection: Connection) -> str:
    stats, session = connection.stats, connection.session
    if session is None:
        return ""
    latency = stats.latency
    last_cxid = f",lcxid={_hex(stats.last_cxid)}" if stats.last_cxid >= 0 else ""
    return (
        f",sid={_hex(session.session_id)},lop={stats.last_operation},est={connection.established_ms}"
        f",to={session.timeout_ms}{last_cxid},lzxid={_hex(stats.last_zxid)},lresp={stats.last_response_ms}"
        f",llat={stats.last_latency_ms},minlat={latency.min_ms},avglat={int(latency.average_ms)},maxlat={latency.max_ms}"
    )


def _conf(server: Served) -> Iterator[str]:
    settings, sizes = server.settings, server.process.directory_sizes()
    yield f"clientPort={settings.client_port}\nsecureClientPort=-1\n"
    yield f"dataDir={settings.data_dir}\ndataDirSize={sizes.data}\n"
    yield f"dataLogDir={settings.data_log_dir}\ndataLogSize={sizes.log}\n"
    yield f"tickTime={settings.tick_ms}\nmaxClientCnxns={settings.client_connections_max}\n"
    yield f"minSessionTimeout={settings.timeout_min_ms}\nmaxSessionTimeout={settings.timeout_max_ms}\n"
    yield f"clientPortListenBacklog={settings.listen_backlog}\nserverId=0\n"


def _crst(server: Served) -> Iterator[str]:
    for connection in server.connections:
        connection.stats.reset()
    yield "Connection stats reset.\n"


def _srst(server: Served) -> Iterator[str]:
    server.stats.reset()
    yield "Server stats reset.\n"


def _dirs(server: Served) -> Iterator[str]:
    sizes = server.process.directory_sizes()
    yield f"datadir_size: {sizes.data}\nlogdir_size: {sizes.log}\n"


def _dump(server: Served) -> Iterator[str]:
    tracker, ephemerals = server.tracker, server.database.tree.ephemerals
    yield f"SessionTracker dump:\nSession Sets ({len(tracker.buckets)})/({len(tracker.sessions)}):\n"
    for bucket_ms in sorted(tracker.buckets):
        sessions = tracker.buckets[bucket_ms]
        yield f"{len(sessions)} expire at {_date(tracker.wall_ms_of(bucket_ms))}:\n"
        yield from (f"\t{_hex(session.session_id)}\n" for session in sessions)
    yield f"ephemeral nodes dump:\nSessions with Ephemerals ({len(ephemerals)}):\n"
    for session_id, paths in ephemerals.items():
        yield f"{_hex(session_id)}:\n"
        yield from (f"\t{path}\n" for path in paths)
    connections = server.connections
    yield f"Connections dump:\nConnections Sets (1)/({len(connections)}):\n"
    idle_ms = server.settings.sessionless_timeout_ms
    yield f"{len(connections)} expire at {_date(server.clock.wall_ms() + idle_ms)}:\n"
    yield from (f"\tip: {each.address} sessionId: {_hex(each.session_id)}\n" for each in connections)


def _envi(server: Served) -> Iterator[str]:
    yield f"Environment:\nzookeeper.version={server.settings.version}\n"
    yield from (f"{name}={value}\n" for name, value in server.process.environment())


def _wchs(server: Served) -> Iterator[str]:
    table = server.watches.data
    watching = sum(1 for paths in table.by_listener.values() if paths)
    yield f"{watching} connections watching {len(table.by_path)} paths\nTotal watches:{len(table)}\n"


def _wchc(server: Served) -> Iterator[str]:
    for listener, paths in server.watches.data.by_listener.items():
        yield f"{_hex(listener.session_id)}\n"
        yield from (f"\t{path}\n" for path in paths)
    yield "\n"


def _wchp(server: Served) -> Iterator[str]:
    for path, listeners in server.watches.data.by_path.items():
        yield f"{path}\n"
        yield from (f"\t{_hex(listener.session_id)}\n" for listener in listeners)
    yield "\n"


def _hash(server: Served) -> Iterator[str]:
    for zxid, digest in server.database.digests:
        yield f"{zxid:x}: {digest}\n"


def _mntr(server: Served) -> Iterator[str]:
    stats, tree, files = server.stats, server.database.tree, server.process.open_files()
    figures: dict[str, object] = {
        "version": server.settings.version,
        "server_state": "standalone",
        "ephemerals_count": tree.ephemeral_count,
        "num_alive_connections": len(server.connections),
        "avg_latency": stats.latency.average_ms,
        "outstanding_requests": len(server.pipeline),
        "znode_count": tree.node_count,
        "global_sessions": len(server.database.sessions),
        "non_mtls_remote_conn_count": 0,
        "last_client_response_size": stats.response_last,
        "packets_sent": stats.packets_sent,
        "packets_received": stats.packets_received,
        "max_client_response_size": stats.response_max,
        "connection_drop_probability": 0.0,
        "watch_count": server.watches.count,
        "auth_failed_count": 0,
        "min_latency": stats.latency.min_ms,
        "max_file_descriptor_count": files.limit,
        "approximate_data_size": tree.data_bytes,
        "open_file_descriptor_count": files.opened,
        "local_sessions": 0,
        "uptime": server.clock.now_ms() - server.started_ms,
        "max_latency": stats.latency.max_ms,
        "outstanding_tls_handshake": 0,
        "min_client_response_size": stats.response_min,
        "non_mtls_local_conn_count": 0,
    }
    yield from (f"zk_{name}\t{value}\n" for name, value in figures.items())


def _hex(value: int) -> str:
    """Returns a number in hexadecimal as Java shows it: negative ones as 64 bits."""
    return f"0x{value & 0xFFFF_FFFF_FFFF_FFFF:x}"


def _date(wall_ms: int) -> str:
    """Returns a time as `java.util.Date` shows it."""
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


_ANSWERS: Final[Mapping[bytes, Callable[[Served], Iterator[str]]]] = {
    b"conf": _conf,
    b"cons": _cons,
    b"crst": _crst,
    b"dirs": _dirs,
    b"dump": _dump,
    b"envi": _envi,
    b"gtmk": _mask,
    b"hash": _hash,
    b"isro": _isro,
    b"mntr": _mntr,
    b"ruok": _ruok,
    b"srst": _srst,
    b"srvr": _srvr,
    b"stat": _stat,
    b"stmk": _mask,
    b"wchc": _wchc,
    b"wchp": _wchp,
    b"wchs": _wchs,
    _TELNET_CLOSE: _nothing,
}
