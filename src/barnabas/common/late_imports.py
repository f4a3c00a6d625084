"""Imports at run time: the only place in the core that imports a module by its name.

A late import hides a dependency from readers and tools, so each needs a reason; `tests/structure/test_late_imports.py`
lists them all. Everything else is imported at the top of a module.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
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


def load_extension(package: str, name: str) -> ModuleType:
    """Returns the extension module `name` of a package without the package's own imports; the package, if it has no
    such module. Raises ImportError if the package is missing.
    """
    found = find_spec(package)
    places = None if found is None else found.submodule_search_locations
    extension = None if places is None else PathFinder.find_spec(name, list(places))
    if extension is None or extension.loader is None:
        return import_module(package)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return module
