"""The state of the console: its clusters, its users and sessions, and its options."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.console.audit import Audit
from barnabas.console.focus_sweep import sweep_focus
from barnabas.console.lab import Lab
from barnabas.console.messages.workers import Workers
from barnabas.console.problems import Problem
from barnabas.console.recording import Recording
from barnabas.console.screens import LiveScreens
from barnabas.console.security.login_limits import LoginLimits
from barnabas.console.security.rights import Role
from barnabas.console.security.sessions import Session, Sessions
from barnabas.console.security.users import UsersFile
from barnabas.console.target import Target
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.budget import SHARE

#: The user of a console without users.
LOCAL_USER = "local"
#: How often tasks are cancelled at the end, and the time that they then have.
_CANCELS: Final = 3
_CANCEL_S: Final = 2.0
#: The time after the start at which the worker of the first search is started.
_WARM_S: Final = 2.0


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of the console. `users` is the file of users; None for a console that only this machine reaches,
    whose visitors can do all.
    """

    users: Path | None = None
    read_only: bool = False
    #: The file of the audit log; None keeps it in memory.
    audit: Path | None = None
    #: The history of the first cluster; None records nothing.
    history: Path | None = None
    #: Host names that the console accepts in addition to those of the local machine; None for any.
    hosts: frozenset[str] | None = frozenset()
    is_tls: bool = False
    interval_s: float = 1.0
    timeout_s: float = 2.0
    budget_share: float = SHARE


class Console:
    def __init__(
        self,
        targets: Sequence[Target],
        options: ConsoleOptions,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.sessions = Sessions(clock_s)
        self.login_limits = LoginLimits(clock_s)
        self.users = None if options.users is None else UsersFile(options.users)
        self.closing = asyncio.Event()
        #: Limits how many passwords are checked at the same time.
        self.hashing = asyncio.Semaphore(2)
        self.screens: dict[str, LiveScreens] = {
            target.name: LiveScreens(
                WatchedCluster(
                    target,
                    clock_ms=clock_ms,
                    interval_s=options.interval_s,
                    timeout_s=options.timeout_s,
                    budget_share=options.budget_share,
                )
            )
            for target in targets
        }
        #: The number of open live streams.
        self.streams = 0
        self.workers = Workers()
        self.audit = Audit(options.audit, clock_ms)
        self.recordings: dict[str, Recording] = {}
        self.labs = {target.name: Lab(target.directory) for target in targets}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Console:
        if self.options.history is not None:
            first = next(iter(self.screens.values())).watched
            self.recordings[first.name] = Recording(first, self.options.history)
        for each in self.screens.values():
            task = asyncio.create_task(each.watched.run())
            task.add_done_callback(each.watched.note_end)
            self._tasks.append(task)
        self._tasks += [asyncio.create_task(sweep_focus(each.watched)) for each in self.screens.values()]
        self._tasks.append(asyncio.create_task(self._warm()))
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stop()
        left = set(self._tasks)
        # A cancellation that arrives at the end of a wait can be lost, so it is repeated, and no task can keep the
        # console from its end.
        for _ in range(_CANCELS):
            for task in left:
                task.cancel()
            if left:
                _, left = await asyncio.wait(left, timeout=_CANCEL_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.workers.close(), _CANCEL_S)
        for recording in self.recordings.values():
            await recording.close()

    async def _warm(self) -> None:
        await asyncio.sleep(_WARM_S)
        await self.workers.warm()

    def stop(self) -> None:
        """Ends the live streams, so that the server can stop."""
        self.closing.set()
        for each in self.screens.values():
            each.watched.wake()

    def screens_of(self, name: str) -> LiveScreens:
        """Returns the screens of a cluster; of the first one if the name is empty. Raises Problem."""
        found = self.screens.get(name) if name else next(iter(self.screens.values()))
        if found is None:
            raise Problem("unknown-cluster", f"this console has no cluster {name[:100]}")
        return found

    # -- who is there

    def session_of(self, cookie: str | None) -> Session | None:
        """Returns the session of a cookie, if its user still has the rights of its beginning."""
        session = None if not cookie else self.sessions.find(cookie)
        if session is None or self.is_current(session):
            return session
        self.sessions.end(cookie or "")
        return None

    def is_current(self, session: Session) -> bool:
        if session.is_ended:
            return False
        if self.users is None:
            return True
        user = self.users.read().get(session.user)
        return user is not None and user.role is session.role and user.password.digest == session.generation

    def role_of(self, session: Session | None) -> Role:
        """Returns the role of a visitor. Without users, everybody who reaches the console can do all."""
        if self.users is None:
            return Role.ADMIN
        return Role.NOBODY if session is None else session.role
