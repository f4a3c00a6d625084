"""SCRAM credentials of `barnabas format --add-scram` (KIP-900), in the form and with the errors of kafka-storage.

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name="alice",iterations=8192,salt="c2FsdA==",saltedpassword="..."]

The records are written when the directory is formatted, so nodes can log in to each other at the first start. No error
text contains a password.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence
from typing import Final

from barnabas.controller.requests.scram import credential_record
from barnabas.embedded.failures import Failure
from barnabas.metadata.versions import V_3_5_IV2
from barnabas.protocol.messages.records_metadata import UserScramCredentialRecord
from barnabas.protocol.sasl.mechanism import SCRAM
from barnabas.protocol.sasl.scram_server import ITERATIONS_MAX, ITERATIONS_MIN, salted_password

_SALT_BYTES: Final = 26
_KNOWN: Final = ("name", "salt", "iterations", "password", "saltedpassword")


def scram_records(arguments: Sequence[str], metadata_version: int) -> list[tuple[UserScramCredentialRecord, int]]:
    """Returns the records, each with its version. Raises Failure."""
    if arguments and metadata_version < V_3_5_IV2:
        raise Failure("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
    return [(_record(argument.strip()), 0) for argument in arguments]


def _record(argument: str) -> UserScramCredentialRecord:
    mechanism, equals, rest = argument.partition("=")
    if not equals:
        raise Failure("Failed to find equals sign in SCRAM argument")
    if mechanism not in SCRAM:
        raise Failure(f"The add-scram mechanism {mechanism} is not supported.")
    if not rest.startswith("["):
        raise Failure("Expected configuration string to start with [")
    if not rest.endswith("]"):
        raise Failure("Expected configuration string to end with ]")
    fields = dict(_field(part) for part in rest[1:-1].rstrip(",").split(","))
    if "name" not in fields:
        raise Failure("You must supply 'name' to add-scram")
    unknown = sorted(set(fields) - set(_KNOWN))
    if unknown:
        raise Failure(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    number, hash_name = SCRAM[mechanism]
    iterations = _iterations(fields.get("iterations"), mechanism)
    salt = _decoded("salt", fields["salt"]) if "salt" in fields else secrets.token_bytes(_SALT_BYTES)
    if "password" in fields:
        salted = salted_password(hash_name, fields["password"], salt, iterations)
    elif "saltedpassword" not in fields:
        raise Failure("You must supply one of 'password' or 'saltedpassword' to add-scram")
    elif "salt" not in fields:
        raise Failure("You must supply 'salt' with 'saltedpassword' to add-scram")
    else:
        salted = _decoded("saltedPassword", fields["saltedpassword"])
    return credential_record(fields["name"], number, salt, salted, iterations)


def _field(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise Failure("No equals sign found in a SCRAM component")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return name, value


def _iterations(text: str | None, mechanism: str) -> int:
    try:
        iterations = ITERATIONS_MIN if text is None else int(text)
    except ValueError:
        raise Failure(f"Failed to parse iterations count: {text}") from None
    name = mechanism.replace("-", "_")
    if iterations < ITERATIONS_MIN:
        raise Failure(f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {name}")
    if iterations > ITERATIONS_MAX:
        raise Failure(f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {name}")
    return iterations


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Failure(f"Failed to decode given {name}") from None
