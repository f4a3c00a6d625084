"""The configuration file of the console: what it says, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.cli.console import app
from barnabas.console.config_file import ConfigFileError, read
from barnabas.console.messages.masks import Mask
from barnabas.console.security.rights import Role
from barnabas.console.security.scope import Patterns
from barnabas.console.security.users import UsersFile

WHOLE = """
host = "0.0.0.0"
port = 8443
read_only = true
insecure = false
users = "users.json"
history = "/var/history.db"
audit = "audit.jsonl"
allowed_hosts = ["console.example"]
[tls]
certificate = "tls/console.pem"
key = "tls/console.key"
[[clusters]]
name = "shop"
bootstrap = "one:9092,two:9092"
properties = { "security.protocol" = "SSL", "ssl.endpoint.identification" = false }
controllers = "one:9093"
schema_registry = "https://reader:secret@registry:8081/base"
production = true
colour = "red"
[[clusters]]
context = "staging"
[[masks]]
topics = ["payments*"]
fields = ["value.card.number", "headers.authorization"]
clusters = ["shop"]
[roles.viewer]
topics = ["shop-*"]
groups = ["shop-*"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "console.toml"
    path.write_text(text)
    return path


def test_the_file_has_all_of_the_console(tmp_path: Path) -> None:
    found = read(written(tmp_path, WHOLE))
    assert (found.host, found.port, found.read_only, found.insecure) == ("0.0.0.0", 8443, True, False)
    assert (found.users, found.history) == (tmp_path / "users.json", Path("/var/history.db"))
    assert (found.certificate, found.key) == (tmp_path / "tls/console.pem", tmp_path / "tls/console.key")
    shop, staging = found.clusters
    assert shop.properties == {"security.protocol": "SSL", "ssl.endpoint.identification": "false"}
    assert (shop.name, shop.production, staging.name, staging.context) == ("shop", True, "staging", "staging")
    assert found.masks == (Mask(("payments*",), ("value.card.number", "headers.authorization"), ("shop",)),)
    assert found.roles == {Role.VIEWER: Patterns(topics=("shop-*",), groups=("shop-*",))}
    assert read(written(tmp_path, "")).port is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("porrt = 1", 'there is no key "porrt"; allowed: host, port, read_only'),
        ("port = '80'", "port must be a number, not '80'"),
        ("port = true", "port must be a number, not True"),
        ("port = 70000", "port is not between 0 and 65535"),
        ("read_only = 1", "read_only must be true or false, not 1"),
        ("allowed_hosts = [5]", "allowed_hosts must be a list of strings"),
        ("tls = 'x'", "tls must be a table"),
        ("[tls]\ncert = 'x'", 'there is no key "tls.cert"; allowed: certificate, key'),
        ("clusters = 5", "clusters must be a list of tables"),
        ("clusters = ['a']", "clusters[0] is not a table"),
        ("[[clusters]]\nname = 'a'", "clusters[0] needs one of bootstrap, context, directory"),
        ("[[clusters]]\nbootstrap = 'a:1'\ncontext = 'b'", "clusters[0] needs one of"),
        ("[[clusters]]\nbootstrap = 'a:1'\nbotstrap = 'b'", 'there is no key "clusters[0].botstrap"; allowed: name'),
        (
            "[[clusters]]\nbootstrap = 'a:1'\nschema_registry = 'ftp://x'",
            "clusters[0].schema_registry: the URL of a schema",
        ),
        ("[[clusters]]\nbootstrap = 'a:1'\nproperties = { x = [] }", "clusters[0].properties.x is not a string"),
        ("[[clusters]]\nbootstrap = 'a:1'\n[[clusters]]\nbootstrap = 'b:1'", "two clusters have the name cluster"),
        ("[[masks]]\ntopics = ['*']", "masks[0] needs fields"),
        ("[[masks]]\ntopics = ['*']\nfields = ['vlaue.a']", "masks[0].fields: 'vlaue.a' is not a field"),
        ("[[masks]]\ntopics = '*'\nfields = ['key']", "masks[0].topics must be a list of strings"),
        ("[roles.nobody]\ntopics = ['*']", 'there is no key "roles.nobody"; allowed: viewer, operator, admin'),
        ("[roles.viewer]\ntopic = ['*']", 'there is no key "roles.viewer.topic"; allowed: clusters, topics, groups'),
        ("port = ", "Invalid value"),
    ],
    ids=lambda text: text[:40],
)
def test_a_mistake_is_named_with_what_is_allowed(tmp_path: Path, text: str, error: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigFileError) as raised:
        read(path)
    assert error in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="No such file"):
        read(tmp_path / "none.toml")


def test_the_command_adds_users_with_patterns(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    arguments = [
        "user",
        "add",
        "ann",
        "--role",
        "operator",
        "--topics",
        "shop-*",
        "--topics",
        "x",
        "--users",
        str(path),
    ]
    assert CliRunner().invoke(app, arguments, input="correct horse\n").exit_code == 0
    assert UsersFile(path).read()["ann"].patterns == Patterns(topics=("shop-*", "x"))
    listed = CliRunner().invoke(app, ["user", "list", "--users", str(path)])
    assert "shop-* x" in listed.output
