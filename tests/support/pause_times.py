"""The longest wait for an answer at a node that was paused: three nodes with both roles, one stopped at a time.

A round stops the active controller or another node with SIGSTOP and lets it continue after 50 ms to 4 s. CreateTopics
requests are sent directly to its controller's listener, and some to its broker's, on new connections and on an old one:
a few milliseconds before the stop, during it, and just after its end. A wait counts from the time when the request was
sent and its node could run. A request must be answered, or its connection closed.

    PYTHONPATH=tools python -m tests.support.pause_times [ROUNDS [SEED]]    300 rounds by default, about ten minutes
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.kill_times import ROLES, RequestClient, percentile
from tests.support.process_nodes import Address, Node, Nodes

from barnabas.common.errors import DecodeError, ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

_TIMEOUT_MS: Final = 60_000
#: (share, shortest, longest pause in seconds): below the voters' fetch timeout, near it, and beyond it.
_PAUSES: Final = ((0.5, 0.05, 0.4), (0.75, 1.0, 2.6), (1.0, 2.6, 4.0))


class Sent(NamedTuple):
    """A request that has ended. `code` is None if its connection was closed."""

    kind: str
    at_s: float
    ended_s: float
    code: int | None


class PauseTimes:
    """A cluster one of whose nodes is paused in each round."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self._nodes = nodes
        self._chance = random.Random(seed)
        self._round = 0
        self._lock = threading.Lock()
        self._sent: list[Sent] = []
        #: The waits in seconds, with the kind of the request.
        self.waits: list[tuple[float, str]] = []
        #: The number of requests that ended with each code.
        self.codes: dict[str, int] = {}

    def run(self) -> None:
        """Runs one round."""
        chance = self._chance
        active = self._nodes.leader()
        is_controller = chance.random() < 0.7
        victim = self._nodes[active if is_controller else next(n for n in ROLES if n != active)]
        share = chance.random()
        shortest, longest = next((low, high) for limit, low, high in _PAUSES if share <= limit)
        self._round += 1
        self._sent = []
        old = RequestClient(victim.controller_address)
        threads: list[threading.Thread] = []

        def later(kind: str, delay_s: float, request: Callable[[], RequestClient]) -> None:
            thread = threading.Thread(target=self._request, args=(kind, delay_s, request, len(threads)))
            threads.append(thread)
            thread.start()

        before_s = chance.random() * 0.006
        later("before, old connection", 0.0, lambda: old)
        for place in range(3):
            self._send_new(later, victim, "before", place * 0.002)
        time.sleep(before_s)
        stopped_s = time.monotonic()
        victim.signal(signal.SIGSTOP)
        length_s = shortest + chance.random() * (longest - shortest)
        for _ in range(4):
            self._send_new(later, victim, "during", chance.random() * length_s)
        for _ in range(4):
            self._send_new(later, victim, "after", length_s + chance.random() * 0.03)
        time.sleep(max(0.0, stopped_s + length_s - time.monotonic()))
        resumed_s = time.monotonic()
        victim.signal(signal.SIGCONT)
        for thread in threads:
            thread.join(_TIMEOUT_MS / 1000 + 30)
            assert not thread.is_alive(), f"round {self._round}: a request has no end"
        self._judge("controller" if is_controller else "another node", stopped_s, resumed_s)

    def _send_new(
        self, later: Callable[[str, float, Callable[[], RequestClient]], None], node: Node, kind: str, delay_s: float
    ) -> None:
        is_direct = self._chance.random() < 0.75
        address: Address = node.controller_address if is_direct else node.address
        name = f"{kind}, {'controller' if is_direct else 'broker'}'s listener"
        later(name, delay_s, lambda: RequestClient(address))

    def _request(self, kind: str, delay_s: float, connect: Callable[[], RequestClient], place: int) -> None:
        time.sleep(delay_s)
        entry = CreateTopicsRequest.CreatableTopic(
            name=f"round-{self._round}-{place}", num_partitions=1, replication_factor=1
        )
        request = CreateTopicsRequest(topics=[entry], timeout_ms=_TIMEOUT_MS, validate_only=place % 2 == 1)
        at_s = time.monotonic()
        code: int | None = None
        try:
            client = connect()
            answer = client.call(request, 7)
            assert isinstance(answer, CreateTopicsResponse)
            code = answer.topics[0].error_code
            client.close()
        except (OSError, DecodeError, IndexError):
            pass
        with self._lock:
            self._sent.append(Sent(kind, at_s, time.monotonic(), code))

    def _judge(self, who: str, stopped_s: float, resumed_s: float) -> None:
        for sent in self._sent:
            asleep_s = max(0.0, min(resumed_s, sent.ended_s) - max(stopped_s, sent.at_s))
            wait_s = sent.ended_s - sent.at_s - asleep_s
            self.waits.append(
                (wait_s, f"round {self._round}, {who}, paused {resumed_s - stopped_s:.2f} s: {sent.kind}")
            )
            name = "closed" if sent.code is None else ErrorCode(sent.code).name
            self.codes[name] = self.codes.get(name, 0) + 1


def main(rounds: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(Path(folder), ROLES)
        try:
            nodes.start()
            times = PauseTimes(nodes, seed)
            for done in range(1, rounds + 1):
                times.run()
                if done % 50 == 0 or done == rounds:
                    waits = sorted(wait for wait, _ in times.waits)
                    figures = [percentile(waits, share) for share in (0.5, 0.99)]
                    print(
                        f"{done} rounds, {len(waits)} requests: median {figures[0]:.3f}, p99 {figures[1]:.3f}, "
                        f"max {waits[-1]:.3f} s; {times.codes}",
                        flush=True,
                    )
            for wait_s, what in sorted(times.waits, reverse=True)[:5]:
                print(f"{wait_s:7.3f} s  {what}")
        finally:
            nodes.close()


if __name__ == "__main__":
    main(*(int(text) for text in (sys.argv[1:] + ["300", "1"][len(sys.argv) - 1 :])))
