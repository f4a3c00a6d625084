"""The port to the system's Kerberos library, which only listeners and links with GSSAPI need."""

from __future__ import annotations

from typing import Protocol


class KerberosError(Exception):
    """An error of the library, such as missing credentials or a wrong token of the peer. Its text is for logs."""


class KerberosUnavailable(KerberosError):
    """The error for a system without the library."""


class SecurityContext(Protocol):
    """One side of an authentication (RFC 2743). All methods raise KerberosError."""

    @property
    def is_established(self) -> bool: ...
    @property
    def initiator(self) -> str:
        """Returns the principal that began the authentication, once established: `alice@EXAMPLE.COM`."""

    def step(self, token: bytes) -> bytes:
        """Takes the token of the peer, empty for the first step of the initiator. Returns the token to send, which can
        be empty."""

    def wrap(self, data: bytes) -> bytes:
        """Returns the data with a proof of its origin, not encrypted."""

    def unwrap(self, data: bytes) -> bytes:
        """Returns the data of the peer."""


class Acceptor(Protocol):
    """The keys with which a service accepts clients."""

    def accept(self) -> SecurityContext:
        """Begins the authentication of a client."""


class Kerberos(Protocol):
    """The system's Kerberos library. All methods raise KerberosError."""

    def default_realm(self) -> str:
        """Returns the realm of this machine; empty if it has none."""

    def acceptor(self, keytab: str | None, principal: str | None) -> Acceptor:
        """Reads the keys of a service from a keytab; None is the machine's own. Without a principal, all keys in it
        count."""

    def initiate(self, keytab: str | None, principal: str | None, service: str, host: str) -> SecurityContext:
        """Begins the authentication of this node to a service on a host. The first step can ask the KDC: it waits for
        the network. Without a keytab, the machine's ticket cache is used."""


class NoKerberos:
    """A machine without the library."""

    def default_realm(self) -> str:
        raise KerberosUnavailable("this machine has no Kerberos")

    def acceptor(self, keytab: str | None, principal: str | None) -> Acceptor:
        raise KerberosUnavailable("this machine has no Kerberos")

    def initiate(self, keytab: str | None, principal: str | None, service: str, host: str) -> SecurityContext:
        raise KerberosUnavailable("this machine has no Kerberos")
