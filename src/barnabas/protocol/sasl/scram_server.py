"""SCRAM as a server (RFC 5802, 7677), with Kafka's grammar: user names are ASCII, passwords are not prepared.

An unknown user gets a salt like a known one (`imitated_users.py`) and is refused with the last message, so that no
message reveals whether the user exists.

With the extension `tokenauth=true` the name is the id of a delegation token, and its HMAC in base64 the password
(KIP-48): the user is the owner of the token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from barnabas.protocol.sasl.logins import TOKEN_EXTENSION
from barnabas.protocol.sasl.mechanism import LogInRefused, Outcome, Step

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class Credential(NamedTuple):
    """A user's credential. Nothing in it is ever shown."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "Credential([hidden])"


class TokenUser(NamedTuple):
    """A delegation token as a user."""

    credential: Credential
    owner: str
    expires_ms: int


class TokenUsers(Protocol):
    """The delegation tokens of a cluster."""

    def find(self, hash_name: str, token_id: str) -> TokenUser | None:
        """Returns a token that is valid now."""

    def imitate(self, hash_name: str, token_id: str) -> Credential:
        """Returns a credential that no password matches, in the shape of a token's."""


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def keys_of(hash_name: str, salted: bytes) -> tuple[bytes, bytes]:
    """Returns (stored key, server key) of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return hashlib.new(hash_name, client_key).digest(), hmac.digest(salted, b"Server Key", hash_name)


class ScramServer:
    """An exchange of two messages. `find` returns the credential of a user, or None."""

    __slots__ = (
        "_credential",
        "_find",
        "_first_messages",
        "_hash",
        "_imitate",
        "_is_over",
        "_is_real",
        "_nonce",
        "_outcome",
        "_own_nonce",
        "_tokens",
    )

    def __init__(
        self,
        hash_name: str,
        nonce: str,
        find: Callable[[str], Credential | None],
        imitate: Callable[[str], Credential],
        tokens: TokenUsers | None = None,
    ) -> None:
        self._hash = hash_name
        self._own_nonce = nonce
        self._find = find
        self._imitate = imitate
        self._tokens = tokens
        self._outcome = Outcome("")
        self._nonce = ""
        self._first_messages = ""
        self._credential: Credential | None = None
        self._is_real = False
        self._is_over = False

    def evaluate(self, message: bytes) -> Step:
        if self._is_over:
            raise LogInRefused
        try:
            text = str(message, "utf-8")
        except UnicodeDecodeError:
            raise LogInRefused from None
        if self._credential is None:
            return self._first(text)
        self._is_over = True
        return self._final(text, self._credential)

    def _first(self, text: str) -> Step:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise LogInRefused
        name = _unescaped(match["name"])
        if match["authzid"] is not None and _unescaped(match["authzid"]) != name:
            raise LogInRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        found, imitated = self._credentials(name, by_token=_is_token(match["extensions"]))
        self._is_real = found is not None and found.iterations >= ITERATIONS_MIN
        self._credential = credential = found if found is not None and self._is_real else imitated
        self._nonce = match["nonce"] + self._own_nonce
        salt = base64.b64encode(credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first_messages = f"{match['bare']},{first}"
        return Step(first.encode())

    def _credentials(self, name: str, *, by_token: bool) -> tuple[Credential | None, Credential]:
        """Returns the credential of the user or token, if there is one, and an imitation. Both are computed for every
        user, so that the response time does not reveal which one is used."""
        self._outcome = Outcome(name)
        if not by_token:
            imitated = self._imitate(name)
            return self._find(name), imitated
        if self._tokens is None:
            return None, self._imitate(name)
        imitated = self._tokens.imitate(self._hash, name)
        token = self._tokens.find(self._hash, name)
        if token is None:
            return None, imitated
        self._outcome = Outcome(token.owner, token.expires_ms, by_token=True)
        return token.credential, imitated

    def _final(self, text: str, credential: Credential) -> Step:
        match = _FINAL.fullmatch(text)
        # More is accepted before the nonce, as in Kafka: librdkafka before 2.6 repeats its own part.
        if match is None or not match["nonce"].endswith(self._nonce):
            raise LogInRefused
        signed = f"{self._first_messages},{match['unproven']}".encode()
        proof = base64.b64decode(match["proof"])
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise LogInRefused
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if not is_right or not self._is_real:
            raise LogInRefused
        verifier = hmac.digest(credential.server_key, signed, self._hash)
        return Step(f"v={base64.b64encode(verifier).decode()}".encode(), self._outcome)


def _is_token(extensions: str) -> bool:
    """Returns whether the extensions of a first message say that the name is a token's id; the last one counts."""
    pairs = [part.partition("=") for part in extensions.split(",")[1:]]
    return {name: value for name, _, value in pairs}.get(TOKEN_EXTENSION, "").lower() == "true"


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
