"""`barnabas` as a process that kills itself at a step of the orders pipeline: KILL_AT=STEP[:COUNT]."""

from __future__ import annotations

import os
import signal
import sys

from barnabas.cli import entry
from barnabas.pipelines import steps


def main() -> None:
    wanted, _, count = os.environ.get("KILL_AT", "").partition(":")
    left = [int(count or 1)]

    def reached(step: str) -> None:
        if step == wanted:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.reached = reached
    sys.exit(entry.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
