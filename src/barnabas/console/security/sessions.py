"""Sessions, kept by the server: the browser has only a random name of its session, in a cookie that no script reads."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.console.security.rights import Role

_IDLE_S: Final = 12 * 3600.0
_LIFE_S: Final = 7 * 24 * 3600.0
_SESSIONS_MAX: Final = 1_000
_BYTES: Final = 32


@dataclass(slots=True)
class Session:
    """A session of a browser. `token` must be in a header of every change. `generation` is that of the user's
    password.
    """

    user: str
    role: Role
    token: str
    begun_s: float
    used_s: float
    generation: str = ""
    is_ended: bool = False


class Sessions:
    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        #: Sessions by hash, so that a dump of this process has no cookies. The least recently used is first.
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: str, role: Role, generation: str = "") -> tuple[str, Session]:
        """Returns the value of the cookie, and the session."""
        cookie, now_s = secrets.token_urlsafe(_BYTES), self._clock_s()
        session = Session(user, role, secrets.token_urlsafe(_BYTES), now_s, now_s, generation)
        self._sessions[_key(cookie)] = session
        while len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)[1].is_ended = True
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        key = _key(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        now_s = self._clock_s()
        if now_s - session.used_s > _IDLE_S or now_s - session.begun_s > _LIFE_S:
            self.end(cookie)
            return None
        session.used_s = now_s
        self._sessions.move_to_end(key)
        return session

    def end(self, cookie: str) -> None:
        session = self._sessions.pop(_key(cookie), None)
        if session is not None:
            session.is_ended = True

    def end_all_of(self, user: str) -> None:
        for key in [key for key, session in self._sessions.items() if session.user == user]:
            self._sessions.pop(key).is_ended = True


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
