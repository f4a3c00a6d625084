"""The context of a cluster that `barnabas up` starts: its name, and the fields that a later start changes in it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from barnabas.cli import output
from barnabas.cli.contexts.store import Context, Contexts, users_file
from barnabas.embedded.failures import Failure

#: The default directory of `barnabas up`: its name does not identify a cluster, its parent's name does.
_DEFAULT_DIRECTORY: Final = "barnabas-data"
_LENGTH_MAX: Final = 90


def record(directory: Path, bootstrap: Sequence[str], properties: Mapping[str, str] | None = None) -> None:
    """Writes the context of a started cluster, with the client settings that it needs, and makes it current. If that
    fails, a note says so, and the cluster runs without a context.
    """
    started_in, now_ms = os.getcwd(), time.time_ns() // 1_000_000
    names: list[str] = []

    def change(contexts: Contexts) -> Contexts:
        name, changed = with_started(contexts, str(directory), bootstrap, started_in, now_ms, properties)
        names.append(name)
        return changed

    try:
        file = users_file(os.environ)
        if file is not None:
            file.change(change)
            output.say(f"context: {names[-1]}")
    except (Failure, OSError) as error:
        output.say(f"no context was written: {error}")


def with_started(
    contexts: Contexts,
    directory: str,
    bootstrap: Sequence[str],
    started_in: str,
    now_ms: int,
    properties: Mapping[str, str] | None = None,
) -> tuple[str, Contexts]:
    """Returns the name of the started cluster's context, and the contexts with this one as the current one. An existing
    context of the cluster's directory keeps its name and its other settings.
    """
    name = contexts.of_directory(directory) or _new_name(contexts, Path(directory))
    before = contexts.contexts.get(name, Context(()))
    after = replace(before, bootstrap=tuple(bootstrap), directory=directory, started_in=started_in, started_ms=now_ms)
    if properties is not None:
        after = replace(after, properties={**before.properties, **properties})
    return name, contexts.with_context(name, after).with_current(name)


def _new_name(contexts: Contexts, directory: Path) -> str:
    own = directory.parent if directory.name == _DEFAULT_DIRECTORY else directory
    wanted = re.sub(r"[^A-Za-z0-9._-]+", "-", own.name).strip("-._")[:_LENGTH_MAX] or "cluster"
    name, number = wanted, 1
    while name in contexts.contexts:
        number += 1
        name = f"{wanted}-{number}"
    return name
