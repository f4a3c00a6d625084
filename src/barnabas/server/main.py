"""`barnabas broker FILE`: one node as a process. It parses arguments by hand and imports little, to start quickly.

    broker FILE [--override key=value ...] [--cluster-id ID [--new-cluster]]

It prints `started: host:port` when clients can connect. SIGTERM and SIGINT stop it cleanly.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas import REFUSED_PYTHON
from barnabas.broker.assembly import Broker
from barnabas.common.config import BrokerConfig, parse_properties
from barnabas.common.continuations import Background, set_background
from barnabas.common.errors import ConfigError, FatalFault, StorageFault
from barnabas.common.jaas_file import with_jaas_file
from barnabas.server.host import ServerHost
from barnabas.server.listener import ListenerLog
from barnabas.server.memory import check_regularly, prepare, settle
from barnabas.server.node_listeners import NodeListeners
from barnabas.server.node_tls import NodeTls, use_zookeeper_tls
from barnabas.server.turns import Turns

if TYPE_CHECKING:
    from barnabas.server.exporter import Exporter

try:
    import uvloop

    _new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # uvloop is not available on every platform; asyncio's own loop works as well, but slower.
    _new_event_loop = asyncio.new_event_loop

log = logging.getLogger("barnabas")

_USAGE = "usage: barnabas broker FILE [--override key=value ...] [--cluster-id ID]"
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_STOP_S_MAX = 20


class UsageError(Exception):
    """The error for an invalid command line; the text says what is allowed."""


def main(argv: Sequence[str]) -> int:
    """Runs a node until a signal stops it. Returns the exit code."""
    if REFUSED_PYTHON is not None:
        sys.stderr.write(f"barnabas: {REFUSED_PYTHON}\n")
        return 2
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
    )
    try:
        options = load_config(argv)
    except (UsageError, ConfigError) as error:
        sys.stderr.write(f"barnabas: {error}\n")
        return 2
    for warning in options.config.warnings:
        log.warning("%s", warning)
    loop = _new_event_loop()
    try:
        return loop.run_until_complete(_serve(options, loop))
    except (ConfigError, FatalFault, StorageFault) as error:
        sys.stderr.write(f"barnabas: {error}\n")
        return 1
    finally:
        loop.close()


class Options(NamedTuple):
    """The command line: the configuration, and how empty directories are formatted."""

    config: BrokerConfig
    cluster_id: str | None
    #: Whether the cluster has never run. Only a command that starts a node for the first time can know it.
    is_new_cluster: bool


def load_config(argv: Sequence[str]) -> Options:
    """Parses the command line. Raises UsageError or ConfigError."""
    arguments = list(argv)
    if arguments[:1] == ["broker"]:
        arguments.pop(0)
    file: str | None = None
    overrides: dict[str, str] = {}
    cluster_id: str | None = None
    is_new_cluster = False
    while arguments:
        argument = arguments.pop(0)
        if argument in ("-h", "--help"):
            raise UsageError(_USAGE)
        if argument == "--override" or argument.startswith("--override="):
            pair = argument.partition("=")[2] if "=" in argument else (arguments.pop(0) if arguments else "")
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise UsageError(f"--override takes key=value, not {pair!r}\n{_USAGE}")
            overrides[key.strip()] = value.strip()
        elif argument == "--cluster-id":
            cluster_id = arguments.pop(0) if arguments else ""
            if not _CLUSTER_ID.fullmatch(cluster_id):
                raise UsageError(f"--cluster-id takes 22 characters of base64, not {cluster_id!r}\n{_USAGE}")
        elif argument == "--new-cluster":
            is_new_cluster = True
        elif argument.startswith("-") or file is not None:
            raise UsageError(f"unexpected argument {argument!r}\n{_USAGE}")
        else:
            file = argument
    if file is None:
        raise UsageError(_USAGE)
    try:
        properties = parse_properties(_text_of(file))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: the file is not UTF-8") from error
    config = BrokerConfig.from_properties(with_jaas_file({**properties, **overrides}, _text_of))
    return Options(config, cluster_id, is_new_cluster)


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read()


async def _serve(options: Options, loop: asyncio.AbstractEventLoop) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host = ServerHost(loop)
    set_background(Background(host.faults))
    listener_log = ListenerLog(host.clock)
    zookeeper_tls = use_zookeeper_tls(options.config, host.links)
    broker = await _compose(host, options, listener_log, stop)
    if broker is None:
        host.close()
        return 0
    config = broker.config
    tls = NodeTls(config, host.links, zookeeper_tls)
    listeners = NodeListeners(broker, host, listener_log, tls)
    exporter: Exporter | None = None
    try:
        prepare()
        broker.open()
        await listeners.bind()
        await listeners.open_early()
        exporter = await _export(broker, config, listeners, host.turns)
        ready, may_open = asyncio.Event(), asyncio.Event()
        broker.start(ready.set, may_open.set)
        await _first_of(may_open, stop)
        if not stop.is_set():
            await listeners.open_all()
            await _first_of(ready, stop)
        settle()
        check_regularly(loop)
        host.turns.begin_serving()
        if ready.is_set():
            _announce(config)
        tls.import_aside()
        await stop.wait()
        log.info("stopping")
        return 0
    finally:
        stopped = asyncio.Event()

        def release() -> None:
            host.turns.end_serving()
            listeners.close()

        broker.stop(stopped.set, release)
        try:
            await asyncio.wait_for(stopped.wait(), _STOP_S_MAX)
        except TimeoutError:
            log.error(
                "the controller did not complete the controlled shutdown within %d s: stopping without it", _STOP_S_MAX
            )
            listeners.close()
        if exporter is not None:
            exporter.close()
        host.close()


async def _compose(host: ServerHost, options: Options, log: ListenerLog, stop: asyncio.Event) -> Broker | None:
    """Returns the broker, in the mode that the configuration chooses; None if a signal stops it first. Raises
    ConfigError."""
    config, cluster_id, is_new_cluster = options
    if not config.is_zookeeper_mode:
        return Broker.create(host, config, log, cluster_id, is_new_cluster=is_new_cluster)
    if cluster_id is not None:
        raise ConfigError("--cluster-id is for KRaft mode: in ZooKeeper mode the id is in /cluster/id")
    made: list[Broker | ConfigError] = []
    is_made = asyncio.Event()

    def done(result: Broker | ConfigError) -> None:
        made.append(result)
        is_made.set()

    importlib.import_module("barnabas.broker.zookeeper.composition").compose(host, config, log, done)
    await _first_of(is_made, stop)
    for each in made:
        if isinstance(each, ConfigError):
            raise each
        return each
    return None


async def _export(broker: Broker, config: BrokerConfig, listeners: NodeListeners, turns: Turns) -> Exporter | None:
    """Starts /metrics if it is configured."""
    address = config.str_of("barnabas.metrics.listener")
    if not address:
        return None
    made: Exporter = importlib.import_module("barnabas.server.exporter").Exporter(
        broker, listeners.counts, turns, listeners.certificates
    )
    await made.start(address)
    return made


async def _first_of(*events: asyncio.Event) -> None:
    """Waits until one of the events is set."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _announce(config: BrokerConfig) -> None:
    """Prints the address for clients, or for brokers, as a signal to the program that waits for this node."""
    controllers = config.controller_listener_names
    listeners = [listener for listener in config.advertised_listeners if listener.name not in controllers]
    for listener in (listeners or config.advertised_listeners)[:1]:
        sys.stdout.write(f"started: {listener.host}:{listener.port}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
