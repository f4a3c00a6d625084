"""The choice of the parser: the compiled one if the wheel has it, otherwise the one with numpy.

BARNABAS_SPARK_PARSER=numpy | compiled in the environment overrides it; `compiled` fails if there is none.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import cast

from barnabas.common.errors import ConfigError
from barnabas.spark import numpy_parser
from barnabas.spark.parsed import Parser

_VARIABLE = "BARNABAS_SPARK_PARSER"
_COMPILED_MODULE = "barnabas.spark._compiled_parser"


def compiled_parser() -> Parser | None:
    """Returns the compiled parser; None if it was not built."""
    try:
        return cast("Parser", import_module(_COMPILED_MODULE))
    except ImportError:
        return None


def choose(wanted: str | None = None) -> Parser:
    """Returns the parser with that name; the fastest one if there is no name. Raises ConfigError."""
    compiled = compiled_parser()
    fallback = cast("Parser", numpy_parser)
    if not wanted:
        return compiled or fallback
    if wanted == "numpy":
        return fallback
    if wanted != "compiled":
        raise ConfigError(f"{_VARIABLE}={wanted}: expected numpy or compiled")
    if compiled is None:
        raise ConfigError(f"{_VARIABLE}=compiled, but {_COMPILED_MODULE} was not built with this installation")
    return compiled


#: The parser that this process uses.
PARSER = choose(os.environ.get(_VARIABLE))
