"""ACLs: the permissions of identities (`checkACL`), what a client can set (`fixupACL`), and the schemes that it can
use.

world     anyone
auth      stands for the client's own authenticated identities, when an ACL is set
digest    user:base64(hash of "user:password"); the super user is allowed everything
ip        an IPv4 address, or a prefix like 10.0.0.0/8
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.zookeeper.wire.records import OPEN_ACL, Acl, Id

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_IPV4_BITS: Final = 32
_SUPER: Final = "super"


def is_allowed(acl: tuple[Acl, ...], permission: int, identities: Iterable[Id]) -> bool:
    """Returns whether one of the identities has one of the permissions (a bit mask)."""
    if acl is OPEN_ACL or not acl:
        return True
    identities = tuple(identities)
    if any(identity.scheme == _SUPER for identity in identities):
        return True
    for entry in acl:
        if entry.perms & permission:
            scheme, allowed = entry.id
            if scheme == "world" and allowed == "anyone":
                return True
            if any(each.scheme == scheme and _matches(scheme, each.id, allowed) for each in identities):
                return True
    return False


def fixed_up(
    acl: Sequence[Acl] | None, identities: Iterable[Id], *, digest_scheme: bool = True
) -> tuple[Acl, ...] | None:
    """Returns the ACL that a client sets, without repetitions and with its own identities for `auth`; None if it is not
    valid, or if it names a scheme that the server does not have.
    """
    result: list[Acl] = []
    for entry in dict.fromkeys(acl or ()):
        scheme, name = entry.id
        if scheme == "world" and name == "anyone":
            result.append(entry)
        elif scheme == "auth":
            own = [Acl(entry.perms, each) for each in identities if each.scheme == "digest"]
            if not own:
                return None
            result += own
        elif is_valid(scheme, name) and (digest_scheme or scheme != "digest"):
            result.append(entry)
        else:
            return None
    if not result:
        return None
    fixed = tuple(result)
    return OPEN_ACL if fixed == OPEN_ACL else fixed


def is_valid(scheme: str, name: str) -> bool:
    """Returns whether an identity can be used in an ACL."""
    if scheme == "digest":
        parts = name.split(":")
        while parts and not parts[-1]:
            parts.pop()
        return len(parts) == 2
    return scheme == "ip" and _network(name) is not None


def digest_identity(auth: bytes, algorithm: str) -> Id:
    """Returns the identity of a client that authenticates with "user:password". `algorithm` is a name of hashlib."""
    text = auth.decode("utf-8", "replace")
    digest = b64encode(hashlib.new(algorithm, text.encode(), usedforsecurity=False).digest()).decode()
    return Id("digest", f"{text.partition(':')[0]}:{digest}")


def hidden(acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
    """Returns the ACL without the digests of passwords, for clients that may not change it."""
    return tuple(
        Acl(each.perms, Id("digest", re.sub(":.*", ":x", each.id.id))) if each.id.scheme == "digest" else each
        for each in acl
    )


def _matches(scheme: str, identity: str, allowed: str) -> bool:
    if scheme == "digest":
        return identity == allowed
    network = _network(allowed) if scheme == "ip" else None
    address = _ipv4(identity)
    if network is None or address is None:
        return False
    base, bits = network
    shift = _IPV4_BITS - bits
    return address >> shift == base >> shift


def _network(text: str) -> tuple[int, int] | None:
    """Returns an IP address, and the number of its significant bits."""
    address_text, slash, bits_text = text.partition("/")
    address = _ipv4(address_text)
    bits = _integer(bits_text) if slash else _IPV4_BITS
    if address is None or bits is None or not 0 <= bits <= _IPV4_BITS:
        return None
    return address, bits


def _ipv4(text: str) -> int | None:
    parts = [_integer(part) for part in text.split(".")]
    if len(parts) != 4:
        return None
    address = 0
    for part in parts:
        if part is None or not 0 <= part <= 255:
            return None
        address = address << 8 | part
    return address


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None
