"""The sorted names of the topics of an image.

Sorting 50,000 names takes 12 ms, too long for each request that reads topics in order. A change of a few topics merges
their names into the sorted names of the image before it, in less than a millisecond.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from barnabas.metadata.topics import TopicsByName

#: The number of changed names above which they are merged immediately: each following change copies them.
_CHANGES_MAX: Final = 1_000


class TopicNames:
    """The names of one image. They are sorted at the first call of `sorted`, and kept."""

    __slots__ = ("_added", "_by_name", "_known", "_removed")

    def __init__(self, by_name: TopicsByName | None = None) -> None:
        #: The topics to which the names belong; None: unknown, the names have to be sorted.
        self._by_name = by_name
        #: Sorted names of an earlier image, and the changes since. Images share this list, so it is never changed.
        self._known: list[str] = []
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def sorted(self, by_name: TopicsByName) -> Sequence[str]:
        """Returns the names of these topics in order. The caller must not change them."""
        if self._by_name is not by_name:
            self._by_name, self._known = by_name, sorted(by_name)
        elif self._added or self._removed:
            removed = self._removed
            known = [name for name in self._known if name not in removed] if removed else self._known
            self._known = sorted([*known, *sorted(self._added)])
        else:
            return self._known
        self._added, self._removed = set(), set()
        return self._known

    def following(
        self, before: TopicsByName, after: TopicsByName, removed: Collection[str], added: Collection[str]
    ) -> TopicNames:
        """Returns the names of the topics `after`, which differ from `before` in these names. A name in both was
        removed first.
        """
        found = TopicNames(after)
        if self._by_name is before:
            found._known = self._known
            found._removed = self._removed.union(removed)
            # A name that was added since the known ones were sorted is not among them: only its addition is removed.
            found._added = self._added.difference(removed).union(added)
        elif before:
            return TopicNames()
        else:
            found._added = set(added)
        if len(found._added) + len(found._removed) > _CHANGES_MAX:
            found.sorted(after)
        return found
