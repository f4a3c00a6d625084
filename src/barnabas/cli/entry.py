"""The `barnabas` command, as small as it can be: it only chooses who does the work.

`barnabas broker FILE` must be up in half a second, so it goes straight to the server; Typer, rich and the Kafka client
are loaded for the tools only, and only the tools need the extra that brings them.
"""

from __future__ import annotations

import importlib
import sys

_HELP = frozenset({"-h", "--help"})
_EXTRA = frozenset({"click", "confluent_kafka", "rich", "typer"})


def main() -> None:
    """Console script. Ends the process with the command's exit code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """One command; returns its exit code."""
    if argv[:1] == ["broker"] and not _HELP.intersection(argv):
        code: int = importlib.import_module("barnabas.server.main").main(argv)
        return code
    try:
        app = importlib.import_module("barnabas.cli.app")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(f"error: this command needs the package {error.name}: pip install 'barnabas[tools]'", file=sys.stderr)
        return 1
    ended: int = app.run(argv)
    return ended


if __name__ == "__main__":
    main()
