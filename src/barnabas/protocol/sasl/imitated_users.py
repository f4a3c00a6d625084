"""Credentials of SCRAM users that do not exist: salt and iterations that cannot be told from those of others.

The salt is an HMAC of the name with a secret of the cluster: the same on all nodes and after a restart. Its form and
the iterations (the shape) are those of a credential that exists, and each shape is as frequent among imitations as
among credentials. The shape of a name is the one with the best score (weighted rendezvous hashing), and a score depends
only on the name and one shape. So a new password changes no imitation, and a user who is added or removed changes the
shapes of few names, or of none if all credentials have the same shape.

The secret is derived from `delegation.token.secret.key`, which all nodes have and no client knows. Without that key it
is derived from the first credential, so it changes when that credential does: a client that tries a name before and
after can see that the name is imitated.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.protocol.sasl.scram_server import ITERATIONS_MAX, ITERATIONS_MIN, Credential

#: Kafka's tools make a salt from a random number of 130 bits, as text of the base 36; its length varies.
_TEXT_BITS: Final = 130
_TEXT_BYTES: Final = range(20, 27)
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
#: The maximum length of an imitated salt, which is a part of an HMAC.
_SALT_BYTES_MAX: Final = 64
#: The number of shapes that are imitated: the most frequent ones.
_SHAPES_MAX: Final = 16


class Shape(NamedTuple):
    """Iterations and form of the salt of a credential, which clients see. `salt_bytes` is 0 for a salt in the form of
    Kafka's tools.
    """

    iterations: int
    salt_bytes: int


#: Iterations of a credential, the length of its salt, and whether the salt has only letters and digits.
Form = tuple[int, int, bool]

TOKEN_SHAPE: Final = Shape(ITERATIONS_MIN, 26)
#: The shape where no credential can be imitated: that of Kafka's tools.
DEFAULT_SHAPES: Final = {Shape(ITERATIONS_MIN, 0): 1}


def form_of(salt: bytes, iterations: int) -> Form:
    return iterations, len(salt), salt.isalnum()


def shapes_of(forms: Mapping[Form, int]) -> Mapping[Shape, int]:
    """Returns the most frequent shapes among credentials of these forms, with their frequencies."""
    counted: Counter[Shape] = Counter()
    for (iterations, size, is_text), count in forms.items():
        if ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            in_kafkas_form = is_text and size in _TEXT_BYTES
            counted[Shape(iterations, 0 if in_kafkas_form else min(size, _SALT_BYTES_MAX))] += count
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:_SHAPES_MAX]) or DEFAULT_SHAPES


def imitation(hash_name: str, secret: bytes, name: str, shapes: Mapping[Shape, int] = DEFAULT_SHAPES) -> Credential:
    """Returns a credential that no password matches, in one of these shapes. It depends on the mechanism, the name, the
    secret and the shapes.
    """
    size = hashlib.new(hash_name).digest_size
    digest = hmac.digest(secret, f"{hash_name},{name}".encode(), "sha512")
    shape = max(shapes, key=lambda each: _score(digest, each, shapes[each]))
    salt = digest[: shape.salt_bytes] if shape.salt_bytes else _text(digest)
    return Credential(salt, bytes(size), bytes(size), shape.iterations)


def _score(digest: bytes, shape: Shape, weight: int) -> float:
    drawn = hmac.digest(digest, b"%d,%d" % shape, "sha256")
    return -weight / math.log((int.from_bytes(drawn[:6], "big") + 0.5) / (1 << 48))


def _text(digest: bytes) -> bytes:
    """Returns a salt as Kafka's tools make it, from the bits of a digest."""
    number = int.from_bytes(digest, "big") >> (8 * len(digest) - _TEXT_BITS)
    digits = bytearray()
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


def secret_of(cluster_id: str, secret_key: bytes, first_server_key: bytes) -> bytes:
    """Returns the secret for imitations, from the secret key of delegation tokens if there is one, else from the server
    key of the cluster's first credential. All nodes know both, and no client does. Without any credential there is no
    user to hide.
    """
    if secret_key:
        return hmac.digest(secret_key, b"imitated users of " + cluster_id.encode(), "sha256")
    return hmac.digest(first_server_key, cluster_id.encode(), "sha256")
