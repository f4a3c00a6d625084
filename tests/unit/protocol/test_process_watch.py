"""The watch of a process by an idle connection."""

from __future__ import annotations

from tests.support.process_links import Listening, ProcessLinks

from barnabas.protocol.process_watch import ProcessEvents, ProcessWatch
from barnabas.simulation.host import MemoryHost

PORT = 9092


class Watched:
    """A process at one address, and the events of its watch."""

    def __init__(self, *, is_known: bool = False) -> None:
        host = MemoryHost()
        self.time = host.time
        self.listening = Listening.ACCEPTS
        self.responds = True
        self.links = ProcessLinks(self.time, lambda port: self.listening, lambda port: self.responds)
        host.links = self.links  # type: ignore[assignment]
        self.events: list[str] = []
        events = ProcessEvents(lambda: self.events.append("gone"), lambda: self.events.append("answers"))
        self.watch = ProcessWatch(host, ("localhost", PORT), events, is_known=is_known)

    def run(self, listening: Listening | None = None, *, for_ms: int = 5_000) -> list[str]:
        if listening is not None:
            self.listening = listening
        self.time.run_for(for_ms)
        return self.events

    def end(self, listening: Listening = Listening.REFUSES) -> None:
        self.listening = listening
        self.links.cut(PORT)


def test_a_process_that_ends_is_gone_at_once() -> None:
    watched = Watched()
    watched.watch.start()
    assert watched.run() == []
    assert watched.links.open_ports == [PORT]
    watched.end()
    assert watched.run(for_ms=0) == ["gone"]
    assert watched.run() == ["gone"]


def test_a_refused_dial_says_nothing_before_a_connection() -> None:
    watched = Watched()
    watched.listening = Listening.REFUSES
    watched.watch.start()
    assert watched.run() == []
    watched.run(Listening.ACCEPTS)
    watched.end()
    assert watched.run(for_ms=0) == ["gone"]


def test_the_first_dial_counts_for_a_process_that_is_known() -> None:
    watched = Watched(is_known=True)
    watched.listening = Listening.REFUSES
    watched.watch.start()
    assert watched.run(for_ms=0) == ["gone"]


def test_a_connection_that_closes_is_dialled_again() -> None:
    """A peer closes idle connections, and has not ended."""
    watched = Watched()
    watched.watch.start()
    watched.run()
    watched.end(Listening.ACCEPTS)
    assert watched.run() == []
    assert watched.links.open_ports == [PORT]


def test_a_process_that_cannot_be_reached_is_not_gone() -> None:
    watched = Watched()
    watched.watch.start()
    watched.run()
    watched.end(Listening.SILENT)
    assert watched.run(for_ms=20_000) == []
    assert watched.run(Listening.ACCEPTS) == []
    assert watched.links.open_ports == [PORT]


def test_a_listener_that_still_accepts_for_a_moment_hides_no_end() -> None:
    watched = Watched()
    watched.watch.start()
    watched.run()
    watched.end(Listening.CLOSES)
    assert watched.run(for_ms=50) == []
    assert watched.run(Listening.REFUSES, for_ms=50) == ["gone"]


def test_a_peer_that_closes_every_connection_is_dialled_rarely() -> None:
    watched = Watched()
    watched.listening = Listening.CLOSES
    watched.watch.start()
    watched.run(for_ms=10_000)
    assert len(watched.links.dialled) < 40


def test_only_a_response_brings_a_process_back() -> None:
    """A process that has started again accepts connections before it serves."""
    watched = Watched()
    watched.watch.start()
    watched.run()
    watched.end()
    watched.run()
    watched.responds = False
    assert watched.run(Listening.ACCEPTS) == ["gone"]
    watched.end()
    assert watched.run() == ["gone"]
    watched.responds = True
    assert watched.run(Listening.ACCEPTS) == ["gone", "answers"]
    watched.end()
    assert watched.run() == ["gone", "answers", "gone"]


def test_a_closed_watch_is_silent() -> None:
    watched = Watched()
    watched.watch.start()
    watched.run()
    watched.watch.close()
    watched.end()
    assert watched.run() == []
    assert watched.links.open_ports == []
    assert len(watched.links.dialled) == 1
