"""The modules of `broker/handlers/`, by name: the one place that imports them.

A handler is imported at the first request of its API, so that a broker starts quickly, and because handlers import the
package that dispatches to them. `broker/requests/context.py` describes the attributes of a handler module.
"""

from __future__ import annotations

from types import ModuleType

from barnabas.common import late_imports


def handler_module(name: str) -> ModuleType:
    """Returns the module of an API's handler."""
    return late_imports.load(f"barnabas.broker.handlers.{name}")
