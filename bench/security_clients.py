"""New clients for the security rows: connections, TLS handshakes and log-ins by SCRAM, without a library.

    security_clients.py WORKLOAD PORT '{"option": value, ...}'

A client keeps the salted password of its user: the broker is measured, not the client's 4,096 iterations.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import multiprocessing
import os
import secrets
import ssl
import sys
import time
from collections.abc import Generator
from typing import Any

import wire
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.sasl import log_in_requests
from barnabas.protocol.sasl.logins import Login

Options = dict[str, Any]
#: An exchange: a frame is yielded, its answer is sent into the generator.
Exchange = Generator[bytes, bytes, None]
_TIMEOUT_S = 60.0
#: How long a client of the storm comes again.
_PATIENCE_S = 300.0
_SASL_VERSION = 1

hashlib.pbkdf2_hmac = functools.cache(hashlib.pbkdf2_hmac)  # type: ignore[assignment]


def _exchange(options: Options) -> Exchange:
    """Yields the requests of a new client: ApiVersions, and those of a log-in."""
    yield wire.framed(ApiVersionsRequest(), 0)
    login = Login("SCRAM-SHA-256", options["user"], options["password"])
    steps = log_in_requests.log_in(login, secrets.token_hex(12), lambda: _SASL_VERSION)
    try:
        request, version = next(steps)
        while True:
            answer = yield wire.framed(request, version)
            request, version = steps.send(_decoded(request, version, answer))
    except StopIteration:
        return


def _decoded(request: Message, version: int, answer: bytes) -> Message:
    assert request.API_KEY is not None
    return wire.decoded(request, version, response_class(request.API_KEY), answer)


def _connect(port: int, tls: ssl.SSLContext | None, options: Options) -> None:
    link = wire.Link(port, _TIMEOUT_S, tls)
    exchange = _exchange(options)
    frame = next(exchange)
    try:
        while True:
            answer = link.exchange(frame)
            if not options["logs_in"]:
                break
            frame = exchange.send(answer)
    except StopIteration:
        pass
    link.close()


def _work(port: int, options: Options, count: int, results: Any) -> None:
    tls = ssl.create_default_context(cafile=options["authority"]) if options["tls"] else None
    _connect(port, tls, options)
    results.put(None)
    begun = time.monotonic()
    for _ in range(count):
        _connect(port, tls, options)
    results.put((begun, time.monotonic()))


def one_by_one(port: int, options: Options) -> dict[str, float]:
    """Measures clients that come one after the other from each of several processes."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    count = options["clients"] // options["processes"]
    workers = [context.Process(target=_work, args=(port, options, count, results)) for _ in range(options["processes"])]
    for worker in workers:
        worker.start()
    spans = [results.get(timeout=300) for _ in range(2 * len(workers))]
    for worker in workers:
        worker.join()
    times = [span for span in spans if span is not None]
    assert len(times) == len(workers)
    elapsed_s = max(end for _, end in times) - min(begin for begin, _ in times)
    return {"per_s": count * len(workers) / elapsed_s}


def storm(port: int, options: Options) -> dict[str, float]:
    """Measures many clients that log in over TLS at the same time, until the last one is in; they close at the same
    time when the caller says so. With `niceness` above 0 the broker and other clients run first, as if these ran on
    other machines.
    """
    os.nice(options["niceness"])
    print("ready", flush=True)
    sys.stdin.readline()
    return asyncio.run(_storm(port, options))


async def _storm(port: int, options: Options) -> dict[str, float]:
    tls = ssl.create_default_context(cafile=options["authority"])

    async def come() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, server_hostname="localhost", ssl_handshake_timeout=_TIMEOUT_S
        )
        exchange = _exchange(options)
        frame = next(exchange)
        try:
            while True:
                writer.write(frame)
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = exchange.send((await reader.readexactly(size))[4:])
        except StopIteration:
            return writer

    begun = time.monotonic()
    writers = await asyncio.gather(*(_patient(come) for _ in range(options["clients"])))
    elapsed_s = time.monotonic() - begun
    print("in", flush=True)
    sys.stdin.readline()
    for writer in writers:
        writer.close()
    return {"s": elapsed_s}


async def _patient(come: Any) -> asyncio.StreamWriter:
    """Comes again after a failure, as clients do."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            made: asyncio.StreamWriter = await come()
            return made
        except (OSError, EOFError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


def _hold(port: int, options: Options, count: int, results: Any, is_over: Any) -> None:
    tls = ssl.create_default_context(cafile=options["authority"])
    links = []
    for _ in range(count):
        link = wire.Link(port, _TIMEOUT_S, tls)
        link.exchange(next(_exchange(options)))
        links.append(link)
    results.put(len(links))
    is_over.wait()


def hold(port: int, options: Options) -> dict[str, float]:
    """Holds TLS connections on which one request was answered, until the caller ends it; the caller measures."""
    context = multiprocessing.get_context("fork")
    results, is_over = context.Queue(), context.Event()
    count = options["clients"] // options["processes"]
    workers = [
        context.Process(target=_hold, args=(port, options, count, results, is_over))
        for _ in range(options["processes"])
    ]
    for worker in workers:
        worker.start()
    held = sum(results.get(timeout=300) for _ in workers)
    print("ready", flush=True)
    sys.stdin.readline()
    is_over.set()
    for worker in workers:
        worker.join()
    return {"held": held}


WORKLOADS = {"one_by_one": one_by_one, "storm": storm, "hold": hold}


def main() -> int:
    workload, port, options = sys.argv[1:]
    print(json.dumps(WORKLOADS[workload](int(port), json.loads(options))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
