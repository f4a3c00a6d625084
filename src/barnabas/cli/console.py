"""`barnabas console`: a page with every partition of a cluster, live, served by this machine."""

from __future__ import annotations

import asyncio
import getpass
import os
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
from barnabas.console.pages import HOW_TO_BUILD, Pages
from barnabas.console.security.passwords import hashed
from barnabas.console.security.rights import ROLES
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

DEFAULT_PORT = 8088
_USERS_NAME = "console-users.json"
_AUDIT_NAME = "console-audit.jsonl"

app = typer.Typer(help="Serve a page with every partition of a cluster, live", invoke_without_command=True)
user_app = typer.Typer(help="List, add and remove users of the console", no_args_is_help=True)
app.add_typer(user_app, name="user")

UsersPath = Annotated[
    Path | None,
    typer.Option("--users", metavar="FILE", help="The file of users; default: next to the file of contexts"),
]


@app.callback()
def console(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(help="Port of the page; 0 picks a free one", min=0, max=65535)] = DEFAULT_PORT,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The embedded cluster in this directory, with the lab")
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="CONTEXT", help="Also show the cluster of this context; repeatable"),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Record the cluster's states into this file, for the scrubber"),
    ] = None,
    incident: Annotated[
        Path | None,
        typer.Option("--incident", metavar="FILE", help="Show a saved incident, or a history, instead of a cluster"),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all changes")] = False,
    users: UsersPath = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain (PEM) for https", exists=True)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM)", exists=True)] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="A name by which browsers reach the page; repeatable"),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on another address without users or without TLS")
    ] = False,
    controllers: Controllers = None,
    controller_properties: ControllersProperty = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Serve a page with every partition of a cluster, live, until Ctrl-C

    The page is for this machine only, unless there are users (`barnabas console user add`) and TLS.
    """
    if ctx.invoked_subcommand is not None:
        return
    own = _own_target(incident, directory, history, bootstrap, properties or [])
    if controllers:
        own = _with_controllers(own, controllers, controller_properties or [])
    targets = [own, *_targets(cluster or [])]
    place = Place(host, port, tls_certificate, tls_key)
    users_path = _users_path(users)
    has_users = bool(_users(users_path))
    _check_place(place, has_users=has_users, insecure=insecure)
    options = ConsoleOptions(
        users=users_path if has_users or (not is_loopback(host) and not insecure) else None,
        read_only=read_only,
        history=history,
        audit=users_path.with_name(_AUDIT_NAME),
        hosts=_hosts(place, allowed_host or []),
        is_tls=place.is_tls,
    )
    run(targets, options, place)


def run(targets: Sequence[Target], options: ConsoleOptions, place: Place) -> None:
    """Serves the console until a signal."""
    pages = Pages()
    if not pages.is_built:
        output.say(HOW_TO_BUILD)

    async def main() -> None:
        def on_ready(url: str) -> None:
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


def _own_target(
    incident: Path | None, directory: Path | None, history: Path | None, bootstrap: str, properties: list[str]
) -> Target:
    if incident is not None:
        if directory is not None or history is not None:
            raise Failure("--incident shows a file: --dir and --history are for a cluster")
        return incident_target(incident)
    return embedded_target(directory) if directory is not None else _target(bootstrap, properties)


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
        raise Failure("--tls-certificate and --tls-key belong together")
    if is_loopback(place.host) or insecure:
        return
    if not has_users:
        raise Failure(
            f"at {place.host} others reach the console, and it has no users",
            "add one with `barnabas console user add NAME`; --insecure serves it without",
        )
    if not place.is_tls:
        raise Failure(
            f"at {place.host} passwords would cross the network in plain text",
            "give it --tls-certificate and --tls-key; --insecure serves it without",
        )


def _hosts(place: Place, allowed: Sequence[str]) -> frozenset[str] | None:
    """Returns the names of the console. A console on all addresses, without names, has any."""
    names = frozenset(name.lower() for name in allowed)
    if place.host in ("0.0.0.0", "::"):
        return names or None
    return names | {place.host.lower()}


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
    users: UsersPath = None,
) -> None:
    """Add a user, or replace the password and the role of one

    The password is read from the terminal, or from the first line of the standard input.
    """
    if role not in ROLES:
        raise Failure(f"there is no role {role}", f"roles: {', '.join(ROLES)}")
    path = _users_path(users)
    try:
        name = checked_name(name)
        UsersFile(path).put(User(name, ROLES[role], hashed(checked_password(_password(name)))))
    except UsersError as error:
        raise Failure(str(error)) from error
    print(f"user {name} has the role {role}")


@user_app.command(name="list")
def list_users(users: UsersPath = None) -> None:
    """List the users with their roles"""
    found = _users(_users_path(users))
    output.show_table(["user", "role"], [(name, user.role.name.lower()) for name, user in sorted(found.items())])


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
