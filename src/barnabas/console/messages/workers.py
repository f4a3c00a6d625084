"""The workers that decode and filter records: a few processes, one for each search that runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson

from barnabas.console.problems import Problem

WORKERS_MAX: Final = 4
#: The searches of one browser: at least one other browser can search at the same time.
BROWSER_MAX: Final = 3
_UINT32: Final = 4
_WAIT_S: Final = 2.0
_START_S: Final = 60.0
_ANSWER_MAX: Final = 1 << 28
_ENDED: Final = "the process of the search ended: the filter or a record needs more memory than a search can use"


class Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.is_usable = True

    @classmethod
    async def start(cls) -> Worker:
        """Returns a worker that answers. Raises Problem."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "barnabas.console.messages.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        worker = cls(process)
        # The start of a process is not part of the time of a search.
        await worker.ask({"type": "begin"}, timeout_s=_START_S)
        return worker

    async def ask(self, head: dict[str, Any], data: bytes = b"", *, timeout_s: float) -> Any:
        """Sends one chunk to the worker and returns the answer. Raises Problem if there is none in time; the worker is
        then no longer usable.
        """
        self.is_usable = False
        packed = orjson.dumps(head)
        incoming, outgoing = self._process.stdin, self._process.stdout
        assert incoming is not None, "it is a pipe"
        assert outgoing is not None, "it is a pipe"
        try:
            async with asyncio.timeout(timeout_s):
                size = (len(packed) + len(data)).to_bytes(_UINT32, "little")
                incoming.write(size + len(packed).to_bytes(_UINT32, "little") + packed)
                incoming.write(data)
                await incoming.drain()
                length = int.from_bytes(await outgoing.readexactly(_UINT32), "little")
                if length > _ANSWER_MAX:
                    raise Problem("too-large", f"a record with more than {_ANSWER_MAX >> 20} MiB cannot be read here")
                answer = orjson.loads(await outgoing.readexactly(length))
        except TimeoutError as error:
            raise Problem("timeout", "the filter needs more time than a search can use") from error
        except (OSError, EOFError) as error:
            raise Problem("filter", _ENDED) from error
        self.is_usable = True
        return answer

    async def end(self) -> None:
        """Ends the process: one that works on nothing ends with its input, any other is killed."""
        if self.is_usable and self._process.stdin is not None:
            self._process.stdin.close()
        elif self._process.returncode is None:
            # The method of `Process` reaps a process that has ended, which asyncio's own watch then misses.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class Workers:
    """The workers of the console. An idle one is kept for the next search: a start takes a third of a second."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._places = asyncio.Semaphore(WORKERS_MAX)
        self._browsers: Counter[str] = Counter()

    @asynccontextmanager
    async def worker(self, browser: str = "") -> AsyncIterator[Worker]:
        """Yields a worker for one search of a browser; an empty name has no limit of its own. Raises Problem while too
        many searches run.
        """
        if browser and self._browsers[browser] >= BROWSER_MAX:
            raise Problem("rate", f"{BROWSER_MAX} searches of this browser are running", retry_s=2)
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._places.acquire()
        except TimeoutError as error:
            raise Problem("rate", f"{WORKERS_MAX} searches are running", retry_s=2) from error
        worker = None
        self._browsers[browser] += 1
        try:
            worker = self._idle.pop() if self._idle else await Worker.start()
            yield worker
        finally:
            self._places.release()
            self._browsers[browser] -= 1
            if not self._browsers[browser]:
                del self._browsers[browser]
            if worker is not None:
                if worker.is_usable and not self._idle:
                    self._idle.append(worker)
                else:
                    await worker.end()

    async def warm(self) -> None:
        """Starts the worker of the first search."""
        if not self._idle:
            self._idle.append(await Worker.start())

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end()
