"""`barnabas quotas`: the quotas of users, client ids and addresses, as `kafka-configs` shows and changes them.

librdkafka has no requests about quotas, so they are sent over a separate connection.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer

from barnabas.cli import output
from barnabas.cli.clients import TIMEOUT_S, admin_client, result
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json
from barnabas.cli.raw_requests import Wire
from barnabas.common.errors import ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.metadata.quota_entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    shown_entity,
)
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

M = TypeVar("M", bound=Message)

_EXACT: Final = 0
_DEFAULT: Final = 1
_VERSION: Final = 1
_WITHOUT: Final = "without a quota of their own"
_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)

app = typer.Typer(help="List, set and remove quotas of users, client ids and addresses", no_args_is_help=True)


class Entity(NamedTuple):
    """The entity of a quota: its parts by type, in Kafka's order; the name None is the default."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(
        cls,
        user: str | None,
        user_defaults: bool,
        client: str | None,
        client_defaults: bool,
        address: str | None,
        address_defaults: bool,
    ) -> Entity:
        """Returns the entity that the options name, possibly an empty one. Raises Failure."""
        parts: list[tuple[str, str | None]] = []
        for kind, option, name, is_default in (
            (CLIENT_ID, "--client", client, client_defaults),
            (IP, "--ip", address, address_defaults),
            (USER, "--user", user, user_defaults),
        ):
            if name is not None and is_default:
                raise Failure(f"give {option} or {option}-defaults, not both")
            if name == "":
                raise Failure(f"{option} needs a name", f"{option}-defaults is for those {_WITHOUT}")
            if name is not None or is_default:
                parts.append((kind, name))
        if len(parts) > 1 and IP in dict(parts):
            raise Failure("a quota of an address is for no user or client id", "give --ip alone")
        return cls(tuple(parts))

    def require(self) -> None:
        """Raises Failure if no option names an entity."""
        if not self.parts:
            raise Failure(
                "no entity is named", "give --user, --client or both, or --ip; each has a variant with -defaults"
            )

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the keys that this entity can have."""
        return (CONNECTION_CREATION_RATE,) if IP in dict(self.parts) else _KEYS

    def __str__(self) -> str:
        return shown_entity(self.parts)


class _Cluster:
    """The requests of one command."""

    def __init__(self, bootstrap: str, properties: Iterable[str] | None) -> None:
        admin = admin_client(bootstrap, properties)
        described = result(admin.describe_cluster(request_timeout=TIMEOUT_S), "cannot describe the cluster")
        self._nodes = [(node.host, node.port) for node in described.nodes]

    def _call(self, request: Message, expected: type[M]) -> M:
        with Wire.to_any(self._nodes) as wire:
            return wire.call(request, _VERSION, expected)

    def quotas(self, wanted: Entity, *, strict: bool = False) -> list[tuple[Entity, dict[str, float]]]:
        """Returns the quotas of all entities with these parts; with `strict` of those that have no other part."""
        components = [
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
            )
            for kind, name in wanted.parts
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        answer = self._call(request, DescribeClientQuotasResponse)
        _check(answer.error_code, answer.error_message, "cannot list the quotas")
        found = [
            (
                Entity(tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity))),
                {each.key: each.value for each in entry.values},
            )
            for entry in answer.entries or ()
        ]
        return sorted(found, key=lambda each: [(kind, name is not None, name or "") for kind, name in each[0].parts])

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Sets quotas, and removes those with the value None. Raises Failure."""
        row = AlterClientQuotasRequest.EntryData(
            entity=[
                AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts
            ],
            ops=[
                AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in changes.items()
            ],
        )
        answer = self._call(AlterClientQuotasRequest(entries=[row]), AlterClientQuotasResponse)
        for each in answer.entries:
            _check(each.error_code, each.error_message, f"cannot change the quotas of {entity}")


def _entity(
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="The user")] = None,
    user_defaults: Annotated[bool, typer.Option("--user-defaults", help=f"Users {_WITHOUT}")] = False,
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="The client id")] = None,
    client_defaults: Annotated[bool, typer.Option("--client-defaults", help=f"Client ids {_WITHOUT}")] = False,
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="The address of clients")] = None,
    ip_defaults: Annotated[bool, typer.Option("--ip-defaults", help=f"Addresses {_WITHOUT}")] = False,
) -> Entity:
    return Entity.of(user, user_defaults, client, client_defaults, ip, ip_defaults)


def _of_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with the options that name an entity in place of its parameter `entity`."""
    options = inspect.signature(_entity, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    for name, each in inspect.signature(command, eval_str=True).parameters.items():
        parameters += options.values() if name == "entity" else [each]

    @wraps(command)
    def with_options(**values: Any) -> None:
        named = {name: values.pop(name) for name in options}
        command(entity=_entity(**named), **values)

    # typer reads the options of a command from these two.
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    return with_options


def _check(code: int, message: str | None, what: str) -> None:
    if code:
        name = ErrorCode(code).name
        raise Failure(f"{what}: {message} ({name})" if message else f"{what}: {name}")


@app.command("list")
@_of_entity
def list_quotas(
    entity: Entity,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """List quotas: all of them, or those of the entities with the given parts"""
    found = _Cluster(bootstrap, properties).quotas(entity)
    if as_json:
        output.show_json([{"entity": dict(each.parts), "quotas": quotas} for each, quotas in found])
        return
    if not found:
        print(f"there is no quota of {entity}" if entity.parts else "there is no quota")
        return
    rows = [(str(each), key, _shown(value)) for each, quotas in found for key, value in sorted(quotas.items())]
    output.show_table(["entity", "quota", "value"], rows)


@app.command("set")
@_of_entity
def set_quotas(
    quotas: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help=", ".join((*_KEYS, CONNECTION_CREATION_RATE)))
    ],
    entity: Entity,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Set quotas of a user, a client id, a client id of a user, or an address; its other quotas stay"""
    entity.require()
    changes = dict(_parsed(each, entity) for each in quotas)
    _Cluster(bootstrap, properties).alter(entity, changes)
    print(f"{entity}: {', '.join(f'{key}={_shown(value)}' for key, value in changes.items())}")


@app.command()
@_of_entity
def remove(
    entity: Entity,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Default: all quotas of the entity")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Remove quotas of a user, a client id, a client id of a user, or an address

    The exit code is 1 if there is no such quota.
    """
    entity.require()
    for key in keys or ():
        _check_key(key, entity)
    cluster = _Cluster(bootstrap, properties)
    there = next((found for each, found in cluster.quotas(entity, strict=True) if each == entity), {})
    missing = [key for key in keys or () if key not in there]
    if missing or not there:
        what = f"{', '.join(missing)} of {entity}" if missing else f"quota of {entity}"
        raise Failure(f"there is no {what}", "`barnabas quotas list` shows the quotas")
    gone = list(dict.fromkeys(keys)) if keys else sorted(there)
    cluster.alter(entity, dict.fromkeys(gone))
    print(f"{entity}: removed {', '.join(gone)}")


def _parsed(text: str, entity: Entity) -> tuple[str, float]:
    """Parses KEY=VALUE. Raises Failure."""
    key, equals, value = text.partition("=")
    if not equals:
        raise Failure(f"{text!r} is not a quota", "give it as KEY=VALUE")
    _check_key(key, entity)
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise Failure(f"{key} must be a number above 0, not {value!r}", "`barnabas quotas remove` removes a limit")
    return key, number


def _check_key(key: str, entity: Entity) -> None:
    if key not in entity.keys:
        raise Failure(f"{entity} cannot have {key!r}", f"its quotas are {', '.join(entity.keys)}")


def _shown(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
