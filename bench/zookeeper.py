"""The ZooKeeper rows: our server and Apache ZooKeeper 3.8.4, each alone, with the same client over bare sockets.

Both sync every write to the same disk before they answer (`forceSync` is on), and run with the options of their own
start scripts: Apache's with a heap of 1,000 MB.
"""

from __future__ import annotations

import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import report
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.frames import FrameReader, framed, request_frame
from barnabas.zookeeper.wire.operations import MultiRequest, Part, Record
from client import percentile
from targets import ROOT, installed_environment, resident_mb
from workloads import Experiment, Goal, Metric

sys.path.insert(0, str(ROOT / "tools"))

from kafka_jars import free_ports
from zookeeper_jars import classpath, is_serving

Options = Mapping[str, Any]
#: The side of the comparison; a run with "kafka" among its targets measures it.
APACHE: Final = "zookeeper"
_TIMEOUT_S: Final = 120.0
_SESSION_TIMEOUT_MS: Final = 30_000
_NODE: Final = "/bench"
_DATA: Final = b"x" * 100
_CREATED_AT_ONCE: Final = 500
_RECEIVED_BYTES: Final = 1 << 20

#: Middle part of a row's name -> its request.
_REQUESTS: Final[dict[str, tuple[OpCode, Record]]] = {
    "get": (OpCode.GET_DATA, r.WatchedRequest(_NODE, False)),
    "exists": (OpCode.EXISTS, r.WatchedRequest(_NODE, False)),
    "set": (OpCode.SET_DATA, r.SetDataRequest(_NODE, _DATA, -1)),
    "multi": (
        OpCode.MULTI,
        MultiRequest(
            (
                Part(OpCode.CHECK, r.CheckVersionRequest("/", -1)),
                Part(OpCode.SET_DATA, r.SetDataRequest(_NODE, _DATA, -1)),
            )
        ),
    ),
}
_TITLES: Final = {
    "get": "getData of 100 B",
    "exists": "exists",
    "set": "setData of 100 B, synced",
    "multi": "multi of check and setData, synced",
}


def _request_metrics() -> Iterator[Metric]:
    for name, title in _TITLES.items():
        yield Metric(f"zookeeper_{name}_p50", f"{title}, one in flight, p50", "ms", Goal(at_most=1.0))
        yield Metric(f"zookeeper_{name}_p99", f"{title}, one in flight, p99", "ms", Goal(at_most=1.0))
    for name, title in _TITLES.items():
        yield Metric(f"zookeeper_{name}_rate", f"{title}, 100 in flight", "per s", Goal(at_least=0.7))


ZOOKEEPER = Experiment(
    "zookeeper",
    (
        *_request_metrics(),
        Metric("zookeeper_watch", "{watchers:,} watchers of one znode notified", "events/s", Goal(at_least=0.7)),
        Metric("zookeeper_start", "start until it answers", "s", Goal(at_most=0.3, absolute=True)),
        Metric("zookeeper_rss", "memory, empty", "MB", Goal(at_most=50, absolute=True)),
        Metric("zookeeper_rss_full", "memory with {znodes:,} znodes of 100 B", "MB", Goal(at_most=200, absolute=True)),
    ),
    {"rounds": 3, "requests": 5_000, "warm_up": 5_000, "piped": 50_000, "watchers": 1_000, "znodes": 100_000},
    {"rounds": 1, "requests": 500, "warm_up": 500, "piped": 5_000, "watchers": 200, "znodes": 10_000},
)


def table(experiment: Experiment) -> report.Table:
    return report.Table(
        "ZooKeeper",
        f"Rounds: {experiment.options['rounds']}. One server, compared with Apache ZooKeeper 3.8.4, with empty folders "
        "on the same disk; the client uses bare sockets.",
        experiment.metrics,
    )


class ZooKeeperServer:
    """A server process of one of the two kinds, with its files below `folder`."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports(1)[0]
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        config = folder / "zoo.cfg"
        config.write_text(
            f"dataDir={folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n"
        )
        if kind == APACHE:
            main = "org.apache.zookeeper.server.ZooKeeperServerMain"
            self._command = ["java", "-Xmx1000m", "-cp", classpath(), main, str(config)]
        else:
            self._command = [sys.executable, "-m", "barnabas.cli.entry", "zookeeper", str(config)]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Starts the server; returns the seconds until it answers."""
        begun = time.monotonic()
        self.launch()
        assert self._process is not None
        while not is_serving(self.port):
            if self._process.poll() is not None or time.monotonic() > begun + _TIMEOUT_S:
                raise RuntimeError(f"the server does not serve:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.005)
        return time.monotonic() - begun

    def launch(self) -> None:
        """Starts the process and returns immediately."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=installed_environment()
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Line:
    """A connection with a session."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameReader(_RECEIVED_BYTES)
        self._waiting: list[bytes] = []
        self.socket.sendall(framed(r.ConnectRequest(0, 0, _SESSION_TIMEOUT_MS, 0, bytes(16))))
        self.next()

    def receive(self) -> list[bytes]:
        """Waits for data, and returns the frames that it completes."""
        data = self.socket.recv(_RECEIVED_BYTES)
        if not data:
            raise RuntimeError("the server closed the connection")
        return self._frames.feed(data)

    def next(self) -> bytes:
        while not self._waiting:
            self._waiting = self.receive()
        return self._waiting.pop(0)

    def call(self, op: OpCode, request: Record, xid: int = 1) -> None:
        self.socket.sendall(request_frame(xid, op, request))
        header = r.read(r.ReplyHeader, FieldReader(self.next()))
        if header.xid != xid or header.error:
            raise RuntimeError(f"{op.name} is answered with {header}")

    def create(self, *paths: str) -> None:
        parts = [Part(OpCode.CREATE, r.CreateRequest(path, _DATA, r.OPEN_ACL, 0)) for path in paths]
        self.call(OpCode.MULTI, MultiRequest(tuple(parts)))


def one_by_one(line: Line, op: OpCode, request: Record, count: int) -> list[float]:
    """Returns the ms of each of `count` requests, one in flight."""
    frame = request_frame(1, op, request)
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        line.socket.sendall(frame)
        line.next()
        times.append(1000 * (time.perf_counter() - begun))
    return times


def piped(line: Line, op: OpCode, request: Record, count: int, in_flight: int = 100) -> float:
    """Returns the requests per second with `in_flight` of them on their way."""
    frame = request_frame(1, op, request)
    begun = time.perf_counter()
    line.socket.sendall(frame * in_flight)
    sent, answered = in_flight, 0
    while answered < count:
        come = len(line.receive())
        answered += come
        more = min(come, count - sent)
        if more > 0:
            line.socket.sendall(frame * more)
            sent += more
    return count / (time.perf_counter() - begun)


def notify_watchers(port: int, count: int) -> float:
    """Returns the events per second from a change to the last of `count` watchers, each with its own session."""
    writer = Line(port)
    watchers = [Line(port) for _ in range(count)]
    with selectors.DefaultSelector() as selector:
        for watcher in watchers:
            watcher.call(OpCode.GET_DATA, r.WatchedRequest(_NODE, True))
            selector.register(watcher.socket, selectors.EVENT_READ, watcher)
        left = count
        begun = time.perf_counter()
        writer.socket.sendall(request_frame(1, OpCode.SET_DATA, r.SetDataRequest(_NODE, _DATA, -1)))
        while left:
            for key, _ in selector.select(_TIMEOUT_S):
                left -= len(key.data.receive())
        took_s = time.perf_counter() - begun
    for line in (writer, *watchers):
        line.socket.close()
    return count / took_s


def fill(line: Line, count: int) -> None:
    """Creates znodes, 500 in each multi, below parents of 1,000 each."""
    line.create("/full")
    for parent in range(0, count, 1_000):
        line.create(f"/full/{parent}")
        for begin in range(parent, min(parent + 1_000, count), _CREATED_AT_ONCE):
            line.create(*(f"/full/{parent}/{number}" for number in range(begin, begin + _CREATED_AT_ONCE)))


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[tuple[ZooKeeperServer, float]]:
    """Yields a server on an empty folder, and how long its start took; removes both at the end."""
    server = ZooKeeperServer(kind, folder)
    try:
        yield server, server.start()
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def measure(server: ZooKeeperServer, options: Options, record: Callable[[str, float], None]) -> None:
    """Measures one server that has just started. `record` gets the end of a metric's name, and a value."""
    time.sleep(1.0)
    record("rss", resident_mb(server.pid))
    line = Line(server.port)
    line.create(_NODE)
    for name, (op, request) in _REQUESTS.items():
        one_by_one(line, op, request, options["warm_up"])
        times = one_by_one(line, op, request, options["requests"])
        record(f"{name}_p50", percentile(times, 0.5))
        record(f"{name}_p99", percentile(times, 0.99))
    for name, (op, request) in _REQUESTS.items():
        piped(line, op, request, options["warm_up"])
        record(f"{name}_rate", piped(line, op, request, options["piped"]))
    notify_watchers(server.port, options["watchers"])
    record("watch", notify_watchers(server.port, options["watchers"]))
    line.socket.close()


def run(experiment: Experiment, data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all rounds; the order of the two sides alternates from round to round."""
    options = experiment.options
    metrics = {metric.name: metric for metric in experiment.metrics}
    sides = [APACHE if name == "kafka" else name for name in targets]
    for side in sides:
        with serving(side, data / f"zookeeper-warm-up-{side}"):
            print(f"zookeeper: {side} warms up the page cache", flush=True)
    for index in range(options["rounds"]):
        for side in sides if index % 2 == 0 else sides[::-1]:

            def record(name: str, value: float, side: str = side) -> None:
                report.record(values, metrics[f"zookeeper_{name}"], side, value)

            with serving(side, data / f"zookeeper-{side}-{index}") as (server, start_s):
                record("start", start_s)
                measure(server, options, record)
            # A new server, whose memory has not grown by the requests before.
            with serving(side, data / f"zookeeper-full-{side}-{index}") as (server, _):
                fill(Line(server.port), options["znodes"])
                time.sleep(1.0)
                record("rss_full", resident_mb(server.pid))
