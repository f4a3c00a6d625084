"""IP addresses in the one form in which limits and quotas compare them."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def canonical(text: str) -> str | None:
    """Returns an address, possibly in brackets, in the form of `peer_address`; None if the text is not an address."""
    try:
        return _written(text.strip("[]"))
    except ValueError:
        return None


def peer_address(text: str) -> str:
    """Returns the address of a peer: without a zone, and as IPv4 if IPv6 only wraps it."""
    return _written(text) if ":" in text else text


def _written(text: str) -> str:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
