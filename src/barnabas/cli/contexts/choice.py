"""The context that a command uses, and why.

    --bootstrap, --context, BARNABAS_BOOTSTRAP, BARNABAS_CONTEXT, a cluster that was started in this directory,
    the user's current context, 127.0.0.1:9092

The first of them that is given decides. A command that has the addresses from --bootstrap or BARNABAS_BOOTSTRAP uses no
context at all: no password is sent to a cluster that it was not meant for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from rich.text import Text

from barnabas.cli import output
from barnabas.cli.contexts.store import Context, Contexts, users_file
from barnabas.embedded.failures import Failure

ENVIRONMENT: Final = "BARNABAS_CONTEXT"
_NEW_CLUSTER: Final = (
    "start a cluster with `barnabas up --detach`, or give the address of one with --bootstrap HOST:PORT"
)


class Reason(StrEnum):
    """The reason why a context was chosen."""

    OPTION = "--context names it"
    ENVIRONMENT = f"{ENVIRONMENT} names it"
    DIRECTORY = "its cluster belongs to this directory"
    CURRENT = "it is the current one"


class Choice(NamedTuple):
    """A context in use, and the reason why it was chosen."""

    name: str
    context: Context
    reason: Reason


class _Command:
    """The context that the running command requested by --context, and the one that was chosen for it."""

    requested: str | None = None
    chosen: Choice | None = None
    #: The client settings of the command: those of its context, and of its options.
    settings: Mapping[str, str] = MappingProxyType({})


def begin() -> None:
    """Forgets the request and the choice of a context, before the next command in this process."""
    _Command.requested = _Command.chosen = None
    _Command.settings = MappingProxyType({})


def request(name: str | None) -> None:
    """Stores the value of --context, which can be given before or after the name of the command."""
    if name is not None:
        _Command.requested = name


def requested() -> str | None:
    return _Command.requested


def set_client_settings(settings: Mapping[str, str]) -> None:
    """Sets the client settings for connections that this command opens without librdkafka."""
    _Command.settings = settings


def client_settings() -> Mapping[str, str]:
    return _Command.settings


def in_use() -> Choice | None:
    """Returns the context that this command uses."""
    return _Command.chosen


def use() -> Choice | None:
    """Chooses the context of this command, once. Returns None if no context applies."""
    if _Command.chosen is None:
        _Command.chosen = find_choice()
    return _Command.chosen


def find_choice(contexts: Contexts | None = None) -> Choice | None:
    """Returns the context that applies here and now; `contexts` is the content of the user's file, if it was read
    already. Raises Failure for a name that does not exist.
    """
    found = _users_contexts() if contexts is None else contexts
    return choose(found, option=_Command.requested, environment=os.environ, directory=_working_directory())


def choose(
    contexts: Contexts, *, option: str | None, environment: Mapping[str, str], directory: str | None
) -> Choice | None:
    """Returns the context that the order of precedence selects from those in the file."""
    if option is not None:
        return Choice(option, contexts[option], Reason.OPTION)
    if name := environment.get(ENVIRONMENT):
        return Choice(name, contexts[name], Reason.ENVIRONMENT)
    here = [
        (context.started_ms, name)
        for name, context in contexts.contexts.items()
        if directory is not None and directory in (context.started_in, context.directory)
    ]
    if here:
        name = max(here)[1]
        return Choice(name, contexts[name], Reason.DIRECTORY)
    if contexts.current is not None:
        return Choice(contexts.current, contexts[contexts.current], Reason.CURRENT)
    return None


def directory_of_requested() -> Path | None:
    """Returns the directory of the context that --context names; None without --context. Raises Failure if the context
    has none.
    """
    return None if _Command.requested is None else directory_in_use()


def directory_in_use() -> Path | None:
    """Returns the directory of the context that this command uses; None if no context applies. Raises Failure if the
    context has none.
    """
    chosen = use()
    if chosen is None:
        return None
    if chosen.context.directory is None:
        raise Failure(
            f"context {chosen.name} ({chosen.reason}) has no directory: its cluster was not started by `barnabas up`",
            "name the directory of a cluster with --dir",
        )
    return Path(chosen.context.directory)


def use_of_directory(directory: Path) -> None:
    """Uses the context of a cluster's directory, if there is one; a damaged file must not keep a cluster running."""
    with suppress(Failure):
        contexts = _users_contexts()
        name = contexts.of_directory(str(directory))
        if name is not None:
            _Command.chosen = Choice(name, contexts[name], Reason.DIRECTORY)


def unreachable_hint() -> str:
    """Returns the hint for a cluster that does not answer."""
    if _Command.chosen is None:
        return _NEW_CLUSTER
    name, context, reason = _Command.chosen
    start = f"start it with `barnabas up --detach --dir {context.directory}`, or " if context.directory else ""
    return f"this is the cluster of context {name} ({reason}); {start}choose another with --context or --bootstrap"


def other_directory_hint(directory: Path) -> str | None:
    """Returns the hint for a command that found no cluster in a directory: where that of the context in use is. None if
    no context applies, or its cluster is in that directory or in none.
    """
    chosen = use()
    if chosen is None or chosen.context.directory in (None, str(directory)):
        return None
    name, context, reason = chosen
    return f"the cluster of context {name} ({reason}) is in {context.directory}; name it with --dir {context.directory}"


def warn_if_production(what: str) -> None:
    """Prints a warning before a destructive action if the context in use is marked as production."""
    if _Command.chosen is not None and _Command.chosen.context.production:
        name, context, _ = _Command.chosen
        mark = Text("warning: ", style=f"bold {context.colour}")
        output.stderr.print(mark.append(f"context {name} is marked as production; this command {what}"))


def _users_contexts() -> Contexts:
    file = users_file(os.environ)
    return Contexts() if file is None else file.read()


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
