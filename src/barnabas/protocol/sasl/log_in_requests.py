"""The requests of a log-in, for every kind of client: those between ApiVersions and the first other request, and those
that renew a session (KIP-368).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.sasl.logins import Login, exchange

#: Messages of the mechanism are requests since version 1, which Kafka 1.0 and newer support; with version 0 they are
#: bare frames.
_HANDSHAKE_VERSION: Final = 1

#: The requests of a log-in with their versions; it receives the responses, and returns the lifetime of the session in
#: milliseconds, 0 if it has no end.
LogIn = Generator[tuple[Message, int], Message, int]


class LogInFailed(Exception):
    """The error for a peer that refuses the log-in, or that does not know the password. `to_user` is the text for the
    user of a client, to follow the name of the peer.
    """

    def __init__(self, text: str, to_user: str) -> None:
        super().__init__(text)
        self.to_user = to_user


def log_in(login: Login, nonce: str, version_of: Callable[[], int]) -> LogIn:
    """Yields the requests of a log-in. `version_of` returns the version of SaslAuthenticate. Raises LogInFailed."""
    mechanism = login.mechanism
    shaken = yield SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION
    assert isinstance(shaken, SaslHandshakeResponse), "the response to the handshake"
    if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(shaken.mechanisms)
        raise LogInFailed(
            f"it offers {offered or 'no mechanism'}, not {mechanism}",
            f"does not offer SASL {mechanism}, but {offered or 'none'}",
        )
    if shaken.error_code:
        # A listener without SASL answers ILLEGAL_SASL_STATE.
        code = _name(shaken.error_code)
        raise LogInFailed(
            f"it accepts no login now ({code})", f"does not offer a login ({code}): is it a SASL listener?"
        )
    lifetime_ms = 0
    messages = exchange(login, nonce)
    try:
        message = next(messages)
        while True:
            answer = yield SaslAuthenticateRequest(auth_bytes=message), version_of()
            assert isinstance(answer, SaslAuthenticateResponse), "the response to a message"
            if answer.error_code:
                said = answer.error_message or _name(answer.error_code)
                raise LogInFailed(said, f"refuses the login of {login.username} with {mechanism}: {said}")
            lifetime_ms = answer.session_lifetime_ms
            message = messages.send(bytes(answer.auth_bytes))
    except StopIteration:
        return lifetime_ms
    except ValueError as error:
        raise LogInFailed(str(error), f"does not complete the login with {mechanism}: {error}") from error


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
