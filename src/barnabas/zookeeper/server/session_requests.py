"""Requests of open sessions: reads are answered now or after the session's writes, writes go through the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.common.errors import DecodeError
from barnabas.common.host import Clock
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.server import answers, write_decoding
from barnabas.zookeeper.server.connection import Connection
from barnabas.zookeeper.server.outstanding_changes import RequestError
from barnabas.zookeeper.server.prep import Client, Prep
from barnabas.zookeeper.server.reads import HANDLERS, Handler, Reads
from barnabas.zookeeper.server.request_pipeline import Pipeline
from barnabas.zookeeper.server.sessions import Session
from barnabas.zookeeper.server.stats import ServerStats
from barnabas.zookeeper.tree.database import Database, TxnResult
from barnabas.zookeeper.txns import TxnEntry
from barnabas.zookeeper.wire.codes import PING_XID, ErrorCode, OpCode

_BODY: Final = 8

#: Single writes, with the names that `cons` shows.
_WRITES: Final = {
    int(op): name
    for op, name in {
        OpCode.CREATE: "CREA",
        OpCode.CREATE2: "CREA",
        OpCode.CREATE_CONTAINER: "CREA",
        OpCode.CREATE_TTL: "CREA",
        OpCode.DELETE: "DELE",
        OpCode.SET_DATA: "SETD",
        OpCode.SET_ACL: "SETA",
        OpCode.CHECK: "CHEC",
    }.items()
}


class Requests:
    """Serves the requests of all connections. `end_session` is called when a session's end is applied."""

    def __init__(
        self,
        database: Database,
        prep: Prep,
        pipeline: Pipeline,
        reads: Reads,
        clock: Clock,
        stats: ServerStats,
        end_session: Callable[[int], None],
    ) -> None:
        self._database = database
        self._prep = prep
        self._pipeline = pipeline
        self._reads = reads
        self._clock = clock
        self._latency = stats.latency
        self._end_session = end_session

    def handle(self, connection: Connection, session: Session, xid: int, op: int, body: bytes) -> None:
        """Serves one request; those of a session that is closing are dropped."""
        if session.is_closing:
            return
        if (read := HANDLERS.get(op)) is not None:
            if not session.unanswered:
                self._read(connection, xid, read, body, connection.last_heard_ms)
            else:
                self._defer(connection, session, xid, lambda begin: self._read(connection, xid, read, body, begin))
        elif op == OpCode.PING:
            self._answer(connection, "PING", PING_XID, 0, b"", connection.last_heard_ms)
        elif (name := _WRITES.get(op)) is not None:
            self._write(connection, session, xid, op, name, body)
        elif op == OpCode.MULTI:
            self._multi(connection, session, xid, body)
        elif op == OpCode.SYNC:
            self._defer(connection, session, xid, lambda begin: self._sync(connection, xid, body, begin))
        elif op == OpCode.CLOSE_SESSION:
            self._close(connection, session, xid)
        elif op == OpCode.RECONFIG:
            entry = self._prep.reconfig(self._client(connection, session, xid))
            self._submit(connection, session, xid, op, "NA", entry)
        elif op == OpCode.SASL:
            # Without SASL configured, 3.8 answers every token with null.
            connection.send(answers.reply(xid, 0, 0, answers.NULL_BUFFER))
        else:
            connection.send(answers.reply(xid, -1, ErrorCode.UNIMPLEMENTED))
            connection.close()

    # -- reads

    def _defer(self, connection: Connection, session: Session, xid: int, finish: Callable[[int], None]) -> None:
        begin_ms = self._clock.now_ms()
        connection.begin(xid)

        def run() -> None:
            connection.finished(xid)
            finish(begin_ms)

        self._pipeline.defer(session, run)

    def _read(self, connection: Connection, xid: int, read: tuple[str, Handler], body: bytes, begin_ms: int) -> None:
        name, handler = read
        code, answer = 0, b""
        try:
            answer = handler(self._reads, connection, body)
        except RequestError as error:
            code = int(error.code)
        except DecodeError:
            code = int(ErrorCode.MARSHALLING_ERROR)
        self._answer(connection, name, xid, code, answer, begin_ms)

    def _sync(self, connection: Connection, xid: int, body: bytes, begin_ms: int) -> None:
        try:
            answer = answers.string(FieldReader(body, _BODY).read_string())
        except DecodeError:
            self._answer(connection, "SYNC", xid, ErrorCode.MARSHALLING_ERROR, b"", begin_ms)
        else:
            self._answer(connection, "SYNC", xid, 0, answer, begin_ms)

    # -- writes

    def _write(self, connection: Connection, session: Session, xid: int, op: int, name: str, body: bytes) -> None:
        client = self._client(connection, session, xid)
        try:
            request = write_decoding.write(op, body)
        except DecodeError:
            entry = self._prep.refused(op, client, ErrorCode.MARSHALLING_ERROR)
        else:
            entry = self._prep.write(op, request, client)
        self._submit(connection, session, xid, op, name, entry)

    def _multi(self, connection: Connection, session: Session, xid: int, body: bytes) -> None:
        client = self._client(connection, session, xid)
        try:
            writes, reads = write_decoding.multi(body)
        except write_decoding.NullAcl:
            code = ErrorCode.MARSHALLING_ERROR
            self._defer(connection, session, xid, lambda begin: self._answer(connection, "MULT", xid, code, b"", begin))
            return
        except DecodeError:
            writes, reads = [], [(0, "")]
        if reads:
            entry = self._prep.refused(OpCode.MULTI, client, ErrorCode.MARSHALLING_ERROR)
        else:
            entry = self._prep.multi(writes, client)
        self._submit(connection, session, xid, OpCode.MULTI, "MULT", entry)

    def _close(self, connection: Connection, session: Session, xid: int) -> None:
        entry = self._prep.close_session(session.session_id, xid)
        session.is_closing = True
        begin_ms = self._clock.now_ms()

        def finish(result: TxnResult) -> None:
            self._answer(connection, "CLOS", xid, 0, b"", begin_ms)
            connection.close()
            self._end_session(session.session_id)

        self._pipeline.write(entry, session, finish)

    def _submit(self, connection: Connection, session: Session, xid: int, op: int, name: str, entry: TxnEntry) -> None:
        begin_ms = self._clock.now_ms()
        connection.begin(xid)

        def finish(result: TxnResult) -> None:
            connection.finished(xid)
            # The answer to a multi lists the errors of its parts, and has none itself.
            error = 0 if result.type == OpCode.MULTI else result.error
            self._answer(connection, name, xid, error, b"" if error else answers.write_body(op, result), begin_ms)

        self._pipeline.write(entry, session, finish)

    # -- parts

    @staticmethod
    def _client(connection: Connection, session: Session, xid: int) -> Client:
        return Client(session.session_id, xid, connection.identities)

    def _answer(self, connection: Connection, name: str, xid: int, error: int, body: bytes, begin_ms: int) -> None:
        zxid, now_ms = self._database.last_zxid, self._clock.now_ms()
        connection.send(answers.reply(xid, zxid, error, body))
        connection.stats.answered(name, xid, zxid, begin_ms, now_ms)
        self._latency.add(now_ms - begin_ms)
