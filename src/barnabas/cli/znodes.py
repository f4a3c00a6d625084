"""`barnabas znodes`: the znodes at and below a path, with their contents as Kafka's codecs read them."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.cli import output
from barnabas.cli.contexts import choice
from barnabas.cli.options import Json
from barnabas.cli.zookeeper_tls import TlsConfigFile, tls_settings
from barnabas.common import zookeeper_security
from barnabas.common.errors import ConfigError
from barnabas.common.host import Clock, FaultHandler, Links, Random, Timers
from barnabas.common.settings import Settings
from barnabas.common.types import uuid_to_text
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.server.host import ServerHost
from barnabas.server.links import LoopLinks
from barnabas.server.node_tls import use_zookeeper_tls
from barnabas.znodes.kinds import codec_of
from barnabas.znodes.znode_follower import Change, SeenZnode, ZnodeFollower
from barnabas.znodes.znode_json import ZnodeError
from barnabas.zookeeper.client.hosts import ConnectString, parse_connect_string
from barnabas.zookeeper.client.zookeeper_client import ClientSettings, ZooKeeperClient
from barnabas.zookeeper.wire.codes import ErrorCode, EventType
from barnabas.zookeeper.znode_paths import problem_of

_DEFAULT: Final = "127.0.0.1:2181"
_CONNECT_S: Final = 10.0
_SESSION_TIMEOUT_MS: Final = 10_000
#: A tree is read with many requests in flight.
_WINDOW: Final = 100
_UUID_BYTES: Final = 16
_TEXT_CHARS_MAX: Final = 200


def znodes(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="The znode at which to begin")] = "/",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Continue with each change, until Ctrl-C")] = False,
    as_json: Json = False,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            "-z",
            envvar="BARNABAS_ZOOKEEPER",
            metavar="HOST:PORT,.../CHROOT",
            help="The ZooKeeper servers, as in zookeeper.connect; by default those of the cluster that `up` started",
        ),
    ] = None,
    tls_file: TlsConfigFile = None,
) -> None:
    """Show znodes and their contents

    PATH is below the chroot. Content that Kafka does not write at its path is shown with the problem. With --json there
    is one line for each znode, and with --watch one for each change.
    """
    problem = problem_of(path)
    if problem is not None:
        raise Failure(f"{path!r} is not a path: {problem}")
    try:
        servers = parse_connect_string(_of_context() if zookeeper is None else zookeeper)
    except ConfigError as error:
        raise Failure(str(error)) from error
    asyncio.run(_Viewer(servers, path, tls_settings(tls_file), watch=watch, as_json=as_json).run())


def _of_context() -> str:
    """Returns the ZooKeeper of the cluster that other commands find, if `up` has started it in ZooKeeper mode."""
    chosen = choice.use()
    directory = None if chosen is None else chosen.context.directory
    return (directory and EmbeddedCluster(Path(directory)).recorded.connect) or _DEFAULT


class _Faults:
    """Prints the warnings of the client, such as a lost session or a server that does not answer."""

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise Failure(message) from error

    def report(self, message: str, error: BaseException | None = None) -> None:
        output.say(message)

    def warn(self, message: str) -> None:
        output.say(message)

    def inform(self, message: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Host:
    """The ports of a client."""

    clock: Clock
    timers: Timers
    random: Random
    links: Links
    faults: FaultHandler


class _Viewer:
    """A run of the command; the listener of its client."""

    def __init__(self, servers: ConnectString, path: str, tls: Settings | None, *, watch: bool, as_json: bool) -> None:
        self._servers = servers
        self._path = path
        self._tls = tls
        self._watch = watch
        self._as_json = as_json
        #: The tree is printed; changes follow.
        self._is_shown = False
        self._opened = asyncio.Event()
        self._done = asyncio.Event()

    async def run(self) -> None:
        machine = ServerHost(asyncio.get_running_loop())
        host = _Host(machine.clock, machine.timers, machine.random, machine.links, _Faults())
        tls = None if self._tls is None else zookeeper_security.tls_name(self._tls)
        settings = ClientSettings(self._servers, _SESSION_TIMEOUT_MS, _WINDOW, tls=tls)
        self._client = ZooKeeperClient(host, settings, self)
        self._follower = ZnodeFollower(
            self._client, self._path, watch=self._watch, on_change=self._on_change, on_settled=self._on_settled
        )
        try:
            self._use_tls(machine.links)
            self._client.open()
            await self._connected()
            await self._done.wait()
            await self._closed()
        finally:
            machine.close()
        if not self._follower.seen:
            raise Failure(f"there is no znode {self._path}")

    def _use_tls(self, links: LoopLinks) -> None:
        try:
            if self._tls is not None:
                use_zookeeper_tls(self._tls, links)
        except ConfigError as error:
            raise Failure(str(error)) from error

    async def _connected(self) -> None:
        try:
            await asyncio.wait_for(self._opened.wait(), _CONNECT_S)
        except TimeoutError:
            raise Failure(
                f"no ZooKeeper server answers at {self._servers}", "give the servers as --zookeeper"
            ) from None

    async def _closed(self) -> None:
        closed = asyncio.Event()
        self._client.close(closed.set)
        await closed.wait()

    # -- zookeeper.client.store.StoreListener

    def session_opened(self, session_id: int) -> None:
        self._opened.set()
        self._follower.start()

    def disconnected(self) -> None: ...

    def reconnected(self) -> None:
        self._follower.start()

    def session_expired(self) -> None:
        self._client.open()

    def auth_failed(self) -> None: ...

    def changed(self, path: str, event_type: EventType) -> None:
        self._follower.changed(path)

    # -- the follower

    def _on_change(self, change: Change, path: str, found: SeenZnode) -> None:
        if self._is_shown:
            self._show_change(change, path, found)

    def _on_settled(self) -> None:
        if self._is_shown:
            return
        self._is_shown = True
        seen = self._follower.seen
        if self._as_json:
            for path in sorted(seen):
                output.show_json(facts_of(path, seen[path]))
        elif seen:
            rows = [(path, *_cells(path, seen[path])) for path in sorted(seen)]
            output.show_table(["path", "version", "session", "says"], rows)
        if not self._watch:
            self._done.set()
        elif not seen:
            output.say(f"there is no znode {self._path} yet: waiting for its creation")

    def _show_change(self, change: Change, path: str, found: SeenZnode) -> None:
        if self._as_json:
            output.show_json({"change": change.value} | facts_of(path, found))
        elif change is Change.DELETED:
            print(f"{change.value} {path}", flush=True)
        else:
            version, session, says = _cells(path, found)
            owner = f" of session {session}" if session else ""
            print(f"{change.value} {path} version {version}{owner} {says}".rstrip(), flush=True)


def _cells(path: str, found: SeenZnode) -> tuple[object, str, str]:
    """Returns version, session and content as text."""
    facts = facts_of(path, found)
    return facts["version"], facts["session"] or "", says(facts)


def says(facts: Mapping[str, Any]) -> str:
    """Returns the content of a znode as one line of text."""
    if facts["problem"]:
        return f"{facts['problem']}: {facts['data']}" if facts["data"] else str(facts["problem"])
    content = facts["content"]
    if content is None:
        return facts["data"] or ""
    if isinstance(content, dict):
        return " ".join(
            f"{name}={value if isinstance(value, str) else _json(value)}" for name, value in content.items()
        )
    return content if isinstance(content, str) else _json(content)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def facts_of(path: str, found: SeenZnode) -> dict[str, Any]:
    """Returns the facts about a znode: `content` as its codec reads it, or `data` as text if no codec can read it."""
    stat = found.stat
    facts: dict[str, Any] = {
        "path": path,
        "version": None if stat is None else stat.version,
        "session": f"{stat.ephemeral_owner:#x}" if stat is not None and stat.ephemeral_owner else None,
        "czxid": None if stat is None else stat.czxid,
        "kind": None,
        "content": None,
        "data": None,
        "problem": None,
    }
    if found.error:
        name = ErrorCode(found.error).name if found.error in set(ErrorCode) else str(found.error)
        return facts | {"problem": f"cannot be read: {name}"}
    data = None if found.content is None else found.content.data
    codec = codec_of(path)
    if codec is None:
        return facts | {"data": _text(data)}
    facts["kind"] = codec.kind
    try:
        facts["content"] = plain(codec.decode(path, data))
    except ZnodeError as error:
        facts |= {"problem": error.problem, "data": _text(data)}
    return facts


def plain(value: Any) -> Any:
    """Returns a decoded content in JSON's types."""
    if isinstance(value, bytes):
        return uuid_to_text(value) if len(value) == _UUID_BYTES else base64.b64encode(value).decode()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value


def _text(data: bytes | None) -> str | None:
    if not data:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"{len(data)} bytes: {data[:32].hex()}"
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= _TEXT_CHARS_MAX else f"{shown[:_TEXT_CHARS_MAX]}... ({len(data)} bytes)"
