"""A schema registry with Confluent's REST interface, asked by the console: schemas by id, with those they refer to.

    registry = SchemaRegistry("http://localhost:8081")
    await registry.schema(7)      {"type": "AVRO", "schema": "...", "references": [...]}, or {"error": "..."}

What the registry says is handed to the process of a search and read only there. Every answer has a limit of time and
size, and no redirection is followed.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import orjson

_ANSWER_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 3.0
_TOTAL_S: Final = 6.0
_KEPT: Final = 1_000
#: The time for which an error is kept, so that a registry that is down is not asked for each record.
_ERROR_KEPT_S: Final = 30.0
_REFERENCES_MAX: Final = 64
_LEVELS_MAX: Final = 8
_AT_ONCE: Final = 4
_NOT_FOUND: Final = 404


class RegistryError(Exception):
    """The error for a registry that does not answer, or a schema that it does not have."""


class SchemaRegistry:
    """A client of one schema registry. `url` can have a user and a password. Raises ValueError for a URL that is not of
    http or https.
    """

    def __init__(self, url: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the URL of a schema registry must have the form http://host:port or https://host:port")
        self._is_tls = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._headers = {"accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
        self._clock_s = clock_s
        self._known: OrderedDict[int, tuple[float, dict[str, Any]]] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def schema(self, schema_id: int) -> dict[str, Any]:
        """Returns a schema with those that it refers to, in the order in which they must be read; or the error in its
        place.
        """
        known = self._known.get(schema_id)
        if known is not None and self._clock_s() < known[0]:
            return known[1]
        try:
            async with self._turns, asyncio.timeout(_TOTAL_S):
                found, until_s = await self._fetched(schema_id), float("inf")
        except TimeoutError:
            found, until_s = {"error": "the schema registry did not answer in time"}, self._clock_s() + _ERROR_KEPT_S
        except RegistryError as error:
            found, until_s = {"error": str(error)}, self._clock_s() + _ERROR_KEPT_S
        self._known[schema_id] = (until_s, found)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found

    async def _fetched(self, schema_id: int) -> dict[str, Any]:
        answer = await self._get(f"/schemas/ids/{schema_id}")
        kind = str(answer.get("schemaType") or "AVRO")
        if kind == "PROTOBUF":
            # A schema as text would need a compiler; the registry gives it compiled.
            answer = await self._get(f"/schemas/ids/{schema_id}?format=serialized")
        references: dict[str, str] = {}
        await self._refer(answer, kind, references, 0)
        return {
            "type": kind,
            "schema": _text(answer),
            "references": [{"name": name, "schema": text} for name, text in references.items()],
        }

    async def _refer(self, answer: dict[str, Any], kind: str, found: dict[str, str], level: int) -> None:
        """Adds the schemas that a schema refers to, each after those that it needs itself."""
        references = answer.get("references") or []
        if level > _LEVELS_MAX or not isinstance(references, list):
            raise RegistryError("the references of the schema are nested too deeply")
        for each in references:
            try:
                name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
            except (KeyError, TypeError, ValueError) as error:
                raise RegistryError("a reference of the schema is damaged") from error
            if name in found:
                continue
            if len(found) >= _REFERENCES_MAX:
                raise RegistryError(f"the schema refers to more than {_REFERENCES_MAX} others")
            suffix = "?format=serialized" if kind == "PROTOBUF" else ""
            found[name] = ""
            part = await self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}{suffix}")
            await self._refer(part, kind, found, level + 1)
            # A schema comes after those that it needs.
            del found[name]
            found[name] = _text(part)

    async def _get(self, path: str) -> dict[str, Any]:
        status, body = await asyncio.to_thread(self._ask, self._path + path)
        if status == _NOT_FOUND:
            raise RegistryError("the schema registry does not have it")
        if status != http.client.OK:
            raise RegistryError(f"the schema registry answered with the status {status}")
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise RegistryError("the schema registry did not answer in JSON") from error
        if not isinstance(found, dict):
            raise RegistryError("the schema registry returned no schema")
        return found

    def _ask(self, path: str) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            body, deadline_s = bytearray(), time.monotonic() + _TOTAL_S
            while len(body) <= _ANSWER_MAX and time.monotonic() < deadline_s and (part := answer.read1(1 << 16)):
                body += part
        except (OSError, http.client.HTTPException) as error:
            raise RegistryError(f"the schema registry does not answer: {error}") from error
        finally:
            connection.close()
        if len(body) > _ANSWER_MAX:
            raise RegistryError(f"a schema can have at most {_ANSWER_MAX} bytes")
        return answer.status, bytes(body)


def _text(answer: dict[str, Any]) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise RegistryError("the schema registry returned no schema")
    return text
