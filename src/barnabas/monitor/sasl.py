"""SCRAM (RFC 5802) as a client, for clusters that ask for it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MAX: Final = 1_000_000


def scram_client(mechanism: str, username: str, password: str) -> ScramClient:
    return ScramClient(_HASHES[mechanism], username, password, secrets.token_urlsafe(24))


class ScramClient:
    """`first`, then `final` with the server's first message, then `check` its last. ValueError for a wrong server."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        nonce, iterations = fields.get("r", ""), int(fields.get("i", "0"))
        if not nonce.startswith(self._nonce) or not 1 <= iterations <= _ITERATIONS_MAX or "s" not in fields:
            raise ValueError("the server's first message is wrong")
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
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._signature):
            raise ValueError(f"the server does not know the password: {fields.get('e', 'wrong signature')}")

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode().split(",") if part[1:2] == "="}
