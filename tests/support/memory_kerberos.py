"""A Kerberos without keys: contexts that say in the clear who they are, and prove what they send by a hash."""

from __future__ import annotations

import hashlib
from typing import Final

from barnabas.common.kerberos import KerberosError

REALM: Final = "TEST.BARNABAS"
_FIRST, _SECOND = b"first:", b"second:"


class MemoryContext:
    """One side; `is_mutual` is whether the acceptor answers the first token."""

    def __init__(self, own: str = "", target: str = "", *, is_mutual: bool = True) -> None:
        self._own = own
        self._target = target
        self._is_mutual = is_mutual
        self._steps = 0
        self.is_established = False
        self.initiator = ""

    def step(self, token: bytes) -> bytes:
        self._steps += 1
        if self._own:
            return self._initiate(token)
        kind, _, names = token.decode("utf-8", "replace").partition(":")
        initiator, arrow, target = names.partition(">")
        is_wanted = not self._target or target.partition("@")[0] == self._target.partition("@")[0]
        if f"{kind}:".encode() != _FIRST or not arrow or not is_wanted:
            raise KerberosError(f"Invalid token was supplied for {self._target}")
        self.initiator, self.is_established = initiator, True
        return _SECOND if self._is_mutual else b""

    def _initiate(self, token: bytes) -> bytes:
        if self._steps == 1:
            self.is_established = not self._is_mutual
            return _FIRST + f"{self._own}>{self._target}".encode()
        if token != _SECOND:
            raise KerberosError("the service does not prove who it is")
        self.is_established = True
        return b""

    def wrap(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest() + data

    def unwrap(self, data: bytes) -> bytes:
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            raise KerberosError("A token had an invalid MIC")
        return data[32:]


class _Acceptor:
    def __init__(self, principal: str, *, is_mutual: bool) -> None:
        self._principal = principal
        self._is_mutual = is_mutual

    def accept(self) -> MemoryContext:
        return MemoryContext(target=self._principal, is_mutual=self._is_mutual)


class MemoryKerberos:
    """The library of a machine whose keytabs have every key, except "/missing"."""

    def __init__(self, *, is_mutual: bool = True) -> None:
        self._is_mutual = is_mutual

    def default_realm(self) -> str:
        return REALM

    def acceptor(self, keytab: str | None, principal: str | None) -> _Acceptor:
        if keytab == "/missing":
            raise KerberosError("Key table file '/missing' not found")
        return _Acceptor(principal or "", is_mutual=self._is_mutual)

    def initiate(self, keytab: str | None, principal: str | None, service: str, host: str) -> MemoryContext:
        if keytab == "/missing":
            raise KerberosError("Key table file '/missing' not found")
        return MemoryContext(principal or f"node@{REALM}", f"{service}/{host}@{REALM}", is_mutual=self._is_mutual)
