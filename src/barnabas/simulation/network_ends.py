"""The programs at the two ends of a simulated connection, and the errors that the system raises for them."""

from __future__ import annotations

import os
from typing import Protocol

Address = tuple[str, int]


def failure(code: int) -> OSError:
    """Returns the subclass of OSError that the system would raise."""
    return OSError(code, os.strerror(code))


class End(Protocol):
    """A program's side of a connection."""

    def connected(self) -> None: ...

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None:
        """Notifies the program that the peer sends no more data."""

    def closed(self, error: OSError | None) -> None:
        """Notifies the program, as the last call, that the connection is broken, or that this side closed it."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...
