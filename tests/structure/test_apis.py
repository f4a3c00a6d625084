"""A row of `protocol/api.py` and one handler module are one API; their headers agree with the table."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker import handlers
from barnabas.broker.requests.handler_modules import handler_module
from barnabas.broker.requests.handlers import load
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, ZOOKEEPER_APIS, Offer
from barnabas.protocol.messages.index import request_class

DATA = Path(__file__).parents[1] / "data" / "configs"
BROKER = Path(handlers.__file__).parents[1]

#: Module -> its key and row, and whether only controllers offer the API or use this handler.
ROWS: dict[str, tuple[int, Offer, bool]] = {
    **{offer.name: (key, offer, False) for key, offer in ZOOKEEPER_APIS.items()},
    **{offer.name: (key, offer, True) for key, offer in CONTROLLER_APIS.items()},
    **{offer.name: (key, offer, False) for key, offer in BROKER_APIS.items()},
}
MODULES = sorted(module.name for module in pkgutil.iter_modules(handlers.__path__))

_HEADER = re.compile(
    r"(?P<name>\w+) \((?P<key>\d+)\)(?P<where>[^,:]*), versions? (?P<min>\d+)(?:-(?P<max>\d+))?(?=[,:.;])"
)
#: "7+", "KIP-800 (reason, 5)": versions since which a statement of the header holds.
_SINCE = re.compile(r"\b(\d+)\+|KIP-\d+ \([^()]*, (\d+)\)")


def header_of(module: str) -> str:
    text = importlib.import_module(f"barnabas.broker.handlers.{module}").__doc__
    assert text is not None
    return " ".join(text.split())


def problems(text: str, key: int, offer: Offer, *, is_other: bool) -> Iterator[str]:
    """Yields the statements of a header that the table contradicts. `is_other`: a second handler of the key."""
    header = _HEADER.match(text)
    if header is None:
        yield "it does not begin with name, key and versions"
        return
    name = request_class(key).NAME.removesuffix("Request")
    if header["name"] != name:
        yield f"the API is {name}"
    if int(header["key"]) != key:
        yield f"its key is {key}"
    versions = (int(header["min"]), int(header["max"] or header["min"]))
    if versions != (offer.version_min, offer.version_max):
        yield f"its versions are {offer.version_min}-{offer.version_max}"
    if is_other and "on a controller's listener" not in header["where"]:
        yield "another module serves brokers' listeners"


def test_each_row_has_a_handler_and_each_handler_a_row() -> None:
    assert sorted(ROWS) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_the_header_of_a_handler_agrees_with_the_table(module: str) -> None:
    key, offer, is_controllers = ROWS[module]
    is_other = is_controllers and key in BROKER_APIS
    assert list(problems(header_of(module), key, offer, is_other=is_other)) == []


@pytest.mark.parametrize("module", MODULES)
def test_the_versions_of_a_header_are_offered(module: str) -> None:
    """A header's versions that are not offered must be marked so."""
    _, offer, _ = ROWS[module]
    text = header_of(module)
    since = {int(plus or last) for plus, last in _SINCE.findall(text)}
    assert max(since, default=0) <= offer.version_max or "not offered" in text


@pytest.mark.parametrize("module", MODULES)
def test_a_handler_has_one_of_two_functions(module: str) -> None:
    handler = load(module)
    assert (handler.handle is None) != (handler.handle_raw is None)
    if handler.handle_raw is not None:
        assert handler.pieces is None
        assert not hasattr(handler_module(module), "ERROR_ROWS")


def test_in_zookeeper_mode_the_apis_are_those_of_kafka_3_9_1() -> None:
    """The lowest versions are those of KRaft mode, and APIs that Barnabas lacks are missing."""
    data = json.loads((DATA / "3.9.1-apiversions-broker-zookeeper.json").read_text("utf-8"))
    theirs = {row["api_key"]: row["max"] for row in data["api_keys"]}
    assert {key: offer.version_max for key, offer in ZOOKEEPER_APIS.items()} == {
        key: version for key, version in theirs.items() if key in ZOOKEEPER_APIS
    }
    missing = {row["name"] for row in data["api_keys"] if row["api_key"] not in ZOOKEEPER_APIS}
    assert missing == {
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "Envelope",
    }
    assert not any(offer.is_forwarded for offer in ZOOKEEPER_APIS.values())


def test_a_header_that_is_wrong_is_found() -> None:
    key, offer, _ = ROWS["fetch_metadata"]
    assert list(problems("Fetch (1), versions 4-17: reads.", key, offer, is_other=True)) == [
        "its versions are 4-18",
        "another module serves brokers' listeners",
    ]
    assert list(problems("Produce (0), versions 4-18: reads.", key, offer, is_other=False)) == [
        "the API is Fetch",
        "its key is 1",
    ]


def test_a_handler_that_is_missing_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        load("no_such_api")
