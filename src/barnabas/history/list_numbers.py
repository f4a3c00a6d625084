"""Lists of brokers and their numbers in the file: a cluster has few different lists, and each is stored once."""

from __future__ import annotations

import sqlite3
from itertools import islice

import numpy as np

from barnabas.monitor.columns import UNKNOWN, IntArray, packed, unpacked

_INT_BYTES = 4


class ListNumbers:
    """The lists of one file. Readers call `refresh` before they use numbers that were written since."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lists: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._by_bytes: dict[bytes, int] = {}
        self._width = 0
        self._written = 0
        self._matrix: IntArray = np.zeros((0, 1), np.int32)
        self.refresh()

    def refresh(self) -> None:
        """Reads the lists that were added to the file."""
        rows = self._connection.execute(
            "SELECT numbers FROM lists WHERE id >= ? ORDER BY id", (len(self._lists),)
        ).fetchall()
        for (text,) in rows:
            self._add(tuple(map(int, text.split(","))) if text else ())
        self._written = len(self._lists)

    def numbers_of(self, column: IntArray) -> IntArray:
        """Returns the number of each row of a column of lists; new lists get one."""
        if column.shape[1] != self._width:
            self._by_bytes.clear()
            self._width = int(column.shape[1])
        data, step, known = np.ascontiguousarray(column).tobytes(), self._width * _INT_BYTES, self._by_bytes
        found = [known.get(data[at : at + step], UNKNOWN) for at in range(0, len(data), step)]
        if UNKNOWN in found:
            for place, number in enumerate(found):
                if number == UNKNOWN:
                    found[place] = known[data[place * step : (place + 1) * step]] = self._add(unpacked(column[place]))
        return np.array(found, np.int32)

    def number_of(self, numbers: tuple[int, ...]) -> int:
        return self._add(numbers)

    def write(self) -> None:
        """Writes new lists to the file; in the caller's transaction, before the rows that use them."""
        if self._written < len(self._lists):
            rows = enumerate(islice(self._lists, self._written, None), self._written)
            self._connection.executemany(
                "INSERT INTO lists VALUES (?, ?)", ((number, ",".join(map(str, each))) for number, each in rows)
            )
            self._written = len(self._lists)

    def list_of(self, number: int) -> tuple[int, ...]:
        return self._lists[number]

    @property
    def width(self) -> int:
        """Returns the length of the longest list."""
        return int(self.matrix().shape[1])

    def matrix(self) -> IntArray:
        """Returns all lists as the rows of an array."""
        if len(self._matrix) != len(self._lists):
            width = max(1, max(map(len, self._lists), default=1))
            self._matrix = packed(self._lists, width)
        return self._matrix

    def _add(self, numbers: tuple[int, ...]) -> int:
        found = self._numbers.setdefault(numbers, len(self._lists))
        if found == len(self._lists):
            self._lists.append(numbers)
        return found
