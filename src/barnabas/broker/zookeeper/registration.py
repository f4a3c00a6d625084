"""The registration of a broker: the ephemeral znode `/brokers/ids/N`, whose czxid is the broker's epoch.

M[create ephemeral without data, set its data]      done
    |  refused: there is one
    v
the owner is                       then
this session                       done: only the answer was lost
an earlier session of this process deleted, and created again
another one                        waited for, up to the session timeout: a process that has ended. If it stays, it
                                   is alive, and this broker ends with one line (G35)

The wait begins anew with each connection: a server that starts again, or becomes the leader, gives every session its
whole timeout once more, and what happened meanwhile is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.broker.zookeeper.store_steps import Steps, make_roots, not_permitted, read
from barnabas.common import zookeeper_mode
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host, Timer
from barnabas.metadata.registrations import Endpoint
from barnabas.znodes import paths
from barnabas.znodes.broker_znodes import BrokerRegistration, decode_registration, encode_registration
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.store import ChildrenReply, ExistsReply, MultiReply, ZnodeStore
from barnabas.zookeeper.wire.codes import ANY_VERSION, CreateFlags, ErrorCode, EventType, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CreateRequest, DeleteRequest, SetDataRequest, StatResponse

#: A server notices the end of a session some ticks late.
_EXPIRY_GRACE_MS: Final = 4_000


class _Waited(NamedTuple):
    """The result of waiting for the deletion of a znode."""

    is_gone: bool
    is_lost: bool = False


class Registrar:
    """Registers one broker, in each session of its process."""

    def __init__(self, host: Host, config: BrokerConfig, store: ZnodeStore, endpoints: Sequence[Endpoint]) -> None:
        self._host = host
        self._config = config
        self._store = store
        self._endpoints = tuple(endpoints)
        self._path = paths.broker(config.node_id)
        self._own_sessions: set[int] = set()
        self._on_gone: Callable[[bool], None] | None = None
        self._timer: Timer | None = None

    def register(self) -> Steps[int | ConfigError]:
        """Returns the broker epoch, or the error that ends the process."""
        session_id = self._store.session_id
        self._own_sessions.add(session_id)
        clash = yield from self._clash()
        if clash is not None:
            return clash
        while True:
            reply: MultiReply = yield lambda answered: self._store.multi(self._parts(), answered)
            if reply.refused_part is None:
                registered = reply.results[1]
                assert isinstance(registered, StatResponse), "setData is answered with a Stat"
                return registered.stat.czxid
            assert reply.errors is not None, "the connection was not lost"
            error = reply.errors[reply.refused_part]
            if error == ErrorCode.NO_NODE:
                yield from make_roots(self._store)
                continue
            if error == ErrorCode.NO_AUTH:
                return not_permitted(self._path)
            found: ExistsReply = yield lambda answered: self._store.exists(self._path, answered, watch=True)
            if found.stat is None:
                continue
            if found.stat.ephemeral_owner == session_id:
                return found.stat.czxid
            if found.stat.ephemeral_owner in self._own_sessions:
                yield self._delete
                continue
            waited: _Waited = yield self._await_deletion
            if not waited.is_gone:
                return ConfigError(
                    f"broker.id={self._config.node_id} is taken: another process with this id is registered in "
                    f"ZooKeeper ({self._path}, session 0x{found.stat.ephemeral_owner:x}): each broker needs its own id"
                )

    def changed(self, path: str, event: EventType) -> None:
        """Records that a watch fired."""
        if path == self._path and event is EventType.NODE_DELETED:
            self._end_wait(is_gone=True)

    def disconnected(self) -> None:
        """Stops the count of the wait, if there is one."""
        self._cancel()

    def reconnected(self) -> None:
        """Begins the wait anew, if there is one."""
        if self._on_gone is not None:
            self._start_wait()

    def close(self) -> None:
        self._on_gone = None
        self._cancel()

    def _parts(self) -> list[Part]:
        data = encode_registration(
            BrokerRegistration(self._endpoints, self._config.rack, timestamp_ms=self._host.clock.wall_ms())
        )
        return [
            Part(OpCode.CREATE, CreateRequest(self._path, None, None, CreateFlags.EPHEMERAL)),
            Part(OpCode.SET_DATA, SetDataRequest(self._path, data, 0)),
        ]

    def _delete(self, answered: Callable[[MultiReply], None]) -> None:
        self._store.multi([Part(OpCode.DELETE, DeleteRequest(self._path, ANY_VERSION))], answered)

    def _clash(self) -> Steps[ConfigError | None]:
        """Returns the error if another broker has registered an address of this one."""
        names: ChildrenReply = yield lambda answered: self._store.children(paths.BROKER_IDS, answered)
        own = {(endpoint.host, endpoint.port) for endpoint in self._endpoints}
        for name in sorted(names.names or ()):
            if name == str(self._config.node_id):
                continue
            reply = yield from read(self._store, f"{paths.BROKER_IDS}/{name}")
            if reply.znode is None:
                continue
            try:
                registered = decode_registration(f"{paths.BROKER_IDS}/{name}", reply.znode.data)
            except ZnodeError as error:
                self._host.faults.report(str(error))
                continue
            shared = sorted(own & {(endpoint.host, endpoint.port) for endpoint in registered.endpoints})
            if shared:
                listed = ", ".join(f"{host}:{port}" for host, port in shared)
                return ConfigError(
                    f"Configured end points {listed} in advertised listeners are already registered by broker {name}"
                )
        return None

    def _await_deletion(self, answered: Callable[[_Waited], None]) -> None:
        self._on_gone = lambda is_gone: answered(_Waited(is_gone))
        self._start_wait()

    def _start_wait(self) -> None:
        timeout_ms = zookeeper_mode.session_timeout_ms(self._config) + _EXPIRY_GRACE_MS
        self._host.faults.inform(f"{self._path} exists: waiting up to {timeout_ms} ms for the end of its session")
        self._timer = self._host.timers.call_later(timeout_ms, lambda: self._end_wait(is_gone=False))

    def _end_wait(self, *, is_gone: bool) -> None:
        self._cancel()
        on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone(is_gone)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
