"""The log-in of clients on one listener: its mechanisms and users, and the frames that pass the gate of a connection.

`protocol.sasl_gate` decides; this module applies its decisions to the connection. A refusal is answered after
`connection.failed.authentication.delay.ms`, then the connection closes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.imitated_users import ImitatedUsers
from barnabas.broker.requests.in_flight import InFlight
from barnabas.broker.requests.kerberos_log_in import KerberosLogIn
from barnabas.broker.requests.log_in_counts import LogInCounts
from barnabas.broker.requests.oauth_log_in import OAuthLogIn
from barnabas.common import log_in_settings
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host
from barnabas.metadata.security import Credentials
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import UserScramCredentialRecord
from barnabas.protocol.sasl.mechanism import GSSAPI, OAUTHBEARER, SCRAM, Mechanism
from barnabas.protocol.sasl.plain_server import PlainServer
from barnabas.protocol.sasl.scram_server import Credential, ScramServer, TokenUsers
from barnabas.protocol.sasl_gate import Act, Gate, GateDecision, GateState

if TYPE_CHECKING:
    from barnabas.broker.requests.client_connection import Connection
    from barnabas.common.config import BrokerConfig
    from barnabas.common.metrics import TimeBuckets

_SIZE_BYTES: Final = 4


class ListenerLogIn:
    """The log-in on one listener (a `protocol.sasl_gate.GatePolicy`)."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        listener: str,
        credentials: Callable[[], Credentials],
        imitated: ImitatedUsers,
        tokens: TokenUsers,
        counts: LogInCounts,
        count_request: Callable[[int, int], TimeBuckets],
    ) -> None:
        self._host = host
        self._config = config
        self._listener = listener
        self._credentials = credentials
        self._imitated = imitated
        self._tokens = tokens
        self._counts = counts.of(listener, host.clock)
        self._count_request = count_request
        self.mechanisms: Sequence[str] = ()
        self._passwords: Mapping[str, str] = {}
        self._oauth: OAuthLogIn | None = None
        self._kerberos: KerberosLogIn | None = None
        self.receive_bytes_max = log_in_settings.receive_bytes_max(config, listener)
        self._delay_ms = config.int_of("connection.failed.authentication.delay.ms")
        self._is_closed = False
        self._read_users()
        config.subscribe(self._on_config)

    def close(self) -> None:
        """Fetches no more key sets and follows no more changes, because the listener is removed."""
        self._is_closed = True
        if self._oauth is not None:
            self._oauth.close()

    def _on_config(self, keys: frozenset[str]) -> None:
        is_served = any(each.name == self._listener for each in self._config.listeners)
        if is_served and not self._is_closed and log_in_settings.affects_log_in(keys):
            try:
                self._read_users()
            except ConfigError as error:
                self._host.faults.report(
                    f"listener {self._listener} keeps its users, because the new settings are invalid: {error}"
                )

    def _read_users(self) -> None:
        offered = log_in_settings.mechanisms_of(self._config, self._listener)
        entry = log_in_settings.jaas_entry(self._config, self._listener, "PLAIN") if "PLAIN" in offered else None
        kerberos = None
        if GSSAPI in offered:
            kerberos = KerberosLogIn(self._host, self._config, self._listener)
        self._oauth = self._read_tokens(OAUTHBEARER in offered)
        self._passwords = {} if entry is None else entry.users
        self._kerberos = kerberos
        self.mechanisms = [name for name in offered if name in log_in_settings.SERVED]

    def _read_tokens(self, is_offered: bool) -> OAuthLogIn | None:
        """Returns the log-in by tokens; None if it is not offered. The current one stays if its settings are the
        same."""
        now = self._oauth
        settings = log_in_settings.listener_tokens_of(self._config, self._listener) if is_offered else None
        if now is not None and now.settings == settings:
            return now
        made = None if settings is None else OAuthLogIn(self._host, self._listener, settings)
        if now is not None:
            now.close()
        return made

    # -- GatePolicy

    def begin(self, mechanism: str) -> Mechanism:
        if mechanism == OAUTHBEARER:
            assert self._oauth is not None, "a mechanism that is not offered is refused"
            return self._oauth.begin()
        if mechanism == GSSAPI:
            assert self._kerberos is not None, "an offered mechanism has its keys"
            return self._kerberos.begin()
        if mechanism not in SCRAM:
            return PlainServer(self._passwords)
        number, hash_name = SCRAM[mechanism]
        credentials = self._credentials()

        def find(name: str) -> Credential | None:
            return _credential(credentials.get((number, name)))

        def imitate(name: str) -> Credential:
            return self._imitated.imitate(credentials, number, hash_name, name)

        nonce = base64.b64encode(self._host.random.uuid() + self._host.random.uuid()).decode().rstrip("=")
        return ScramServer(hash_name, nonce, find, imitate, self._tokens)

    def session_ms_max(self, mechanism: str) -> int:
        return log_in_settings.session_ms_max(self._config, self._listener, mechanism)

    # -- the passage of frames

    def admit(self, connection: Connection, gate: Gate, frame: memoryview) -> bool:
        """Passes a frame to the gate of its connection. Returns whether to serve the frame as a request."""
        clock = self._host.clock
        now_ms = clock.now_ms()
        was_open, before = gate.state is GateState.OPEN, gate.before
        decision = gate.take(frame, now_ms, clock.wall_ms())
        if gate.before is not None and before is None:
            # The frames of a renewal have the size limit of a log-in.
            connection.frames.limit_frames(self.receive_bytes_max)
        if decision.act is Act.SERVE:
            return True
        if decision.act is Act.CLOSE:
            if was_open and gate.ends_ms is not None and now_ms > gate.ends_ms:
                self._counts.expired += 1
            elif not was_open:
                self._counts.count_failure(is_renewal=gate.is_renewing)
            connection.fail(decision.cause, None)
            return False
        request = self._request(connection, decision, now_ms)
        if decision.act is Act.REFUSE:
            self._refuse(connection, gate, request, decision)
        else:
            self._answer(connection, gate, request, decision)
        return False

    def _request(self, connection: Connection, decision: GateDecision, now_ms: int) -> InFlight:
        header = decision.header
        key, version, correlation_id, client_id = (36, 0, 0, None) if header is None else header[:4]
        times = self._count_request(key, version)
        return InFlight(connection, key, version, correlation_id, client_id, now_ms, times)

    def _answer(self, connection: Connection, gate: Gate, request: InFlight, decision: GateDecision) -> None:
        if gate.state is GateState.OPEN:
            assert gate.outcome is not None, "an open gate has a user"
            connection.principal = gate.outcome.principal
            connection.token_authenticated = gate.outcome.by_token
            if gate.is_renewing:
                self._counts.count_renewal(gate.began_ms)
            else:
                self._counts.count_success(renews=gate.renews)
            gate.end_renewal()
            connection.frames.limit_frames(self._config.int_of("socket.request.max.bytes"))
            if not gate.is_needed:
                connection.gate = None
        connection.in_flight.append(request)
        connection.complete(request, _chunks(request, decision))

    def _refuse(self, connection: Connection, gate: Gate, request: InFlight, decision: GateDecision) -> None:
        self._counts.count_failure(is_renewal=gate.is_renewing)
        connection.in_flight.append(request)
        connection.begin_exclusive()

        def end() -> None:
            if decision.response is not None:
                connection.complete(request, _chunks(request, decision))
            connection.fail(f"failed authentication ({decision.cause})", None)

        self._host.timers.call_later(self._delay_ms, end)


def _chunks(request: InFlight, decision: GateDecision) -> list[bytes | bytearray | memoryview]:
    response = decision.response
    if isinstance(response, Message):
        return request.encode(response)
    assert response is not None, "an answered frame has a response"
    return [len(response).to_bytes(_SIZE_BYTES, "big") + response]


def _credential(record: UserScramCredentialRecord | None) -> Credential | None:
    if record is None:
        return None
    return Credential(record.salt, record.stored_key, record.server_key, record.iterations)
