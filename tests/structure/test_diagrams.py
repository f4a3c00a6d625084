"""The diagrams and the list of packages in the documentation agree with the code's tables."""

from __future__ import annotations

from enum import Enum
from xml.etree import ElementTree

import generate_diagrams as diagrams


class Light(Enum):
    RED = 1
    GREEN = 2
    BROKEN = 3


def test_the_files_are_what_the_generator_writes() -> None:
    """If this fails: `python tools/generate_diagrams.py`."""
    assert diagrams.stale(diagrams.files()) == []


def test_the_pictures_are_xml_and_show_every_package_and_state() -> None:
    for path, text in diagrams.files().items():
        if path.suffix == ".svg":
            shown = {element.text for element in ElementTree.fromstring(text).iter() if element.text}
            if path.stem == "architecture":
                assert {package for layer in diagrams.layers() for package in layer} <= shown
            else:
                assert {diagrams.shown(state) for state in diagrams.DIAGRAMS[path.stem].transitions} <= shown


def test_every_package_is_in_a_layer_and_in_the_list() -> None:
    packages = {path.parent.name for path in diagrams.PACKAGE.glob("*/__init__.py")}
    assert {package for layer in diagrams.layers() for package in layer} == packages
    assert all(f"| [`{package}`]" in diagrams.table() for package in packages)


def test_transitions_are_drawn_or_described() -> None:
    places = {"RED": (100, 100), "GREEN": (400, 100), "BROKEN": (100, 300)}
    both = {Light.RED: frozenset({Light.GREEN, Light.BROKEN}), Light.GREEN: frozenset({Light.RED, Light.BROKEN})}
    picture = diagrams.states(diagrams.Diagram("A light", {**both, Light.BROKEN: frozenset()}, places))
    assert picture.count('<path class="a"') == 2
    assert "Every state can become Broken." in picture
    less = {**both, Light.GREEN: frozenset({Light.GREEN}), Light.BROKEN: frozenset[Light]()}
    picture = diagrams.states(diagrams.Diagram("A light", less, places))
    assert picture.count('<path class="a"') == 2
    assert "Green can be followed by Green." in picture
