"""Wrong use of the command line: one line with the mistake, exit code 1 or 2, never a traceback."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.test_commands import unused_port, written_down

from barnabas.cli import entry
from barnabas.cli.commands import ENTRIES, plain_help
from barnabas.cli.options import read_text
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure

Output = pytest.CaptureFixture[str]


@pytest.fixture
def web_server() -> Iterator[str]:
    """The address of a server that speaks HTTP."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a port that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("state", ["[]", '{"version":1}', '{"nodes":[{}]}', '{"nodes":[1]}', '"a"', "", '{"nodes":{}'])
@pytest.mark.parametrize("command", ["status", "down", "up"])
def test_a_state_file_without_its_keys_is_named(command: str, state: str, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "cluster.json").write_text(state)
    assert entry.run([command, "--dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "cluster.json is damaged" in said
    assert "the data stays" in said


@pytest.mark.parametrize("command", ["status", "down", "up"])
@pytest.mark.parametrize("directory", ["/dev/null", "/proc/nope", "/tmp/" + 300 * "x", "{file}"])
def test_a_directory_that_cannot_be_one_is_named(command: str, directory: str, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "file").touch()
    where = directory.format(file=tmp_path / "file")
    assert entry.run([command, "--dir", where, *(["--port", "0"] if command == "up" else [])]) == 1
    assert where in capsys.readouterr().err


def test_a_full_disk_at_up_is_reported(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert entry.run(["up", "--dir", str(tmp_path), "--port", "0"]) == 1
    assert f"cannot start a cluster in {tmp_path}: No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "t", "--partitions", "99999999999"],
        ["topics", "create", "t", "--replication-factor", "99999"],
        ["topics", "alter", "t", "--partitions", "99999999999"],
        ["consume", "t", "--offset", str(1 << 70)],
        ["produce", "t", "--partition", str(1 << 40)],
        ["groups", "reset-offsets", "g", "--shift-by", str(1 << 70)],
        ["elect", "--topic", "t", "--partition", str(1 << 40)],
        ["up", "--port", "65536"],
    ],
)
def test_numbers_that_no_field_holds_are_refused(arguments: list[str], capsys: Output) -> None:
    assert entry.run(arguments) == 2
    assert "or equal to" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_file_of_offsets_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(b"t,0,\xff\xfe\x00")
    with pytest.raises(Failure, match="is not a text file: byte 4"):
        read_text(file)


def test_dump_of_a_file_that_is_not_there(tmp_path: Path, capsys: Output) -> None:
    assert entry.run(["log", "dump", str(tmp_path / "nofile")]) == 1
    assert "nofile: no such file" in capsys.readouterr().err


def test_ports_beyond_the_last_one(tmp_path: Path, capsys: Output) -> None:
    assert entry.run(["up", "--dir", str(tmp_path), "--port", "65535", "--brokers", "3"]) == 1
    assert "3 brokers need the ports 65535 to 65537, above 65535" in capsys.readouterr().err


def test_a_known_directory_wants_its_port_back(tmp_path: Path, capsys: Output) -> None:
    cluster = written_down(tmp_path, pid=1 << 30, start_ticks=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        state = cluster.state_path.read_text().replace('"port": 1,', f'"port": {port},')
        cluster.state_path.write_text(state)
        assert entry.run(["up", "--dir", str(tmp_path), "--detach"]) == 1
    assert f"port {port} on 127.0.0.1, the last port of broker 1 in {tmp_path}, is in use" in capsys.readouterr().err


def test_a_known_directory_takes_its_ports_again(tmp_path: Path) -> None:
    port = unused_port()
    cluster = EmbeddedCluster(tmp_path)
    try:
        first = cluster.start(port=port)
        cluster.stop()
        again = cluster.start(port=None)
        assert [node.port for node in again] == [node.port for node in first] == [port]
    finally:
        cluster.kill()


@pytest.mark.parametrize("command", [["topics", "list"], ["groups", "list"], ["consume", "t", "--exit"]])
def test_a_port_that_is_not_kafka_is_named_soon(command: list[str], web_server: str, capsys: Output) -> None:
    started = time.monotonic()
    assert entry.run([*command, "--bootstrap", web_server]) == 1
    assert time.monotonic() - started < 5
    said = " ".join(capsys.readouterr().err.split())
    assert f"cannot reach a broker at {web_server} (not a Kafka broker" in said


def test_a_port_that_never_answers_is_named_soon(silent_server: str, capsys: Output) -> None:
    started = time.monotonic()
    assert entry.run(["topics", "list", "--bootstrap", silent_server]) == 1
    assert 1.5 < time.monotonic() - started < 6
    said = " ".join(capsys.readouterr().err.split())
    assert f"{silent_server} (the port accepts connections but does not answer within 2 s)" in said


def test_every_command_of_the_table_loads() -> None:
    for each in ENTRIES:
        assert entry.run([each.name, "--help"]) == 0, each.name


#: Hides packages from a process, as in an installation without their extra.
WITHOUT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
from barnabas.cli import entry
sys.exit(entry.run({argv}))
"""
TOOLS = ("typer", "rich", "confluent_kafka")


def without(hidden: tuple[str, ...], *argv: str) -> subprocess.CompletedProcess[str]:
    script = WITHOUT.format(hidden=set(hidden), argv=list(argv))
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_without_extras_help_version_and_uuid_work() -> None:
    assert without(TOOLS, "--help").stdout == plain_help() + "\n"
    assert without(TOOLS).stdout == plain_help() + "\n"
    assert without(TOOLS, "--version").stdout.startswith("barnabas ")
    assert len(without(TOOLS, "random-uuid").stdout) == 23


@pytest.mark.parametrize(
    ("hidden", "argv", "said"),
    [
        (TOOLS, ["topics", "list"], "`barnabas topics` needs the package typer: pip install 'barnabas[tools]'"),
        (("confluent_kafka",), ["topics", "list"], "needs the package confluent_kafka: pip install 'barnabas[tools]'"),
        (TOOLS, ["demo"], "`barnabas demo` needs the package typer: pip install 'barnabas[pipeline]'"),
        (("confluent_kafka",), ["orders", "verify", "t"], "pip install 'barnabas[orders]'"),
    ],
)
def test_each_command_names_the_extra_that_it_needs(hidden: tuple[str, ...], argv: list[str], said: str) -> None:
    done = without(hidden, *argv)
    assert done.returncode == 1
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_commands_without_a_client_need_no_client() -> None:
    assert without(("confluent_kafka",), "status", "--dir", "/nowhere").stderr.startswith("error: no cluster has been")
