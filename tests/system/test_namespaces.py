"""The helper that partitions processes: a cut is silent, in one direction, and ends when it is healed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.namespaces import HOST, Namespaces, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
PORT = 9000
#: The time without traffic after which a cut is proven: otherwise traffic arrives immediately.
SILENCE_S = 0.5
#: Answers every datagram with its own name.
ANSWERER = """
import socket, sys
own, port = sys.argv[1], int(sys.argv[2])
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind(("0.0.0.0", port))
print("ready", flush=True)
while True:
    requested, sender = link.recvfrom(100)
    link.sendto(own.encode() + b" heard " + requested, sender)
"""
#: Prints the answers received in this time.
ASKER = """
import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.settimeout(float(sys.argv[4]))
link.sendto(sys.argv[1].encode(), (sys.argv[2], int(sys.argv[3])))
try:
    print(link.recv(100).decode())
except TimeoutError:
    print("silence")
"""


@pytest.fixture
def network() -> Iterator[Namespaces]:
    with Namespaces("a", "b") as network:
        answerers = []
        try:
            for name in "ab":
                command = [*network.inside(name), sys.executable, "-c", ANSWERER, name, str(PORT)]
                answerers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
                assert answerers[-1].stdout is not None
                assert answerers[-1].stdout.readline() == "ready\n"
            yield network
        finally:
            for answerer in answerers:
                answerer.kill()
                answerer.communicate()


def requested(network: Namespaces, source: str, target: str, within_s: float = 20) -> str:
    prefix = [] if source == HOST else network.inside(source)
    command = [*prefix, sys.executable, "-c", ASKER, source, network.address(target), str(PORT), str(within_s)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def test_all_reach_each_other_until_they_are_parted(network: Namespaces) -> None:
    assert [requested(network, *pair) for pair in ("ab", "ba")] == ["b heard a", "a heard b"]
    assert requested(network, HOST, "a") == "a heard host"
    network.part(["a"], ["b"])
    assert [requested(network, source, target, SILENCE_S) for source, target in ("ab", "ba")] == ["silence", "silence"]
    assert [requested(network, HOST, name) for name in "ab"] == ["a heard host", "b heard host"]
    network.part([HOST], ["a"])
    assert requested(network, HOST, "a", SILENCE_S) == "silence"
    network.heal()
    assert [requested(network, *pair) for pair in ("ab", "ba")] == ["b heard a", "a heard b"]
    assert requested(network, HOST, "a") == "a heard host"


def test_a_cut_goes_one_way_and_through_connections_that_are_there(network: Namespaces) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind((network.address(HOST), 0))
        link.settimeout(0.5)
        network.cut("a", HOST)
        link.sendto(b"host", (network.address("a"), PORT))
        with pytest.raises(TimeoutError):
            link.recv(100)
    assert requested(network, HOST, "b") == "b heard host"
    with socket.create_server((network.address(HOST), 0)) as server:
        port = server.getsockname()[1]
        code = "import socket, sys; link = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)\n"
        code += "link.sendall(b'1'); link.recv(1); link.sendall(b'2'); link.recv(1)"
        command = [*network.inside("b"), sys.executable, "-c", code, network.address(HOST), str(port)]
        talker = subprocess.Popen(command)
        try:
            link, _ = server.accept()
            with link:
                link.settimeout(60)
                assert link.recv(1) == b"1"
                link.settimeout(1)
                network.cut("b", HOST)
                link.sendall(b"x")
                with pytest.raises(TimeoutError):
                    link.recv(1)
                network.heal()
                link.settimeout(60)
                assert link.recv(1) == b"2", "what was lost is sent again"
        finally:
            talker.kill()
            talker.wait()
