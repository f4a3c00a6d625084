"""Addresses in configurations: listeners (`NAME://host:port`), voters (`id@host:port`), servers (`host:port`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.common.config_keys import invalid
from barnabas.common.errors import ConfigError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: The protocols with TLS.
TLS_PROTOCOLS = ("SSL", "SASL_SSL")


class Listener(NamedTuple):
    """The address of a listener, bound or advertised. `host` is "" for all interfaces."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{show_host(self.host)}:{self.port}"


class Voter(NamedTuple):
    node_id: int
    host: str
    port: int


class Address(NamedTuple):
    host: str
    port: int


def show_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_address(key: str, text: str) -> Address:
    """Parses `host:port`, `[v6]:port` or `:port`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise invalid(key, text, "an address must have the form host:port, with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Address(host, int(port))


def parse_protocol_map(key: str, items: Sequence[str]) -> dict[str, str]:
    """Parses `NAME:PROTOCOL` items."""
    protocols = {}
    for item in items:
        name, colon, protocol = item.partition(":")
        name, protocol = name.strip(), protocol.strip().upper()
        if not colon or protocol not in SECURITY_PROTOCOLS:
            raise invalid(
                key,
                item,
                f"each item must have the form NAME:PROTOCOL, with PROTOCOL one of {', '.join(SECURITY_PROTOCOLS)}",
            )
        protocols[name.upper()] = protocol
    return protocols


def parse_listeners(key: str, items: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Parses the listeners in `items`; names and ports are unique."""
    listeners: list[Listener] = []
    for item in items:
        name, separator, address = item.partition("://")
        name = name.strip().upper()
        if not separator:
            raise invalid(key, item, "a listener must have the form NAME://host:port")
        host, port = parse_address(key, address)
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"No security protocol defined for listener {name} ({key}={item}): "
                "listener.security.protocol.map must name it"
            )
        if any(other.name == name for other in listeners):
            raise ConfigError(f"Each listener must have a different name, {key}: {','.join(items)}")
        listeners.append(Listener(name, host, port, protocol))
    return tuple(listeners)


def check_distinct_ports(key: str, items: Sequence[str], listeners: Sequence[Listener]) -> None:
    """Checks that no two listeners share a port, except one with an IPv4 and one with an IPv6 address. Port 0 means any
    free port.
    """
    seen: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            seen.setdefault(listener.port, []).append(listener)
    for sharing in seen.values():
        families = [":" in listener.host for listener in sharing]
        if len(families) != len(set(families)):
            raise ConfigError(f"Each listener must have a different port, {key}: {','.join(items)}")


def parse_voters(key: str, items: Sequence[str]) -> tuple[Voter, ...]:
    voters = []
    for item in items:
        node_id, at, address = item.partition("@")
        if not at or not node_id.strip().isdecimal():
            raise invalid(key, item, "a voter must have the form id@host:port")
        host, port = parse_address(key, address)
        voters.append(Voter(int(node_id), host, port))
    return tuple(voters)
