"""`barnabas console`: a page with every partition of a cluster, live, served by this machine."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli import output
from barnabas.cli.clients import address
from barnabas.cli.contexts import choice
from barnabas.cli.contexts.store import Context, Contexts, users_file
from barnabas.cli.monitor import Controllers, ControllersProperty
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, key_values
from barnabas.console.config_file import ClusterEntry, ConfigFile, ConfigFileError
from barnabas.console.config_file import read as read_config
from barnabas.console.messages.registry import SchemaRegistry
from barnabas.console.pages import HOW_TO_BUILD, Pages
from barnabas.console.security.passwords import hashed
from barnabas.console.security.rights import ROLES
from barnabas.console.security.scope import EVERY, Patterns
from barnabas.console.security.users import User, UsersError, UsersFile, checked_name, checked_password
from barnabas.console.serving import Place, is_loopback, serve
from barnabas.console.state import Console, ConsoleOptions
from barnabas.console.target import Target
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.signals import until_signalled
from barnabas.history.errors import HistoryError
from barnabas.history.reader import History
from barnabas.monitor.broker_connection import Address, Security
from barnabas.server import memory

DEFAULT_PORT = 8088
_USERS_NAME = "console-users.json"
_AUDIT_NAME = "console-audit.jsonl"
#: Free memory that the process keeps. The state of a large cluster is read and compared in bursts, of which the C
#: library would keep the most that one ever needed.
_KEPT_BYTES = 8 * 1024 * 1024

app = typer.Typer(help="Serve a page with every partition of a cluster, live", invoke_without_command=True)
user_app = typer.Typer(help="List, add and remove users of the console", no_args_is_help=True)
app.add_typer(user_app, name="user")

UsersPath = Annotated[
    Path | None,
    typer.Option("--users", metavar="FILE", help="The file of users; default: next to the file of contexts"),
]
Directory = Annotated[
    Path | None, typer.Option("--dir", help="Show the embedded cluster in this directory, with the lab")
]
ClusterNames = Annotated[
    list[str] | None,
    typer.Option("--cluster", metavar="CONTEXT", help="Also show the cluster of this context; repeatable"),
]
HistoryPath = Annotated[
    Path | None,
    typer.Option("--history", metavar="FILE", help="Record the cluster's states into this file, for the scrubber"),
]
IncidentPath = Annotated[
    Path | None,
    typer.Option("--incident", metavar="FILE", help="Show a saved incident, or a history, instead of a cluster"),
]
ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Read clusters, masks, users and all other settings from a TOML file"
    ),
]
Registry = Annotated[
    str | None, typer.Option("--schema-registry", metavar="URL", help="URL of the registry with the schemas of records")
]
Certificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificate chain (PEM) for https", exists=True)
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM)", exists=True)]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option("--allowed-host", metavar="NAME", help="A name by which browsers reach the page; repeatable"),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on an address of the network even without users or without TLS")
]


@app.callback()
def console(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(help="Port of the page; 0 picks a free one", min=0, max=65535)] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    directory: Directory = None,
    cluster: ClusterNames = None,
    history: HistoryPath = None,
    incident: IncidentPath = None,
    config: ConfigPath = None,
    schema_registry: Registry = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes")] = False,
    users: UsersPath = None,
    tls_certificate: Certificate = None,
    tls_key: Key = None,
    allowed_host: AllowedHosts = None,
    insecure: Insecure = False,
    controllers: Controllers = None,
    controller_properties: ControllersProperty = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Serve a page with every partition of a cluster, live, until Ctrl-C

    The page is for this machine only, unless there are users (`barnabas console user add`) and TLS. Options override
    the file of --config.
    """
    if ctx.invoked_subcommand is not None:
        return
    file = _config_file(config)
    own = _incident_target(incident, directory, history) or _own_target(
        ctx, file, directory, bootstrap, properties or []
    )
    if own is not None and controllers:
        own = _with_controllers(own, controllers, controller_properties or [])
    if own is not None and schema_registry:
        own = replace(own, schema_registry=_registry(schema_registry))
    targets = _distinct([*([] if own is None else [own]), *map(_of_entry, file.clusters), *_targets(cluster or [])])
    place = Place(
        host if _is_given(ctx, "host") else file.host or host,
        port if _is_given(ctx, "port") or file.port is None else file.port,
        tls_certificate or file.certificate,
        tls_key or file.key,
    )
    said = replace(
        file,
        users=users or file.users,
        history=history or file.history,
        read_only=read_only or bool(file.read_only),
        insecure=insecure or bool(file.insecure),
        allowed_hosts=(*(allowed_host or ()), *file.allowed_hosts),
    )
    run(targets, _options(said, place), place)


def _options(said: ConfigFile, place: Place) -> ConsoleOptions:
    """Returns the options of a console that file and command line describe. Raises Failure."""
    insecure = bool(said.insecure)
    users_path = _users_path(said.users)
    has_users = bool(_users(users_path))
    if said.users is not None and not has_users:
        raise Failure(
            f"{users_path} has no users",
            f"add one with `barnabas console user add NAME --users {users_path}`, or name no file of users",
        )
    _check_place(place, has_users=has_users, insecure=insecure)
    return ConsoleOptions(
        users=users_path if has_users or (not is_loopback(place.host) and not insecure) else None,
        read_only=bool(said.read_only),
        history=said.history,
        audit=said.audit or users_path.with_name(_AUDIT_NAME),
        hosts=_hosts(place, said.allowed_hosts, has_users=has_users),
        is_tls=place.is_tls,
        role_patterns=said.roles,
        masks=said.masks,
    )


def _config_file(path: Path | None) -> ConfigFile:
    try:
        return ConfigFile() if path is None else read_config(path)
    except ConfigFileError as error:
        raise Failure(str(error)) from error


def _is_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option is on the command line, or in the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def _own_target(
    ctx: typer.Context, file: ConfigFile, directory: Path | None, bootstrap: str, properties: list[str]
) -> Target | None:
    """Returns the cluster of the options; None if the file has the clusters and no option names another one."""
    if directory is not None:
        return embedded_target(directory)
    if file.clusters and not _is_given(ctx, "bootstrap"):
        return None
    return _target(bootstrap, properties)


def _of_entry(entry: ClusterEntry) -> Target:
    """Returns the cluster of an entry of the file. Raises Failure."""
    if entry.directory is not None:
        found = replace(embedded_target(entry.directory), name=entry.name)
    elif entry.context is not None:
        (found,) = _targets([entry.context])
        found = replace(found, name=entry.name)
    else:
        found = Target(entry.name, _addresses((entry.bootstrap or "").split(",")), _security(dict(entry.properties)))
    if entry.controllers:
        settings = [f"{name}={value}" for name, value in entry.controllers_properties.items()]
        found = _with_controllers(found, entry.controllers, settings)
    if entry.production:
        found = replace(found, production=True, colour=entry.colour)
    return replace(found, schema_registry=entry.schema_registry)


def _distinct(targets: list[Target]) -> list[Target]:
    """Raises Failure for two clusters of one name: a link could not say which one it means."""
    names = [each.name for each in targets]
    for name in names:
        if names.count(name) > 1:
            raise Failure(f"two clusters have the name {name}", "give one of them another name")
    return targets


def _registry(url: str) -> str:
    try:
        SchemaRegistry(url)
    except ValueError as error:
        raise Failure(str(error)) from error
    return url


def run(targets: Sequence[Target], options: ConsoleOptions, place: Place) -> None:
    """Serves the console until a signal. Garbage collection is set as in a broker: with 40,000 partitions a full
    collection would hold back every request for 0.1 s.
    """
    pages = Pages()
    if not pages.is_built:
        output.say(HOW_TO_BUILD)

    async def main() -> None:
        def on_ready(url: str) -> None:
            memory.settle()
            memory.check_regularly(asyncio.get_running_loop(), kept_bytes=_KEPT_BYTES)
            print(f"console: {url}", flush=True)

        try:
            await serve(Console(targets, options), place, on_ready=on_ready, pages=pages)
        except HistoryError as error:
            raise Failure(str(error)) from error
        except OSError as error:
            raise Failure(
                f"the console cannot listen on {place.host}:{place.port}: {error.strerror or error}"
            ) from error

    if asyncio.run(until_signalled(main())):
        raise KeyboardInterrupt


def embedded_target(directory: Path) -> Target:
    """Returns the embedded cluster of a directory. Raises Failure if there is none."""
    cluster = EmbeddedCluster(directory)
    nodes, security = cluster.nodes, cluster.security
    if not nodes:
        raise Failure(f"no cluster has been started in {directory}", "start one with `barnabas up`")
    settings = {} if security is None else security.client_settings()
    bootstrap = _addresses([node.bootstrap for node in nodes])
    return Target(cluster.directory.name, bootstrap, _security(settings), directory=cluster.directory)


def _incident_target(incident: Path | None, directory: Path | None, history: Path | None) -> Target | None:
    """Returns the incident of the options; None without one. Raises Failure for options that contradict it."""
    if incident is None:
        return None
    if directory is not None or history is not None:
        raise Failure("--incident shows a file instead of a cluster: omit --dir and --history")
    return incident_target(incident)


def incident_target(path: Path) -> Target:
    """Returns the incident in a file. Raises Failure if it is none."""
    try:
        with History.open(path) as found:
            found.span()
    except HistoryError as error:
        raise Failure(str(error)) from error
    return Target(path.stem, (), incident=path)


def _target(bootstrap: str, properties: list[str]) -> Target:
    found = choice.in_use()
    settings = key_values(properties, "--property")
    if found is None:
        return Target("cluster", _addresses(bootstrap.split(",")), _security(settings))
    return _of_context(found.name, found.context, settings)


def _with_controllers(target: Target, controllers: str, properties: list[str]) -> Target:
    settings = key_values(properties, "--controllers-property")
    security = _security(settings) if settings else target.security
    return replace(target, controllers=_addresses(controllers.split(",")), controllers_security=security)


def _targets(names: Sequence[str]) -> list[Target]:
    file = users_file(os.environ)
    contexts = Contexts() if file is None else file.read()
    return [_of_context(name, contexts[name], dict(contexts[name].properties)) for name in names]


def _of_context(name: str, context: Context, settings: dict[str, str]) -> Target:
    return Target(
        name,
        _addresses(context.bootstrap),
        _security(settings),
        colour=context.colour if context.production else None,
        production=context.production,
        directory=None if context.directory is None else Path(context.directory),
    )


def _addresses(texts: Sequence[str]) -> tuple[Address, ...]:
    return tuple(address(each.strip()) for each in texts if each.strip())


def _security(settings: dict[str, str]) -> Security:
    try:
        return Security.from_properties(settings)
    except (ValueError, OSError) as error:
        raise Failure(str(error)) from error


def _check_place(place: Place, *, has_users: bool, insecure: bool) -> None:
    """Raises Failure for a page that others reach without a log-in, or without TLS."""
    if (place.certificate is None) != (place.key is None):
        raise Failure("--tls-certificate and --tls-key must be given together")
    if is_loopback(place.host) or insecure:
        return
    if not has_users:
        raise Failure(
            f"the console has no users, and other machines can reach it at {place.host}",
            "add one with `barnabas console user add NAME`, or serve it without users with --insecure",
        )
    if not place.is_tls:
        raise Failure(
            f"at {place.host} passwords would cross the network in plain text",
            "give --tls-certificate and --tls-key, or serve it without TLS with --insecure",
        )


def _hosts(place: Place, allowed: Sequence[str], *, has_users: bool) -> frozenset[str] | None:
    """Returns the host names that requests can use, besides addresses; None for any name, if the console listens on all
    addresses and no names are given. Without users these are the names of this machine: a page of any other name could
    be that of a stranger who lets it lead to this console.
    """
    names = frozenset(name.lower() for name in allowed)
    if place.host not in ("0.0.0.0", "::"):
        return names | {place.host.lower()}
    if names or has_users:
        return names or None
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


# -- users


def _users_path(given: Path | None) -> Path:
    if given is not None:
        return given
    contexts = users_file(os.environ)
    if contexts is None:
        raise Failure("there is no home directory for the file of users", "name the file with --users")
    return contexts.path.with_name(_USERS_NAME)


def _users(path: Path) -> dict[str, User]:
    try:
        return dict(UsersFile(path).read())
    except UsersError as error:
        raise Failure(str(error)) from error


@user_app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user")],
    role: Annotated[str, typer.Option(help=f"One of {', '.join(ROLES)}")] = "viewer",
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="PATTERN", help="Topics that the user can see, such as shop-*; repeatable"),
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--groups", metavar="PATTERN", help="Groups that the user can see; repeatable")
    ] = None,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--clusters", metavar="PATTERN", help="Clusters that the user can see; repeatable"),
    ] = None,
    users: UsersPath = None,
) -> None:
    """Add a user, or replace the password, the role and the patterns of one

    The password is read from the terminal, or from the first line of the standard input.
    """
    if role not in ROLES:
        raise Failure(f"there is no role {role}", f"roles: {', '.join(ROLES)}")
    path = _users_path(users)
    try:
        name = checked_name(name)
        patterns = Patterns(tuple(clusters or EVERY), tuple(topics or EVERY), tuple(groups or EVERY))
        UsersFile(path).put(User(name, ROLES[role], hashed(checked_password(_password(name))), patterns))
    except UsersError as error:
        raise Failure(str(error)) from error
    print(f"user {name} has the role {role}")


@user_app.command(name="list")
def list_users(users: UsersPath = None) -> None:
    """List the users with their roles"""
    found = _users(_users_path(users))
    columns = ["user", "role", "clusters", "topics", "groups"]
    output.show_table(columns, [_row(user) for _, user in sorted(found.items())])


def _row(user: User) -> tuple[str, ...]:
    patterns = user.patterns
    return (
        user.name,
        user.role.name.lower(),
        *(" ".join(each) for each in (patterns.clusters, patterns.topics, patterns.groups)),
    )


@user_app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user")], users: UsersPath = None
) -> None:
    """Remove a user; the user's sessions end"""
    try:
        UsersFile(_users_path(users)).remove(name)
    except UsersError as error:
        raise Failure(str(error)) from error
    print(f"removed: user {name}")


def _password(name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"password of {name}: ")
    if getpass.getpass("again: ") != first:
        raise Failure("the two passwords differ")
    return first
