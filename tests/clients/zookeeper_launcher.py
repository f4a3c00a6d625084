"""Starts our ZooKeeper server as the scripts of other projects' tests start Apache's.

    python zookeeper_launcher.py [--version TEXT] CONFIG|PORT ...    with the flags of a JVM in $SERVER_JVMFLAGS

The flags `-Dzookeeper.KEY=VALUE` become settings. `--version` replaces the version in the answer of `srvr`: a test that
parses its date cannot read the one of 3.8.4.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from barnabas.cli.zookeeper_command import configured
from barnabas.server.zookeeper import run

_FLAG = "-Dzookeeper."


def main(argv: Sequence[str]) -> int:
    arguments = list(argv)
    version = None
    if arguments[0] == "--version":
        version = arguments[1]
        del arguments[:2]
    flags = [*os.environ.get("SERVER_JVMFLAGS", "").split(), *[each for each in arguments if each.startswith(_FLAG)]]
    settings = [f"--set={flag[len(_FLAG) :]}" for flag in flags if flag.startswith(_FLAG)]
    config = configured([*[each for each in arguments if not each.startswith("-D")], *settings])
    if version is not None:
        config = replace(config, server=replace(config.server, version=version))
    return run(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
