"""The command `barnabas console`: its configuration file, and its end while its cluster is dead under an open page."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from barnabas.testing.phantom import PhantomCluster


@pytest.mark.full
def test_the_command_takes_its_file_and_ends_while_its_cluster_is_dead_and_a_page_is_open(tmp_path: Path) -> None:
    with PhantomCluster(topics=20) as phantom:
        config = tmp_path / "console.toml"
        config.write_text(
            f"""
            port = 0
            read_only = true
            history = "history.db"
            [[clusters]]
            name = "phantom"
            bootstrap = "{phantom.bootstrap}"
            [[masks]]
            topics = ["*"]
            fields = ["value.card"]
            """
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas.cli", "console", "--config", str(config)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        )
        try:
            assert process.stdout is not None
            url = next(line for line in process.stdout if line.startswith("console: ")).removeprefix("console: ")
            parts = urlsplit(url.strip())
            page = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
            page.request("GET", "/api/session")
            session = json.loads(page.getresponse().read())
            assert session["read_only"] is True
            assert [each["name"] for each in session["clusters"]] == ["phantom"]
            page.request("GET", "/api/live?screen=overview")
            stream = page.getresponse()
            assert any(line.startswith(b"event: data") for line in stream)
            for broker in (1, 2, 3):
                phantom.silence(broker)
            assert any(b"no_answer" in line or b'"problem":"' in line for line in stream), "no broker answers"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, 130, -signal.SIGTERM, 128 + signal.SIGTERM)
        finally:
            process.kill()
            process.wait(10)
    assert (tmp_path / "history.db").is_file()


def test_a_mistake_in_the_file_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "console.toml"
    config.write_text("porrt = 5")
    found = subprocess.run(
        [sys.executable, "-m", "barnabas.cli", "console", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 1
    assert 'there is no key "porrt"; allowed: host, port' in found.stderr
    assert "Traceback" not in found.stderr
