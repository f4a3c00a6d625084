"""The condition of the network under a connection, and the time that a process waits for a CPU, on this system."""

from __future__ import annotations

import asyncio

from barnabas.server.host import ServerHost


class End:
    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.buffer = memoryview(bytearray(64))

    def connected(self) -> None:
        self.opened.set()

    def get_buffer(self) -> memoryview:
        return self.buffer

    def received(self, count: int) -> None: ...

    def closed(self, error: OSError | None) -> None: ...


def test_a_connection_to_this_machine_has_a_short_round_trip() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        host, end = ServerHost(loop), End()
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = host.links.dial("127.0.0.1", port, end)
        assert link.condition() is None, "it is not connected yet"
        await asyncio.wait_for(end.opened.wait(), 10)
        link.write([b"x" * 100])
        await asyncio.sleep(0.3)
        condition = link.condition()
        assert condition is not None
        assert 0 < condition.round_trip_us < 1_000_000
        assert condition.retransmits == 0
        assert not condition.is_unacknowledged, "the system acknowledges what no process has read"
        assert host.machine_up_ms() > 0
        assert 0 <= host.cpu_wait_ns() <= host.cpu_wait_ns()
        link.close()
        server.close()
        host.close()

    asyncio.run(scenario())
