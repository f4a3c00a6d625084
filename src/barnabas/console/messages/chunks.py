"""The chunks of a topic that a worker reads: how they are fetched, and the schemas that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.messages.registry import SchemaRegistry
from barnabas.console.messages.workers import Worker
from barnabas.console.problems import Problem
from barnabas.protocol.messages.fetch import FetchRequest

#: The last version of Fetch that names topics by name.
FETCH_BY_NAME: Final = 12
CHUNK_BYTES: Final = 1 << 20


class Chunks:
    """The work of one search in its worker. `registry` is None for a cluster without a schema registry."""

    def __init__(self, worker: Worker, registry: SchemaRegistry | None) -> None:
        self._worker = worker
        self._registry = registry

    async def begin(self, question: Mapping[str, Any], *, timeout_s: float) -> None:
        """Hands the question of a search to the worker. Raises Problem for an invalid filter."""
        head = {"type": "begin", "has_registry": self._registry is not None, **question}
        begun = await self._worker.ask(head, timeout_s=timeout_s)
        if begun["error"] is not None:
            where = {"where": begun["error"]["where"]} if begun["error"]["where"] else {}
            raise Problem("filter", begun["error"]["text"], **where)

    async def ask(self, head: dict[str, Any], data: bytes, *, timeout_s: float) -> Any:
        """Returns what a chunk has, once the schemas that it needs are known. Raises Problem."""
        while True:
            found = await self._worker.ask(head, data, timeout_s=timeout_s)
            if not found["wanted"] or found["records"] or found["searched"] or self._registry is None:
                return found
            schemas = await asyncio.gather(*map(self._registry.schema, found["wanted"]))
            named = {str(schema_id): each for schema_id, each in zip(found["wanted"], schemas, strict=True)}
            await self._worker.ask({"type": "schemas", "found": named}, timeout_s=timeout_s)


def fetch_request(topic: str, offsets: Mapping[int, int], *, wait_ms: int) -> FetchRequest:
    """Returns the request for records from these offsets on."""
    partitions = [
        FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=CHUNK_BYTES, current_leader_epoch=-1
        )
        for partition, offset in offsets.items()
    ]
    wanted = FetchRequest.FetchTopic(topic=topic, partitions=partitions)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=CHUNK_BYTES, topics=[wanted])


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
