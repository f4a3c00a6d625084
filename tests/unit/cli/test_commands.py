"""The command line without a broker: mistakes are reported in one line, immediately, and nothing is started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.cli import entry, output
from barnabas.cli.options import key_values
from barnabas.embedded import ports as embedded_ports
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node
from barnabas.embedded.ports import choose_ports


def unused_port() -> int:
    """Returns a port that is not in use, and neither are the next two."""
    free = (
        each for each in embedded_ports.FREE_PORTS if all(embedded_ports._is_free(each + more) for more in range(3))
    )
    return next(free)


def written_down(directory: Path, pid: int, start_ticks: int | None) -> EmbeddedCluster:
    node = {
        "node_id": 1,
        "pid": pid,
        "start_ticks": start_ticks,
        "host": "127.0.0.1",
        "port": 1,
        "controller_port": 2,
        "roles": ["broker", "controller"],
        "directory": str(directory / "broker-1"),
    }
    (directory / "cluster.json").write_text(json.dumps({"version": 1, "nodes": [node]}))
    return EmbeddedCluster(directory)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["--version"]) == 0
    assert capsys.readouterr().out == f"barnabas {barnabas.__version__}\n"


def test_broker_command_loads_no_tools() -> None:
    """Cold start: the way to the server must not pass by Typer, rich or a Kafka client."""
    script = (
        "import sys; from barnabas.cli import entry; entry.run(['broker']);"
        "print([name for name in ('typer', 'rich', 'confluent_kafka', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_tools_load_no_data_libraries() -> None:
    """The libraries belong to another extra, and cost a third of a second."""
    script = (
        "import sys, barnabas.cli.app;"
        "print([name for name in ('pyarrow', 'numpy', 'pandas', 'aiokafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nobody_listening_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{unused_port()}"
    assert entry.run(["topics", "list", "--bootstrap", address]) == 1
    assert f"cannot reach a broker at {address} (Connection refused)" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:0", "localhost:99999", "a:b"])
def test_wrong_addresses_are_named(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["consume", "t", "--bootstrap", address]) == 1
    assert "expected HOST:PORT" in capsys.readouterr().err


def test_only_one_place_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["consume", "t", "--from-beginning", "--offset", "3"]) == 1
    assert "only one of" in capsys.readouterr().err


def test_a_cluster_keeps_its_number_of_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_down(tmp_path, pid=1 << 30, start_ticks=1)
    assert entry.run(["up", "--brokers", "3", "--dir", str(tmp_path)]) == 1
    assert "has 1 broker(s), not 3" in capsys.readouterr().err


def test_ports_of_several_brokers_follow_each_other_and_stay(tmp_path: Path) -> None:
    first = unused_port()
    ports = choose_ports(3, first, {})
    assert [client for client, _ in ports.values()] == [first, first + 1, first + 2]
    assert len({port for pair in ports.values() for port in pair}) == 6
    before = {
        node_id: Node(node_id, 1, 1, "127.0.0.1", client, controller, ("broker",), str(tmp_path))
        for node_id, (client, controller) in ports.items()
    }
    assert choose_ports(3, 0, before) == ports


def test_no_port_is_given_twice_however_few_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_ports, "FREE_PORTS", range(32_000, 32_040))
    for _ in range(50):
        ports = choose_ports(3, 0, {})
        metrics = embedded_ports.choose_metrics_ports(ports, {})
        every = [*metrics.values(), *(port for pair in ports.values() for port in pair)]
        assert len(set(every)) == 9
        assert 0 not in every


def test_a_port_in_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert entry.run(["up", "--dir", str(tmp_path), "--port", str(port), "--detach"]) == 1
    assert f"port {port} on 127.0.0.1 is in use" in capsys.readouterr().err


def test_status_and_down_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["status", "--dir", str(tmp_path)]) == 1
    assert entry.run(["down", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("no cluster has been started") == 2


def test_another_process_with_the_old_pid_is_never_taken_for_ours(tmp_path: Path) -> None:
    """Our own pid with another start time: were it signalled, this test would not end well."""
    cluster = written_down(tmp_path, os.getpid(), start_ticks=1)
    assert not cluster.nodes[0].running
    assert cluster.stop() == []
    cluster.kill()


def test_a_damaged_state_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(Failure, match=r"cluster\.json is damaged"):
        _ = EmbeddedCluster(tmp_path).nodes


def test_a_gone_process_does_not_run(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    node: Node = written_down(tmp_path, child.pid, start_ticks=None).nodes[0]
    assert not node.running
    assert not node.serving


def test_pairs_on_the_command_line() -> None:
    assert key_values(["a=1", "b=x=y", "a=2"], "--config") == {"a": "2", "b": "x=y"}
    with pytest.raises(Failure, match="--config a: expected KEY=VALUE"):
        key_values(["a"], "--config")


def test_plain_tables_align_and_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(["name", "count", "isr"], [["orders", 12, [1, 2]], ["x" * 90, 3, []]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "COUNT", "ISR"]
    assert lines[2] == "x" * 90 + "      3  -"
    assert len({line.index(end) + len(end) for line, end in zip(lines[:2], ("COUNT", "12"), strict=True)}) == 1


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (12_200_000, "12.2 MB"), (5e12, "5.0 TB")]
)
def test_sizes(count: float, text: str) -> None:
    assert output.size(count) == text
