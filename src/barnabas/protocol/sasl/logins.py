"""SASL as a client: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628) and GSSAPI (RFC 4752).

SCRAM is implemented here because PyPI's libraries (scramp, for one) prepare passwords by SASLprep, which Kafka does not
(KIP-84 uses their UTF-8 unchanged): a login with a password such as "Ⅷ" would always fail.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.common.kerberos import SecurityContext
from barnabas.protocol.sasl.gssapi import gssapi_exchange
from barnabas.protocol.sasl.mechanism import SCRAM

OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = ("PLAIN", *SCRAM)
#: The extension of SCRAM, and the option of a JAAS entry, with which a client logs in by a delegation token.
TOKEN_EXTENSION: Final = "tokenauth"
#: The minimum number of iterations, as in Kafka's own client: fewer would make guessing cheap for an impostor of the
#: server.
_ITERATIONS_MIN: Final = 4_096
_ITERATIONS_MAX: Final = 1_000_000


class Ticket(NamedTuple):
    """A Kerberos context that has begun, and its first token for the peer."""

    context: SecurityContext
    token: bytes


@dataclass(frozen=True)
class Login:
    """A user's credentials. `password`, which is the token for OAUTHBEARER, is never shown."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    #: Whether the user name is the id of a delegation token, and the password its HMAC in base64.
    by_token: bool = False
    #: The ticket that GSSAPI has in place of a password.
    ticket: Ticket | None = field(default=None, repr=False)


def exchange(login: Login, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields the messages to the server; each response is sent into the generator.

    `nonce`: printable, without a comma, never used before.

    Raises:
        ValueError: the server's response is wrong.
    """
    if login.mechanism == "PLAIN":
        yield f"\0{login.username}\0{login.password}".encode()
        return
    if login.mechanism == OAUTHBEARER:
        refusal = yield f"n,,\x01auth=Bearer {login.password}\x01\x01".encode()
        if refusal:
            # The server ends the exchange only after this byte.
            yield b"\x01"
            raise ValueError("the server does not accept the token")
        return
    if login.ticket is not None:
        yield from gssapi_exchange(*login.ticket, login.username)
        return
    client = ScramClient(SCRAM[login.mechanism][1], login.username, login.password, nonce, by_token=login.by_token)
    server_first = yield client.first()
    server_final = yield client.final(server_first)
    client.check(server_final)


class ScramClient:
    """A SCRAM exchange: `first`, `final` with the server's first message, `check` with its last one.

    `final` and `check` raise ValueError if the server's message is wrong.
    """

    def __init__(self, hash_name: str, username: str, password: str, nonce: str, *, by_token: bool = False) -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if by_token else "")
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        nonce, iterations = fields.get("r", ""), int(fields.get("i", "0"))
        if not nonce.startswith(self._nonce) or iterations > _ITERATIONS_MAX or "s" not in fields or "m" in fields:
            raise ValueError("the server's first message is wrong")
        if iterations < _ITERATIONS_MIN:
            raise ValueError(f"the server requires {iterations} iterations; fewer than {_ITERATIONS_MIN} are not safe")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(fields["s"]), iterations)
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        client_key = self._mac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._mac(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._mac(self._mac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        given = base64.b64decode(fields.get("v", ""))
        if not self._signature or not hmac.compare_digest(given, self._signature):
            raise ValueError(f"the server does not know the password: {fields.get('e', 'wrong signature')}")

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode().split(",") if part[1:2] == "="}
