"""An immutable mapping of many entries that arrive together and then change one by one.

`immutables.Map` copies a few nodes for each change, but takes several times as long as a dict to fill: as long as
everything else when 100,000 rules are read at a start. So the entries that arrive together are in a dict, which is
shared and never changed, and the other changes are in a `Map` above it.

Changes are applied at the first use of the mapping after them, or by `settle`. If the mappings in between are not used,
as when a log is read, one dict is made from all changes, without a copy for each.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterator, Mapping
from typing import Final, TypeVar, cast

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")

#: Changes are made in a dict if there are this many, and at least an eighth as many as entries: a copy of the dict then
#: costs less than they do.
_TOGETHER_MIN: Final = 1_000
_SHARE: Final = 8
#: The number of pending changes at which they are applied. Each pending change keeps the mapping before it in memory.
_LINKS_MAX: Final = 1_000
#: The value of a key of the dict that was removed later. No entry has this value.
_REMOVED: Final = None

_Changes = list[tuple[Mapping[K, V], Collection[K]]]


class _Items(ItemsView[K, V]):
    """The entries of a mapping, without a look-up for each."""

    _mapping: LayeredMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class LayeredMap(Mapping[K, V]):
    """A mapping without None as a value. `changed` returns a new mapping."""

    __slots__ = ("_above", "_base", "_links", "_pending", "_size")

    def __init__(self) -> None:
        self._base: dict[K, V] = {}
        self._above: Map[K, V | None] = Map()
        self._size = 0
        #: The mapping before, the entries added, and the keys removed, if they are not applied yet; the other
        #: attributes have no meaning then.
        self._pending: tuple[LayeredMap[K, V], Mapping[K, V], Collection[K]] | None = None
        #: The number of changes that are pending.
        self._links = 0

    def changed(self, added: Mapping[K, V], removed: Collection[K] = ()) -> LayeredMap[K, V]:
        """Returns this mapping without some entries, which can be absent, and with others added or replaced. The caller
        does not change the arguments any more.
        """
        if not added and not removed:
            return self
        made: LayeredMap[K, V] = LayeredMap()
        made._pending, made._links = (self, added, removed), self._links + 1
        if made._links == _LINKS_MAX:
            made.settle()
        return made

    def settle(self) -> None:
        """Applies the changes that are pending."""
        changes = []
        last = self
        while last._pending is not None:
            changes.append(last._pending[1:])
            last = last._pending[0]
        if not changes:
            return
        changes.reverse()
        if sum(len(added) + len(removed) for added, removed in changes) >= max(_TOGETHER_MIN, last._size // _SHARE):
            self._apply_to_dict(last, changes)
        else:
            self._apply_above(last, changes)
        self._pending, self._links = None, 0

    def _apply_to_dict(self, last: LayeredMap[K, V], changes: _Changes[K, V]) -> None:
        base = last.to_dict()
        for added, removed in changes:
            for key in removed:
                base.pop(key, None)
            base.update(added)
        self._base, self._size = base, len(base)

    def _apply_above(self, last: LayeredMap[K, V], changes: _Changes[K, V]) -> None:
        base, above, size = last._base, last._above.mutate(), last._size
        for added, removed in changes:
            for key in removed:
                if (above[key] if key in above else base.get(key)) is not _REMOVED:
                    size -= 1
                    if key in base:
                        above[key] = _REMOVED
                    else:
                        del above[key]
            for key, value in added.items():
                size += (above[key] if key in above else base.get(key)) is _REMOVED
                above[key] = value
        self._base, self._above, self._size = base, above.finish(), size

    def to_dict(self) -> dict[K, V]:
        """Returns the entries as a new dict."""
        self.settle()
        found = self._base.copy()
        for key, value in self._above.items():
            if value is not _REMOVED:
                found[key] = value
            else:
                del found[key]
        return found

    # -- Mapping

    def __getitem__(self, key: K) -> V:
        self.settle()
        if key in self._above:
            value = self._above[key]
            if value is _REMOVED:
                raise KeyError(key)
            return value
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        self.settle()
        if key in self._above:
            return self._above[cast(K, key)] is not _REMOVED
        return key in self._base

    def __len__(self) -> int:
        self.settle()
        return self._size

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.pairs())

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def pairs(self) -> Iterator[tuple[K, V]]:
        """Returns an iterator over the entries."""
        self.settle()
        return self._pairs() if self._above else iter(self._base.items())

    def _pairs(self) -> Iterator[tuple[K, V]]:
        above = self._above
        for each in self._base.items():
            if each[0] not in above:
                yield each
        for key, value in above.items():
            if value is not _REMOVED:
                yield key, value

    def __repr__(self) -> str:
        return f"LayeredMap({self.to_dict()!r})"
