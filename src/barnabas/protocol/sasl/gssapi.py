"""GSSAPI as a server and as a client (RFC 4752), over a context of Kerberos.

    tokens of both sides until the context is established
    server -> client   which layers it offers: none, which is what Kafka offers ("auth")
    client -> server   which layer it chooses, and the identity that it asks for

The user is the identity of the context, whatever the client asks for, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import Final

from barnabas.common.kerberos import KerberosError, SecurityContext
from barnabas.common.kerberos_names import NoLocalName
from barnabas.protocol.sasl.mechanism import LogInRefused, Outcome, Step

_NO_LAYER: Final = 1
#: The offer of Java's server: no layer, and a size that has no meaning without one.
_OFFER: Final = bytes([_NO_LAYER]) + (65_536).to_bytes(3, "big")
_CHOICE_BYTES: Final = 4


class _State(Enum):
    TOKENS = "the context is not established"
    ACKNOWLEDGED = "the last token is sent, and the client must answer with an empty message"
    OFFERED = "the security layers are offered"
    OVER = "complete, or failed"


class GssapiServer:
    """An exchange. `local_name` returns the user of a principal, or raises NoLocalName."""

    __slots__ = ("_context", "_local_name", "_report", "_state")

    def __init__(
        self, context: SecurityContext, local_name: Callable[[str], str], report: Callable[[str], None]
    ) -> None:
        """`report` receives the cause of a failure, which the client must not learn."""
        self._context = context
        self._local_name = local_name
        self._report = report
        self._state = _State.TOKENS

    def evaluate(self, message: bytes) -> Step:
        state, self._state = self._state, _State.OVER
        try:
            if state is _State.TOKENS:
                return self._take_token(message)
            if state is _State.ACKNOWLEDGED:
                if message:
                    raise LogInRefused
                return self._offer()
            if state is _State.OFFERED:
                return self._take_choice(self._context.unwrap(message))
        except (KerberosError, NoLocalName) as error:
            self._report(str(error))
            raise LogInRefused from error
        raise LogInRefused

    def _take_token(self, token: bytes) -> Step:
        reply = self._context.step(token)
        if not self._context.is_established:
            self._state = _State.TOKENS
            return Step(reply)
        if reply:
            self._state = _State.ACKNOWLEDGED
            return Step(reply)
        return self._offer()

    def _offer(self) -> Step:
        self._state = _State.OFFERED
        return Step(self._context.wrap(_OFFER))

    def _take_choice(self, choice: bytes) -> Step:
        if len(choice) < _CHOICE_BYTES or choice[0] != _NO_LAYER:
            raise LogInRefused
        return Step(b"", Outcome(self._local_name(self._context.initiator)))


def gssapi_exchange(context: SecurityContext, first: bytes, identity: str) -> Generator[bytes, bytes, None]:
    """Yields the messages of a client; each response is sent into the generator. `first` is the token of the context's
    first step, which was made where it can wait for the KDC.

    Raises:
        ValueError: the server's response is wrong.
    """
    token = first
    try:
        while not context.is_established:
            token = context.step((yield token))
        offer = context.unwrap((yield token))
        if len(offer) != _CHOICE_BYTES or not offer[0] & _NO_LAYER:
            raise ValueError("the server does not offer a connection without a security layer")
        yield context.wrap(bytes([_NO_LAYER, 0, 0, 0]) + identity.encode())
    except KerberosError as error:
        raise ValueError(str(error)) from error
