"""The client of the schema registry: what it asks, what it keeps, and what a hostile registry cannot do."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.partitioner.default import murmur2 as their_murmur2
from tests.support.schema_registry import SchemaRegistryServer

from barnabas.console.messages.partitioning import murmur2, partition_of
from barnabas.console.messages.registry import SchemaRegistry


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


def ask(registry_url: str, *ids: int, clock_s: Callable[[], float] = lambda: 0.0) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        registry = SchemaRegistry(registry_url, clock_s)
        return [await registry.schema(each) for each in ids]

    return asyncio.run(main())


def refer(name: str, subject: str) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


def test_a_schema_comes_with_those_that_it_refers_to_in_order(server: SchemaRegistryServer) -> None:
    server.add("c", '"c"')
    server.add("b", '"b"', references=(refer("C", "c"),))
    last = server.add("a/1", '"a"', references=(refer("B", "b"), refer("C", "c")))
    (found,) = ask(server.url, last)
    assert (found["type"], found["schema"]) == ("AVRO", '"a"')
    assert [each["name"] for each in found["references"]] == ["C", "B"]


def test_protobuf_is_asked_for_compiled(server: SchemaRegistryServer) -> None:
    server.add("part/x", "B64", "PROTOBUF")
    last = server.add("main", "B64", "PROTOBUF", (refer("part.proto", "part/x"),))
    ask(server.url, last)
    assert server.asked == [
        f"/schemas/ids/{last}",
        f"/schemas/ids/{last}?format=serialized",
        "/subjects/part%2Fx/versions/1?format=serialized",
    ]


def test_a_schema_is_asked_for_once_and_an_error_again_after_a_while(server: SchemaRegistryServer) -> None:
    known = server.add("a", '"a"')
    now_s = [0.0]

    async def main() -> None:
        registry = SchemaRegistry(server.url, lambda: now_s[0])
        for _ in range(3):
            assert (await registry.schema(known))["schema"] == '"a"'
            assert "does not have it" in (await registry.schema(9))["error"]
        assert len(server.asked) == 2
        now_s[0] = 60.0
        await registry.schema(known)
        await registry.schema(9)
        assert len(server.asked) == 3

    asyncio.run(main())


def test_a_login_is_sent(server: SchemaRegistryServer) -> None:
    known = server.add("a", '"a"')
    server.login = f"Basic {base64.b64encode(b'ann:p w').decode()}"
    (found,) = ask(server.url.replace("//", "//ann:p%20w@"), known)
    assert found["schema"] == '"a"'
    (found,) = ask(server.url, known)
    assert found["error"] == "the schema registry answered with the status 401"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (302, b"", "status 302"),
        (500, b"{}", "status 500"),
        (200, b"not json", "did not answer in JSON"),
        (200, b"[]", "returned no schema"),
        (200, b'{"schema": 5}', "returned no schema"),
        (200, b'{"schema": "x", "references": 5}', "references"),
        (200, b'{"schema": "x", "references": [5]}', "a reference of the schema is damaged"),
        (200, json.dumps({"schema": "x" * (1 << 20)}).encode(), "at most 1048576 bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_hostile_answer_is_an_error(server: SchemaRegistryServer, status: int, body: bytes, error: str) -> None:
    server.answers["/schemas/ids/5"] = (status, body)
    (found,) = ask(server.url, 5)
    assert error in found["error"]


def test_schemas_that_refer_to_each_other_end(server: SchemaRegistryServer) -> None:
    server.add("a", '"a"', references=(refer("B", "b"),))
    server.add("b", '"b"', references=(refer("A", "a"), refer("B", "b")))
    (found,) = ask(server.url, 1)
    assert [each["name"] for each in found["references"]] == ["A", "B"]
    many = [refer(f"n{number}", "a") for number in range(100)]
    server.answers["/schemas/ids/7"] = (200, json.dumps({"schema": "x", "references": many}).encode())
    server.answers["/subjects/a/versions/1"] = (200, b'{"schema": "y"}')
    (found,) = ask(server.url, 7)
    assert "more than 64 others" in found["error"]


def test_a_registry_that_is_not_there_is_an_error() -> None:
    (found,) = ask("http://127.0.0.1:1", 5)
    assert "does not answer" in found["error"]


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://a", "http://", "file:///etc/passwd"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must have the form"):
        SchemaRegistry(url)


def test_a_key_goes_to_the_partition_of_a_java_client() -> None:
    for size in range(40):
        key = bytes((7 * place + size) % 256 for place in range(size))
        assert murmur2(key) == their_murmur2(key) & 0xFFFFFFFF
    # The first two are values of the test of Kafka's own client.
    assert [murmur2(b"21") - (1 << 32), murmur2(b"foobar") - (1 << 32)] == [-973932308, -790332482]
    assert partition_of(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
