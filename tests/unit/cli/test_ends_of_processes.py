"""A process has ended when nothing of it is left: not its first thread alone, but the last that holds its ports."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from barnabas.embedded.ports import HOST, _is_free
from barnabas.embedded.processes import is_running, start_ticks

#: A listener whose first thread ends at once, as that of a killed process can; its other thread ends a second later.
LISTENER = f"""
import ctypes, socket, sys, threading, time
listener = socket.create_server(({HOST!r}, 0))
print(listener.getsockname()[1], flush=True)
threading.Thread(target=time.sleep, args=(float(sys.argv[1]),)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_runs_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", LISTENER, "1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        ticks = start_ticks(process.pid)
        assert ticks is not None
        deadline = time.monotonic() + 20
        zombies = 0
        while is_running(process.pid, ticks):
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as stream:
                zombies += stream.read().rpartition(")")[2].split()[0] == "Z"
            assert time.monotonic() < deadline
        assert zombies, "its first thread had ended before the others"
        assert _is_free(port)
        process.send_signal(signal.SIGKILL)
