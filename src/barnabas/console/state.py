"""The state of the console: its clusters, its users and sessions, and its options."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.console.audit import Audit
from barnabas.console.focus_sweep import sweep_focus
from barnabas.console.lab import Lab
from barnabas.console.messages.masks import Mask, fields_of
from barnabas.console.messages.registry import SchemaRegistry
from barnabas.console.messages.workers import Workers
from barnabas.console.problems import Problem
from barnabas.console.recording import Recording, Saved
from barnabas.console.scoped import ScopedLiveScreens, ScopedScreens
from barnabas.console.screens import LiveScreens, Screens
from barnabas.console.security.login_limits import LoginLimits
from barnabas.console.security.rights import Role
from barnabas.console.security.scope import EVERYTHING, Patterns, Scope
from barnabas.console.security.sessions import Session, Sessions
from barnabas.console.security.users import UsersFile
from barnabas.console.streams import Streams
from barnabas.console.target import Target
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.budget import SHARE
from barnabas.monitor.ending import end_tasks

#: The user of a console without users.
LOCAL_USER = "local"
#: How often tasks are cancelled at the end, and the time that they then have.
_CANCELS: Final = 3
_CANCEL_S: Final = 2.0
#: The time for a read of the history to end, and for the rest to be written.
_RECORDING_S: Final = 5.0
#: Scopes whose screens are kept.
_SCOPES_KEPT: Final = 32
#: The time after the start at which the worker of the first search is started.
_WARM_S: Final = 2.0


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The options of the console. `users` is the file of users; None for a console that only this machine reaches,
    whose visitors can do everything.
    """

    users: Path | None = None
    read_only: bool = False
    #: The file of the audit log; None keeps it in memory.
    audit: Path | None = None
    #: The history of the first cluster; None records nothing.
    history: Path | None = None
    #: Host names that the console accepts in addition to those of the local machine; None for any.
    hosts: frozenset[str] | None = frozenset()
    #: The clusters, topics and groups that users of a role can see.
    role_patterns: Mapping[Role, Patterns] = field(default_factory=dict)
    #: Fields of records that never leave the server.
    masks: tuple[Mask, ...] = ()
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
        #: Screens of users with patterns, by the screens of the whole cluster and the patterns.
        self._scoped: OrderedDict[tuple[int, Scope], ScopedLiveScreens] = OrderedDict()
        self.streams = Streams()
        self.workers = Workers()
        #: Live tails have workers of their own, because each keeps one until its page is closed.
        self.tails = Workers()
        self.registries = {
            target.name: SchemaRegistry(target.schema_registry, clock_s)
            for target in targets
            if target.schema_registry is not None
        }
        self.audit = Audit(options.audit, clock_ms)
        self.recordings: dict[str, Recording | Saved] = {}
        self.labs = {target.name: Lab(target.directory) for target in targets}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Console:
        watched = [each.watched for each in self.screens.values()]
        if self.options.history is not None:
            self.recordings[watched[0].name] = Recording(watched[0], self.options.history)
        for each in watched:
            if each.target.incident is not None:
                self.recordings[each.name] = Saved(each, each.target.incident)
                continue
            task = asyncio.create_task(each.run())
            task.add_done_callback(each.note_end)
            self._tasks += [task, asyncio.create_task(sweep_focus(each))]
        self._tasks.append(asyncio.create_task(self._warm()))
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stop()
        # No task can keep the console from its end.
        await end_tasks(self._tasks, tries=_CANCELS, again_s=_CANCEL_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(self.workers.close(), self.tails.close()), _CANCEL_S)
        for recording in self.recordings.values():
            with suppress(TimeoutError):
                await asyncio.wait_for(recording.close(), _RECORDING_S)

    async def _warm(self) -> None:
        await asyncio.sleep(_WARM_S)
        await self.workers.warm()

    def stop(self) -> None:
        """Ends the live streams, so that the server can stop."""
        self.closing.set()
        for each in self.screens.values():
            each.watched.wake(is_urgent=True)

    def screens_of(self, name: str, scope: Scope = EVERYTHING) -> LiveScreens:
        """Returns the whole screens of a cluster; of the first one in the scope if the name is empty. Raises
        Problem.
        """
        known = {each: screens for each, screens in self.screens.items() if scope.sees_cluster(each)}
        found = known.get(name) if name else next(iter(known.values()), None)
        if found is None:
            raise Problem("unknown-cluster", f"this console has no cluster {name[:100]}".rstrip())
        return found

    def saved_of(self, name: str) -> Saved | None:
        """Returns the incident of this name; None for a cluster that is watched."""
        found = self.recordings.get(name)
        return found if isinstance(found, Saved) else None

    def end_of_incident(self, name: str) -> int | None:
        """Returns the last moment of an incident; None for a cluster that is watched."""
        found = self.saved_of(name)
        return None if found is None else found.span[1]

    def scoped_live(self, whole: LiveScreens, scope: Scope) -> LiveScreens:
        """Returns the screens of a cluster by a scope, up to date; the whole ones if it hides nothing."""
        if not scope.is_restricted:
            return whole
        found = self._scoped.get((id(whole), scope))
        if not isinstance(found, ScopedLiveScreens):
            found = self._keep_scoped((id(whole), scope), ScopedLiveScreens(whole, scope))
        found.follow()
        return found

    def scoped_past(self, whole: Screens, scope: Scope) -> Screens:
        """Returns the screens of a moment by a scope."""
        return ScopedScreens(whole, scope) if scope.is_restricted else whole

    def _keep_scoped(self, key: tuple[int, Scope], screens: ScopedLiveScreens) -> ScopedLiveScreens:
        self._scoped[key] = screens
        while len(self._scoped) > _SCOPES_KEPT:
            self._scoped.popitem(last=False)
        return screens

    def scope_of(self, session: Session | None) -> Scope:
        """Returns what a visitor sees: everything without users, else what the patterns of user and role allow."""
        if self.users is None or session is None:
            return EVERYTHING
        user = self.users.read().get(session.user)
        return Scope.of((None if user is None else user.patterns, self.options.role_patterns.get(session.role)))

    def hidden_fields(self, cluster: str, topic: str) -> tuple[str, ...]:
        """Returns the fields of a topic's records that are masked."""
        return fields_of(self.options.masks, cluster, topic)

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
        """Returns the role of a visitor. Without users, everybody who reaches the console can do everything."""
        if self.users is None:
            return Role.ADMIN
        return Role.NOBODY if session is None else session.role
