"""Passwords as salted scrypt hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

#: scrypt's parameters: 16 MiB and about 50 ms for one hash.
_N: Final = 1 << 14
_R: Final = 8
_P: Final = 1
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_MEMORY_MAX: Final = 1 << 26


class Hashed(NamedTuple):
    """A password's hash, with all that its check needs."""

    salt: str
    digest: str
    n: int = _N
    r: int = _R
    p: int = _P


#: The hash that is checked for unknown users, so that their answers take as long.
NOBODY: Final = Hashed("00" * _SALT_BYTES, "00" * _HASH_BYTES)


def hashed(password: str) -> Hashed:
    salt = secrets.token_bytes(_SALT_BYTES)
    return Hashed(salt.hex(), _digest(password, salt, _N, _R, _P).hex())


def is_right(password: str, stored: Hashed) -> bool:
    found = _digest(password, bytes.fromhex(stored.salt), stored.n, stored.r, stored.p)
    return hmac.compare_digest(found, bytes.fromhex(stored.digest))


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MEMORY_MAX, dklen=_HASH_BYTES)
