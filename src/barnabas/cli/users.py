"""`barnabas users`: SCRAM credentials of users, as `kafka-configs --entity-type users` shows and changes them.

A password is read from a prompt or from standard input, never from the command line, which other users of the machine
can see.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from barnabas.cli import output
from barnabas.cli.clients import TIMEOUT_S, admin_client, result
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json
from barnabas.embedded.failures import Failure
from barnabas.protocol.sasl.scram_server import ITERATIONS_MAX, ITERATIONS_MIN


class MechanismName(StrEnum):
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


_OF_LIBRDKAFKA = {
    MechanismName.SCRAM_SHA_256: ScramMechanism.SCRAM_SHA_256,
    MechanismName.SCRAM_SHA_512: ScramMechanism.SCRAM_SHA_512,
}
_NAMES = {each: name.value for name, each in _OF_LIBRDKAFKA.items()}

User = Annotated[str, typer.Argument(metavar="USER", help="The name of the user")]
Mechanism = Annotated[MechanismName, typer.Option("--mechanism", "-m", help="The SASL mechanism of the credential")]

app = typer.Typer(help="List, add and remove SCRAM credentials of users", no_args_is_help=True)


@app.command("list")
def list_users(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, properties: ClientProperty = None, as_json: Json = False
) -> None:
    """List the users with their mechanisms and iterations; passwords cannot be read"""
    admin = admin_client(bootstrap, properties)
    asked = admin.describe_user_scram_credentials(request_timeout=TIMEOUT_S)
    assert not isinstance(asked, dict), "one future for all users"
    described = result(asked, "cannot list the users")
    rows = [
        (name, _NAMES.get(info.mechanism, str(info.mechanism)), info.iterations)
        for name, user in sorted(described.items())
        for info in user.scram_credential_infos
    ]
    if as_json:
        output.show_json([{"user": user, "mechanism": name, "iterations": count} for user, name, count in rows])
        return
    if not rows:
        print("no user has a SCRAM credential")
    for user, name, count in rows:
        print(f"{user}  {name}  {count} iterations")


@app.command()
def add(
    user: User,
    mechanism: Mechanism = MechanismName.SCRAM_SHA_512,
    iterations: Annotated[
        int,
        typer.Option("--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="Number of iterations of the hash"),
    ] = ITERATIONS_MIN,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Set the credential of a user; the password is read from a prompt or from standard input"""
    password = _password()
    admin = admin_client(bootstrap, properties)
    info = ScramCredentialInfo(_OF_LIBRDKAFKA[mechanism], iterations)
    (done,) = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(user, info, password.encode())], request_timeout=TIMEOUT_S
    ).values()
    result(done, f"cannot add {user}")
    print(f"{user} can log in with {mechanism.value}")


@app.command()
def remove(
    user: User,
    mechanism: Mechanism = MechanismName.SCRAM_SHA_512,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Remove the credential of a user; open connections stay open"""
    admin = admin_client(bootstrap, properties)
    deletion = UserScramCredentialDeletion(user, _OF_LIBRDKAFKA[mechanism])
    (done,) = admin.alter_user_scram_credentials([deletion], request_timeout=TIMEOUT_S).values()
    result(done, f"cannot remove {user}")
    print(f"{user} can no longer log in with {mechanism.value}")


def _password() -> str:
    """Reads the password. Raises Failure if there is none."""
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise Failure("the password is empty")
    return password
