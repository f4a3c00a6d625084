"""Requests to a KDC that does not answer: disk work and the end of the process do not wait for them."""

from __future__ import annotations

import asyncio
import threading

from tests.support.memory_kerberos import MemoryContext, MemoryKerberos

from barnabas.common.kerberos_settings import KerberosKeys
from barnabas.protocol.peer_kerberos import request_ticket
from barnabas.protocol.sasl.logins import Login
from barnabas.server.host import ServerHost
from barnabas.simulation.host import MemoryHost


class SlowKerberos(MemoryKerberos):
    """A library whose KDC answers when `is_answered` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_answered = threading.Event()
        self.asked = 0

    def initiate(self, keytab: str | None, principal: str | None, service: str, host: str) -> MemoryContext:
        self.asked += 1
        assert self.is_answered.wait(20)
        return super().initiate(keytab, principal, service, host)


KEYS = KerberosKeys("node", "/keys", "kafka")


def test_a_kdc_that_does_not_answer_holds_up_neither_disks_nor_the_end() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        host = ServerHost(loop)
        library = SlowKerberos()
        host.__dict__["kerberos"] = library
        found: list[Login | str] = []
        all_found = asyncio.Event()

        def take(login: Login | str) -> None:
            found.append(login)
            all_found.set()

        is_wanted = True
        request_ticket(host, KEYS, "peer1", lambda: True, take)
        for peer in ("peer2", "peer3"):
            request_ticket(host, KEYS, peer, lambda: is_wanted, take)
        disk = [asyncio.Event() for _ in range(10)]
        for event in disk:
            host.blocking.run(lambda: None, lambda result, error, event=event: event.set())  # type: ignore[misc]
        for event in disk:
            await asyncio.wait_for(event.wait(), 10)
        assert not found
        host.close()
        # The links of the others were given up meanwhile: the KDC is not asked for them.
        is_wanted = False
        library.is_answered.set()
        await asyncio.wait_for(all_found.wait(), 10)
        await asyncio.sleep(0.05)
        assert [isinstance(each, Login) for each in found] == [True]
        assert library.asked == 1

    asyncio.run(run())


def test_a_failure_of_the_library_is_the_cause() -> None:
    host = MemoryHost()
    host.kerberos = MemoryKerberos()
    found: list[Login | str] = []
    request_ticket(host, KerberosKeys("node", "/missing", "kafka"), "peer", lambda: True, found.append)
    host.time.run_for(1_000)
    assert found == ["Key table file '/missing' not found"]
