"""The choice of a Java, and the messages about unsuitable ones."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from barnabas.pipelines import java
from barnabas.pipelines.errors import PipelineError


def install(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """Installs a program that answers as Java does, and otherwise prints its arguments."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    refusal = "" if has_vector else 'case "$*" in *jdk.incubator.vector*) echo FindException >&2; exit 1;; esac\n'
    launcher.write_text(
        f'#!/bin/sh\n{refusal}case "$*" in *-version*) echo \'openjdk version "{version}" 2025\' >&2; exit 0;; esac\n'
        'for each do echo "<$each>"; done\n'
    )
    launcher.chmod(0o755)
    return home


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    return {"PATH": str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_java_home_is_first(tmp_path: Path, environment: dict[str, str]) -> None:
    home = install(tmp_path / "home", "17.0.15")
    on_path = install(tmp_path / "path", "21.0.1")
    found = java.find_java(environment | {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert found == java.Java(home, 17, "JAVA_HOME")


def test_an_old_one_is_passed_over_for_a_new_one(tmp_path: Path, environment: dict[str, str]) -> None:
    home, on_path = install(tmp_path / "home", "1.8.0_402"), install(tmp_path / "path", "21.0.1")
    found = java.find_java(environment | {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert found == java.Java(on_path, 21, "PATH")


def test_a_launcher_elsewhere_is_asked_for_its_home(tmp_path: Path, environment: dict[str, str]) -> None:
    """The launcher is like a shim of jenv."""
    home = install(tmp_path / "home", "21.0.1")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\ncase "$*" in *properties*) echo "    java.home = {home}" >&2;; esac\n')
    shim.chmod(0o755)
    found = java.find_java(environment | {"PATH": str(shim.parent)})
    assert found == java.Java(home, 21, "PATH")


def test_a_missing_java_is_reported_with_what_to_install(environment: dict[str, str]) -> None:
    with pytest.raises(PipelineError, match="Spark needs Java 17 or newer: none was found") as refused:
        java.find_java(environment)
    assert "apt-get install openjdk-17-jre-headless" in (refused.value.hint or "")


def test_the_fault_of_each_java_is_reported(tmp_path: Path, environment: dict[str, str]) -> None:
    on_path = install(tmp_path / "path", "11.0.2")
    with pytest.raises(PipelineError, match=r"JAVA_HOME .*none: No such file.*; PATH .*Java 11 is too old"):
        java.find_java(environment | {"JAVA_HOME": str(tmp_path / "none"), "PATH": str(on_path / "bin")})


def test_one_without_the_vector_module_is_started_without_asking_for_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    home = install(tmp_path / "home", "25.0.2", has_vector=False)
    for _ in range(2):
        found = java.find_java(environment | {"JAVA_HOME": str(home)})
        assert (found.version, found.found_by) == (25, "JAVA_HOME")
        assert found.home != home
    command = [str(found.home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", ""]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<>"]
