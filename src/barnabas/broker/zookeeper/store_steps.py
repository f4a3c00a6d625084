"""Requests to ZooKeeper that follow from one another, written as a generator.

    reply = yield lambda reply: store.read(path, reply)

One request, or one window of reads, is in flight at a time. A request whose answer was lost is made again when the
session is connected again, so a generator only yields requests that can be repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.common.errors import ConfigError
from barnabas.common.host import Timers
from barnabas.znodes import paths
from barnabas.zookeeper.client.store import CreateReply, ReadReply, ZnodeStore
from barnabas.zookeeper.wire.codes import CreateFlags, ErrorCode


class Reply(Protocol):
    """An answer of the store."""

    @property
    def is_lost(self) -> bool: ...


#: A function that makes a request and passes the answer to its argument.
Request = Callable[[Callable[[Any], None]], None]
T = TypeVar("T")
#: The number of reads that are in flight together.
_WINDOW: Final = 100
Steps = Generator[Request, Any, T]


class StoreSteps:
    """The execution of one generator. `done` is called with its result, unless `close` is called before."""

    def __init__(self, steps: Steps[Any], done: Callable[[Any], None]) -> None:
        self._steps = steps
        self._done = done
        self._request: Request | None = None
        self._is_waiting = False
        self._is_closed = False

    def start(self) -> StoreSteps:
        self._continue(None)
        return self

    def resume(self) -> None:
        """Repeats the request whose answer was lost, after the session is connected again."""
        if self._is_waiting and not self._is_closed:
            self._is_waiting = False
            self._send()

    def close(self) -> None:
        """Stops: later answers have no effect."""
        self._is_closed = True
        self._steps.close()

    def _send(self) -> None:
        assert self._request is not None, "`_continue` has set the request"
        self._request(self._on_reply)

    def _on_reply(self, reply: Reply) -> None:
        if self._is_closed:
            return
        if reply.is_lost:
            self._is_waiting = True
        else:
            self._continue(reply)

    def _continue(self, reply: Reply | None) -> None:
        try:
            self._request = self._steps.send(reply)
        except StopIteration as end:
            self._is_closed = True
            self._done(end.value)
            return
        self._send()


class RunningSteps:
    """The generators in progress, each independent of the others."""

    def __init__(self) -> None:
        self._running: dict[StoreSteps, None] = {}

    def start(self, steps: Steps[T], done: Callable[[T], None]) -> None:
        """Starts a generator; `done` is called with its result."""

        def ended(result: T) -> None:
            del self._running[running]
            done(result)

        running = StoreSteps(steps, ended)
        self._running[running] = None
        running.start()

    def resume(self) -> None:
        """Repeats the requests whose answers were lost, after the session is connected again."""
        for running in tuple(self._running):
            running.resume()


class _Done(NamedTuple):
    """The answer to a pause, which is never lost, and to several reads."""

    is_lost: bool = False


class Turns:
    """Turns of generators that change the same thing, by its name: each waits for the end of those before it."""

    def __init__(self) -> None:
        #: The names in use -> those who wait, in their order.
        self._waiting: dict[str, deque[Callable[[_Done], None]]] = {}

    def wait(self, name: str) -> Steps[None]:
        """Waits for the turn, which `end` ends."""
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = deque()
        else:
            yield waiting.append

    def end(self, name: str) -> None:
        waiting = self._waiting[name]
        if waiting:
            waiting.popleft()(_Done())
        else:
            del self._waiting[name]


def pause(timers: Timers, duration_ms: int) -> Steps[None]:
    """Lets the event loop do other work, for at least this long."""

    def request(answered: Callable[[_Done], None]) -> None:
        timers.call_later(duration_ms, lambda: answered(_Done()))

    yield request


def read(store: ZnodeStore, path: str, *, watch: bool = False) -> Steps[ReadReply]:
    reply: ReadReply = yield lambda answered: store.read(path, answered, watch=watch)
    return reply


def read_all(store: ZnodeStore, names: Iterable[str], take: Callable[[str, ReadReply], None]) -> Steps[None]:
    """Reads many znodes, a window of them at a time. `take` receives each reply as it arrives, some of them twice."""
    left = list(names)
    while left:
        window, left = left[:_WINDOW], left[_WINDOW:]
        yield partial(_read_window, store, window, take)


def _read_window(
    store: ZnodeStore, window: list[str], take: Callable[[str, ReadReply], None], answered: Callable[[_Done], None]
) -> None:
    replies: list[ReadReply] = []

    def on_reply(path: str, reply: ReadReply) -> None:
        replies.append(reply)
        if not reply.is_lost:
            take(path, reply)
        if len(replies) == len(window):
            answered(_Done(any(each.is_lost for each in replies)))

    for path in window:
        store.read(path, partial(on_reply, path))


def create(store: ZnodeStore, path: str, data: bytes | None, flags: int = CreateFlags.PERSISTENT) -> Steps[CreateReply]:
    reply: CreateReply = yield lambda answered: store.create(path, data, flags, None, answered)
    return reply


def make_path(store: ZnodeStore, path: str, data: bytes | None = None) -> Steps[int]:
    """Creates a znode, and its parents where they are missing. Returns the error code of the znode's creation."""
    reply = yield from create(store, path, data)
    if reply.error == ErrorCode.NO_NODE and path.rpartition("/")[0]:
        yield from make_path(store, path.rpartition("/")[0])
        reply = yield from create(store, path, data)
    return reply.error


def not_permitted(path: str) -> ConfigError:
    """Returns the error for a znode that this broker must have, and must not create."""
    return ConfigError(
        f"{path} cannot be created: NO_AUTH: the ACL of {path.rpartition('/')[0]} admits other identities only; where "
        "zookeeper.set.acl is true, the certificates of all brokers have the same subject"
    )


def make_roots(store: ZnodeStore) -> Steps[None]:
    """Creates the persistent znodes that every broker creates first, in Kafka's order."""
    for path in paths.PERSISTENT_PATHS:
        yield from make_path(store, path)
