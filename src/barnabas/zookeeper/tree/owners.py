"""The field `ephemeralOwner` of a node: a session, or the marks of container and TTL nodes (`EphemeralType`).

    0                       a persistent node
    0x8000000000000000      a container
    0xFF 0000 ttl (40 bit)  a TTL node, in milliseconds, only with extended types
    otherwise               the session that owns an ephemeral node

Values are signed 64-bit integers, as on the wire.
"""

from __future__ import annotations

from typing import Final

CONTAINER_OWNER: Final = -(1 << 63)
TTL_MS_MAX: Final = (1 << 40) - 1
_TTL_MARK: Final = -(1 << 56)
_RESERVED_BITS: Final = 0x00FF_FF00_0000_0000


def ttl_owner(ttl_ms: int) -> int:
    """Returns the `ephemeralOwner` value of a TTL node. Raises ValueError unless 0 < ttl_ms <= TTL_MS_MAX."""
    if not 0 < ttl_ms <= TTL_MS_MAX:
        raise ValueError(f"ttl must be positive and cannot be larger than: {TTL_MS_MAX}")
    return _TTL_MARK | ttl_ms


def is_ttl(owner: int) -> bool:
    """Returns whether this owner value marks a TTL node; without extended types it would be a session."""
    return owner & _TTL_MARK == _TTL_MARK and not owner & _RESERVED_BITS


def ttl_of(owner: int) -> int:
    """Returns the time to live in milliseconds from the owner value of a TTL node."""
    return owner & TTL_MS_MAX


def is_session(owner: int, extended_types: bool) -> bool:
    """Returns whether this owner value is a session, so that the node is ephemeral."""
    return owner not in (0, CONTAINER_OWNER) and not (extended_types and is_ttl(owner))
