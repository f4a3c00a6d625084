"""The file of contexts: $XDG_CONFIG_HOME/barnabas/contexts.json (default ~/.config), readable by its owner only.

    {"version": 1, "current": "shop", "contexts": {"shop": {"bootstrap": ["127.0.0.1:9092", ...], ...}}}

It is replaced as a whole, so a reader sees the old or the new content. Writers lock a second file next to it; changes
that are made at the same time are all kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from barnabas.embedded.failures import Failure

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Colours that every terminal has, by rich's names.
COLOURS: Final = ("red", "green", "yellow", "blue", "magenta", "cyan", "white")
#: The keys of client settings that a context can hold; they are the same in librdkafka and in the other clients here.
PROPERTY: Final = re.compile(r"security\.protocol|(sasl|ssl)\.[a-z0-9._]+|enable\.ssl\.certificate\.verification")
_SECRET: Final = re.compile(r"password|secret|token|jaas|\.key$|\.pem$")
#: The types of plain fields.
_KINDS: Final = {"directory": str | None, "started_in": str | None, "started_ms": int, "production": bool}
_VERSION: Final = 1
_LOCK_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Context:
    """The addresses, client settings and directory of one named cluster."""

    #: HOST:PORT of each broker; any one that answers is enough.
    bootstrap: tuple[str, ...]
    #: Client settings for security, by librdkafka's names.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Directory of a cluster that `barnabas up` started.
    directory: str | None = None
    #: Working directory of the `barnabas up` that wrote this context, and the time of that command.
    started_in: str | None = None
    started_ms: int = 0
    #: Whether destructive commands warn; the colour is that of the warning.
    production: bool = False
    colour: str = "red"

    def shown(self) -> dict[str, Any]:
        """Returns all fields for display, with the values of secret settings hidden."""
        hidden = {key: "(hidden)" if _SECRET.search(key) else value for key, value in self.properties.items()}
        return {**asdict(self), "bootstrap": list(self.bootstrap), "properties": hidden}


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the contexts file: the contexts by name, and the current one."""

    contexts: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def __getitem__(self, name: str) -> Context:
        """Returns a context. Raises Failure if there is none of this name."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none; `barnabas up` and `barnabas context set` create them"
            raise Failure(f"there is no context {name}", f"existing contexts: {known}")
        return self.contexts[name]

    def of_directory(self, directory: str) -> str | None:
        """Returns the name of the context of a cluster's directory."""
        return next((name for name, context in self.contexts.items() if context.directory == directory), None)

    def with_context(self, name: str, context: Context) -> Contexts:
        return replace(self, contexts={**self.contexts, name: context})

    def with_current(self, name: str) -> Contexts:
        """Makes an existing context current. Raises Failure if there is none of this name."""
        _ = self[name]
        return replace(self, current=name)

    def without(self, name: str) -> Contexts:
        _ = self[name]
        kept = {each: context for each, context in self.contexts.items() if each != name}
        return Contexts(kept, None if self.current == name else self.current)


class ContextFile:
    """The file of contexts, to be read and changed. A missing file holds no contexts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Contexts:
        """Returns the contexts. Raises Failure for a damaged file."""
        try:
            return _parse(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return Contexts()
        except ValueError as error:
            raise Failure(
                f"{self.path} is damaged: {error}",
                "correct it, or remove it: it holds only the contexts, which `barnabas up` and `barnabas context set` "
                "write again; with --bootstrap no context is needed",
            ) from error

    def change(self, changed: Callable[[Contexts], Contexts]) -> Contexts:
        """Replaces the contexts by the result of `changed`, and returns it. Raises Failure for a damaged file, which is
        left unchanged.
        """
        # A link to a file elsewhere stays a link.
        target = self.path.resolve()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(target.with_name(target.name + ".lock")):
            contexts = changed(self.read())
            _replace(target, _formatted(contexts))
        return contexts


def users_file(environment: Mapping[str, str]) -> ContextFile | None:
    """Returns the file of the user; None if there is no home directory. The XDG rules ignore a relative path."""
    configured = environment.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configured):
        return ContextFile(Path(configured) / "barnabas" / "contexts.json")
    try:
        return ContextFile(Path.home() / ".config" / "barnabas" / "contexts.json")
    except RuntimeError:
        return None


def check_name(name: str) -> str:
    """Returns a valid name unchanged. Raises Failure for an invalid name."""
    if not NAME.fullmatch(name):
        raise Failure(
            f"{name!r} cannot be the name of a context",
            "a name has 1 to 100 letters, digits, dots, dashes and underscores, and begins with a letter or a digit",
        )
    return name


def _parse(data: bytes) -> Contexts:
    """Parses the content of the contexts file. Raises ValueError with a text that describes what is wrong."""
    content = json.loads(data)
    _require(isinstance(content, dict), "it is not a JSON object")
    version = content.get("version")
    _require(version == _VERSION, f"its version is {version!r}, but this release reads {_VERSION}")
    named, current = content.get("contexts"), content.get("current")
    _require(isinstance(named, dict), 'it has no "contexts"')
    contexts = {name: _context(name, item) for name, item in named.items()}
    _require(current is None or current in contexts, f"its current context {current!r} is not among its contexts")
    return Contexts(contexts, current)


def _context(name: str, item: Any) -> Context:
    where = f"context {name!r}"
    _require(NAME.fullmatch(name) is not None, f"{where} is not a valid name")
    _require(isinstance(item, dict), f"{where} is not a JSON object")
    unknown = set(item) - {each.name for each in fields(Context)}
    _require(not unknown, f"{where} has unknown keys: {', '.join(sorted(unknown))}")
    bootstrap = item.get("bootstrap")
    _require(
        isinstance(bootstrap, list) and bool(bootstrap) and all(isinstance(each, str) for each in bootstrap),
        f'{where} has no list of addresses ("bootstrap")',
    )
    properties = item.get("properties", {})
    _require(
        isinstance(properties, dict) and all(isinstance(each, str) for each in properties.values()),
        f'{where}: "properties" is not a mapping of strings',
    )
    for key, kind in _KINDS.items():
        _require(key not in item or isinstance(item[key], kind), f'{where}: "{key}" has a wrong value')
    colour = item.get("colour", "red")
    _require(colour in COLOURS, f"{where}: {colour!r} is not one of the colours {', '.join(COLOURS)}")
    return Context(**{**item, "bootstrap": tuple(bootstrap), "properties": properties})


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _formatted(contexts: Contexts) -> bytes:
    named = {name: asdict(context) for name, context in sorted(contexts.contexts.items())}
    content = {"version": _VERSION, "current": contexts.current, "contexts": named}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file atomically. Only its owner can read it, because it can hold passwords."""
    partial = path.with_name(path.name + ".tmp")
    partial.unlink(missing_ok=True)
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Failure(f"{path} has been locked by another process for {_LOCK_TIMEOUT_S:.0f} s") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)
