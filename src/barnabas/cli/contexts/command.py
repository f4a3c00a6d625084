"""`barnabas context list|use|set|show|delete`: named clusters for --context."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import output
from barnabas.cli.clients import address
from barnabas.cli.contexts import choice
from barnabas.cli.contexts.store import COLOURS, PROPERTY, Context, ContextFile, Contexts, check_name, users_file
from barnabas.cli.options import Json, key_values
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a context")]

app = typer.Typer(help="List, choose, create and delete named clusters", no_args_is_help=True)


@app.command(name="list")
def list_contexts(as_json: Json = False) -> None:
    """List the contexts; `*` marks the one that a command in this directory would use"""
    contexts = _file().read()
    used = _name_in_use(contexts)
    items = [_shown(contexts, name, used) for name in sorted(contexts.contexts)]
    if as_json:
        output.show_json(items)
        return
    columns = ["in use", "current", "context", "bootstrap", "production", "directory"]
    rows = [
        (
            "*" if item["in_use"] else "",
            "yes" if item["current"] else "",
            item["context"],
            item["bootstrap"],
            item["colour"] if item["production"] else "",
            item["directory"],
        )
        for item in items
    ]
    output.show_table(columns, rows)


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a context; default: the one in use")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one context, and why it is in use; secrets are hidden"""
    contexts = _file().read()
    in_use = choice.find_choice(contexts)
    if name is None:
        if in_use is None:
            raise Failure("no context is in use", "commands use --bootstrap, BARNABAS_BOOTSTRAP or 127.0.0.1:9092")
        name = in_use.name
    used = None if in_use is None else in_use.name
    item = _shown(contexts, name, used)
    item["in_use_because"] = str(in_use.reason) if in_use is not None and name == used else None
    if as_json:
        output.show_json(item)
        return
    context = contexts[name]
    print(f"context {name}" + (f", in use: {item['in_use_because']}" if item["in_use"] else ", not in use"))
    print(f"  bootstrap: {','.join(context.bootstrap)}")
    if context.directory is not None:
        print(f"  directory: {context.directory}")
    for key, value in sorted(item["properties"].items()):
        print(f"  property {key}: {value}")
    marked = f"yes ({context.colour}): destructive commands print a warning" if context.production else "no"
    print(f"  production: {marked}")


@app.command()
def use(name: Name) -> None:
    """Make a context the current one"""
    contexts = _file().change(lambda contexts: contexts.with_current(name))
    print(f"the current context is {name}")
    in_use = choice.find_choice(contexts)
    if in_use is not None and in_use.name != name:
        output.say(
            f"in this directory, commands use context {in_use.name}: {in_use.reason}; --context {name} overrides"
        )


@app.command(name="set")
def set_context(
    name: Name,
    addresses: Annotated[
        str | None, typer.Option("--bootstrap", "-b", metavar="HOST:PORT,...", help="Addresses of the brokers")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory of a cluster that `barnabas up` started")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-X",
            metavar="KEY=VALUE",
            help="A client setting: security.protocol, sasl.* or ssl.* (librdkafka's names); repeatable",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove-property", metavar="KEY", help="A client setting to remove; repeatable"),
    ] = None,
    production: Annotated[
        bool | None,
        typer.Option("--production/--no-production", help="Print a warning before destructive commands"),
    ] = None,
    colour: Annotated[
        str | None, typer.Option("--colour", "--color", help=f"Colour of the warning: {', '.join(COLOURS)}")
    ] = None,
) -> None:
    """Create a context, or change the given settings of an existing one"""
    check_name(name)
    changes: dict[str, Any] = {} if directory is None else _cluster_in(directory)
    if addresses is not None:
        changes["bootstrap"] = _addresses(addresses)
    if production is not None:
        changes["production"] = production
    if colour is not None:
        changes["colour"] = _known(colour)
    added = key_values(properties or [], "--property")
    for key in added:
        if not PROPERTY.fullmatch(key):
            raise Failure(f"--property {key}: a context holds security.protocol, sasl.* and ssl.* only")
    contexts = _file().change(partial(_changed, name, changes, added, remove or []))
    print(f"saved context {name}")
    if contexts.current != name:
        output.say(f"`barnabas context use {name}` makes it the current one")


def _changed(
    name: str, changes: Mapping[str, Any], added: Mapping[str, str], removed: Sequence[str], contexts: Contexts
) -> Contexts:
    before = contexts.contexts.get(name)
    if before is None and "bootstrap" not in changes:
        raise Failure(f"there is no context {name}, and a new one needs addresses", "give --bootstrap or --dir")
    old = before or Context(())
    if missing := set(removed).difference(old.properties):
        raise Failure(f"--remove-property {min(missing)}: context {name} has no such property")
    kept = {key: value for key, value in old.properties.items() if key not in removed}
    return contexts.with_context(name, replace(old, **changes, properties={**kept, **added}))


def _cluster_in(directory: Path) -> dict[str, Any]:
    nodes = EmbeddedCluster(directory).nodes
    if not nodes:
        raise Failure(f"no cluster has been started in {directory}", f"start one with: barnabas up --dir {directory}")
    return {"directory": str(directory.absolute()), "bootstrap": tuple(node.bootstrap for node in nodes)}


def _known(colour: str) -> str:
    if colour not in COLOURS:
        raise Failure(f"--colour {colour}: expected one of {', '.join(COLOURS)}")
    return colour


@app.command()
def delete(name: Name) -> None:
    """Delete a context; its cluster and its data stay"""
    was_current = False

    def changed(contexts: Contexts) -> Contexts:
        nonlocal was_current
        was_current = contexts.current == name
        return contexts.without(name)

    _file().change(changed)
    print(f"deleted context {name}")
    if was_current:
        output.say("it was the current context; now there is none")


def _file() -> ContextFile:
    file = users_file(os.environ)
    if file is None:
        raise Failure("there is no directory for contexts", "set XDG_CONFIG_HOME or HOME")
    return file


def _name_in_use(contexts: Contexts) -> str | None:
    """Returns the name of the context in use. A name that does not exist is reported, and the list is still shown."""
    try:
        in_use = choice.find_choice(contexts)
    except Failure as error:
        output.say(error.message)
        return None
    return None if in_use is None else in_use.name


def _shown(contexts: Contexts, name: str, used: str | None) -> dict[str, Any]:
    shown = contexts[name].shown()
    return {"context": name, "current": contexts.current == name, "in_use": name == used, **shown}


def _addresses(text: str) -> tuple[str, ...]:
    found = tuple(each.strip() for each in text.split(","))
    for each in found:
        address(each)
    return found
