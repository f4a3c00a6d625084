"""PEM files: blocks of base64 between lines that say what they contain; text around them is ignored."""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

CERTIFICATE: Final = "CERTIFICATE"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)


class Block(NamedTuple):
    label: str
    #: The block as a file has it. A value of a properties file can have blanks for its line ends.
    text: str

    @property
    def der(self) -> bytes:
        """Returns the content. Raises ValueError if it is not base64."""
        body = _BLOCK.fullmatch(self.text.strip())
        assert body is not None, "the text of a block is one block"
        return base64.b64decode("".join(body.group(2).split()), validate=True)


def blocks(text: str) -> list[Block]:
    """Returns the blocks of `text`, each with line ends where OpenSSL needs them."""
    found = []
    for match in _BLOCK.finditer(text):
        label, body = match.groups()
        lines = body.strip() if ":" in body else "\n".join(body.split())
        found.append(Block(label, f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"))
    return found


def block_of(label: str, der: bytes) -> str:
    """Returns the text of a PEM block with the content `der`."""
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
