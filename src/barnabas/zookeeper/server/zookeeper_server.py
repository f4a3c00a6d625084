"""A standalone ZooKeeper server: it connects the parts, accepts connections, and opens, continues and ends sessions.

connection.py        bytes of one client
session_requests.py  reads and writes of open sessions
prep.py              a write's transaction, against the tree and what is decided already (outstanding_changes.py)
request_pipeline.py  append, group sync, apply
watches.py           events, when a transaction is applied
sessions.py          timeouts
words.py             four-letter words
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Host, Link
from barnabas.zookeeper.server import words
from barnabas.zookeeper.server.connection import Address, Connection, Phase
from barnabas.zookeeper.server.container_upkeep import Upkeep
from barnabas.zookeeper.server.outstanding_changes import OutstandingChanges
from barnabas.zookeeper.server.ports import Process, TransactionLog
from barnabas.zookeeper.server.prep import Prep
from barnabas.zookeeper.server.reads import Reads
from barnabas.zookeeper.server.request_pipeline import Pipeline
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.server.session_requests import Requests
from barnabas.zookeeper.server.sessions import Session, SessionTracker, password_of
from barnabas.zookeeper.server.stats import ServerStats
from barnabas.zookeeper.server.watches import Watches
from barnabas.zookeeper.tree.database import Database, TxnResult
from barnabas.zookeeper.wire.records import ConnectRequest

_AREA_BYTES: Final = 256 * 1024


class ZooKeeperServer:
    """The server on a recovered database. The host passes it connections between `start` and `stop`."""

    def __init__(
        self, settings: ServerSettings, host: Host, log: TransactionLog, database: Database, process: Process
    ) -> None:
        self.settings = settings
        self.database = database
        self.clock = host.clock
        self.timers = host.timers
        self.process = process
        self.area = memoryview(bytearray(_AREA_BYTES))
        self.connections: dict[Connection, None] = {}
        self.started_ms = host.clock.now_ms()
        self.trace_mask = words.DEFAULT_TRACE_MASK
        self.watches = Watches(database.tree, settings.skip_acl)
        database.tree.watcher = self.watches
        changes = OutstandingChanges(database.tree, settings.digests)
        self._prep = Prep(database.tree, changes, settings, host.clock, database.last_zxid)
        self.pipeline = Pipeline(log, database, changes, host.timers, host.clock, self.end_turn)
        reads = Reads(database.tree, self.watches, settings.skip_acl)
        self.stats = ServerStats()
        self._requests = Requests(database, self._prep, self.pipeline, reads, host.clock, self.stats, self._ended)
        self.tracker = SessionTracker(
            host.clock, host.timers, settings.tick_ms, database.sessions, database.session_id_max, self._expire
        )
        self._upkeep = Upkeep(database.tree, settings, host.clock, host.timers, self._delete_container)
        #: The connections of open sessions.
        self._of_sessions: dict[int, Connection] = {}
        self._to_flush: list[Connection] = []
        self._is_running = False

    # -- called by the host

    def start(self) -> None:
        """Begins to expire sessions; each has its full timeout from now on."""
        self._is_running = True
        self.tracker.start()
        self._upkeep.start()
        self._wait_for_idle()

    def stop(self) -> None:
        """Ends timers and connections. Appended entries are still synced; sessions stay open."""
        self._is_running = False
        self.tracker.stop()
        self._upkeep.stop()
        for connection in tuple(self.connections):
            connection.close()

    def end_session(self, session_id: int) -> None:
        """Ends an open session before its timeout has passed."""
        session = self.tracker.find(session_id)
        if session is not None:
            session.is_closing = True
            self._expire(session)

    def accept(self, link: Link, address: Address) -> Connection | None:
        """Returns the core of an accepted connection, or None if there are too many: then the host closes it."""
        limit, total = self.settings.client_connections_max, self.settings.connections_max
        if limit > 0 and sum(each.address.host == address.host for each in self.connections) >= limit:
            return None
        if 0 < total <= len(self.connections):
            return None
        connection = Connection(self, link, address)
        self.connections[connection] = None
        return connection

    # -- connection.Serving

    def wants_output(self, connection: Connection) -> None:
        self._to_flush.append(connection)

    def end_turn(self) -> None:
        """Sends the answers of the turn."""
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def word_bytes(self, word: bytes) -> int:
        return words.bytes_of(word)

    def answer_word(self, word: bytes) -> bytes:
        return words.answer(self, word)

    def should_throttle(self, outstanding: int) -> bool:
        return outstanding > 0 and len(self.pipeline) > self.settings.outstanding_max

    def touch(self, session: Session) -> None:
        if not session.is_closing:
            self.tracker.touch(session)

    def handle(self, connection: Connection, xid: int, op: int, body: bytes) -> None:
        assert connection.session is not None
        self._requests.handle(connection, connection.session, xid, op, body)

    def gone(self, connection: Connection) -> None:
        del self.connections[connection]
        self.watches.remove_all(connection)
        if self._of_sessions.get(connection.session_id) is connection:
            del self._of_sessions[connection.session_id]

    def connect(self, connection: Connection, request: ConnectRequest) -> None:
        """Opens a session or continues one. A client that has seen a later zxid than this server is refused, so that it
        tries another server.
        """
        if request.last_zxid_seen > self.database.last_zxid:
            connection.abort()
        elif request.session_id:
            self._continue_session(connection, request)
        else:
            self._open_session(connection, self.settings.clamp(request.timeout_ms))

    # -- sessions

    def _open_session(self, connection: Connection, timeout_ms: int) -> None:
        session = self.tracker.create(timeout_ms)
        connection.session = session
        self._of_sessions[session.session_id] = connection

        def finish(_: TxnResult) -> None:
            connection.stats.answered("SESS", 0, self.database.last_zxid, connection.last_heard_ms, self.clock.now_ms())
            connection.opened(session, timeout_ms, password_of(session.session_id))

        self.pipeline.write(self._prep.create_session(session.session_id, timeout_ms), session, finish)

    def _continue_session(self, connection: Connection, request: ConnectRequest) -> None:
        session = self.tracker.find(request.session_id)
        password = password_of(request.session_id)
        if session is None or request.password != password:
            connection.refuse_session()
            return
        before = self._of_sessions.get(session.session_id)
        if before is not None:
            before.close()
        session.timeout_ms = self.settings.clamp(request.timeout_ms)
        self.tracker.touch(session)
        connection.session = session
        self._of_sessions[session.session_id] = connection
        connection.opened(session, session.timeout_ms, password)

    def _expire(self, session: Session) -> None:
        session_id = session.session_id
        self.pipeline.write(self._prep.close_session(session_id, 0), session, lambda _: self._ended(session_id))

    def _ended(self, session_id: int) -> None:
        """Closes the connection of a session that has ended."""
        self.tracker.remove(session_id)
        connection = self._of_sessions.get(session_id)
        if connection is not None:
            connection.close()

    # -- upkeep

    def _delete_container(self, path: str) -> None:
        self.pipeline.write(self._prep.delete_container(path), None, lambda _: None)

    def _wait_for_idle(self) -> None:
        self.timers.call_later(self.settings.sessionless_timeout_ms, self._close_idle)

    def _close_idle(self) -> None:
        """Closes connections that have not requested a session in time."""
        if not self._is_running:
            return
        before_ms = self.clock.now_ms() - self.settings.sessionless_timeout_ms
        for connection in tuple(self.connections):
            if connection.phase is Phase.NEW and connection.last_heard_ms <= before_ms:
                connection.abort()
        self._wait_for_idle()
