"""The tickets of links to other nodes with GSSAPI: requested from the KDC in a thread, because that waits for the
network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.host import Blocking
from barnabas.common.kerberos import Kerberos, KerberosError
from barnabas.common.kerberos_settings import KerberosKeys
from barnabas.common.log_in_settings import GSSAPI
from barnabas.protocol.sasl.logins import Login, Ticket


class TicketHost(Protocol):
    """The ports that a ticket needs."""

    @property
    def tickets(self) -> Blocking: ...
    @property
    def kerberos(self) -> Kerberos: ...


def request_ticket(
    host: TicketHost,
    keys: KerberosKeys,
    peer: str,
    is_wanted: Callable[[], bool],
    done: Callable[[Login | str], None],
) -> None:
    """Calls `done` with the log-in at the service of a peer, or with the cause for which there is none. `is_wanted` is
    called in the thread, before the KDC is asked: while the KDC does not answer, requests queue up, and some of their
    links are given up.
    """

    def work() -> Ticket | None:
        if not is_wanted():
            return None
        context = host.kerberos.initiate(keys.keytab, keys.principal, keys.service, peer)
        return Ticket(context, context.step(b""))

    def received(ticket: Ticket | None, error: BaseException | None) -> None:
        if isinstance(error, KerberosError):
            done(str(error))
        elif error is not None:
            raise error
        elif ticket is not None:
            done(Login(GSSAPI, keys.principal or "", "", ticket=ticket))

    host.tickets.run(work, received)
