"""OAUTHBEARER as a server (RFC 7628), as Kafka speaks it: one message with a token. A refusal is first a JSON text with
its status, inside the exchange; the client answers with one byte, and then the log-in fails with the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.protocol.sasl.mechanism import LogInRefused, Outcome, Step
from barnabas.protocol.sasl.tokens import NAME_LENGTH_MAX, TokenRefused, ValidToken

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = r"[A-Za-z]+=[\x21-\x7E \t\r\n]+\x01"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_AUTH: Final = re.compile(r"(?P<scheme>[a-zA-Z_0-9]+) +(?P<token>[-_.a-zA-Z0-9]+)")


class FirstMessage(NamedTuple):
    """The client's message. Its extensions have no meaning here, as in Kafka without a handler for them."""

    token: str
    #: The authorization id that the client requests; empty for the token's user.
    authorization_id: str


def parse_first(message: bytes) -> FirstMessage:
    """Parses the client's message. Raises LogInRefused."""
    match = _FIRST.fullmatch(str(message, "utf-8", "replace"))
    if match is None:
        raise LogInRefused(cause="Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01")[:-1])
    if "auth" not in pairs:
        raise LogInRefused(cause="Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(pairs["auth"])
    if auth is None:
        raise LogInRefused(cause="Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise LogInRefused(cause="Invalid scheme in OAUTHBEARER client first message")
    return FirstMessage(auth["token"], match["authzid"] or "")


class OAuthBearerServer:
    """An exchange of one message, or of two if the token is refused. `validate` raises TokenRefused."""

    __slots__ = ("_refused", "_validate")

    def __init__(self, validate: Callable[[str], ValidToken]) -> None:
        self._validate = validate
        self._refused: TokenRefused | None = None

    def evaluate(self, message: bytes) -> Step:
        refused = self._refused
        if refused is not None:
            # The client confirms with one byte, 0x01. Kafka would take another first message; here none is served.
            raise LogInRefused(refused.response, f"the token is refused: {refused}")
        token, authorization_id = parse_first(message)
        try:
            name, expires_ms = self._validate(token)
        except TokenRefused as error:
            self._refused = error
            return Step(error.response.encode())
        if authorization_id not in ("", name):
            raise LogInRefused(
                "Authentication failed: Client requested an authorization id "
                f"({authorization_id[:NAME_LENGTH_MAX]}) that is different from the token's principal name ({name})",
                "the client requested an authorization id that is different from the token's principal name",
            )
        return Step(b"", Outcome(name, expires_ms))
