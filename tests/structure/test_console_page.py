"""The sources of the console's page: pinned packages, one file of texts, and a bundle that is built only once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import build_console

UI = build_console.ROOT / build_console.UI
BANNED = ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "new Function", "https://", "document.write")


def test_every_package_is_pinned_with_its_hash_and_without_a_host() -> None:
    lock = json.loads((UI / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages
    for name, entry in packages.items():
        assert entry["integrity"].startswith("sha512-"), name
        assert "resolved" not in entry, name
    wanted = json.loads((UI / "package.json").read_text(encoding="utf-8"))
    for versions in (wanted["dependencies"], wanted["devDependencies"]):
        for name, version in versions.items():
            assert version == packages[f"node_modules/{name}"]["version"], name


def test_no_source_evaluates_text_or_sets_html() -> None:
    for path in build_console._sources(UI):
        if path.suffix == ".js":
            text = path.read_text(encoding="utf-8")
            for banned in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "new Function",
                "https://",
                "document.write",
            ):
                assert banned not in text, (path, banned)


def test_the_digest_changes_with_a_source(tmp_path: Path) -> None:
    copy = tmp_path / "ui"
    shutil.copytree(UI, copy, ignore=shutil.ignore_patterns("node_modules"))
    before = build_console.digest_of(copy)
    assert build_console.digest_of(copy) == before
    (copy / "core" / "texts.js").write_text("// changed\n", encoding="utf-8")
    assert build_console.digest_of(copy) != before


def test_unchanged_sources_are_not_bundled_again(tmp_path: Path) -> None:
    static = tmp_path / build_console.STATIC
    shutil.copytree(UI, tmp_path / build_console.UI, ignore=shutil.ignore_patterns("node_modules"))
    static.mkdir(parents=True)
    (static / build_console.STAMP).write_text(build_console.digest_of(tmp_path / build_console.UI), encoding="utf-8")
    assert build_console.build(tmp_path) is False


def test_without_packages_the_optional_build_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(root: Path) -> bool:
        raise build_console.BuildFailed("npm-cli.js failed: npm error code ENOTFOUND\nnpm error network\n")

    monkeypatch.setattr(build_console, "build", lambda *_: fail(build_console.ROOT))
    assert build_console.main(["--optional"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "ENOTFOUND" in printed
    assert build_console.main([]) == 1
