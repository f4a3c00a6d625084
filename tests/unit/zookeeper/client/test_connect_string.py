"""Connect strings, and paths below a chroot."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ConfigError
from barnabas.simulation.host import SeededRandom
from barnabas.zookeeper.client.hosts import Chroot, HostList, HostPort, parse_connect_string
from barnabas.zookeeper.wire.operations import MultiResponse, Part
from barnabas.zookeeper.wire.records import PathResponse, WatchedRequest


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("one", [("one", 2181)], ""),
        ("one:2182", [("one", 2182)], ""),
        ("one:1, two:2,three", [("one", 1), ("two", 2), ("three", 2181)], ""),
        ("one,two/kafka/a", [("one", 2181), ("two", 2181)], "/kafka/a"),
        ("one:1/", [("one", 1)], ""),
        ("[::1]:5,[fe80::1]/k", [("::1", 5), ("fe80::1", 2181)], "/k"),
    ],
)
def test_servers_and_chroot(text: str, hosts: list[tuple[str, int]], chroot: str) -> None:
    found = parse_connect_string(text)
    assert list(found.hosts) == [HostPort(*each) for each in hosts]
    assert found.chroot.path == chroot


@pytest.mark.parametrize(
    "text", ["", "/kafka", ":2181", "one:x", "one:0", "one:65536", "one:2181/a//b", "one/a/", "::1"]
)
def test_what_is_no_connect_string_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        parse_connect_string(text)


def test_a_connect_string_is_shown_as_it_is_written() -> None:
    assert str(parse_connect_string("one,[::1]:5/k")) == "one:2181,[::1]:5/k"


def test_paths_below_a_chroot() -> None:
    chroot = Chroot("/k/a")
    assert [chroot.on_server(path) for path in ("/", "/b")] == ["/k/a", "/k/a/b"]
    assert [chroot.of_client(path) for path in ("/k/a", "/k/a/b", "/k/ab")] == ["/", "/b", "/k/ab"]
    assert chroot.request(WatchedRequest("/b", True)) == WatchedRequest("/k/a/b", True)
    answer = MultiResponse((Part(1, PathResponse("/k/a/b")), Part(2, ())))
    assert chroot.response(answer) == MultiResponse((Part(1, PathResponse("/b")), Part(2, ())))


def test_every_server_has_its_turn_in_a_random_order() -> None:
    hosts = parse_connect_string("one,two,three").hosts
    orders = set()
    for seed in range(20):
        turns = HostList(hosts, SeededRandom(seed))
        order = [turns.next() for _ in hosts]
        assert sorted(order) == sorted(hosts)
        assert [turns.next() for _ in hosts] == order
        orders.add(tuple(order))
    assert len(orders) > 3
