"""Paths of znodes, validated by the rules of ZooKeeper's `PathUtils`."""

from __future__ import annotations

import re
from typing import Final

#: Control characters, surrogates and private use, specials; Java's `char` makes all beyond U+FFFF surrogates.
_INVALID: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_RELATIVE: Final = re.compile(r"/\.{1,2}(?=/|$)")


def problem_of(path: str) -> str | None:
    """Returns the reason why a path is invalid, or None if it is valid."""
    if not path:
        return "Path length must be > 0"
    if path[0] != "/":
        return "Path must start with / character"
    if path == "/":
        return None
    if path[-1] == "/":
        return "Path must not end with / character"
    if found := _INVALID.search(path):
        return f"invalid character @{found.start()}"
    if (at := path.find("//")) >= 0:
        return f"empty node name specified @{at + 1}"
    if "/." in path and (found := _RELATIVE.search(path)):
        return f"relative paths not allowed @{found.end() - 1}"
    return None


def parent_of(path: str) -> str:
    """Returns the path of the parent. The parent of "/a" is "/"."""
    return path[: path.rindex("/")] or "/"


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]
