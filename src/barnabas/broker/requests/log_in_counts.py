"""The numbers of authentications on each listener, as Kafka counts them."""

from __future__ import annotations

from collections.abc import Iterator


class ListenerCounts:
    """The counts of one listener."""

    __slots__ = ("expired", "failed", "failed_renewals", "succeeded", "succeeded_renewals", "without_renewal")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.succeeded_renewals = 0
        self.failed_renewals = 0
        #: Successful authentications of clients that cannot authenticate again on the same connection.
        self.without_renewal = 0
        #: Connections closed because their session had ended.
        self.expired = 0

    def count_success(self, *, is_renewal: bool, renews: bool) -> None:
        if is_renewal:
            self.succeeded_renewals += 1
            return
        self.succeeded += 1
        if not renews:
            self.without_renewal += 1

    def count_failure(self, *, is_renewal: bool) -> None:
        if is_renewal:
            self.failed_renewals += 1
        else:
            self.failed += 1


class LogInCounts:
    """The counts of all listeners with a log-in."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerCounts] = {}

    def of(self, listener: str) -> ListenerCounts:
        return self._listeners.setdefault(listener, ListenerCounts())

    def __iter__(self) -> Iterator[tuple[str, ListenerCounts]]:
        yield from sorted(self._listeners.items())
