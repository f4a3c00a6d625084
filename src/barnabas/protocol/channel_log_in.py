"""The log-in of a channel: the requests between ApiVersions and the first other request, and those that renew a session
(KIP-368).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.sasl.logins import Login, exchange

#: With version 0, the messages of the mechanism would be bare frames.
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE: Final = 36
#: A session is renewed after 85 to 95 % of its lifetime, as by Kafka's clients.
RENEWAL_PERCENT_MIN: Final = 85
RENEWAL_PERCENT_SPAN: Final = 11

#: The requests of a log-in with their versions; it receives the responses, and returns the lifetime of the session in
#: milliseconds, 0 if it has no end.
LogIn = Generator[tuple[Message, int], Message, int]


class LogInFailed(Exception):
    """The error for a peer that refuses the log-in, or that does not know the password."""


def log_in(login: Login, nonce: str, versions: Mapping[int, tuple[int, int]]) -> LogIn:
    """Yields the requests of a log-in. Raises LogInFailed."""
    shaken = yield SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION
    assert isinstance(shaken, SaslHandshakeResponse), "the response to the handshake"
    if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LogInFailed(f"it offers {', '.join(shaken.mechanisms) or 'no mechanism'}, not {login.mechanism}")
    if shaken.error_code:
        raise LogInFailed(f"it has no log-in now ({_name(shaken.error_code)})")
    version = min(versions.get(_AUTHENTICATE, (0, 0))[1], SaslAuthenticateRequest.VERSIONS[1])
    lifetime_ms = 0
    messages = exchange(login, nonce)
    try:
        message = next(messages)
        while True:
            answer = yield SaslAuthenticateRequest(auth_bytes=message), version
            assert isinstance(answer, SaslAuthenticateResponse), "the response to a message"
            if answer.error_code:
                raise LogInFailed(answer.error_message or _name(answer.error_code))
            lifetime_ms = answer.session_lifetime_ms
            message = messages.send(bytes(answer.auth_bytes))
    except StopIteration:
        return lifetime_ms
    except ValueError as error:
        raise LogInFailed(str(error)) from error


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
