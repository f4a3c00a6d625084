"""The `barnabas` command: chooses the code that runs, and imports no more than it needs.

`barnabas broker FILE` must start within half a second, so it goes directly to the server. `--version`, `--help` and
`random-uuid` work without the extra that the other commands need.
"""

from __future__ import annotations

import importlib
import sys

from barnabas import REFUSED_PYTHON

_HELP = frozenset({"-h", "--help"})


def main() -> None:
    """Runs the command of this process and exits with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Runs one command; returns its exit code."""
    if REFUSED_PYTHON is not None:
        print(f"error: {REFUSED_PYTHON}", file=sys.stderr)
        return 2
    if argv[:1] == ["broker"] and not _HELP.intersection(argv):
        code: int = importlib.import_module("barnabas.server.main").main(argv)
        return code
    if argv[:1] == ["zookeeper"] and not _HELP.intersection(argv):
        ended: int = importlib.import_module("barnabas.cli.zookeeper_command").main(argv[1:])
        return ended
    if argv == ["--version"]:
        print(f"barnabas {importlib.import_module('barnabas').__version__}")
        return 0
    if argv == ["random-uuid"]:
        print(importlib.import_module("barnabas.embedded.settings").new_cluster_id())
        return 0
    try:
        app = importlib.import_module("barnabas.cli.app")
    except ModuleNotFoundError as error:
        return _without_tools(argv, error)
    result: int = app.run(argv)
    return result


def _without_tools(argv: list[str], error: ModuleNotFoundError) -> int:
    commands = importlib.import_module("barnabas.cli.commands")
    if not argv or argv[0] in _HELP:
        print(commands.plain_help())
        return 0
    line = commands.missing_extra(error, commands.command_of(argv))
    if line is None:
        raise error
    print(f"error: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
