"""The pages of a rolling poll: where each begins, when it was last asked, and which broker is asked next. Pure.

A page begins where the one before ended, so the answers decide about the beginnings. Each page has one broker at a
time, so that two brokers of which one is behind do not change a row back and forth; with each round of `HEAL_S` all
pages move on to the next broker, and every page is decoded and compared in full, unless the table and the answer are
as they were then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.monitor.delta import NameRange
from barnabas.monitor.look_requests import Cursor

if TYPE_CHECKING:
    from barnabas.monitor.broker_connection import Repeated

#: The time after which each page is compared in full, whether its bytes changed or not.
HEAL_S: Final = 60.0
_NEVER: Final = float("-inf")


@dataclass(slots=True)
class Page:
    """A range of partitions."""

    start: Cursor | None
    #: The topics to request; None for all.
    names: tuple[str, ...] | None = None
    #: Whether it has only a second copy of what other pages have, and is asked once in `HEAL_S`.
    is_rare: bool = False
    asked_s: float = _NEVER
    is_in_flight: bool = False
    #: Whether it has had an answer.
    is_answered: bool = False
    #: The request for it; None before the first poll.
    request: Repeated[Any] | None = None
    healed_s: float = _NEVER
    #: The number of changes of states, from all feeds, when it was compared in full.
    healed_changes: int = -1

    @property
    def is_urgent(self) -> bool:
        """Whether it was never asked, got no answer, or is wanted in a hurry."""
        return self.asked_s == _NEVER


class PagePlan:
    def __init__(self, interval_s: float, names: tuple[str, ...] | None = None) -> None:
        #: The time between two requests for the same page.
        self.interval_s = interval_s
        self.names = names
        self.pages = [Page(None, names)]
        #: The number of complete rounds, each of which requested every page.
        self._rotation = 0
        self._rotated_s: float | None = None

    def due(self, broker: int, alive: Sequence[int], now_s: float) -> Page | None:
        """Returns the page that a broker has to be asked for now, the one that waits longest first."""
        if broker not in alive:
            return None
        if self._rotated_s is None or now_s - self._rotated_s >= HEAL_S:
            self._rotation += self._rotated_s is not None
            self._rotated_s = now_s
        found = None
        place = sorted(alive).index(broker)
        for index, page in enumerate(self.pages):
            is_own = (index + self._rotation) % len(alive) == place
            if (
                is_own
                and not page.is_in_flight
                and now_s - page.asked_s >= (HEAL_S if page.is_rare else self.interval_s)
                and (found is None or page.asked_s < found.asked_s)
            ):
                found = page
        return found

    def must_decode(self, page: Page, now_s: float, changes: int) -> bool:
        """Returns whether an answer is compared in full even if it is the same as the last one. That finds nothing if
        no feed has changed a state since.
        """
        return now_s - page.healed_s >= HEAL_S and page.healed_changes != changes

    def healed(self, page: Page, now_s: float, changes: int) -> None:
        page.healed_s, page.healed_changes = now_s, changes

    def asked(self, page: Page, now_s: float) -> None:
        page.asked_s, page.is_in_flight = now_s, True

    def failed(self, page: Page) -> None:
        """Makes a page without an answer due for another broker."""
        page.is_in_flight, page.asked_s = False, _NEVER

    def answered(self, page: Page, following: Cursor | None) -> None:
        """Takes the place where the page ended."""
        page.is_in_flight, page.is_answered = False, True
        if page not in self.pages:
            return
        index = self.pages.index(page)
        after = self.pages[index + 1 :]
        if following is None:
            self.pages = self.pages[: index + 1]
        elif not after or after[0].start != following:
            kept = [each for each in after if each.start is not None and each.start > following]
            self.pages = [*self.pages[: index + 1], Page(following, self.names), *kept]

    def divided(self, chunks: Sequence[tuple[str, ...]]) -> None:
        """Requests these groups of topics from now on, and all topics only rarely: brokers that offer no pages answer
        by topic names.
        """
        if [page.names for page in self.pages[1:]] != list(chunks):
            known = {page.names: page for page in self.pages[1:]}
            self.pages = [self.pages[0], *(known.get(names) or Page(None, names) for names in chunks)]
        self.pages[0].is_rare = bool(chunks)

    def repeated(self, page: Page) -> None:
        """Takes an answer with which the page ends where it ended before."""
        page.is_in_flight, page.is_answered = False, True

    def hurry(self, topic: str | None = None) -> None:
        """Makes all pages due now, or only the one with a topic's first partition."""
        wanted = self.pages
        if topic is not None:
            whole = [page for page in self.pages if page.names == self.names]
            wanted = [page for page in whole if page.start is None or page.start <= (topic, 0)][-1:]
        for page in wanted:
            page.asked_s = _NEVER

    @property
    def is_complete(self) -> bool:
        """Whether every page was answered once."""
        return all(page.is_answered for page in self.pages)


def covered(start: Cursor | None, following: Cursor | None) -> NameRange:
    """Returns the names of the topics that a page has from their first partition on."""
    first = "" if start is None else start[0] if start[1] == 0 else start[0] + "\0"
    return NameRange(first, None if following is None else following[0])
