"""The levels of this process's loggers, under the names that Kafka's tools use for levels and for the root."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
#: All loggers of this project stand below this one, which is the root to Kafka's tools.
_TOP: Final = "barnabas"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """The level in force of each logger, by name."""
    names = sorted(name for name in logging.Logger.manager.loggerDict if name.startswith(_TOP + "."))
    return {ROOT: _level_name(_TOP), **{name: _level_name(name) for name in names}}


def exists(name: str) -> bool:
    return name == ROOT or (name.startswith(_TOP + ".") and name in logging.Logger.manager.loggerDict)


def set_level(name: str, level: str) -> None:
    """`level` is one of LEVELS."""
    logging.getLogger(_TOP if name == ROOT else name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Let it follow the root again."""
    assert name != ROOT, "the root logger keeps a level"
    logging.getLogger(name).setLevel(logging.NOTSET)


def _level_name(name: str) -> str:
    number = logging.getLogger(name).getEffectiveLevel()
    # A level between two counts as the finer one: it lets through what that lets through.
    return max((level for level, least in LEVELS.items() if least <= number), key=LEVELS.__getitem__, default="TRACE")
