"""The session of a broker with ZooKeeper, from the start of the process: first for its identity, then for its
`ZooKeeperSide`, whose `Membership` registers the broker again in each new session.

open --session--> chroot, roots, cluster id, broker id --done--> the broker's side listens
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.zookeeper.identity import Identity, identify
from barnabas.broker.zookeeper.store_steps import StoreSteps
from barnabas.common import zookeeper_mode, zookeeper_security
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host, Timer
from barnabas.znodes.znode_access import secure_acl
from barnabas.zookeeper.client.hosts import parse_connect_string
from barnabas.zookeeper.client.store import StoreListener
from barnabas.zookeeper.client.zookeeper_client import ClientSettings, ZooKeeperClient, open_acl
from barnabas.zookeeper.wire.codes import ErrorCode, EventType


class ZooKeeperSession:
    """The client of one broker, which it shares with its controller; sessions follow one another."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        """Creates the client of one broker. Raises ConfigError for a malformed connect string."""
        self._host = host
        self._config = config
        servers = parse_connect_string(config.str_of("zookeeper.connect"))
        settings = ClientSettings(
            servers,
            zookeeper_mode.session_timeout_ms(config),
            config.int_of("zookeeper.max.in.flight.requests"),
            tls=zookeeper_security.tls_name(config),
            acl_of=secure_acl if zookeeper_security.sets_acls(config) else open_acl,
        )
        self._servers = str(servers)
        self._checks = "" if settings.tls is None else ", the stores of zookeeper.ssl"
        self.store = ZooKeeperClient(host, settings, self)
        self.latency = self.store.latency
        self._listener: StoreListener | None = None
        self._steps: StoreSteps | None = None
        self._timer: Timer | None = None
        self._on_identified: Callable[[Identity | ConfigError], None] | None = None

    def identify(self, done: Callable[[Identity | ConfigError], None]) -> None:
        """Opens the first session and determines the identity of this broker; `done` is called once."""
        self._on_identified = done
        timeout_ms = zookeeper_mode.connection_timeout_ms(self._config)
        self._timer = self._host.timers.call_later(timeout_ms, lambda: self._on_unanswered(timeout_ms))
        self.store.open()

    def listen(self, listener: StoreListener) -> None:
        """Passes all later reports of the client on to `listener`."""
        self._listener = listener

    def _on_unanswered(self, timeout_ms: int) -> None:
        self._end_identification(
            ConfigError(
                f"ZooKeeper at {self._servers} did not answer within {timeout_ms} ms "
                f"(zookeeper.connection.timeout.ms): check zookeeper.connect{self._checks}, and that the servers are "
                "running"
            )
        )

    def _end_identification(self, found: Identity | ConfigError) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        done, self._on_identified = self._on_identified, None
        if done is not None:
            done(found)

    def _on_chroot(self, error: int) -> None:
        if self._on_identified is None:
            return
        if error == ErrorCode.OK:
            self._steps = StoreSteps(identify(self._host, self._config, self.store), self._end_identification).start()
        elif error != ErrorCode.CONNECTION_LOSS:
            self._end_identification(
                ConfigError(f"the chroot of {self._servers} cannot be created: {ErrorCode(error).name}")
            )

    # -- store.StoreListener

    def session_opened(self, session_id: int) -> None:
        if self._listener is not None:
            self._listener.session_opened(session_id)
        else:
            self.store.make_chroot(self._on_chroot)

    def disconnected(self) -> None:
        if self._listener is not None:
            self._listener.disconnected()

    def reconnected(self) -> None:
        if self._listener is not None:
            self._listener.reconnected()
        elif self._steps is not None:
            self._steps.resume()
        else:
            self.store.make_chroot(self._on_chroot)

    def session_expired(self) -> None:
        if self._listener is not None:
            self._listener.session_expired()
        else:
            if self._steps is not None:
                self._steps.close()
                self._steps = None
            self.store.open()

    def auth_failed(self) -> None:
        if self._listener is not None:
            self._listener.auth_failed()

    def changed(self, path: str, event_type: EventType) -> None:
        if self._listener is not None:
            self._listener.changed(path, event_type)
