"""The file of the console's users, readable by its owner only.

    {"version": 1, "users": {"anna": {"role": "operator", "salt": "...", "digest": "...", "n": 16384, "r": 8, "p": 1,
                                      "topics": ["shop-*"]}}}

The file is replaced as a whole, so a reader sees the old or the new content. A running console reads it again after a
change: a user who was removed has no session any more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.console.security.passwords import Hashed
from barnabas.console.security.rights import ROLES, Role
from barnabas.console.security.scope import EVERY, UNLIMITED, Patterns

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
PASSWORD_MIN: Final = 8
PASSWORD_MAX: Final = 1_024
PATTERN_KINDS: Final = ("clusters", "topics", "groups")
_VERSION: Final = 1


class UsersError(Exception):
    """The error for a file of users that cannot be read, or for a user that it cannot hold."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    password: Hashed
    patterns: Patterns = UNLIMITED


@dataclass(slots=True)
class UsersFile:
    """The users of one file. A missing file has none."""

    path: Path
    _stamp: tuple[int, int, int] | None = None
    _users: Mapping[str, User] = field(default_factory=dict)

    def read(self) -> Mapping[str, User]:
        """Returns the users by name. Raises UsersError for a damaged file."""
        try:
            status = self.path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._users = _parsed(self.path.read_bytes(), self.path)
                self._stamp = stamp
        except FileNotFoundError:
            self._stamp, self._users = None, {}
        return self._users

    def put(self, user: User) -> None:
        """Adds a user, or replaces the one of this name."""
        self._write({**self.read(), user.name: user})

    def remove(self, name: str) -> None:
        """Removes a user. Raises UsersError if there is none of this name."""
        users = dict(self.read())
        if name not in users:
            raise UsersError(f"there is no user {name} in {self.path}")
        del users[name]
        self._write(users)

    def _write(self, users: Mapping[str, User]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {
            "version": _VERSION,
            "users": {
                name: {"role": user.role.name.lower(), **user.password._asdict(), **_shown(user.patterns)}
                for name, user in sorted(users.items())
            },
        }
        new = self.path.with_name(self.path.name + ".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)


def checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise UsersError(f"{name!r} is not a valid user name: letters, digits and . _ @ - are allowed")
    return name


def checked_password(password: str) -> str:
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise UsersError(f"a password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters")
    return password


def _parsed(data: bytes, path: Path) -> dict[str, User]:
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise UsersError(f"{path} was written by a later version: {content['version']}")
        return {name: _user(name, row) for name, row in content["users"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsersError(f"{path} is damaged: {error!r}") from error


def _user(name: str, row: Mapping[str, Any]) -> User:
    password = Hashed(str(row["salt"]), str(row["digest"]), int(row["n"]), int(row["r"]), int(row["p"]))
    bytes.fromhex(password.salt + password.digest)
    patterns = {kind: _patterns(row[kind]) for kind in PATTERN_KINDS if kind in row}
    return User(name, ROLES[row["role"]], password, Patterns(**patterns))


def _patterns(value: Any) -> tuple[str, ...]:
    """Parses a list of patterns. Raises ValueError for anything else: a damaged restriction must not count as none."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"not a list of patterns: {value!r}")
    return tuple(value)


def _shown(patterns: Patterns) -> dict[str, list[str]]:
    found = {kind: getattr(patterns, kind) for kind in PATTERN_KINDS}
    return {kind: list(each) for kind, each in found.items() if each != EVERY}
