"""The levels of this process's loggers, with Kafka's names for levels and for the root logger."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
#: The parent of all loggers of this project; Kafka's tools see it as the root logger.
_TOP: Final = "barnabas"
#: The audit log of the authorizer, which has Kafka's name.
_AUDIT: Final = "kafka.authorizer.logger"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Returns the effective level of each logger, ordered by name."""
    names = sorted(name for name in logging.Logger.manager.loggerDict if _is_own(name))
    return {ROOT: _level_name(_TOP), **{name: _level_name(name) for name in names}}


def exists(name: str) -> bool:
    return name == ROOT or (_is_own(name) and name in logging.Logger.manager.loggerDict)


def _is_own(name: str) -> bool:
    return name.startswith(_TOP + ".") or name == _AUDIT


def set_level(name: str, level: str) -> None:
    """Sets the level of a logger to one of LEVELS."""
    logging.getLogger(_TOP if name == ROOT else name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Lets a logger inherit its level from the root again."""
    assert name != ROOT, "the root logger keeps a level"
    logging.getLogger(name).setLevel(logging.NOTSET)


def _level_name(name: str) -> str:
    number = logging.getLogger(name).getEffectiveLevel()
    # A number between two levels is shown as the more verbose one.
    return max((level for level, least in LEVELS.items() if least <= number), key=LEVELS.__getitem__, default="TRACE")
