"""`barnabas` as a process that kills itself at a step of the orders pipeline: KILL_AT=STEP[:COUNT]. With
SLOW_START=DIR, if the directory is empty, the first process of its source takes 13 s to start.
"""

from __future__ import annotations

import os
import signal
import sys

from barnabas.cli import entry
from barnabas.pipelines import steps
from barnabas.spark import workers


def main() -> None:
    wanted, _, count = os.environ.get("KILL_AT", "").partition(":")
    left = [int(count or 1)]

    def reached(step: str) -> None:
        if step == wanted:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.reached = reached
    if slow := os.environ.get("SLOW_START"):
        pause = f'case "$*" in *source_runner*) mkdir {slow} 2>/dev/null && sleep 13;; esac\n'
        workers._SCRIPT = workers._SCRIPT.replace("PYTHONPATH=$kept exec", f"{pause}PYTHONPATH=$kept exec")
    sys.exit(entry.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
