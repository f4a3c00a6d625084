"""PLAIN as a server (RFC 4616): users and passwords from the listener's JAAS entry, `user_NAME="password"`."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from barnabas.protocol.sasl.mechanism import LogInRefused, Outcome, Step

#: The password that is compared for an unknown user.
_NOBODY: Final = bytes(32)


class PlainServer:
    """An exchange of one message: authorization id, user name and password, separated by NUL."""

    __slots__ = ("_passwords",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def evaluate(self, message: bytes) -> Step:
        parts = str(message, "utf-8", "replace").split("\0")
        if len(parts) != 3:
            raise LogInRefused
        authorization_id, name, password = parts
        if not name:
            raise LogInRefused("Authentication failed: username not specified")
        if not password:
            raise LogInRefused("Authentication failed: password not specified")
        known = self._passwords.get(name)
        expected = _NOBODY if known is None else known.encode()
        # Both digests have the same length: the comparison takes the same time for every password and user.
        is_right = hmac.compare_digest(_digest(password.encode()), _digest(expected))
        if not is_right or known is None:
            raise LogInRefused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise LogInRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", Outcome(name))


def _digest(text: bytes) -> bytes:
    return hmac.digest(_NOBODY, text, "sha256")
