"""`barnabas tokens`: delegation tokens, as `kafka-delegation-tokens` makes and changes them.

Commands name a token by its id and look up its HMAC. The HMAC is a secret, and other users of the machine can see
command lines.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import typer

from barnabas.cli import clients, output
from barnabas.cli.groups_reset import parse_duration_ms
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json
from barnabas.cli.raw_requests import Wire
from barnabas.common.errors import ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_Change = TypeVar("_Change", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)
_Token = DescribeDelegationTokenResponse.DescribedDelegationToken
#: The versions of Kafka 3.3 and newer.
_CREATE_VERSION: Final = 3
_CHANGE_VERSION: Final = 2
_DESCRIBE_VERSION: Final = 3
#: The period that stands for the cluster's own limit, and the period that removes a token.
_LONGEST: Final = -1
_NOW: Final = -1

_HINTS: Final = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on all nodes of the cluster",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in with a password or a certificate, not with a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "it needs CREATE_TOKENS on the user",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers can change a token",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "renewers are users: User:NAME",
}

TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help="The id of the token")]
_DURATION_FORM: Final = "such as 30s, 10m, 2h, 7d"

app = typer.Typer(help="Create, list, renew and expire delegation tokens", no_args_is_help=True)


@app.command()
def create(
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="User:NAME", help="The owner of the token, if it is another user")
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="User:NAME", help="A user who can renew and expire it; repeatable"),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime",
            metavar="DURATION",
            help=f"How long it can be renewed after its creation, {_DURATION_FORM}",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """Create a token, and print its id and its HMAC

    A client that uses them as user name and password logs in by SCRAM as the owner of the token. It needs
    tokenauth="true" in its sasl.jaas.config.
    """
    owner_type, owner_name = (None, None) if owner is None else _principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, renewers or ())
        ],
        max_lifetime_ms=_LONGEST if max_lifetime is None else parse_duration_ms(max_lifetime),
    )
    with clients.wire(bootstrap) as wire:
        made = wire.call(request, _CREATE_VERSION, CreateDelegationTokenResponse)
    _check(made.error_code, "cannot create a token")
    hmac = _shown_hmac(made.hmac)
    if as_json:
        output.show_json(
            {
                "id": made.token_id,
                "hmac": hmac,
                "owner": f"{made.principal_type}:{made.principal_name}",
                "requester": f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
                "renewers": list(renewers or ()),
                "issued_ms": made.issue_timestamp_ms,
                "expires_ms": made.expiry_timestamp_ms,
                "max_ms": made.max_timestamp_ms,
            }
        )
        return
    print(f"id       {made.token_id}")
    print(f"hmac     {hmac}")
    print(f"owner    {made.principal_type}:{made.principal_name}")
    print(f"expires  {_time(made.expiry_timestamp_ms)}, renewable until {_time(made.max_timestamp_ms)}")


@app.command("list")
def list_tokens(
    owners: Annotated[
        list[str] | None,
        typer.Option(
            "--owner", metavar="User:NAME", help="Only tokens of which this user is owner or renewer; repeatable"
        ),
    ] = None,
    with_hmac: Annotated[bool, typer.Option("--hmac", help="Also show the HMACs, by which clients log in")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """List the tokens that you can see: your own, and those that you have a right to describe"""
    with clients.wire(bootstrap) as wire:
        found = _tokens(wire, owners)
    if as_json:
        output.show_json([_fields(token, with_hmac=with_hmac) for token in found])
        return
    if not found:
        print("there is no token that you have a right to see")
        return
    columns = ["token", "owner", "renewers", "expires", "renewable until", *(["hmac"] if with_hmac else [])]
    rows = []
    for token in found:
        fields = _fields(token, with_hmac=with_hmac)
        row = [fields["id"], fields["owner"], ",".join(fields["renewers"]) or "-"]
        row += [_time(token.expiry_timestamp), _time(token.max_timestamp)]
        rows.append([*row, fields["hmac"]] if with_hmac else row)
    output.show_table(columns, rows)


@app.command()
def renew(
    token: TokenId,
    period: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help=f"The time from now, {_DURATION_FORM}")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """Renew a token: for delegation.token.expiry.time.ms from now, or for a shorter time"""
    period_ms = _LONGEST if period is None else parse_duration_ms(period)
    with clients.wire(bootstrap) as wire:
        request = RenewDelegationTokenRequest(hmac=_hmac_of(wire, token), renew_period_ms=period_ms)
        end_ms = _changed(wire, request, RenewDelegationTokenResponse, f"cannot renew {token}")
    _show_end(token, end_ms, as_json=as_json)


@app.command()
def expire(
    token: TokenId,
    period: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help=f"The time from now, {_DURATION_FORM}; default: immediately"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
    as_json: Json = False,
) -> None:
    """Remove a token, or let it expire earlier; open sessions keep the end that they had when they began"""
    period_ms = _NOW if period is None else parse_duration_ms(period)
    with clients.wire(bootstrap) as wire:
        request = ExpireDelegationTokenRequest(hmac=_hmac_of(wire, token), expiry_time_period_ms=period_ms)
        end_ms = _changed(wire, request, ExpireDelegationTokenResponse, f"cannot expire {token}")
    if period is None and not as_json:
        print(f"{token} is removed")
    else:
        _show_end(token, end_ms, as_json=as_json)


def _changed(wire: Wire, request: Message, response: type[_Change], what: str) -> int:
    """Sends a change of a token and returns its new expiry time. Raises Failure."""
    answer = wire.call(request, _CHANGE_VERSION, response)
    _check(answer.error_code, what)
    return answer.expiry_timestamp_ms


def _tokens(wire: Wire, owners: list[str] | None = None) -> list[_Token]:
    rows = None
    if owners:
        rows = [
            DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        ]
    request = DescribeDelegationTokenRequest(owners=rows)
    answer = wire.call(request, _DESCRIBE_VERSION, DescribeDelegationTokenResponse)
    _check(answer.error_code, "cannot list the tokens")
    return sorted(answer.tokens, key=lambda token: (token.issue_timestamp, token.token_id))


def _hmac_of(wire: Wire, token_id: str) -> bytes:
    for token in _tokens(wire):
        if token.token_id == token_id:
            return bytes(token.hmac)
    raise Failure(
        f"there is no token {token_id}, or you have no right to see it", "`barnabas tokens list` shows the tokens"
    )


def _check(code: int, what: str) -> None:
    """Raises Failure if the code is an error."""
    if code == ErrorCode.NONE:
        return
    try:
        known = ErrorCode(code)
    except ValueError:
        raise Failure(f"{what}: error {code}") from None
    raise Failure(f"{what}: {known.name}", _HINTS.get(known, ""))


def _principal(text: str) -> tuple[str, str]:
    """Parses TYPE:NAME. Raises Failure."""
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        raise Failure(f"{text!r} is not a principal", "give User:NAME")
    return kind, name


def _fields(token: _Token, *, with_hmac: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": token.token_id,
        "owner": f"{token.principal_type}:{token.principal_name}",
        "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
        "issued_ms": token.issue_timestamp,
        "expires_ms": token.expiry_timestamp,
        "max_ms": token.max_timestamp,
    }
    if with_hmac:
        fields["hmac"] = _shown_hmac(token.hmac)
    return fields


def _shown_hmac(hmac: bytes) -> str:
    return base64.b64encode(hmac).decode()


def _show_end(token: str, end_ms: int, *, as_json: bool) -> None:
    if as_json:
        output.show_json({"id": token, "expires_ms": end_ms})
    else:
        print(f"{token} expires {_time(end_ms)}")


def _time(time_ms: int) -> str:
    """Returns a time in UTC; times beyond the calendar have no date."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError):
        return "never"
