"""Texts about several partitions that differ only in offsets and delays, merged to one with the ranges of these
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

#: The numbers in a text that belong to one partition only: offsets, and delays.
_OWN_NUMBER: Final = re.compile(
    r"(?<=log end offset )\d+|(?<=the leader's )\d+|(?<=back from )\d+|(?<= to )\d+(?=, where)|(?<=ended at )\d+"
    r"|(?<=again at )\d+|\d+(?= ms before)"
)
#: Two events that are further apart are not merged.
WITHIN_MS: Final = 1_000


def skeleton(text: str) -> str:
    """Returns the text without the numbers that belong to one partition only. Texts with the same skeleton can be
    merged.
    """
    return _OWN_NUMBER.sub("#", text)


def merged(texts: Sequence[str]) -> str:
    """Returns one text for several with the same skeleton: "offset 7" and "offset 9" -> "offset 7..9"."""
    columns = list(zip(*(map(int, _OWN_NUMBER.findall(text)) for text in texts), strict=True))
    numbers = iter(str(min(one)) if min(one) == max(one) else f"{min(one)}..{max(one)}" for one in columns)
    return _OWN_NUMBER.sub(lambda _: next(numbers), texts[0])
