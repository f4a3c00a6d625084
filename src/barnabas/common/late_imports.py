"""Imports at run time: the only place in the core that imports a module by its name.

A late import hides a dependency from readers and tools, so each needs a reason; `tests/structure/test_late_imports.py`
lists them all. Everything else is imported at the top of a module.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def load(name: str) -> ModuleType:
    """Returns the module of this name. Raises ImportError if it is missing or cannot be imported."""
    return import_module(name)


def load_optional(name: str) -> ModuleType | None:
    """Returns the module of this name; None if it is missing or cannot be imported."""
    try:
        return import_module(name)
    except ImportError:
        return None
