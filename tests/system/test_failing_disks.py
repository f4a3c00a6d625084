"""Real file systems that fill up, break, become read-only or vanish under a broker, seen by an ordinary client."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server, target
from tests.clients.wire import wait_until_led

NewServer = Callable[..., Server]

WAIT_S = 120.0
MEGABYTE = 1 << 20
pytestmark = pytest.mark.skipif(target() == "kafka", reason="Apache Kafka takes a full directory offline")


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes of its own."""
    root = tmp_path / "disk"
    root.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    if request.param == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(root)]
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("needs mkfs.ext4")
        image = tmp_path / "image"
        image.write_bytes(b"")
        os.truncate(image, 24 * MEGABYTE)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True, capture_output=True)
        command = ["mount", "-o", "loop", str(image), str(root)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True, capture_output=True)


@pytest.fixture
def failing_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says which calls of the servers started from now on fail: "ERRNO DIRECTORY"."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    library = tmp_path / "failing_calls.so"
    source = Path(__file__).parent / "native" / "failing_calls.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    plan = tmp_path / "plan"
    monkeypatch.setenv("FAILING_CALLS", str(plan))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return plan


def admin_of(server: Server) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


def create(server: Server, topic: str, partitions: int = 1) -> None:
    create_within(server, topic, partitions, WAIT_S)
    for partition in range(partitions):
        wait_until_led(server.port, topic, partition)


def create_within(server: Server, topic: str, partitions: int, timeout_s: float) -> None:
    admin = admin_of(server)
    new = confluent_kafka.admin.NewTopic(topic, partitions, 1)
    admin.create_topics([new], request_timeout=timeout_s)[topic].result(2 * timeout_s)


def leaders(server: Server, topic: str) -> dict[int, int]:
    rows = admin_of(server).list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    return {index: row.leader for index, row in rows.items()}


class Writer:
    """Sends one record at a time; `acked` holds what was acknowledged."""

    def __init__(self, server: Server, topic: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "log_level": 0, "message.send.max.retries": 0, "acks": "all"}
        )
        self.acked: dict[tuple[int, int], bytes] = {}

    def send(self, value: bytes, partition: int = 0) -> int:
        """Sends a record and returns the error code; 0 if it was acknowledged."""
        outcome: list[int] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            outcome.append(0 if error is None else error.code())
            if error is None:
                self.acked[partition, message.offset()] = value  # type: ignore[index]

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        self._producer.flush(WAIT_S)
        return outcome[0]

    def send_until(self, code: int, value: bytes, partition: int = 0) -> None:
        deadline = time.monotonic() + WAIT_S
        while (got := self.send(value, partition)) != code:
            assert time.monotonic() < deadline, f"still answered with {got}"


def read_all(server: Server, writer: Writer, topic: str, partition: int = 0) -> None:
    """Checks that everything acknowledged exists."""
    expected = {offset: value for (index, offset), value in writer.acked.items() if index == partition}
    if not expected:
        return
    first = min(expected)
    count = max(expected) - first + 1
    found = {
        record.offset: record.value
        for record in ConfluentKafka(server.bootstrap).consume(topic, partition, count, offset=first)
    }
    for offset, value in expected.items():
        assert found.get(offset) == value


def log_verify(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("barnabas")), "log", "verify", *options, str(directory)]
    return subprocess.run(command, capture_output=True, text=True)


def verify(directory: Path) -> None:
    done = log_verify(directory)
    assert done.returncode == 0, done.stdout + done.stderr


def kinds_of_faults(directory: Path) -> set[str]:
    """Returns the kinds of faults in the directory of a killed broker: epochs and checkpoints can be unwritten."""
    done = log_verify(directory)
    return {line.partition(":")[0] for line in done.stdout.splitlines()}


#: KAFKA_STORAGE_ERROR
STORAGE_ERROR = 56


def test_a_full_disk_stops_writes_and_nothing_else(own_server: NewServer, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 * MEGABYTE))
    server = own_server(log_dirs=str(small_disk / "data"))
    server.start()
    create(server, "t")
    writer = Writer(server, "t")
    number = 0
    while (code := writer.send(b"%d-" % number + os.urandom(200_000))) == 0:
        number += 1
        assert number < 200, "the disk does not fill up"
    assert code == STORAGE_ERROR
    assert writer.acked
    for _ in range(5):
        assert writer.send(b"more" * 50_000) == STORAGE_ERROR
    assert server.process is not None
    assert server.process.poll() is None
    read_all(server, writer, "t")
    with pytest.raises(confluent_kafka.KafkaException):
        for place in range(1000):
            create_within(server, f"late-{place}", 100, timeout_s=2)
    assert server.process.poll() is None
    ballast.unlink()
    writer.send_until(0, b"with room again, without a restart")
    server.stop()
    verify(small_disk / "data")
    server.start()
    read_all(server, writer, "t")
    writer = Writer(server, "t")
    writer.send_until(0, b"after the restart")
    read_all(server, writer, "t")


def test_a_kill_on_a_full_disk_loses_nothing(own_server: NewServer, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 * MEGABYTE))
    server = own_server(log_dirs=str(small_disk / "data"))
    server.start()
    create(server, "t")
    writer = Writer(server, "t")
    writer.send_until(STORAGE_ERROR, os.urandom(300_000))
    server.kill()
    assert not {"torn", "checksum", "header", "offset"} & kinds_of_faults(small_disk / "data")
    ballast.unlink()
    server.start()
    read_all(server, writer, "t")
    writer.send_until(0, b"again")
    server.stop()
    verify(small_disk / "data")


@pytest.mark.parametrize(
    "fault", ["EIO", pytest.param("EROFS", marks=pytest.mark.full), pytest.param("vanished", marks=pytest.mark.full)]
)
def test_one_of_two_directories_fails(own_server: NewServer, tmp_path: Path, failing_calls: Path, fault: str) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    server = own_server(log_dirs=f"{good},{bad}", metadata_log_dir=str(tmp_path / "meta"))
    server.start()
    create(server, "t", 4)
    writer = Writer(server, "t")
    for number in range(40):
        assert writer.send(b"before-%d" % number, number % 4) == 0
    on_bad = {int(path.name.rpartition("-")[2]) for path in bad.glob("t-*")}
    assert 0 < len(on_bad) < 4

    if fault == "vanished":
        bad.rename(tmp_path / "elsewhere")
    else:
        failing_calls.write_text(f"{getattr(errno, fault)} {bad}\n")
    for partition in on_bad:
        # An open file continues to work where its tree was moved to; the next checkpoint detects the move.
        writer.send_until(STORAGE_ERROR, b"refused", partition)
    for partition in set(range(4)) - on_bad:
        assert writer.send(b"served", partition) == 0
        read_all(server, writer, "t", partition)
    expected = {index: -1 if index in on_bad else 1 for index in range(4)}
    deadline = time.monotonic() + WAIT_S
    while (told := leaders(server, "t")) != expected:
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    assert server.process is not None
    assert server.process.poll() is None

    server.stop()
    server.start()
    reader = Writer(server, "t")
    for partition in set(range(4)) - on_bad:
        reader.send_until(0, b"after a start without it", partition)
        read_all(server, writer, "t", partition)
    server.stop()

    if fault == "vanished":
        shutil.rmtree(bad, ignore_errors=True)
        (tmp_path / "elsewhere").rename(bad)
    else:
        failing_calls.unlink()
    server.start()
    for partition in range(4):
        read_all(server, writer, "t", partition)
        reader.send_until(0, b"healed", partition)
    server.stop()
    verify(good)
    verify(bad)


def test_without_a_directory_the_start_is_refused_in_one_line(
    own_server: NewServer, tmp_path: Path, failing_calls: Path
) -> None:
    data = tmp_path / "data"
    server = own_server(log_dirs=str(data))
    server.start()
    server.stop()
    failing_calls.write_text(f"{errno.EIO} {data}\n")
    with pytest.raises(Exception, match=r"ended|exit|serv"):
        server.start()
    lines = [line for line in server.log_path.read_text().splitlines() if str(data) in line]
    assert lines[-1].startswith("barnabas: ")
    assert "Input/output error" in lines[-1]
    assert "Traceback" not in server.log_path.read_text()


def test_the_metadata_directory_ends_the_process(own_server: NewServer, tmp_path: Path, failing_calls: Path) -> None:
    data = tmp_path / "data"
    server = own_server(log_dirs=str(data))
    server.start()
    failing_calls.write_text(f"{errno.EIO} {data}\n")
    assert server.process is not None
    with pytest.raises(confluent_kafka.KafkaException):
        create_within(server, "late", 1, timeout_s=2)
    assert server.process.wait(WAIT_S) != 0
    assert "Traceback" not in server.log_path.read_text()


def test_fewer_descriptors_than_segments(own_server: NewServer) -> None:
    """The limit is lowered while the broker runs: files are closed to open others, and no directory fails."""
    server = own_server()
    server.start()
    create(server, "t", 60)
    writer = Writer(server, "t")
    for partition in range(60):
        assert writer.send(b"one", partition) == 0
    used = len(os.listdir(f"/proc/{server.pid}/fd"))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used - 30, used))
    for number in range(120):
        writer.send_until(0, b"two-%d" % number, number % 60)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used, used))
    # The next checkpoint finds no free descriptor, and closes files: for new connections too.
    deadline = time.monotonic() + WAIT_S
    while len(os.listdir(f"/proc/{server.pid}/fd")) > used - 10:
        assert time.monotonic() < deadline, "no descriptor is given back"
        time.sleep(0.1)
    for partition in (0, 17, 59):
        read_all(server, writer, "t", partition)
    assert "failed" not in server.log_path.read_text()


def test_a_limit_on_file_sizes_begins_new_segments(own_server: NewServer) -> None:
    server = own_server()
    server.start()
    create(server, "t")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (MEGABYTE, MEGABYTE))
    writer = Writer(server, "t")
    for _ in range(12):
        assert writer.send(os.urandom(300_000)) == 0
    assert len(list((server.data_dir / "t-0").glob("*.log"))) >= 4
    read_all(server, writer, "t")
